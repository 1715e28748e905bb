"""The works that ops/bench-peers gives to every engine: the number of requests, their lengths, and their token ids."""

import json
import random
from dataclasses import dataclass

ADAPTERS = 8
RANK = 16
# Size of an engine's KV cache if all sequences share one: one and a half times what the largest batch needs. Then later rounds of a work
# reuse memory, as a long run does; a virtual machine may take seconds to provide a gigabyte for the first time.
KV_TOKENS = 24_576


def fields(**schemas: dict) -> dict:
    """The JSON schema of an object that has exactly these fields."""
    return {"type": "object", "properties": schemas, "required": list(schemas), "additionalProperties": False}


# Nine fields as extraction asks for them. All are bounded, so that an answer ends even if random weights draw it.
ANSWER = fields(
    customer_name={"type": "string", "maxLength": 24},
    product={"type": "string", "maxLength": 16},
    category={"type": "string", "enum": ["billing", "delivery", "quality", "returns", "other"]},
    sentiment={"type": "string", "enum": ["positive", "neutral", "negative"]},
    priority={"type": "integer", "minimum": 1, "maximum": 5},
    amount_in_cents={"type": "integer", "minimum": 0, "maximum": 999_999},
    is_repeated={"type": "boolean"},
    keywords={"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3},
    needs_reply={"type": "boolean"},
)


@dataclass(frozen=True)
class Shape:
    letter: str
    title: str
    vocabulary: int
    kv_values: int = 0  # keys and values of a token, in all layers; 0: an encoder
    task: str = "generate"  # or embed, classify, token_classify
    tokenizer: str | None = None  # a published one of .deps/tokenizers (ops/setup --tests); None: made-up words

    def is_encoder(self) -> bool:
        return self.task != "generate"


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    requests: int
    input_tokens: int
    output_tokens: int  # 0: texts are encoded
    batch: int  # maximum of requests in flight
    counts: str  # "output" or "total": which tokens make the rate
    shapes: str = "SG"
    input_tokens_min: int = 0  # if not 0, lengths are drawn evenly from it to input_tokens
    shared_tokens: int = 0  # number of tokens that all prompts begin with
    output_tokens_long: int = 0  # output of every eighth request, if not 0
    adapters: bool = False  # requests take the adapters in turn
    merged: bool = False  # the same, and peers run one adapter after the other, merged into the base
    structured: bool = False  # answers match the schema ANSWER and end by themselves, after output_tokens at most

    def mode(self) -> str:
        """How drivers are started: base, mixed, merged or structured."""
        return "structured" if self.structured else "merged" if self.merged else "mixed" if self.adapters else "base"

    def output_tokens_of(self, index: int) -> int:
        return self.output_tokens_long if self.output_tokens_long and index % 8 == 7 else self.output_tokens

    def tokens_of(self, requests: list[dict], outputs: list[list]) -> int:
        """The tokens that the rate counts. Padding does not count."""
        drawn = sum(map(len, outputs)) if self.output_tokens else 0
        return drawn if self.counts == "output" else drawn + sum(len(request["prompt"]) for request in requests)


SHAPES = {
    shape.letter: shape
    for shape in (
        Shape("S", "SmolLM2-135M (30 layers, hidden 576, 9 query and 3 KV heads, vocabulary 49,152)", 49152, 30 * 3 * 64 * 2),
        Shape("G", "GPT-2 124M (12 layers, hidden 768, 12 heads, vocabulary 50,257)", 50257, 12 * 12 * 64 * 2),
        Shape("T", "SmolLM2-135M with GPT-2's tokenizer (30 layers, hidden 576, 9 query and 3 KV heads, vocabulary 50,257)", 50257,
              30 * 3 * 64 * 2, tokenizer="gpt2"),
        Shape("M", "all-MiniLM-L6 (6 layers, hidden 384, 12 heads, vocabulary 30,522), mean pooling", 30522, task="embed"),
        Shape("B", "BERT-base (12 layers, hidden 768, 12 heads, vocabulary 30,522), mean pooling", 30522, task="embed"),
        Shape("C", "BERT-base with a classification head of 8 labels", 30522, task="classify"),
        Shape("N", "BERT-base with a token classification head of 9 labels", 30522, task="token_classify"),
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
        Work("J1", "64 requests of 128 tokens in; each answer matches a JSON schema of nine fields, with at most 256 tokens", 64, 128, 256,
             batch=64, counts="output", shapes="T", structured=True),
        Work("J1d", "six such requests, one after the other", 6, 128, 256, batch=1, counts="output", shapes="T", structured=True),
        Work("E1", "embed 2,000 sentences of 5 to 60 tokens", 2000, 60, 0, batch=256, counts="total", shapes="M", input_tokens_min=5),
        Work("E2", "embed 48 passages of 256 tokens", 48, 256, 0, batch=16, counts="total", shapes="B"),
        Work("E3", f"classify 128 texts of 128 tokens with {ADAPTERS} adapters of rank {RANK} with heads of their own, taken in turn", 128,
             128, 0, batch=32, counts="total", shapes="C", adapters=True),
        Work("E3m", "the same texts; peers merge one adapter after the other into the base and run its texts as a batch", 128, 128, 0,
             batch=32, counts="total", shapes="C", adapters=True, merged=True),
        Work("N1", "label the tokens of 128 texts of 128 tokens", 128, 128, 0, batch=32, counts="total", shapes="N"),
    )
}  # fmt: skip


def make_requests(work: Work, vocabulary: int, seed: str, more: int = 0) -> list[dict]:
    """The requests of one run, and `more` after them. The same seed gives the same requests; other seeds have no prefix in common."""
    draw = random.Random(f"{work.name} {seed}")
    shared = [draw.randrange(vocabulary) for _ in range(work.shared_tokens)]

    def make_request(index: int) -> dict:
        tokens = draw.randint(work.input_tokens_min, work.input_tokens) if work.input_tokens_min else work.input_tokens
        return {
            "prompt": shared + [draw.randrange(vocabulary) for _ in range(tokens - work.shared_tokens)],
            "adapter": f"lora-{index % ADAPTERS}" if work.adapters else None,
        } | limits(index)

    def limits(index: int) -> dict:
        drawn = {"output_tokens": work.output_tokens_of(index)} if work.output_tokens else {}
        return drawn | ({"schema": json.dumps(ANSWER)} if work.structured else {})

    return [make_request(index) for index in range(work.requests + more)]


def make_opening(work: Work, vocabulary: int, seed: str) -> list[dict]:
    """A request with the same prefix as those of the run: of a million with one instruction, nearly all find it in the prefix cache."""
    return make_requests(work, vocabulary, seed, more=1)[-1:] if work.shared_tokens else []


def make_free(requests: list[dict], outputs: list[list]) -> list[dict]:
    """The requests of a structured work, with free text of as many tokens as each answer had."""
    return [
        {key: value for key, value in request.items() if key != "schema"} | {"output_tokens": len(output)}
        for request, output in zip(requests, outputs, strict=True)
    ]


def make_warm_up(work: Work, vocabulary: int) -> list[dict]:
    """One full batch of a few tokens each: uses every shape of matrix and every adapter at little cost."""
    requests = make_requests(work, vocabulary, "warm-up")[: max(work.batch, 1)]
    return [request | {"output_tokens": min(4, request["output_tokens"])} if work.output_tokens else request for request in requests]
