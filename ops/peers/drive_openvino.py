"""Drives OpenVINO GenAI's pipeline with continuous batching. Run by ops/bench-peers."""

import numpy as np
import openvino
import openvino_genai
from driver import Options, Request, serve

KV_BLOCK_TOKENS = 32  # on CPUs
WEIGHTS = {
    "bf16": "weights exported as fp16",
    "int8": "int8 weights (--weight-format int8)",
    "int4": "weights of 4 bits, symmetric, in groups of 64 or 128 (--weight-format int4 --sym), the embedding in int8",
}


class OpenVino:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.model = options.model
        self.batch = 64
        self.pipeline = self.load()
        self.engine = f"OpenVINO GenAI {openvino_genai.__version__}"
        self.settings = (
            "ContinuousBatchingPipeline with the prefix cache on, a KV cache in u8 (its default), as many sequences as are in flight, "
            "1,024 tokens a step for 64 and 256 for fewer; it computes in bf16 where the processor does (its default; f32, where it rounds "
            "activations to int8, was no faster); "
            + WEIGHTS[options.precision]
            + ("; merged models, exported beforehand, are loaded one after the other" if options.merged else "")
        )

    def load(self) -> openvino_genai.ContinuousBatchingPipeline:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.num_kv_blocks = self.options.kv_tokens // KV_BLOCK_TOKENS
        scheduler.max_num_batched_tokens = 1024 if self.batch >= 64 else 256
        scheduler.max_num_seqs = self.batch
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": self.options.threads}
        return openvino_genai.ContinuousBatchingPipeline(str(self.model), scheduler, "CPU", properties)

    def load_again(self) -> None:
        self.pipeline = None  # frees its memory before the next one is made
        self.pipeline = self.load()

    def switch(self, adapter: str) -> None:
        self.model = self.options.merged / adapter / self.options.model.name
        self.load_again()

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        if batch != self.batch:  # in a work's warm-up
            self.batch = batch
            self.load_again()
        outputs: list[list[int]] = [[] for _ in requests]
        running: dict[int, object] = {}
        waiting = list(enumerate(requests))[::-1]
        while waiting or running:
            while waiting and len(running) < batch:
                index, request = waiting.pop()
                config = openvino_genai.GenerationConfig(max_new_tokens=request.output_tokens, ignore_eos=True, do_sample=False)
                running[index] = self.pipeline.add_request(index, openvino.Tensor(np.array([request.prompt])), config)
            self.pipeline.step()
            for index, handle in list(running.items()):
                if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                    outputs[index] = list(handle.read_all()[0].generated_ids)
                    del running[index]
        return outputs


serve(OpenVino)
