"""The peer's side of ops/bench-peers: what every drive_NAME.py shares.

A driver loads its engine, says a line of JSON {"engine", "load_seconds", "settings"}, and answers each line
{"batch": 8, "requests": [{"prompt": [17, 4], "output_tokens": 64, "adapter": "lora-0" or null}, ...]} with a line
{"seconds", "outputs", "peak_memory_bytes"}. `lorry bench requests` does the same.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    output_tokens: int
    adapter: str | None


@dataclass(frozen=True)
class Options:
    model: Path  # as this engine wants it
    adapters: Path | None  # folders lora-0 ... in PEFT's format
    precision: str  # "bf16" or "int8"
    threads: int


class Peer(Protocol):
    engine: str  # name and version
    settings: str  # what was chosen, and why where it is not obvious

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        """Draws greedily, never stopping early, with at most `batch` requests at a time; the drawn ids of each request."""


def serve(load: Callable[[Options], Peer]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapters", type=Path)
    parser.add_argument("--precision", choices=["bf16", "int8"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = Options(**vars(parser.parse_args()))

    # Engines print to standard output as they like; ours is kept apart.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    began = time.monotonic()
    peer = load(options)
    say({"engine": peer.engine, "load_seconds": time.monotonic() - began, "settings": peer.settings})
    for line in sys.stdin:
        work = json.loads(line)
        requests = [Request(**request) for request in work["requests"]]
        began = time.monotonic()
        outputs = peer.run(requests, work["batch"])
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        say({"seconds": seconds, "outputs": outputs, "peak_memory_bytes": peak})
