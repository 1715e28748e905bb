"""Shared by the scripts of ops/example: the data set, the formats of prompts, and the gold answers of the tasks.

Used by train_base.py, train_adapters.py, make_jobs.py and evaluate.py; Python's standard library only.
"""

import ctypes
import json
import os
import random
import re
from pathlib import Path

# The roles of the chat template, and the ends of documents and turns; ids 0.. in this order.
SPECIAL_TOKENS = ["<|pad|>", "<|bos|>", "<|eos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]

CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{- raise_exception('unknown role ' + message['role']) }}"
    "{%- endif %}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] | trim) + '<|end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)

# Long descriptions are cut at a word before this length, about 160 tokens (1 package in 7).
DESCRIPTION_CHARS_MAX = 600

TASKS = ["section", "synopsis", "tags", "language"]

# The facets of `tags`. If a package has several values of a facet, the first one listed here counts.
FACETS = {
    "role": ["program", "plugin", "shared-lib", "devel-lib", "app-data", "data", "documentation", "metapackage", "source"],
    "implemented-in": ["perl", "python", "c++", "c", "java", "lisp", "shell", "ocaml", "r", "ruby", "haskell", "php", "objc", "tcl"],
    "interface": ["daemon", "graphical", "text-mode", "web", "commandline", "shell"],
}


def prepare_cpu() -> None:
    """Makes torch on the CPU up to twice as fast; call before importing torch.

    Large tensors stay in the heap: giving them back to the system costs a page fault per 4 KiB at every step. Threads that
    wait sleep instead of spinning, which matters when the machine is shared.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    m_trim_threshold, m_mmap_max = -1, -4
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def load_packages(work: Path) -> dict[str, list[dict]]:
    """Reads WORK/packages.jsonl (fetch_descriptions.py writes it) into its splits."""
    splits: dict[str, list[dict]] = {"train": [], "dev": [], "heldout": [], "extra": []}
    with open(work / "packages.jsonl", encoding="utf-8") as file:
        for line in file:
            package = json.loads(line)
            splits[package["split"]].append(package)
    return splits


def user_text(package: dict) -> str:
    """The user message of every task: the long description, without the package's name, cut at a word."""
    text = package["description"]
    if len(text) <= DESCRIPTION_CHARS_MAX:
        return text
    return text[:DESCRIPTION_CHARS_MAX].rsplit(None, 1)[0]


def chat_prompt(text: str) -> str:
    """The prompt that the chat template makes from one user message."""
    return f"<|bos|><|user|>{text.strip()}<|end|><|assistant|>"


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]


def completion_prompt(package: dict) -> str:
    """The base model's own task: the start of a package's entry, to be continued with its description."""
    return f"Package: {package['package']}\nSection: {package['section']}\nSynopsis: {package['synopsis']}\nDescription:"


def gold_answer(task: str, package: dict) -> str | None:
    """The right answer, or None if the package has none (no debtags)."""
    if task == "section":
        return package["section"]
    if task == "synopsis":
        return package["synopsis"]
    values = {}
    for facet, order in FACETS.items():
        found = {tag.split("::")[1] for tag in package["tags"] if tag.startswith(facet + "::")}
        values[facet] = next((value for value in order if value in found), None)
    if task == "language":
        return values["implemented-in"]
    if values["role"] is None or values["implemented-in"] is None:
        return None
    return json.dumps(values)


def pretraining_text(package: dict, rng: random.Random) -> str:
    """One entry as the base model reads it: like a control file, or the description first and the other fields after it.

    So every field is predicted from the description and the description from the other fields. The archive section is
    among them (of train packages only; the model card says so), debtags are not. One entry in ten is a chat whose answer
    quotes the first sentence of the message: it gives the role tokens a meaning and teaches to copy, which a small model
    learns late from running text.
    """
    description = package["description"]
    fields = [f"Package: {package['package']}", f"Section: {package['section']}", f"Synopsis: {package['synopsis']}"]
    kind = rng.random()
    if kind < 0.1:
        text = user_text(package)
        return f"<|bos|><|user|>{text}<|end|><|assistant|>{first_sentence(text)}<|end|><|eos|>"
    if kind < 0.35:
        return "<|bos|>" + "\n".join([*fields, f"Description: {description}"]) + "<|eos|>"
    rng.shuffle(fields)
    return "<|bos|>" + "\n".join([f"Description: {description}", *fields]) + "<|eos|>"
