"""Drives OpenVINO with asynchronous requests. Run by ops/bench-peers."""

import numpy as np
import openvino
from driver import Options, Request, serve
from encoder import Encoder, output_of, padded


class OpenVino(Encoder):
    def __init__(self, options: Options) -> None:
        self.task = options.task
        self.options = options
        self.queue = self.load(options.model)
        self.engine = f"OpenVINO {openvino.__version__.split('-')[0]}"
        self.settings = (
            "one stream per thread (AsyncInferQueue), "
            + {
                "f32": "computes in f32",
                "bf16": "computes in bf16",
                "int8": "int8 weights and activations (nncf.quantize, calibrated on made-up texts), the rest as it chooses",
            }[options.precision]
            + ", texts of similar lengths padded to batches of 1,024 or 4,096 tokens"
            + ("; merged models, converted beforehand, are loaded one after the other" if options.merged else "")
        )

    def load(self, folder) -> openvino.AsyncInferQueue:
        precision = self.options.precision
        properties = {"INFERENCE_NUM_THREADS": self.options.threads, "NUM_STREAMS": self.options.threads}
        if precision != "int8":
            properties["INFERENCE_PRECISION_HINT"] = precision
        name = "int8.xml" if precision == "int8" else "openvino_model.xml"
        compiled = openvino.Core().compile_model(str(folder / name), "CPU", properties)
        queue = openvino.AsyncInferQueue(compiled, self.options.threads)
        queue.set_callback(self.keep)
        return queue

    def switch(self, adapter: str) -> None:
        self.queue = None  # frees its memory before the next one is made
        self.queue = self.load(self.options.merged / adapter / self.options.model.name)

    def keep(self, request, state) -> None:
        outputs, part, requests = state
        rows = request.get_output_tensor(0).data
        for index, row in zip(part, rows, strict=True):
            outputs[index] = output_of(self.task, row, len(requests[index].prompt))

    def run_batches(self, requests: list[Request], batches: list[list[int]]) -> list[list]:
        outputs: list[list] = [[] for _ in requests]
        for part in batches:
            ids, mask = padded([requests[index] for index in part])
            tensors = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            self.queue.start_async(tensors, (outputs, part, requests))
        self.queue.wait_all()
        return outputs


serve(OpenVino)
