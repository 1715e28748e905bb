"""What sentence-transformers makes of the hidden states of encoders/bert, in encoders/pooling.json and encoders/pooling.safetensors."""

import json

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Pooling

CHECKPOINT = "bert"
MODES = ("cls", "mean", "mean_sqrt_len_tokens", "max", "lasttoken", "weightedmean")


def write(encoders):
    goldens = load_file(encoders / CHECKPOINT / "goldens.safetensors")
    hidden = [goldens[f"case{index}.hidden"] for index in range(len(goldens))]
    longest = max(len(rows) for rows in hidden)
    mask = torch.tensor([[1] * len(rows) + [0] * (longest - len(rows)) for rows in hidden])
    padded = torch.full((len(hidden), longest, hidden[0].shape[1]), 9.0)  # large, so that a mode that forgets the mask shows
    for index, rows in enumerate(hidden):
        padded[index, : len(rows)] = rows
    tensors = {}
    for mode in MODES:
        features = {"token_embeddings": padded.clone(), "attention_mask": mask}
        pooled = Pooling(hidden[0].shape[1], pooling_mode=mode)(features)["sentence_embedding"]
        tensors.update({f"case{index}.{mode}": row.contiguous() for index, row in enumerate(pooled)})
    (encoders / "pooling.json").write_text(json.dumps({"checkpoint": CHECKPOINT, "cases": len(hidden), "modes": MODES}) + "\n")
    save_file(tensors, encoders / "pooling.safetensors")
