#!/usr/bin/env python3
"""Writes the held-out packages as job files for Lorry: OpenAI Batch input lines.

Fourth step of the example (README.md); reads WORK/packages.jsonl, needs only Python's standard library. Writes to --out:
  heldout.jsonl  2,000 jobs, one per held-out package, mixed over all adapters and the base model
  section.jsonl  the 2,000 packages again, all for the `section` adapter
  answers.jsonl  {"custom_id", "task", "answer"} of every job that has a right answer; score.py reads it
  packages.csv.gz  the 2,000 packages as a table, with the right answers for the encoder's adapters; score_table.py reads its results
Tasks of heldout.jsonl: the four adapters by /v1/chat/completions (`tags` with a schema), `section` also by /classify with all
sections as choices, and the base model by /v1/completions, which continues a package's entry and has no right answer.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
from collections import Counter
from pathlib import Path

from common import FACETS, completion_prompt, gold_answer, load_packages, user_text
from entities import common_words, entity_spans

# Packages with debtags get `tags` or `language` in turn. Of 20 others, this many get each kind of job.
MIX = ["section"] * 7 + ["classify"] * 4 + ["synopsis"] * 7 + ["base"] * 2
TOKENS_MAX = {"section": 8, "synopsis": 32, "tags": 48, "language": 8}


def job(custom_id: str, url: str, body: dict) -> dict:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def tags_format() -> dict:
    """What an answer of `tags` is: one value of each facet; only the interface may be missing, as in the train split."""
    facets = {facet: {"enum": values + [None] if facet == "interface" else values} for facet, values in FACETS.items()}
    schema = {"type": "object", "properties": facets, "required": list(facets), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "tags", "strict": True, "schema": schema}}


def chat_job(custom_id: str, task: str, package: dict) -> dict:
    messages = [{"role": "user", "content": user_text(package)}]
    body = {"model": task, "messages": messages, "max_tokens": TOKENS_MAX[task], "temperature": 0}
    if task == "tags":
        body["response_format"] = tags_format()
    return job(custom_id, "/v1/chat/completions", body)


def classify_job(custom_id: str, package: dict, sections: list[str]) -> dict:
    messages = [{"role": "user", "content": user_text(package)}]
    return job(custom_id, "/classify", {"model": "section", "messages": messages, "choices": sections})


def base_job(custom_id: str, package: dict) -> dict:
    body = {"model": "base", "prompt": completion_prompt(package), "max_tokens": 64, "temperature": 0}
    return job(custom_id, "/v1/completions", body)


def write_lines(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    print(f"{path.name}: {len(records)} lines, {path.stat().st_size / 1e6:.2f} MB")


def write_table(path: Path, packages: list[dict], common: set[str]) -> None:
    """`names` has [start, end, group] of each name in the description, in characters."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["package", "section", "names", "description"])
    for package in packages:
        names = json.dumps(entity_spans(package, common), separators=(",", ":"))
        rows.writerow([package["package"], package["section"], names, user_text(package)])
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    print(f"{path.name}: {len(packages)} rows, {path.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("build/example"), help="folder of packages.jsonl (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "jobs", help="folder to write (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    splits = load_packages(arguments.work)
    sections = sorted({package["section"] for package in splits["train"]})
    # In the order of a hash, so that the first few hundred lines contain every kind of job and package.
    heldout = sorted(splits["heldout"], key=lambda p: hashlib.sha256(p["package"].encode()).digest())
    mixed, full, answers = [], [], []
    kinds: Counter = Counter()
    for index, package in enumerate(heldout):
        kind = MIX[(index * 7) % len(MIX)]
        if index % 2 == 0 and gold_answer("tags", package) is not None:
            kind = "tags"
        elif index % 2 == 1 and gold_answer("language", package) is not None:
            kind = "language"
        custom_id = f"{kind}-{package['package']}"
        kinds[kind] += 1
        if kind == "base":
            mixed.append(base_job(custom_id, package))
        elif kind == "classify":
            mixed.append(classify_job(custom_id, package, sections))
            answers.append({"custom_id": custom_id, "task": "classify", "answer": package["section"]})
        else:
            mixed.append(chat_job(custom_id, kind, package))
            answers.append({"custom_id": custom_id, "task": kind, "answer": gold_answer(kind, package)})
        full.append(chat_job(f"all-section-{package['package']}", "section", package))
        answers.append({"custom_id": f"all-section-{package['package']}", "task": "section", "answer": package["section"]})
    write_lines(arguments.out / "heldout.jsonl", mixed)
    write_lines(arguments.out / "section.jsonl", full)
    write_lines(arguments.out / "answers.jsonl", answers)
    write_table(arguments.out / "packages.csv.gz", heldout, common_words(splits["train"]))
    print("kinds:", dict(kinds))


if __name__ == "__main__":
    main()
