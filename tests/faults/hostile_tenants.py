#!/usr/bin/env python3
"""Runs honest jobs beside a stranger's, with a real worker and a real Kafka, and prints a table of what the honest jobs paid.

    ops/build release lorry && python3 tests/faults/hostile_tenants.py [ATTACK...]

For each attack, a new worker first runs the honest jobs alone and then the same jobs right after the stranger's. The goals are 3 times the
quiet time, and a worker's memory that grows by no more than its window for jobs (in-flight-bytes), for attacks with batches that unpack by
no more than window and client together. The tests of the same attacks without a clock are HostileJobs, LargeJobs, CarefulStartsTest,
AdapterPattern, HttpServer and UnpackingTest.
"""

import argparse
import contextlib
import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

root = Path(__file__).resolve().parents[2]
lorry = str(root / "build/lorry")
model = root / "ops/example/model"
adapter = root / "ops/example/adapters/language"

HONEST = 200
IN_FLIGHT_MIB = 256
# What the Kafka client may hold outside of that: two unpacked batches of 32 MiB for each of 12 partitions (docs/security.md).
UNPACKED_MIB = 12 * 2 * 32
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


# An attack with jobs. All pass the checks of `lorry submit`; the worker refuses some by their weight.
def jobs(count, make):
    return lambda worker, cleanup: worker.submit("bad", [make(f"bad-{i}", i) for i in range(count)], wait=False)


# 20 adapters whose patterns take nearly all the steps that an adapter may take, an eighth of a second each, and a job for each.
def slow_patterns(worker, cleanup):
    for i in range(20):
        folder = worker.adapters / f"slow-{i}"
        shutil.copytree(adapter, folder)
        config = json.loads((adapter / "adapter_config.json").read_text())
        config.update({"exclude_modules": "(?:.(?!(?:.?.?){400}zzz))*zzz", "lora_alpha": 8 + i})
        (folder / "adapter_config.json").write_text(json.dumps(config))
    subprocess.run([lorry, "adapters", "add", "--all", str(worker.adapters), "--adapters", str(worker.adapters), "--model", str(model),
                    *worker.kafka], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    jobs(20, lambda name, i: completion(name, model=f"slow-{i}"))(worker, cleanup)


# 1,100 connections that ask for nothing, beside clients that ask for many pages and read none. They last until the honest jobs have ended.
def idle_connections(worker, cleanup):
    for i in range(1_110):
        client = cleanup.enter_context(contextlib.closing(socket.socket()))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(worker.pages)
        with contextlib.suppress(ConnectionError):  # the server closes some for others
            if i >= 1_100:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: worker\r\n\r\n" * 100)
    cleanup.callback(worker.check_health)


# Writes `count` records with the same value in batches as large as they get; zstd makes next to nothing of them.
def packed_records(count, value):
    def attack(worker, cleanup):
        payload = worker.folder / "payload"
        payload.write_bytes(value)
        properties = ["compression.type=zstd", "max.request.size=33554432", "batch.size=33554432", "buffer.memory=100663296",
                      "linger.ms=500"]
        subprocess.run(["java", "-Xmx512m", "-cp", str(root / ".deps/kafka/lib/*"), "org.apache.kafka.tools.ProducerPerformance",
                        "--bootstrap-server", worker.address, "--topic", f"{worker.prefix}.jobs", "--num-records", str(count),
                        "--throughput", "-1", "--payload-file", str(payload), "--command-property", *properties],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return attack


# What the stranger does, by the name of the attack: called with the worker and an ExitStack that ends it after the honest jobs.
ATTACKS = {
    "stop texts, n = 128": jobs(20, lambda name, i: completion(name, n=128, stop=[str(k) + "x" * 1_000 for k in range(16)])),
    "echoed scores, n = 128": jobs(20, lambda name, i: completion(name, prompt=ids(900, i), echo=True, logprobs=20, n=128)),
    "echoed scores": jobs(40, lambda name, i: completion(name, prompt=ids(900, i), echo=True, logprobs=20, max_tokens=1)),
    "samples of full length": jobs(20, lambda name, i: completion(name, n=16, max_tokens=900, ignore_eos=True)),
    "more than the window": jobs(8, lambda name, i: completion(name, prompt=[ids(9, k) for k in range(32)], n=128, max_tokens=900)),
    "40 long prompts each": jobs(10, lambda name, i: completion(name, prompt=[ids(800, i * 40 + k) for k in range(40)])),
    "unknown adapters": jobs(4_000, lambda name, i: completion(name, model=f"ghost-{i}")),
    "4,000 choices each": jobs(8, lambda name, i: classify(name, [f"choice {i} {k}" for k in range(4_000)])),
    "300 choices each": jobs(20, lambda name, i: classify(name, [f"choice {i} {k}" for k in range(300)])),
    "10,000 messages": jobs(20, lambda name, i: chat(name, [{"role": "user", "content": str(i + k)} for k in range(10_000)])),
    "prompts of 1 MB": jobs(20, lambda name, i: completion(name, prompt=f"{i} " + "word " * 200_000)),
    "adapters with slow patterns": slow_patterns,
    "idle connections": idle_connections,
    "28 MiB in a small batch": packed_records(24, b"0" * (28 << 20)),
    "400,000 records in a batch": packed_records(400_000, b"0"),
}
PACKED = {"28 MiB in a small batch", "400,000 records in a batch"}


class Worker:
    def __init__(self, folder, address, prefix):
        self.folder, self.address, self.prefix, self.kafka = folder, address, prefix, ["--brokers", address, "--prefix", prefix]
        self.adapters = folder / f"{prefix}-adapters"
        self.adapters.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.pages = free.getsockname()
        subprocess.run([lorry, "topics", "create", *self.kafka], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [lorry, "worker", *self.kafka, "--model", str(model), "--base-name", "base", "--in-flight-bytes", f"{IN_FLIGHT_MIB}MiB",
             "--kv-memory", "64MiB", "--adapters", str(self.adapters), "--metrics-address", f"127.0.0.1:{self.pages[1]}",
             "--ledger", str(folder / f"{prefix}.sqlite"), "--drain-timeout", "1s"],
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
        self.submit(batch, [completion(f"honest-{i}", prompt=f"Package: {batch} {i}", max_tokens=64) for i in range(HONEST)], wait=True)
        seconds = time.monotonic() - begin
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self.process.returncode}")
        file = self.folder / f"{batch}.results"
        subprocess.run([lorry, "collect", *self.kafka, "--batch", batch, "-o", str(file), "--timeout", "0s"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answers = [json.loads(line) for line in file.read_text().splitlines()]
        right = sum(1 for answer in answers if (answer["response"] or {}).get("status_code") == 200)
        return seconds, right

    # Throws unless /healthz answers 200 within the two seconds that a probe would wait.
    def check_health(self):
        urllib.request.urlopen(f"http://127.0.0.1:{self.pages[1]}/healthz", timeout=2).close()

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
        with contextlib.ExitStack() as cleanup:
            ATTACKS[attack](worker, cleanup)
            beside, right = worker.honest_seconds("beside")
        grown = worker.peak_mib() - before
        budget = IN_FLIGHT_MIB + (UNPACKED_MIB if attack in PACKED else 0)
        is_good = right == HONEST and beside <= TIMES_MAX * quiet and grown <= budget
        print(f"| {attack} | {right} of {HONEST} | {quiet:.1f} s | {beside:.1f} s | {beside / quiet:.1f} | {before} MiB | {grown} MiB | "
              f"{'yes' if is_good else 'no'} |", flush=True)
        return is_good
    finally:
        worker.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], help="default: all")
    chosen = parser.parse_args().attacks or list(ATTACKS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
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
