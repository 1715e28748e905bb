"""Merges each adapter into the checkpoint, as users do for an engine that cannot mix adapters. Run by ops/bench-peers in the
environment of transformers: make_merged.py CHECKPOINT ADAPTERS OUT writes OUT/lora-0/hf and so on.
"""

import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    checkpoint, adapters, out = map(Path, sys.argv[1:])
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    for adapter in sorted(adapters.iterdir()):
        base = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
        merged = PeftModel.from_pretrained(base, adapter).merge_and_unload()
        merged.save_pretrained(out / adapter.name / "hf")
        tokenizer.save_pretrained(out / adapter.name / "hf")


main()
