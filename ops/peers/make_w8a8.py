"""Rounds a checkpoint's linear weights to int8 for vLLM: compressed-tensors W8A8, with a scale per output channel and activations rounded
per token at run time, so no calibration is needed. Run by ops/bench-peers in the environment of transformers: make_w8a8.py CHECKPOINT OUT
"""

import sys
from pathlib import Path

import torch
from rounding import is_linear, read_weights, write_rounded

CONV1D = ("c_attn", "c_proj", "c_fc")  # GPT-2 stores these as [in, out]
EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": EIGHT_BITS | {"strategy": "channel", "dynamic": False},
            "input_activations": EIGHT_BITS | {"strategy": "token", "dynamic": True},
        }
    },
}


def main() -> None:
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    tensors = {}
    for name, weight in read_weights(checkpoint).items():
        if is_linear(name, weight):
            inputs = 0 if name.split(".")[-2] in CONV1D else 1
            scale = weight.float().abs().amax(dim=inputs, keepdim=True) / 127
            tensors[name] = (weight.float() / scale).round().to(torch.int8)
            tensors[name + "_scale"] = scale.reshape(-1, 1)
        else:
            tensors[name] = weight
    write_rounded(checkpoint, out, tensors, QUANTIZATION)


main()
