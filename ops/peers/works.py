"""The work that ops/bench-peers gives to every engine: how many requests, how long, and their token ids."""

import random
from dataclasses import dataclass

ADAPTERS = 8
RANK = 16
# Of each engine's KV cache, where it has one for all sequences: half as much again as the largest batch needs. So a work's later rounds
# find its memory used before, as the millionth row does; a virtual machine may take seconds to give out a gigabyte for the first time.
KV_TOKENS = 24_576


@dataclass(frozen=True)
class Shape:
    letter: str
    title: str
    vocabulary: int
    kv_values: int  # keys and values of a token, in all layers


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    requests: int
    input_tokens: int
    output_tokens: int
    batch: int  # requests in flight at most
    counts: str  # "output" or "total": which tokens make the rate
    shared_tokens: int = 0  # at the start of all prompts
    output_tokens_long: int = 0  # of every eighth request, if not 0
    adapters: bool = False  # requests take the adapters in turn
    merged: bool = False  # the same, and peers run one adapter after the other, merged into the base

    def mode(self) -> str:
        """What engines are loaded with."""
        return "merged" if self.merged else "mixed" if self.adapters else "base"

    def output_tokens_of(self, index: int) -> int:
        return self.output_tokens_long if self.output_tokens_long and index % 8 == 7 else self.output_tokens

    def tokens(self) -> int:
        """What the rate counts."""
        drawn = sum(self.output_tokens_of(index) for index in range(self.requests))
        return drawn if self.counts == "output" else drawn + self.requests * self.input_tokens


SHAPES = {
    shape.letter: shape
    for shape in (
        Shape("S", "SmolLM2-135M (30 layers, hidden 576, 9 query and 3 KV heads, vocabulary 49,152)", 49152, 30 * 3 * 64 * 2),
        Shape("G", "GPT-2 124M (12 layers, hidden 768, 12 heads, vocabulary 50,257)", 50257, 12 * 12 * 64 * 2),
    )
}

WORKS = {
    work.name: work
    for work in (
        Work("W1", "64 requests of 128 tokens in, 64 out", 64, 128, 64, batch=64, counts="output"),
        Work("W2", "128 requests of 256 in, 1 out, nothing shared", 128, 256, 1, batch=64, counts="total"),
        Work("W2s", "the same with 200 of the 256 tokens shared by all and seen before", 128, 256, 1, batch=64, counts="total",
             shared_tokens=200),
        Work("W3", "a queue of 32 requests, 8 at a time: 16 in, 10 out, every eighth 100", 32, 16, 10, batch=8, counts="output",
             output_tokens_long=100),
        Work("D1", "two requests one after the other: 16 in, 128 out", 2, 16, 128, batch=1, counts="output"),
        Work("A8", f"W1 with {ADAPTERS} adapters of rank {RANK} on all linear modules, taken in turn", 64, 128, 64, batch=64,
             counts="output", adapters=True),
        Work("A8m", "the same requests; peers merge one adapter after the other into the base and run its requests as a batch", 64, 128, 64,
             batch=64, counts="output", adapters=True, merged=True),
    )
}  # fmt: skip


def make_requests(work: Work, vocabulary: int, seed: str, more: int = 0) -> list[dict]:
    """The requests of one run, and `more` behind them: the same for the same seed, with no beginning in common with those of another."""
    draw = random.Random(f"{work.name} {seed}")
    shared = [draw.randrange(vocabulary) for _ in range(work.shared_tokens)]
    return [
        {
            "prompt": shared + [draw.randrange(vocabulary) for _ in range(work.input_tokens - work.shared_tokens)],
            "output_tokens": work.output_tokens_of(index),
            "adapter": f"lora-{index % ADAPTERS}" if work.adapters else None,
        }
        for index in range(work.requests + more)
    ]


def make_opening(work: Work, vocabulary: int, seed: str) -> list[dict]:
    """A request that begins as those of the run do: of a million with one instruction, nearly all find it computed."""
    return make_requests(work, vocabulary, seed, more=1)[-1:] if work.shared_tokens else []


def make_warm_up(work: Work, vocabulary: int) -> list[dict]:
    """One full batch of a few tokens each: every shape of matrix and every adapter is seen, few are computed."""
    return [
        request | {"output_tokens": min(4, request["output_tokens"])}
        for request in make_requests(work, vocabulary, "warm-up")[: max(work.batch, 1)]
    ]
