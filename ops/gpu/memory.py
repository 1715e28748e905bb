"""How many sequences fit a GPU's memory beside Llama 3.1 8B, as `lorry bench throughput` lays it out by itself. Pure; work.py cuts batches
by it, so that a smaller card measures smaller ones."""

from floors import BFLOAT16_BYTES, LLAMA_8B, Shape

BLOCK_TOKENS = 64  # of the KV cache; a sequence has whole blocks, and one more is kept free for it
FLOAT32_BYTES = 4
# The driver's context, cuBLASLt, graphs, and what attention and drawing compute with.
BESIDE_BYTES = 3 * 2**30
# What Lorry leaves free of what weights and steps leave; measuring the card takes some of it at the end.
LEFT_FREE = 1 / 16
# What it sets aside where nothing is said of adapters.
ADAPTER_BYTES_UNSAID = 2 * 2**30
ADAPTER_SLACK = 1.05  # of allocations


def weight_bytes(shape: Shape) -> int:
    """Embeddings are as large as the head."""
    return BFLOAT16_BYTES * (shape.projection_weights() + 2 * shape.head_weights())


def step_bytes(shape: Shape, rows: int, sequences: int) -> int:
    """Of a step's activations, and of logits and what they are drawn with."""
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    row = 2 * shape.hidden + width + shape.heads * shape.head_dim + 3 * shape.intermediate
    return FLOAT32_BYTES * (rows * row + 2 * sequences * shape.vocabulary)


def adapter_bytes(ranks: tuple[int, ...], shape: Shape = LLAMA_8B) -> int:
    """What adapters of these ranks are given, so that all are there together."""
    return round(ADAPTER_SLACK * BFLOAT16_BYTES * sum(ranks) * shape.rank_weights()) if ranks else ADAPTER_BYTES_UNSAID


def taken_bytes(sequences: int, tokens: int, step_tokens: int, ranks: tuple[int, ...] = (), shape: Shape = LLAMA_8B) -> int:
    """Of a card by so many sequences of up to `tokens` tokens under adapters of these ranks."""
    cache = sequences * (-(-tokens // BLOCK_TOKENS) + 1) * BLOCK_TOKENS * shape.token_bytes()
    fixed = weight_bytes(shape) + step_bytes(shape, step_tokens, sequences) + BESIDE_BYTES
    return fixed + round((cache + adapter_bytes(ranks, shape)) / (1 - LEFT_FREE))


def sequences_that_fit(card_bytes: int, wanted: int, tokens: int, step_tokens: int, ranks: tuple[int, ...] = (), multiple: int = 16) -> int:
    """Those that are wanted, or the largest multiple that fits; 0 where not even one does."""
    if taken_bytes(wanted, tokens, step_tokens, ranks) <= card_bytes:
        return wanted
    fitting = [count for count in range(multiple, wanted, multiple) if taken_bytes(count, tokens, step_tokens, ranks) <= card_bytes]
    return max(fitting, default=0)
