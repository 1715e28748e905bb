#!/usr/bin/env python3
"""Writes smollm2.json: what transformers and peft answer with SmolLM2-135M-Instruct and an adapter of seeded numbers over it, in float32.

    python golden_smollm2.py FOLDER      # .deps/smollm2/model, as ops/setup --tests makes it

Needs torch, transformers, peft, numpy and safetensors. tests/real_decoder_check.py compares.
"""
import json
import math
import pathlib
import struct
import sys
import tempfile

import numpy

LAYERS, HIDDEN, RANK = 30, 576, 8
OUTPUTS = {"q_proj": 576, "v_proj": 192}
TOKENS = 40
PROMPTS = [
    "What is the capital of France?",
    "List three fruits, separated by commas.",
    "What is 12*12? Give the number 1024 too.",
    "Is the sentiment of this review positive or negative? The movie was a waste of 2 hours :(",
    "Summarize in one sentence: Kafka is a distributed event store and stream-processing platform. It is an open-source system developed "
    "by the Apache Software Foundation, written in Java and Scala.",
    "Erzähle mir einen Witz über Züge 🚂.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Translate to French: I love you.",
]
ADAPTED = 4  # so many of them are asked of the adapter, too


def write_adapter(folder: pathlib.Path) -> None:
    """A LoRA adapter of rank 8 on q_proj and v_proj, with numbers from a seed."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", "r": RANK,
        "lora_alpha": 16, "target_modules": sorted(OUTPUTS), "bias": "none", "lora_dropout": 0.0, "fan_in_fan_out": False}))
    numbers = numpy.random.RandomState(20)
    header, data = {}, b""
    for layer in range(LAYERS):
        for module, outputs in sorted(OUTPUTS.items()):
            for part, shape, scale in ("A", (RANK, HIDDEN), 1 / math.sqrt(HIDDEN)), ("B", (outputs, RANK), 0.05):
                values = (numbers.standard_normal(shape) * scale).astype("<f4").tobytes()
                header[f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_{part}.weight"] = {
                    "dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def main() -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = pathlib.Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def answer(prompt: str) -> dict:
        chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(chat, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
                                 output_logits=True, return_dict_in_generate=True)
        drawn = out.sequences[0, ids.shape[1]:].tolist()
        logprobs = [float(torch.log_softmax(logits[0].double(), -1)[token]) for logits, token in zip(out.logits, drawn)]
        ends = drawn[-1] == model.config.eos_token_id
        return {"prompt": prompt, "prompt_tokens": ids.shape[1], "text": tokenizer.decode(drawn, skip_special_tokens=True),
                "finish_reason": "stop" if ends else "length", "logprobs": [round(value, 5) for value in logprobs]}

    cases = [{"model": "base", **answer(prompt)} for prompt in PROMPTS]
    with tempfile.TemporaryDirectory() as scratch:
        adapter = pathlib.Path(scratch) / "seeded"
        write_adapter(adapter)
        model = PeftModel.from_pretrained(model, adapter)
        cases += [{"model": "seeded", **answer(prompt)} for prompt in PROMPTS[:ADAPTED]]
    out = pathlib.Path(__file__).with_suffix("").with_name("smollm2.json")
    out.write_text(json.dumps({"max_tokens": TOKENS, "cases": cases}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
