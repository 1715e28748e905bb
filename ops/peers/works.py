"""The works that ops/bench-peers gives to every engine: the number of requests, their lengths, and their token ids."""

import random
from dataclasses import dataclass

ADAPTERS = 8
RANK = 16
# Size of an engine's KV cache if all sequences share one: one and a half times what the largest batch needs. Then later rounds of a work
# reuse memory, as a long run does; a virtual machine may take seconds to provide a gigabyte for the first time.
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
    batch: int  # maximum of requests in flight
    counts: str  # "output" or "total": which tokens make the rate
    shared_tokens: int = 0  # number of tokens that all prompts begin with
    output_tokens_long: int = 0  # output of every eighth request, if not 0
    adapters: bool = False  # requests take the adapters in turn
    merged: bool = False  # the same, and peers run one adapter after the other, merged into the base

    def mode(self) -> str:
        """How drivers are started: base, mixed or merged."""
        return "merged" if self.merged else "mixed" if self.adapters else "base"

    def output_tokens_of(self, index: int) -> int:
        return self.output_tokens_long if self.output_tokens_long and index % 8 == 7 else self.output_tokens

    def tokens(self) -> int:
        """The tokens that the rate counts."""
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
    """The requests of one run, and `more` after them. The same seed gives the same requests; other seeds have no prefix in common."""
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
    """A request with the same prefix as those of the run: of a million with one instruction, nearly all find it in the prefix cache."""
    return make_requests(work, vocabulary, seed, more=1)[-1:] if work.shared_tokens else []


def make_warm_up(work: Work, vocabulary: int) -> list[dict]:
    """One full batch of a few tokens each: uses every shape of matrix and every adapter at little cost."""
    return [
        request | {"output_tokens": min(4, request["output_tokens"])}
        for request in make_requests(work, vocabulary, "warm-up")[: max(work.batch, 1)]
    ]
