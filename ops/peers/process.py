"""Runs the drivers for ops/bench-peers: starts one, sends it work, and stops it while others run."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

LOAD_SECONDS_MAX = 900  # vLLM compiles while it loads
STOP_SECONDS_MAX = 30


def is_all_drawn(request: dict, tokens: int) -> bool:
    wanted = request["output_tokens"]
    return 1 <= tokens <= wanted if "schema" in request else tokens == wanted


class Failure(Exception):
    """Something does not work in one engine. The others continue."""


class Driver:
    """A running driver (driver.py describes the protocol). Outside ask() all its processes are stopped, so that its spinning threads do not
    disturb others. Its standard error goes to `log`."""

    run_seconds_max = 1800.0

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        try:
            self.hello = self.read(LOAD_SECONDS_MAX)
            self.signal(signal.SIGSTOP)
        except Failure:
            self.close()
            raise

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def read(self, seconds: float) -> dict:
        """Returns the next line. A driver that takes longer is killed."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self.signal(signal.SIGKILL)

        guard = threading.Timer(seconds, kill)
        guard.start()
        try:
            line = self.process.stdout.readline()
        finally:
            guard.cancel()
        if late.is_set():
            raise Failure(f"took longer than {seconds:,.0f} s (its log: {self.log})")
        if not line:
            errors = [text for text in self.log.read_text(errors="replace").splitlines() if text.strip()]
            raise Failure(f"{errors[-1].strip() if errors else 'ended without an error message'} (all of it: {self.log})")
        return json.loads(line)

    def ask(self, requests: list[dict], batch: int, task: str = "generate") -> dict:
        """Runs the requests and returns the answer, after checking that every request drew all its tokens, or has another output. Answers
        that match a schema may be shorter."""
        self.signal(signal.SIGCONT)
        line = {"batch": batch, "requests": requests} | ({} if task == "generate" else {"task": task})
        with contextlib.suppress(BrokenPipeError):  # read() says why it ended
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        answer = self.read(self.run_seconds_max)
        self.signal(signal.SIGSTOP)
        lengths = [len(output) for output in answer["outputs"]]
        if task != "generate":
            if len(lengths) != len(requests) or not all(lengths):
                raise Failure(f"answered {sum(map(bool, lengths))} of {len(requests)} texts")
        elif len(lengths) != len(requests) or not all(map(is_all_drawn, requests, lengths)):
            raise Failure(f"drew {sum(lengths)} tokens, not as many as asked for")
        return answer

    def close(self) -> None:
        """Closes the driver's input, which ends it. A driver that does not end is killed."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()


class Neighbour:
    """A context in which a process that never sleeps uses one of this process's cores."""

    def __enter__(self) -> None:
        core = max(os.sched_getaffinity(0))
        self.process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
        os.sched_setaffinity(self.process.pid, {core})

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
