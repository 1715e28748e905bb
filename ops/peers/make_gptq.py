"""Rounds a checkpoint's linear weights to 4 bits and writes them as GPTQ checkpoints are published: symmetric, eight codes in a word, a
scale for each group of 128 inputs, or of 64 or 32 where the widths are no multiples of 128, as SmolLM2-135M's 576. The codes are the
nearest ones, as speed does not depend on them. Run by ops/bench-peers in the environment of transformers: make_gptq.py CHECKPOINT OUT
"""

import sys
from pathlib import Path

import torch
from rounding import is_linear, read_weights, write_rounded

GROUPS = (128, 64, 32)
PER_WORD = 8  # codes of 4 bits in 32
ZERO = 8  # the code of 0
QUANTIZATION = {
    "quant_method": "gptq", "bits": 4, "desc_act": False, "sym": True, "damp_percent": 0.01, "true_sequential": True,
    "static_groups": False, "lm_head": False, "checkpoint_format": "gptq",
}  # fmt: skip


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Codes [rows, columns] as words [rows / 8, columns]; the first of eight rows is in the lowest bits."""
    words = codes.reshape(codes.shape[0] // PER_WORD, PER_WORD, codes.shape[1]).to(torch.int64)
    shifts = torch.arange(0, 32, 4).reshape(1, PER_WORD, 1)
    return (words << shifts).sum(dim=1).to(torch.uint32).view(torch.int32)


def rounded(weight: torch.Tensor, group: int) -> dict[str, torch.Tensor]:
    """The tensors of a linear module with weight [outputs, inputs]."""
    outputs, inputs = weight.shape
    grouped = weight.float().t().reshape(inputs // group, group, outputs)
    scales = (grouped.abs().amax(dim=1, keepdim=True) / (ZERO - 1)).half()
    codes = (grouped / scales.float()).round().clamp(-ZERO, ZERO - 1) + ZERO
    zeros = torch.full((outputs, inputs // group), ZERO - 1)  # the format stores zero points less one
    return {
        "qweight": packed(codes.reshape(inputs, outputs)),
        "qzeros": packed(zeros).t().contiguous(),
        "scales": scales.squeeze(1),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // group,
    }


def main() -> None:
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    weights = read_weights(checkpoint)
    linear = {name: weight for name, weight in weights.items() if is_linear(name, weight)}
    if any(".h." in name for name in linear):
        sys.exit("GPT-2's modules (Conv1D) are not published in GPTQ")
    group = next(size for size in GROUPS if all(weight.shape[1] % size == 0 for weight in linear.values()))
    tensors = {name: weight for name, weight in weights.items() if name not in linear}
    for name, weight in linear.items():
        tensors |= {name.removesuffix("weight") + part: tensor for part, tensor in rounded(weight, group).items()}
    write_rounded(checkpoint, out, tensors, QUANTIZATION | {"group_size": group})


main()
