"""Drives CTranslate2 with generate_batch of its Generator. Run by ops/bench-peers."""

import json
import os

import ctranslate2
from driver import Options, Request, serve


class CTranslate2:
    def __init__(self, options: Options) -> None:
        self.options = options
        # A single request uses both threads; each thread computes a part of a batch.
        self.alone = self.load(inter_threads=1, intra_threads=options.threads)
        self.batched = self.load(inter_threads=options.threads, intra_threads=1)
        self.words = json.loads((options.model / "vocabulary.json").read_text())
        self.engine = f"CTranslate2 {ctranslate2.__version__}"
        self.settings = (
            "int8 weights and activations; a worker of one thread for each core (faster than one worker of both), each with its share of a "
            "batch, of at most 16; single streams by one worker of both; "
            "what all prompts share is given as static_prompt, whose state it keeps"
        )

    def load(self, inter_threads: int, intra_threads: int) -> ctranslate2.Generator:
        return ctranslate2.Generator(
            str(self.options.model), device="cpu", compute_type="int8", inter_threads=inter_threads, intra_threads=intra_threads
        )

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        """Static batches. Each ends with its longest answer; requests with equally long answers are together only by chance."""
        shared = os.path.commonprefix([request.prompt[:-1] for request in requests]) if len(requests) > 1 else []
        generator = self.alone if batch == 1 else self.batched
        share = min(16, -(-batch // self.options.threads))
        outputs = []
        for begin in range(0, len(requests), batch):
            part = requests[begin : begin + batch]
            longest = max(request.output_tokens for request in part)
            results = generator.generate_batch(
                [[self.words[token] for token in request.prompt[len(shared) :]] for request in part],
                static_prompt=[self.words[token] for token in shared] or None, cache_static_prompt=True, max_batch_size=share,
                max_length=longest, min_length=longest, sampling_topk=1, beam_size=1, include_prompt_in_result=False,
            )  # fmt: skip
            outputs += [result.sequences_ids[0][: request.output_tokens] for result, request in zip(results, part, strict=True)]
        return outputs


serve(CTranslate2)
