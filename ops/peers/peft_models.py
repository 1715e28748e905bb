"""LoRA adapters on a model of transformers, by PEFT. Used by the drivers of transformers."""

import copy
from pathlib import Path

import torch
from peft import PeftModel


def with_adapters(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The model with all adapters of the folder, which a batch may mix under the names of their folders."""
    for adapter in sorted(folder.iterdir()):
        if isinstance(model, PeftModel):
            model.load_adapter(adapter, adapter.name)
        else:
            model = PeftModel.from_pretrained(model, adapter, adapter_name=adapter.name)
    return model


def merged(base: torch.nn.Module, adapter: Path) -> torch.nn.Module:
    """A copy of the base with the adapter merged into it: removing a merged adapter would leave rounding errors."""
    return PeftModel.from_pretrained(copy.deepcopy(base), adapter).merge_and_unload().eval()
