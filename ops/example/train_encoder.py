#!/usr/bin/env python3
"""Trains the example's encoder and its two adapters, which classify: `section` whole texts, `entities` the words of a text.

Last step of the training (README.md); reads WORK/packages.jsonl. Writes OUT/model, a sentence-transformers folder with a masked language
model's head, and OUT/adapters, two PEFT folders whose heads are among their weights.
Stages: `model` learns, in turn, to fill masks in descriptions and synopses, and to give a description and its synopsis, or its two
halves, similar vectors (in-batch contrastive loss, van den Oord et al. 2018). It reads no sections and no entities. The adapters learn
those on the train split. Steps are counted, so that a run gives the same weights again on the same kind of machine.
"""

import argparse
import json
import math
import random
import shutil
import time
from pathlib import Path

from common import load_packages, prepare_cpu, user_text
from entities import common_words, entity_spans

prepare_cpu()

import torch  # noqa: E402 (after prepare_cpu, as OpenMP reads its settings once)
from peft import LoraConfig, get_peft_model  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402
from torch.nn.functional import cross_entropy, normalize  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForSequenceClassification, AutoModelForTokenClassification, BertConfig, BertForMaskedLM, PreTrainedTokenizerFast,
)  # fmt: skip

import train_adapters  # noqa: E402
from train_base import Muon  # noqa: E402

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = 2560
ALPHABET = 160
POSITIONS = 256
IGNORED = -100  # cross_entropy's own value for targets that do not count
ENTITY_LABELS = ["O", "B-LANGUAGE", "I-LANGUAGE", "B-SOFTWARE", "I-SOFTWARE"]
# Linear layers of the encoder: not the pooler, which `section` trains as part of its head.
TARGETS = ["query", "key", "value", "intermediate.dense", "output.dense"]
TEMPERATURE = 0.05
PAIR_TOKENS_MAX = 64  # of a description, so that steps are short


def train_tokenizer(packages: list[dict], out: Path) -> PreTrainedTokenizerFast:
    """Trains a WordPiece vocabulary that keeps capitals, which names have."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, limit_alphabet=ALPHABET, show_progress=False, continuing_subword_prefix="##"
    )
    tokenizer.train_from_iterator((f"{p['synopsis']}\n{p['description']}" for p in packages), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        model_max_length=POSITIONS, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.save_pretrained(out)
    return fast


def new_model(arguments) -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=arguments.hidden, num_hidden_layers=arguments.layers, num_attention_heads=arguments.hidden // 32,
        intermediate_size=arguments.intermediate, max_position_embeddings=POSITIONS, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, pad_token_id=PAD,
    )  # fmt: skip
    # Eager attention: at these lengths a plain matrix product beats torch's fused kernel for the CPU.
    return BertForMaskedLM._from_config(config, attn_implementation="eager")


def save_model(model: BertForMaskedLM, out: Path) -> None:
    """Saves the weights in bfloat16, and the files that make the folder one of sentence-transformers: the mean, scaled to length 1."""
    model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(out)
    kinds = [("", "models.Transformer"), ("1_Pooling", "models.Pooling"), ("2_Normalize", "models.Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"} for i, (path, kind) in enumerate(kinds)
    ]
    (out / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    (out / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": model.config.hidden_size, "pooling_mode_mean_tokens": True}
    (out / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=2) + "\n")


def pad(texts: list[list[int]], value: int = PAD) -> torch.Tensor:
    """[texts, longest]"""
    longest = max(len(ids) for ids in texts)
    return torch.tensor([ids + [value] * (longest - len(ids)) for ids in texts])


def encode(model, ids: torch.Tensor) -> torch.Tensor:
    """The last layer of a BertModel. [texts, longest, hidden]"""
    return model(input_ids=ids, attention_mask=(ids != PAD).long()).last_hidden_state


def batches(lengths: list[int], tokens_max: int, rng: random.Random):
    """Yields lists of indexes without end: texts of similar length, at most tokens_max padded tokens, in random order."""
    while True:
        order = sorted(range(len(lengths)), key=lambda i: lengths[i] + rng.random() * 12)
        groups: list[list[int]] = [[]]
        longest = 0
        for index in order:
            longest = max(longest, lengths[index])
            if (len(groups[-1]) + 1) * longest > tokens_max:
                groups.append([])
                longest = lengths[index]
            groups[-1].append(index)
        rng.shuffle(groups)
        yield from groups


def masked_loss(model: BertForMaskedLM, ids: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Of the tokens a fifth are predicted: 8 in 10 of them are masked, 1 is another token, 1 is left as it is (Devlin et al. 2018)."""
    drawn = torch.rand(ids.shape, generator=generator)
    chosen = (drawn < 0.2) & (ids >= len(SPECIAL_TOKENS))
    others = torch.randint(len(SPECIAL_TOKENS), VOCABULARY, ids.shape, generator=generator)
    inputs = torch.where(chosen & (drawn < 0.16), MASK, torch.where(chosen & (drawn < 0.18), others, ids))
    hidden = encode(model.bert, inputs)
    # Padding must not be seen in place of the text: `inputs` has it where `ids` has.
    return cross_entropy(model.cls(hidden[chosen]).float(), ids[chosen])


def vectors_of(model: BertForMaskedLM, ids: torch.Tensor) -> torch.Tensor:
    """As the stored folder embeds: the mean over all tokens, of length 1. [texts, hidden]"""
    seen = (ids != PAD).unsqueeze(-1)
    return normalize(((encode(model.bert, ids) * seen).sum(1) / seen.sum(1)).float(), dim=-1)


def contrastive_loss(model: BertForMaskedLM, firsts: list[list[int]], seconds: list[list[int]]) -> torch.Tensor:
    """Each text must be nearer to its partner than to the partners of the others, in both directions."""
    scores = vectors_of(model, pad(firsts)) @ vectors_of(model, pad(seconds)).T / TEMPERATURE
    target = torch.arange(len(firsts))
    return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2


def partners(ids: list[int], synopsis: list[int], rng: random.Random) -> tuple[list[int], list[int]]:
    """Two texts about one package: the description and its synopsis, or the halves of a long description."""
    inner = ids[1:-1][:PAIR_TOKENS_MAX]
    if len(inner) >= 40 and rng.random() < 0.5:
        middle = len(inner) // 2
        return [CLS, *inner[:middle], SEP], [CLS, *inner[middle:], SEP]
    return [CLS, *inner, SEP], synopsis


class Schedule:
    """Sets learning rates by step: up for `warmup` steps, then down to zero along a cosine. Prints the mean loss now and then."""

    def __init__(self, name: str, optimizers: list[torch.optim.Optimizer], steps: int, warmup: int = 40):
        self.name, self.optimizers, self.steps, self.warmup = name, optimizers, steps, warmup
        self.rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self.start = time.monotonic()
        self.losses: list[float] = []

    def run(self, loss_of) -> None:
        """loss_of(step) gives the loss of one batch."""
        for step in range(self.steps):
            scale = min(1.0, (step + 1) / self.warmup) * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
            for optimizer, rates in zip(self.optimizers, self.rates):
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate * scale
                optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(step)
            loss.backward()
            for optimizer in self.optimizers:
                if not isinstance(optimizer, Muon):
                    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
                optimizer.step()
            self.losses.append(loss.item())
            if len(self.losses) == 50 or step + 1 == self.steps:
                minutes = (time.monotonic() - self.start) / 60
                loss = sum(self.losses) / len(self.losses)
                print(f"{self.name} step {step + 1} of {self.steps}, {minutes:.1f} min: loss {loss:.4f}", flush=True)
                self.losses = []


def optimizers_of(model: BertForMaskedLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, Adam for the rest."""
    matrices = [p for p in model.bert.encoder.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    return [Muon(matrices, lr=8 * rate), torch.optim.Adam(others, lr=rate, betas=(0.9, 0.98))]


def train_model(arguments, splits: dict) -> None:
    out = arguments.out / "model"
    shutil.rmtree(out, ignore_errors=True)
    packages = splits["train"] + splits["extra"]
    tokenizer = train_tokenizer(packages, out)
    model = new_model(arguments)
    print(f"model: {sum(p.numel() for p in model.parameters()):,} parameters, {len(packages)} packages", flush=True)
    descriptions = tokenizer([user_text(p) for p in packages], truncation=True)["input_ids"]
    synopses = tokenizer([p["synopsis"] for p in packages], truncation=True)["input_ids"]
    rng = random.Random(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    texts = descriptions + synopses
    masked = batches([len(ids) for ids in texts], arguments.batch_tokens, rng)

    def loss_of(step: int) -> torch.Tensor:
        if step % 2 == 0:
            return masked_loss(model, pad([texts[i] for i in next(masked)]), generator)
        drawn = rng.sample(range(len(packages)), arguments.pairs)
        pairs = [partners(descriptions[i], synopses[i], rng) for i in drawn]
        return contrastive_loss(model, [first for first, _ in pairs], [second for _, second in pairs])

    Schedule("model", optimizers_of(model, arguments.rate), arguments.model_steps).run(loss_of)
    save_model(model, out)
    dev = tokenizer([user_text(p) for p in splits["dev"]], truncation=True)["input_ids"]
    with torch.no_grad():
        model.float()
        losses = [masked_loss(model, pad(dev[i : i + 25]), generator).item() for i in range(0, len(dev), 25)]
    print(f"model done: dev loss {sum(losses) / len(losses):.4f} per masked token", flush=True)


def save_adapter(model, labels: list[str], out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    train_adapters.save(model, out)
    config = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def section_examples(packages: list[dict], tokenizer, labels: list[str]) -> list[tuple[list[int], int]]:
    ids = tokenizer([user_text(p) for p in packages], truncation=True)["input_ids"]
    return [(text, labels.index(package["section"])) for text, package in zip(ids, packages)]


def train_section(arguments, splits: dict) -> None:
    torch.manual_seed(arguments.seed)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.out / "model")
    labels = sorted({package["section"] for package in splits["train"]})
    base = AutoModelForSequenceClassification.from_pretrained(
        arguments.out / "model", dtype=torch.float32, num_labels=len(labels), attn_implementation="eager"
    )
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, modules_to_save=["pooler", "classifier"], task_type="SEQ_CLS")
    model = get_peft_model(base, lora)
    examples = section_examples(splits["train"], tokenizer, labels)

    def loss_of(rows: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, target = pad([text for text, _ in rows]), torch.tensor([label for _, label in rows])
        logits = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits.float()
        return cross_entropy(logits, target), (logits.argmax(-1) == target).sum()

    train_adapter("section", arguments, model, examples, lambda rows: loss_of(rows)[0])
    save_adapter(model, labels, arguments.out / "adapters" / "section")
    for split in ("train", "dev", "heldout"):
        packages = random.Random(arguments.seed).sample(splits[split], min(len(splits[split]), 2000))
        rows = section_examples(packages, tokenizer, labels)
        with torch.no_grad():
            right = sum(loss_of(rows[i : i + 25])[1].item() for i in range(0, len(rows), 25))
        print(f"section {split}: accuracy {right / len(rows):.4f} of {len(rows)}", flush=True)


def entity_examples(packages: list[dict], tokenizer, common: set[str]) -> list[tuple[list[int], list[int]]]:
    """The ids of each text, and the labels of its tokens; the tokens around the text have none."""
    encodings = tokenizer([user_text(p) for p in packages], truncation=True, return_offsets_mapping=True)
    examples = []
    for package, ids, offsets in zip(packages, encodings["input_ids"], encodings["offset_mapping"]):
        groups = {}
        for start, end, group in entity_spans(package, common):
            groups.update({position: ("B-" if position == start else "I-") + group for position in range(start, end)})
        labels = [ENTITY_LABELS.index(groups.get(start, "O")) for start, _ in offsets]
        examples.append((ids, [IGNORED, *labels[1:-1], IGNORED]))
    return examples


def train_entities(arguments, splits: dict) -> None:
    torch.manual_seed(arguments.seed)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.out / "model")
    base = AutoModelForTokenClassification.from_pretrained(
        arguments.out / "model", dtype=torch.float32, num_labels=len(ENTITY_LABELS), attn_implementation="eager"
    )
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, task_type="TOKEN_CLS"))
    common = common_words(splits["train"])

    def loss_of(rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
        ids, target = pad([text for text, _ in rows]), pad([labels for _, labels in rows], IGNORED)
        logits = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits.float()
        return cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED)

    train_adapter("entities", arguments, model, entity_examples(splits["train"], tokenizer, common), loss_of)
    save_adapter(model, ENTITY_LABELS, arguments.out / "adapters" / "entities")
    rows = entity_examples(splits["dev"], tokenizer, common)
    with torch.no_grad():
        losses = [loss_of(rows[i : i + 25]).item() for i in range(0, len(rows), 25)]
    print(f"entities done: dev loss {sum(losses) / len(losses):.4f} per token", flush=True)


def train_adapter(name: str, arguments, model, examples: list, loss_of) -> None:
    rng = random.Random(arguments.seed)
    parameters = [p for p in model.parameters() if p.requires_grad]
    steps = arguments.section_steps if name == "section" else arguments.entity_steps
    print(f"{name}: {len(examples)} examples, {sum(p.numel() for p in parameters):,} parameters", flush=True)
    adam = torch.optim.AdamW(parameters, lr=arguments.adapter_rate, betas=(0.9, 0.98), weight_decay=0.01)
    drawn = batches([len(text) for text, _ in examples], arguments.batch_tokens, rng)
    Schedule(name, [adam], steps).run(lambda _step: loss_of([examples[i] for i in next(drawn)]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("build/example"), help="folder of packages.jsonl (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/example/encoder"), help="folder to write (default: %(default)s)")
    parser.add_argument("--stages", nargs="+", choices=["model", "section", "entities"], default=["model", "section", "entities"])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--intermediate", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--model-steps", type=int, default=4000, help="masks and pairs in turn (default: %(default)s)")
    parser.add_argument("--section-steps", type=int, default=3000)
    parser.add_argument("--entity-steps", type=int, default=5000)
    parser.add_argument("--batch-tokens", type=int, default=2048, help="padded tokens per step (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=64, help="pairs of texts per step (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--adapter-rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    splits = load_packages(arguments.work)
    for stage in arguments.stages:
        {"model": train_model, "section": train_section, "entities": train_entities}[stage](arguments, splits)


if __name__ == "__main__":
    main()
