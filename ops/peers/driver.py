"""The engine's side of ops/bench-peers, shared by every drive_NAME.py.

A driver loads its engine, prints a line of JSON {"engine", "load_seconds", "settings"}, and answers each line
{"batch": 8, "requests": [{"prompt": [17, 4], "output_tokens": 64, "adapter": "lora-0" or null}, ...]} with a line
{"seconds", "outputs", "peak_memory_bytes"}. A request with a "schema", a JSON schema as text, draws an answer that matches it and ends by
itself, after "output_tokens" at most. `lorry bench requests` does the same. Drivers of encoders (encoder.py) load their model for
--task; requests have no "output_tokens", and an output is a vector (embed), logits (classify) or the likeliest label of each token
(token_classify). With --merged a driver runs one adapter after the other,
each merged into the base, and reports the part of the seconds that switching took as "switch_seconds".
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
    adapter: str | None
    output_tokens: int = 0
    schema: str | None = None


@dataclass(frozen=True)
class Options:
    model: Path  # in this engine's format
    adapters: Path | None  # folders lora-0 ... in PEFT's format, to mix in a batch
    merged: Path | None  # folders lora-0 ...: merged models in this engine's format, or adapters if it merges them itself
    precision: str  # "f32", "bf16", "int8" or "int4"
    threads: int
    kv_tokens: int  # size of the KV cache that all sequences share, if there is one
    task: str  # as in Shape
    structures: str | None  # what makes answers match schemas; None: no request has one


class Peer(Protocol):
    engine: str  # name and version
    settings: str  # the chosen settings, with the reason if it is not obvious

    def run(self, requests: list[Request], batch: int) -> list[list]:
        """Draws greedily and never stops before a schema is matched, with at most `batch` requests at a time. Returns the drawn ids of
        each request, or what the task makes of its text."""

    def switch(self, adapter: str) -> None:
        """Makes run() use the base with this adapter merged into it. Only with Options.merged."""


def run_merged(peer: Peer, requests: list[Request], batch: int) -> tuple[list[list], float]:
    """Returns the output of each request, and the seconds that switching took."""
    outputs: list[list] = [[] for _ in requests]
    switch_seconds = 0.0
    for adapter in dict.fromkeys(request.adapter for request in requests):
        began = time.monotonic()
        peer.switch(adapter)
        switch_seconds += time.monotonic() - began
        part = [index for index, request in enumerate(requests) if request.adapter == adapter]
        for index, output in zip(part, peer.run([requests[index] for index in part], batch), strict=True):
            outputs[index] = output
    return outputs, switch_seconds


def serve(load: Callable[[Options], Peer]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapters", type=Path)
    parser.add_argument("--merged", type=Path)
    parser.add_argument("--precision", choices=["f32", "bf16", "int8", "int4"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--kv-tokens", type=int, required=True)
    parser.add_argument("--task", choices=["generate", "embed", "classify", "token_classify"], required=True)
    parser.add_argument("--structures")
    options = Options(**vars(parser.parse_args()))

    # Engines may print to standard output, so the driver's own output goes to a copy of it.
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
        if options.merged:
            outputs, switch_seconds = run_merged(peer, requests, work["batch"])
        else:
            outputs, switch_seconds = peer.run(requests, work["batch"]), 0.0
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        say({"seconds": seconds, "outputs": outputs, "peak_memory_bytes": peak, "switch_seconds": switch_seconds})
