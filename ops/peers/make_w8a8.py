"""Rounds a checkpoint's linear weights to int8 for vLLM: compressed-tensors W8A8, with a scale per output channel and activations rounded
per token at run time, so no calibration is needed. Run by ops/bench-peers in the environment of transformers: make_w8a8.py CHECKPOINT OUT
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

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


def is_linear(name: str, weight: torch.Tensor) -> bool:
    return name.endswith(".weight") and weight.dim() == 2 and (".layers." in name or ".h." in name)


def main() -> None:
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for file in checkpoint.glob("*.json"):
        shutil.copy(file, out)
    tensors = {}
    for name, weight in load_file(checkpoint / "model.safetensors").items():
        if is_linear(name, weight):
            inputs = 0 if name.split(".")[-2] in CONV1D else 1
            scale = weight.float().abs().amax(dim=inputs, keepdim=True) / 127
            tensors[name] = (weight.float() / scale).round().to(torch.int8)
            tensors[name + "_scale"] = scale.reshape(-1, 1)
        else:
            tensors[name] = weight
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZATION}, indent=2))


main()
