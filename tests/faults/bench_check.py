#!/usr/bin/env python3
# Runs the worker of lorry_kafka_bench for a few jobs on the embedded broker: its benchmarks run by hand only, and its fake engine must keep
# to what the engine asks of a model.
#
#   tests/faults/bench_check.py LORRY LORRY_KAFKA_BENCH
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOBS = 5


def main() -> int:
    lorry, bench = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="lorry-bench-check-") as name:
        folder = Path(name)
        address = folder / "address"
        broker = subprocess.Popen([lorry, "broker", "--partitions", "2", "--address-file", address, "--stop-after", "60s"])
        try:
            while not address.exists():
                if broker.poll() is not None:
                    return 1
                time.sleep(0.02)
            where = ["--brokers", address.read_text().strip(), "--prefix", "lorry"]
            jobs = folder / "jobs.jsonl"
            body = {"model": "base", "prompt": "Package:", "max_tokens": 3}
            lines = [{"custom_id": str(id), "method": "POST", "url": "/v1/completions", "body": body} for id in range(JOBS)]
            jobs.write_text("".join(json.dumps(line) + "\n" for line in lines))
            subprocess.run([lorry, "submit", jobs, *where], check=True)
            worker = [bench, "--worker", *where, "--folder", folder, "--at-least-once", "--careful-starts", "3", "--jobs", str(JOBS)]
            measures = json.loads(subprocess.run(worker, check=True, capture_output=True, text=True, timeout=60).stdout)
        finally:
            broker.terminate()
            broker.wait()
    # The first commit does not count.
    if not 0 <= measures["jobs"] < JOBS:
        print(f"{measures} is not what {JOBS} jobs measure", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
