"""Drives Hugging Face transformers, with PEFT for adapters: generate() with static batches. Run by ops/bench-peers."""

import importlib.metadata

import torch
from driver import Options, Request, serve
from peft_models import merged, with_adapters
from transformers import AutoModelForCausalLM


class Transformers:
    def __init__(self, options: Options) -> None:
        torch.set_num_threads(options.threads)
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16, attn_implementation="sdpa")
        self.base = self.model
        self.merged = options.merged
        self.engine = f"transformers {importlib.metadata.version('transformers')}"
        self.settings = "generate() over static batches in order of arrival, bfloat16, sdpa attention; it has no prefix cache"
        if options.adapters:
            self.model = with_adapters(self.model, options.adapters)
            self.engine += f", peft {importlib.metadata.version('peft')}"
            self.settings += "; adapters mixed in a batch by generate(adapter_names=...)"
        if options.merged:
            self.engine += f", peft {importlib.metadata.version('peft')}"
            self.settings += "; one adapter after the other is read and merged into a copy of the base (merge_and_unload)"
        self.model.eval()

    def switch(self, adapter: str) -> None:
        self.model = merged(self.base, self.merged / adapter)

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        outputs = []
        for begin in range(0, len(requests), batch):
            outputs += self.run_batch(requests[begin : begin + batch])
        return outputs

    def run_batch(self, requests: list[Request]) -> list[list[int]]:
        """All prompts of a work have the same length, so there is no padding. All draw as many tokens as the longest request."""
        prompts = torch.tensor([request.prompt for request in requests])
        longest = max(request.output_tokens for request in requests)
        adapters = {"adapter_names": [request.adapter or "__base__" for request in requests]} if hasattr(self.model, "peft_config") else {}
        with torch.inference_mode():
            drawn = self.model.generate(
                input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=longest,
                min_new_tokens=longest, pad_token_id=0, **adapters,
            )  # fmt: skip
        return [row[: request.output_tokens] for row, request in zip(drawn[:, prompts.shape[1] :].tolist(), requests, strict=True)]


serve(Transformers)
