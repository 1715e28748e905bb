#!/usr/bin/env python3
"""Runs honest jobs beside a stranger's, with a real worker and a real Kafka, and prints a table of what the honest jobs paid.

    ops/build release lorry && python3 tests/faults/hostile_tenants.py [ATTACK...]

For each attack, a new worker first runs the honest jobs alone and then the same jobs right after the stranger's. The goals are 3 times the
quiet time, and a worker's memory that grows by no more than its window for jobs (in-flight-bytes). The tests of the same attacks without a
clock are HostileJobs, LargeJobs and CarefulStartsTest.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

root = Path(__file__).resolve().parents[2]
lorry = str(root / "build/lorry")
model = root / "ops/example/model"

HONEST = 200
IN_FLIGHT_MIB = 256
TIMES_MAX = 3.0
WAIT_SECONDS = 300


def completion(name, **members):
    body = {"model": "base", "prompt": "Package: lorry", "max_tokens": 8, "temperature": 0, **members}
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}


def classify(name, choices):
    return {"custom_id": name, "method": "POST", "url": "/classify", "body": {"model": "base", "input": "a text", "choices": choices}}


def chat(name, messages):
    body = {"model": "base", "messages": messages, "max_tokens": 1}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def ids(count, first=0):
    return [5 + (first + i * 7) % 4000 for i in range(count)]


def many(count, make):
    return [make(f"bad-{i}", i) for i in range(count)]


# The stranger's jobs by the name of the attack. All pass the checks of `lorry submit`; the worker refuses some by their weight.
ATTACKS = {
    "stop texts, n = 128": lambda: many(20, lambda name, i: completion(name, n=128, stop=[str(k) + "x" * 1_000 for k in range(16)])),
    "echoed scores, n = 128": lambda: many(20, lambda name, i: completion(name, prompt=ids(900, i), echo=True, logprobs=20, n=128)),
    "echoed scores": lambda: many(40, lambda name, i: completion(name, prompt=ids(900, i), echo=True, logprobs=20, max_tokens=1)),
    "samples of full length": lambda: many(20, lambda name, i: completion(name, n=16, max_tokens=900, ignore_eos=True)),
    "more than the window": lambda: many(8, lambda name, i: completion(name, prompt=[ids(9, k) for k in range(32)], n=128, max_tokens=900)),
    "40 long prompts each": lambda: many(10, lambda name, i: completion(name, prompt=[ids(800, i * 40 + k) for k in range(40)])),
    "unknown adapters": lambda: many(2_000, lambda name, i: completion(name, model=f"ghost-{i}")),
    "4,000 choices each": lambda: many(8, lambda name, i: classify(name, [f"choice {i} {k}" for k in range(4_000)])),
    "300 choices each": lambda: many(20, lambda name, i: classify(name, [f"choice {i} {k}" for k in range(300)])),
    "10,000 messages": lambda: many(20, lambda name, i: chat(name, [{"role": "user", "content": str(i + k)} for k in range(10_000)])),
    "prompts of 1 MB": lambda: many(20, lambda name, i: completion(name, prompt=f"{i} " + "word " * 200_000)),
}


class Worker:
    def __init__(self, folder, address, prefix):
        self.folder, self.kafka = folder, ["--brokers", address, "--prefix", prefix]
        subprocess.run([lorry, "topics", "create", *self.kafka, "--partitions", "4"], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [lorry, "worker", *self.kafka, "--model", str(model), "--base-name", "base", "--in-flight-bytes", f"{IN_FLIGHT_MIB}MiB",
             "--kv-memory", "64MiB", "--metrics-address", "off", "--ledger", str(folder / f"{prefix}.sqlite"), "--drain-timeout", "1s"],
            stdout=subprocess.DEVNULL, stderr=(folder / f"{prefix}.log").open("w"))

    def submit(self, name, jobs, wait):
        file = self.folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in jobs))
        command = [lorry, "submit", *self.kafka, "--batch", name, str(file)]
        if wait:  # the exit code also says whether jobs failed
            command += ["--wait", "--timeout", f"{WAIT_SECONDS}s"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=not wait)

    def honest_seconds(self, batch):
        begin = time.monotonic()
        self.submit(batch, [completion(f"honest-{i}", prompt=f"Package: {batch} {i}") for i in range(HONEST)], wait=True)
        seconds = time.monotonic() - begin
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self.process.returncode}")
        file = self.folder / f"{batch}.results"
        subprocess.run([lorry, "collect", *self.kafka, "--batch", batch, "-o", str(file), "--timeout", "0s"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answers = [json.loads(line) for line in file.read_text().splitlines()]
        right = sum(1 for answer in answers if (answer["response"] or {}).get("status_code") == 200)
        return seconds, right

    # The most memory that it took so far.
    def peak_mib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
        raise RuntimeError("the kernel does not say how much memory a process took")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(attack, number, folder, address):
    worker = Worker(folder, address, f"hostile{number}")
    try:
        worker.honest_seconds("warm")
        quiet, _ = worker.honest_seconds("quiet")
        before = worker.peak_mib()
        worker.submit("bad", ATTACKS[attack](), wait=False)
        beside, right = worker.honest_seconds("beside")
        grown = worker.peak_mib() - before
        is_good = right == HONEST and beside <= TIMES_MAX * quiet and grown <= IN_FLIGHT_MIB
        print(f"| {attack} | {right} of {HONEST} | {quiet:.1f} s | {beside:.1f} s | {beside / quiet:.1f} | {before} MiB | {grown} MiB | "
              f"{'yes' if is_good else 'no'} |", flush=True)
        return is_good
    finally:
        worker.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], help="default: all")
    chosen = parser.parse_args().attacks or list(ATTACKS)
    with tempfile.TemporaryDirectory(prefix="lorry-hostile-") as name:
        folder = Path(name)
        kafka = [str(root / "ops/kafka")]
        data = ["--data", str(folder / "kafka")]
        started = subprocess.run([*kafka, "start", "--fresh", "--port", "0", *data], check=True, stdout=subprocess.PIPE, text=True)
        try:
            address = started.stdout.split()[-1]
            print("| attack | honest jobs answered | quiet | beside it | times | memory before | grown by | within the goals |")
            print("|---|---|---|---|---|---|---|---|")
            good = [run(attack, number, folder, address) for number, attack in enumerate(chosen)]
        finally:
            subprocess.run([*kafka, "stop", *data], check=False, stdout=subprocess.DEVNULL)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
