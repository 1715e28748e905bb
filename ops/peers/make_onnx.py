"""Exports an encoder to ONNX, fuses its graph with ONNX Runtime's optimizer for transformers, and rounds it to int8 if asked: weights per
channel, activations while it runs. Run by ops/bench-peers in the environment of onnxruntime: make_onnx.py CHECKPOINT f32|int8 OUT
"""

import sys
import tempfile
from pathlib import Path

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
import transformers
from transformers import AutoConfig


def load(checkpoint: str) -> torch.nn.Module:
    architecture = AutoConfig.from_pretrained(checkpoint).architectures[0]
    return getattr(transformers, architecture).from_pretrained(checkpoint, attn_implementation="eager", dtype=torch.float32).eval()


class First(torch.nn.Module):
    """The model with what ONNX needs: tensors in, its first output out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


def main() -> None:
    checkpoint, precision, out = sys.argv[1:]
    model = load(checkpoint)
    ids = torch.randint(0, model.config.vocab_size, (2, 16))
    axes = {"input_ids": {0: "batch", 1: "tokens"}, "attention_mask": {0: "batch", 1: "tokens"}, "output": {0: "batch"}}
    with tempfile.TemporaryDirectory() as folder:
        raw = str(Path(folder) / "raw.onnx")
        torch.onnx.export(
            First(model), (ids, torch.ones_like(ids)), raw, input_names=["input_ids", "attention_mask"], output_names=["output"],
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
        fused = optimizer.optimize_model(
            raw, model_type="bert", num_heads=model.config.num_attention_heads, hidden_size=model.config.hidden_size, opt_level=1,
            optimization_options=FusionOptions("bert"),
        )  # fmt: skip
        if precision == "f32":
            fused.save_model_to_file(out)
            return
        wide = str(Path(folder) / "fused.onnx")
        fused.save_model_to_file(wide)
        # Shapes and types behind fused nodes are not inferred.
        types = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(wide, out, per_channel=True, weight_type=QuantType.QInt8, extra_options=types)


main()
