"""What the drivers of encoders share: batches of texts of similar lengths, padded, as sentence-transformers' encode() makes them."""

import time
from abc import ABC, abstractmethod

import numpy as np
from driver import Request

# Tokens of a batch with its padding. The warm-up finds out which is the fastest.
BATCH_TOKENS = (1024, 4096)
TEXTS_MAX = 256  # of a batch


def output_of(task: str, row: np.ndarray, tokens: int) -> list:
    """Makes the answer from a text's row of what the model returns: [padded tokens, hidden or labels], or [labels] of a classifier."""
    if task == "embed":
        return row[:tokens].mean(axis=0).tolist()
    return row[:tokens].argmax(axis=1).tolist() if task == "token_classify" else row.tolist()


def padded(requests: list[Request]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask [requests, tokens of the longest]; the mask is 0 for padding."""
    longest = max(len(request.prompt) for request in requests)
    ids = np.zeros((len(requests), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, request in enumerate(requests):
        ids[row, : len(request.prompt)] = request.prompt
        mask[row, : len(request.prompt)] = 1
    return ids, mask


class Encoder(ABC):
    """A Peer whose subclasses set the members and run batches."""

    engine: str
    settings: str
    task: str
    batch_tokens: int | None = None  # None before the warm-up

    @abstractmethod
    def run_batches(self, requests: list[Request], batches: list[list[int]]) -> list[list]:
        """Returns the output of each request. A batch contains indices of requests, the longest first."""

    def run(self, requests: list[Request], batch: int) -> list[list]:
        if self.batch_tokens is None:
            seconds = {size: self.time(requests, size) for size in BATCH_TOKENS}
            self.batch_tokens = min(seconds, key=seconds.get)
        return self.run_batches(requests, self.batches(requests, self.batch_tokens))

    def time(self, requests: list[Request], size: int) -> float:
        batches = self.batches(requests, size)
        self.run_batches(requests, batches[:1])  # also compiles what a first run compiles
        began = time.monotonic()
        self.run_batches(requests, batches)
        return time.monotonic() - began

    def batches(self, requests: list[Request], size: int) -> list[list[int]]:
        order = sorted(range(len(requests)), key=lambda index: -len(requests[index].prompt))
        batches: list[list[int]] = []
        for index in order:
            longest = len(requests[batches[-1][0]].prompt) if batches else 0
            if not batches or len(batches[-1]) == TEXTS_MAX or (len(batches[-1]) + 1) * longest > size:
                batches.append([])
            batches[-1].append(index)
        return batches


class PaddedEncoder(Encoder):
    """Runs one padded batch after the other."""

    @abstractmethod
    def encode(self, ids: np.ndarray, mask: np.ndarray, adapters: list[str | None]) -> np.ndarray:
        """What the model returns for ids [texts, tokens]; mask is 0 for padding."""

    def run_batches(self, requests: list[Request], batches: list[list[int]]) -> list[list]:
        outputs: list[list] = [[] for _ in requests]
        for part in batches:
            some = [requests[index] for index in part]
            rows = self.encode(*padded(some), [request.adapter for request in some])
            for index, row in zip(part, rows, strict=True):
                outputs[index] = output_of(self.task, row, len(requests[index].prompt))
        return outputs
