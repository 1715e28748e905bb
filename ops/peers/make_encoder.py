"""Writes the checkpoint of an encoder's shape: random weights in Hugging Face's format, an embedder as a folder of sentence-transformers;
for the classifier, LoRA adapters with heads of their own, and each of them merged into the base.

Run by ops/bench-peers in the environment of sentence-transformers: make_encoder.py SHAPE FOLDER writes FOLDER/hf, FOLDER/adapters and
FOLDER/merged/lora-0/hf and so on.
"""

import copy
import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel, BertTokenizerFast
from works import ADAPTERS, RANK, SHAPES

SIZES = {"M": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}}  # others: BERT-base
LABELS = {"classify": 8, "token_classify": 9}
MODELS = {"embed": BertModel, "classify": BertForSequenceClassification, "token_classify": BertForTokenClassification}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def save_tokenizer(vocabulary: int, folder: Path) -> None:
    """A WordPiece vocabulary of made-up words. Texts are token ids, but converters need a tokenizer of a known kind."""
    words = [*SPECIAL, *(f"w{index}" for index in range(vocabulary - len(SPECIAL)))]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)


def save_pooling(width: int, folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))


def make_adapters(model: torch.nn.Module, vocabulary: int, folder: Path) -> None:
    for index in range(ADAPTERS):
        # Without init_lora_weights=False one of the two factors would be zero.
        config = LoraConfig(
            r=RANK, lora_alpha=RANK, target_modules=["query", "key", "value", "dense"], modules_to_save=["classifier"],
            init_lora_weights=False, task_type="SEQ_CLS",
        )  # fmt: skip
        adapter = get_peft_model(copy.deepcopy(model), config)
        with torch.no_grad():
            for name, weight in adapter.named_parameters():
                if "modules_to_save" in name and name.endswith("weight"):
                    weight.normal_(0.0, 0.02)
                if "lora_B" in name:
                    weight.mul_(0.1)  # as small as trained ones are; else the update would drown the base
        adapter.save_pretrained(folder / "adapters" / f"lora-{index}")
        merged = folder / "merged" / f"lora-{index}" / "hf"
        adapter.merge_and_unload().save_pretrained(merged)
        save_tokenizer(vocabulary, merged)


def main() -> None:
    shape, folder = SHAPES[sys.argv[1]], Path(sys.argv[2])
    torch.manual_seed(1)
    labels = {"num_labels": LABELS[shape.task]} if shape.task in LABELS else {}
    model = MODELS[shape.task](BertConfig(vocab_size=shape.vocabulary, **SIZES.get(shape.letter, {}), **labels)).eval()
    model.save_pretrained(folder / "hf")
    save_tokenizer(shape.vocabulary, folder / "hf")
    if shape.task == "embed":
        save_pooling(model.config.hidden_size, folder / "hf")
    if shape.task == "classify":
        make_adapters(model, shape.vocabulary, folder)


main()
