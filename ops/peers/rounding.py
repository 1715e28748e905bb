"""What the programs that round a checkpoint's linear weights share: which these are, and the files around them."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def is_linear(name: str, weight: torch.Tensor) -> bool:
    return name.endswith(".weight") and weight.dim() == 2 and (".layers." in name or ".h." in name)


def read_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint / "model.safetensors")


def write_rounded(checkpoint: Path, out: Path, tensors: dict[str, torch.Tensor], quantization: dict) -> None:
    """Writes the folder of a quantized checkpoint: the tensors, and the other files of `checkpoint` with config.json's description."""
    out.mkdir(parents=True, exist_ok=True)
    for file in checkpoint.glob("*.json"):
        shutil.copy(file, out)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}, indent=2))
