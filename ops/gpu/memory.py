"""Computes how many sequences fit a GPU's memory with Llama 3.1 8B, given how `lorry bench throughput` divides it by default. Pure; work.py
uses it to choose smaller batches on smaller cards."""

from floors import BFLOAT16_BYTES, LLAMA_8B, Shape

BLOCK_TOKENS = 64  # of the KV cache; a sequence has whole blocks, and one more is kept free for it
FLOAT32_BYTES = 4
# The driver's context, cuBLASLt, graphs, and scratch memory of attention and drawing.
BESIDE_BYTES = 3 * 2**30
# The share that Lorry leaves free of the memory after weights and steps. Measuring the card takes some of it at the end.
LEFT_FREE = 1 / 16
# The default memory for adapters.
ADAPTER_BYTES_UNSAID = 2 * 2**30
ADAPTER_SLACK = 1.05  # for the rounding of allocations


def weight_bytes(shape: Shape) -> int:
    """Bytes of the weights. Embeddings are as large as the head."""
    return BFLOAT16_BYTES * (shape.projection_weights() + 2 * shape.head_weights())


def step_bytes(shape: Shape, rows: int, sequences: int) -> int:
    """Bytes of a step's activations, of logits, and of the scratch for drawing."""
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    row = 2 * shape.hidden + width + shape.heads * shape.head_dim + 3 * shape.intermediate
    return FLOAT32_BYTES * (rows * row + 2 * sequences * shape.vocabulary)


def adapter_bytes(ranks: tuple[int, ...], shape: Shape = LLAMA_8B) -> int:
    """Bytes for adapters of these ranks, all loaded at the same time."""
    return round(ADAPTER_SLACK * BFLOAT16_BYTES * sum(ranks) * shape.rank_weights()) if ranks else ADAPTER_BYTES_UNSAID


def taken_bytes(sequences: int, tokens: int, step_tokens: int, ranks: tuple[int, ...] = (), shape: Shape = LLAMA_8B) -> int:
    """Bytes of a card that this many sequences of up to `tokens` tokens take with adapters of these ranks."""
    cache = sequences * (-(-tokens // BLOCK_TOKENS) + 1) * BLOCK_TOKENS * shape.token_bytes()
    fixed = weight_bytes(shape) + step_bytes(shape, step_tokens, sequences) + BESIDE_BYTES
    return fixed + round((cache + adapter_bytes(ranks, shape)) / (1 - LEFT_FREE))


def sequences_that_fit(card_bytes: int, wanted: int, tokens: int, step_tokens: int, ranks: tuple[int, ...] = (), multiple: int = 16) -> int:
    """The wanted number, or the largest multiple that fits; 0 if not even one multiple fits."""
    if taken_bytes(wanted, tokens, step_tokens, ranks) <= card_bytes:
        return wanted
    fitting = [count for count in range(multiple, wanted, multiple) if taken_bytes(count, tokens, step_tokens, ranks) <= card_bytes]
    return max(fitting, default=0)
