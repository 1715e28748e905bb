"""Drives ONNX Runtime. Run by ops/bench-peers."""

import numpy as np
import onnxruntime
from driver import Options, serve
from encoder import PaddedEncoder


class OnnxRuntime(PaddedEncoder):
    def __init__(self, options: Options) -> None:
        self.task = options.task
        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = options.threads
        self.session = onnxruntime.InferenceSession(str(options.model), session, providers=["CPUExecutionProvider"])
        self.engine = f"ONNX Runtime {onnxruntime.__version__}"
        self.settings = (
            "fused by its optimizer for BERT, "
            + ("int8 weights per channel, activations rounded while it runs (quantize_dynamic)" if options.precision == "int8" else "f32")
            + ", texts of similar lengths padded to batches of 1,024 or 4,096 tokens"
        )

    def encode(self, ids: np.ndarray, mask: np.ndarray, adapters: list[str | None]) -> np.ndarray:
        return self.session.run(["output"], {"input_ids": ids, "attention_mask": mask})[0]


serve(OnnxRuntime)
