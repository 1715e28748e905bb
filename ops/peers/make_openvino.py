"""Converts an encoder to OpenVINO's format, and rounds weights and activations to int8 with NNCF if asked. Run by ops/bench-peers in the
environment of openvino: make_openvino.py CHECKPOINT f32|nncf OUT
"""

import subprocess
import sys
from pathlib import Path

import nncf
import openvino
import torch
from transformers import AutoConfig

TASKS = {"BertModel": "feature-extraction", "BertForSequenceClassification": "text-classification",
         "BertForTokenClassification": "token-classification"}  # fmt: skip
CALIBRATION_TEXTS = 64


def main() -> None:
    checkpoint, kind, out = sys.argv[1:]
    config = AutoConfig.from_pretrained(checkpoint)
    command = [str(Path(sys.executable).parent / "optimum-cli"), "export", "openvino", "--model", checkpoint]
    subprocess.run([*command, "--task", TASKS[config.architectures[0]], "--weight-format", "fp32", out], check=True)
    if kind == "f32":
        return
    torch.manual_seed(1)
    texts = [torch.randint(0, config.vocab_size, (1, 64)) for _ in range(CALIBRATION_TEXTS)]
    examples = [{"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy(),
                 "token_type_ids": torch.zeros_like(ids).numpy()} for ids in texts]  # fmt: skip
    model = openvino.Core().read_model(Path(out) / "openvino_model.xml")
    narrow = nncf.quantize(model, nncf.Dataset(examples), model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION_TEXTS)
    openvino.save_model(narrow, Path(out) / "int8.xml", compress_to_fp16=False)


main()
