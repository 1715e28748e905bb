"""Lower bounds of the time of a model's step on a GPU: every weight and every cached token is read once at the rate at which the GPU
copies, and every product is computed at the rate at which it multiplies large matrices. Matmuls, attention and adapters run one after the
other; each takes the longer of its two times. Pure; goals.py compares measured figures with these bounds."""

from dataclasses import dataclass

BFLOAT16_BYTES = 2


@dataclass(frozen=True)
class Limits:
    copy: float  # bytes per second, read and written
    multiply: float  # bfloat16 operations per second
    multiply_fp8: float | None = None  # None: not measured; assumed to be twice as fast, as such chips promise

    def seconds(self, byte_count: float, operations: float, fp8: bool = False) -> float:
        rate = (self.multiply_fp8 or 2 * self.multiply) if fp8 else self.multiply
        return max(byte_count / self.copy, operations / rate)


@dataclass(frozen=True)
class Shape:
    """A Llama. All its linear layers except the head have adapters."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    def linears(self) -> list[tuple[int, int]]:
        """Outputs and inputs of a layer's matrices."""
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(width, self.hidden), (kv_width, self.hidden), (kv_width, self.hidden), (self.hidden, width)]
        return attention + [(self.intermediate, self.hidden), (self.intermediate, self.hidden), (self.hidden, self.intermediate)]

    def projection_weights(self) -> int:
        return self.layers * sum(outputs * inputs for outputs, inputs in self.linears())

    def head_weights(self) -> int:
        return self.hidden * self.vocabulary

    def token_bytes(self, fp8_kv: bool = False) -> int:
        """Bytes of one token's keys and values. In fp8 each head has a float32 scale."""
        head = self.head_dim + 4 if fp8_kv else self.head_dim * BFLOAT16_BYTES
        return 2 * self.layers * self.kv_heads * head

    def rank_weights(self) -> int:
        """Weights of an adapter for each of its ranks."""
        return self.layers * sum(outputs + inputs for outputs, inputs in self.linears())


LLAMA_8B = Shape(layers=32, hidden=4096, intermediate=14336, heads=32, kv_heads=8, head_dim=128, vocabulary=128256)


def matmul_seconds(shape: Shape, limits: Limits, rows: int, head_rows: int, fp8: bool = False) -> float:
    """fp8 halves the bytes of projections; the head stays bfloat16."""
    projections, head = shape.projection_weights(), shape.head_weights()
    return limits.seconds(projections * (1 if fp8 else BFLOAT16_BYTES), 2 * rows * projections, fp8) + limits.seconds(
        head * BFLOAT16_BYTES, 2 * head_rows * head
    )


def decode_seconds(shape: Shape, limits: Limits, rows: int, context: float, fp8: bool = False, fp8_kv: bool = False) -> float:
    """Time of a step in which each of `rows` sequences of `context` tokens draws a token."""
    operations = rows * context * shape.layers * 4 * shape.heads * shape.head_dim
    return matmul_seconds(shape, limits, rows, rows, fp8) + limits.seconds(rows * context * shape.token_bytes(fp8_kv), operations)


def prefill_seconds(shape: Shape, limits: Limits, tokens: int, prompts: int, fp8: bool = False) -> float:
    """Time of a step that prefills that many prompts; token i attends to i tokens."""
    operations = prompts * tokens * (tokens + 1) / 2 * shape.layers * 4 * shape.heads * shape.head_dim
    return matmul_seconds(shape, limits, tokens * prompts, prompts, fp8) + operations / limits.multiply


def output_tokens_per_second(shape: Shape, limits: Limits, prompt: int, output: int, batch: int, fp8: bool = False,
                             fp8_kv: bool = False) -> float:  # fmt: skip
    """The highest possible rate, in full batches. The step that prefills a prompt draws its first token."""
    decode = (output - 1) * decode_seconds(shape, limits, batch, prompt + output / 2, fp8, fp8_kv)
    return batch * output / (prefill_seconds(shape, limits, prompt, batch, fp8) + decode)


def adapter_seconds(shape: Shape, limits: Limits, ranks: int, rows: int, rows_ranks: float) -> float:
    """Time that adapters add to a step: `ranks` ranks in all, of which each row uses `rows_ranks`."""
    weights = shape.rank_weights()
    return limits.seconds(ranks * weights * BFLOAT16_BYTES, 2 * rows * rows_ranks * weights)
