# A Kafka's topics, workers and gateways for the checks of OpenAI's libraries. Used by batches_check.py.
import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

from libraries import EXAMPLE, PATIENCE, ROOT


class Stack:
    """Topics with a prefix of their own, and processes, which end when `closing` does. model: a folder with the folders model and
    adapters."""

    def __init__(self, program: str, brokers: str, folder: Path, closing: contextlib.ExitStack, model: Path = EXAMPLE) -> None:
        self.program, self.folder, self.closing, self.model = program, folder, closing, model
        self.folder.mkdir(exist_ok=True)
        self.flags = ["--brokers", brokers, "--prefix", f"{folder.name.replace('_', '-')}{os.getpid()}"]
        self.files = folder / "files"
        self.lorry("topics", "create", "--partitions", "2")
        self.lorry("adapters", "add", "--all", str(model / "adapters"), "--model", str(model / "model"))

    def lorry(self, *arguments: str) -> str:
        done = subprocess.run([self.program, *arguments, *self.flags], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def key(self, tenant: str, *scopes: str) -> str:
        return self.lorry("keys", "create", "--tenant", tenant, "--name", "test", "--models", "*", *scopes).split()[0]

    def start(self, *arguments: str) -> subprocess.Popen:
        log = open(self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log", "w+")
        started = subprocess.Popen([self.program, *arguments, *self.flags], stderr=log, stdout=subprocess.DEVNULL, cwd=ROOT)
        started.log = log
        self.closing.callback(lambda: (started.kill(), started.wait()))
        return started

    def worker(self) -> subprocess.Popen:
        return self.start(
            "worker", "--model", str(self.model / "model"), "--adapters", str(self.model / "adapters"), "--group", self.flags[-1],
            "--member", "worker-1", "--metrics-address", "off", "--threads", "1", "--ledger", str(self.folder / "ledger.sqlite"),
        )

    def gateway(self, *flags: str) -> tuple[subprocess.Popen, str]:
        """Once it serves, with its address."""
        started = self.start("serve", "--base-name", "model", "--listen", "127.0.0.1:0", "--files", str(self.files), *flags)

        def address() -> str | None:
            text = Path(started.log.name).read_text()
            assert started.poll() is None, text
            found = re.search(r'"gateway_started".*?"port":(\d+)', text)
            return found and f"http://127.0.0.1:{found[1]}"

        return started, wait_for(address)


def wait_for(condition, pause: float = 0.1):
    """What the condition returns, once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"in vain: {condition}"
        time.sleep(pause)
    return found
