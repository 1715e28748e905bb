"""Drives sentence-transformers for embeddings, and transformers with PEFT for classifiers. Run by ops/bench-peers."""

import importlib.metadata

import numpy as np
import torch
from driver import Options, serve
from encoder import PaddedEncoder
from peft_models import merged, with_adapters
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

CLASSIFIERS = {"classify": AutoModelForSequenceClassification, "token_classify": AutoModelForTokenClassification}


class Transformers(PaddedEncoder):
    def __init__(self, options: Options) -> None:
        torch.set_num_threads(options.threads)
        self.task = options.task
        self.merged = options.merged
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.precision]
        packages = ["transformers", "torch"]
        if self.task == "embed":
            self.model = SentenceTransformer(str(options.model), device="cpu", model_kwargs={"dtype": dtype})
            packages.insert(0, "sentence-transformers")
        else:
            self.model = CLASSIFIERS[self.task].from_pretrained(options.model, dtype=dtype)
        self.base = self.model
        self.settings = f"{options.precision}, sdpa attention, texts of similar lengths padded to batches of 1,024 or 4,096 tokens"
        if options.adapters:
            self.model = with_adapters(self.model, options.adapters)
            packages.append("peft")
            self.settings += "; adapters mixed in a batch by forward(adapter_names=...)"
        if options.merged:
            packages.append("peft")
            self.settings += "; one adapter after the other is read and merged into a copy of the base (merge_and_unload)"
        self.engine = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
        self.model.eval()

    def switch(self, adapter: str) -> None:
        self.model = merged(self.base, self.merged / adapter)

    def encode(self, ids: np.ndarray, mask: np.ndarray, adapters: list[str | None]) -> np.ndarray:
        features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        with torch.inference_mode():
            if self.task == "embed":
                return self.model(features)["token_embeddings"].float().numpy()
            mixed = {"adapter_names": adapters} if hasattr(self.model, "peft_config") and not self.merged else {}
            return self.model(**features, **mixed).logits.float().numpy()


serve(Transformers)
