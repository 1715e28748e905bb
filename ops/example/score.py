#!/usr/bin/env python3
"""Scores Lorry's output on the example's jobs; called by ops/demo and by hand: score.py OUT.jsonl ... [--json]

Reads OpenAI Batch output lines and answers.jsonl, joins them on custom_id, prints one row per task: jobs, failed, and the
task's figure (section, classify, language, tags: share of exact matches; synopsis: mean ROUGE-L F1; base: no right answer).
Python's standard library only.
"""

import argparse
import json
import re
import sys
from pathlib import Path

FIGURE = {"section": "accuracy", "classify": "accuracy", "synopsis": "ROUGE-L", "tags": "exact match", "language": "accuracy"}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def rouge_l(answer: str, gold: str) -> float:
    """F1 of the longest common subsequence of words, without case and punctuation (Lin 2004)."""
    a, b = words(answer), words(gold)
    row = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for j, other in enumerate(b):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if word == other else max(above, row[j])
            diagonal = above
    return 2 * row[-1] / (len(a) + len(b)) if row[-1] else 0.0


def figure_of(task: str, answer: str, gold: str) -> float:
    """1 or 0 for tasks with one right answer, ROUGE-L for synopsis. JSON is compared as values, not as text."""
    if task == "synopsis":
        return rouge_l(answer, gold)
    if task == "tags":
        try:
            return float(json.loads(answer) == json.loads(gold))
        except json.JSONDecodeError:
            return 0.0
    return float(answer.strip() == gold)


def answer_text(record: dict) -> str | None:
    """The text (or label) of a completion; None if the job failed."""
    response = record.get("response") or {}
    if record.get("error") or response.get("status_code") != 200:
        return None
    body = response["body"]
    if "choices" in body:
        choice = body["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]
    return body["data"][0]["label"]


def score(paths: list[Path], answers_path: Path) -> dict[str, dict]:
    """{task: {"jobs", "failed", "figure_name", "figure"}}; a failed job counts as wrong."""
    gold = {}
    with open(answers_path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            gold[record["custom_id"]] = (record["task"], record["answer"])
    tasks: dict[str, dict] = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                task, answer = gold.get(record["custom_id"], ("base", None))
                entry = tasks.setdefault(task, {"jobs": 0, "failed": 0, "figure_name": FIGURE.get(task), "total": 0.0})
                entry["jobs"] += 1
                text = answer_text(record)
                if text is None:
                    entry["failed"] += 1
                elif answer is not None:
                    entry["total"] += figure_of(task, text, answer)
    for task, entry in tasks.items():
        total = entry.pop("total")
        entry["figure"] = round(total / entry["jobs"], 4) if task in FIGURE else None
    order = [*FIGURE, "base"]
    return dict(sorted(tasks.items(), key=lambda item: order.index(item[0])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("outputs", nargs="+", type=Path, metavar="OUT.jsonl", help="completions as OpenAI Batch output lines")
    parser.add_argument("--answers", type=Path, default=Path(__file__).parent / "jobs" / "answers.jsonl")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    tasks = score(arguments.outputs, arguments.answers)
    if arguments.json:
        print(json.dumps(tasks))
        return 0
    print(f"{'task':<10} {'jobs':>6} {'failed':>6}  figure")
    for task, entry in tasks.items():
        figure = f"{entry['figure_name']} {entry['figure']:.3f}" if entry["figure"] is not None else "-"
        print(f"{task:<10} {entry['jobs']:>6} {entry['failed']:>6}  {figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
