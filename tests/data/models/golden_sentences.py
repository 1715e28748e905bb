"""Writes sentences.json and sentences.safetensors: what sentence-transformers gives for a few sentences with all-MiniLM-L6-v2, a public
model that ops/setup --tests installs and that is not committed. Run by hand:

    python golden_sentences.py FOLDER        # .deps/minilm/model, as ops/setup --tests makes it

Needs sentence-transformers, torch and safetensors (written with 6.2.0, 2.15.0 and 0.8.0).
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402

OUT = Path(__file__).resolve().parent / "sentence"
SENTENCES = [
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "Wie spät ist es? Ça va très bien, merci.",
    "数据库 システム база данных",
    "def add(a, b):\n    return a + b  # adds two numbers",
    "Order 66-1042 (shipped 2024-02-29) arrived damaged; please refund €1,299.00!",
    "\N{FLEXED BICEPS}\N{EMOJI MODIFIER FITZPATRICK TYPE-4} emoji, ﬁ ligature, Å and A\N{COMBINING RING ABOVE}",
    "word " * 150,
]


def main():
    torch.set_num_threads(1)
    model = SentenceTransformer(sys.argv[1], device="cpu")
    OUT.mkdir(exist_ok=True)
    vectors = model.encode(SENTENCES, batch_size=1, convert_to_tensor=True).float().contiguous()
    (OUT / "sentences.json").write_text(json.dumps(SENTENCES, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    save_file({"embeddings": vectors}, OUT / "sentences.safetensors")


main()
