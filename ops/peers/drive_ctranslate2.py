"""CTranslate2: generate_batch of its Generator. Run by ops/bench-peers."""

import json
import os

import ctranslate2
from driver import Options, Request, serve


class CTranslate2:
    def __init__(self, options: Options) -> None:
        self.generator = ctranslate2.Generator(
            str(options.model), device="cpu", compute_type="int8", inter_threads=options.threads, intra_threads=1
        )
        self.words = json.loads((options.model / "vocabulary.json").read_text())
        self.engine = f"CTranslate2 {ctranslate2.__version__}"
        self.settings = (
            "int8 weights and activations, a worker of one thread for each core (faster than one worker of both), batches of at most 16; "
            "what all prompts share is given as static_prompt, whose state it keeps"
        )

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        """Static batches: each ends with its longest answer, so what draws the same number of tokens goes together only by chance."""
        shared = os.path.commonprefix([request.prompt[:-1] for request in requests]) if len(requests) > 1 else []
        outputs = []
        for begin in range(0, len(requests), batch):
            part = requests[begin : begin + batch]
            longest = max(request.output_tokens for request in part)
            results = self.generator.generate_batch(
                [[self.words[token] for token in request.prompt[len(shared) :]] for request in part],
                static_prompt=[self.words[token] for token in shared] or None, cache_static_prompt=True, max_batch_size=min(16, batch),
                max_length=longest, min_length=longest, sampling_topk=1, beam_size=1, include_prompt_in_result=False,
            )  # fmt: skip
            outputs += [result.sequences_ids[0][: request.output_tokens] for result, request in zip(results, part, strict=True)]
        return outputs


serve(CTranslate2)
