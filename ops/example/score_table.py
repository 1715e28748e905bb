#!/usr/bin/env python3
"""Scores tables that `lorry run` made of packages.csv.gz: score_table.py OUT.csv ... [--json]; used by ops/demo and tests/example_check.py.

What a table is scored for is in its columns:
  label      (--task classify, adapter `section`) the share of rows whose label is the archive's section
  embedding  (--task embed) the share of rows whose nearest neighbour, among all rows, is of the same section
  entities   (--task ner, adapter `entities`) F1 of the spans, each of which must begin, end and be called as in the column `names`
Rows that ended with an error count as wrong, but have no neighbours. Python's standard library only.
"""

import argparse
import csv
import hashlib
import json
import operator
import sys
from collections import Counter
from pathlib import Path

# So many rows look for their neighbour: all of them would take a quarter of a minute.
NEIGHBOURS_OF = 400


GROUPS = ["LANGUAGE", "SOFTWARE"]


def read_rows(path: Path) -> list[dict]:
    """The rows in the order of packages.csv.gz; the table has them as they finished."""
    with open(path, encoding="utf-8", newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: hashlib.sha256(row["package"].encode()).digest())


def classify_score(rows: list[dict]) -> dict:
    """The baseline is the section that most of the rows have."""
    commonest, count = Counter(row["section"] for row in rows).most_common(1)[0]
    return {
        "task": "classify", "scored": len(rows), "figure_name": "accuracy",
        "figure": sum(row["label"] == row["section"] for row in rows) / len(rows),
        "baseline_name": f"always {commonest}", "baseline": count / len(rows),
    }  # fmt: skip


def vectors_of(rows: list[dict]) -> list[list[float]]:
    return [json.loads(row["embedding"]) for row in rows]


def nearest(vectors: list[list[float]], row: int) -> tuple[int, float]:
    """The other row with the largest product of vectors, which have length 1, and the product."""
    product, at = max((sum(map(operator.mul, vectors[row], other)), at) for at, other in enumerate(vectors) if at != row)
    return at, product


def embed_score(rows: list[dict]) -> dict:
    """The baseline is the chance that two different rows are of the same section."""
    embedded = [row for row in rows if not row["error"]]
    vectors = vectors_of(embedded)
    asked = min(NEIGHBOURS_OF, len(embedded))
    same = sum(embedded[nearest(vectors, at)[0]]["section"] == embedded[at]["section"] for at in range(asked))
    counts = Counter(row["section"] for row in rows).values()
    return {
        "task": "embed", "scored": asked, "figure_name": "same section", "figure": same / asked,
        "baseline_name": "by chance", "baseline": sum(n * (n - 1) for n in counts) / (len(rows) * (len(rows) - 1)),
    }  # fmt: skip


def spans_of(row: dict) -> list[tuple[int, int, str]]:
    entities = json.loads(row["entities"]) if row["entities"] else []
    return [(entity["start"], entity["end"], entity["entity_group"]) for entity in entities]


def names_of(row: dict) -> list[tuple[int, int, str]]:
    return [tuple(name) for name in json.loads(row["names"])]


def f1_of(rows: list[dict], groups: list[str]) -> float:
    """Of the spans of these groups, over all rows."""
    count = right = 0
    for row in rows:
        spans, names = ({span for span in spans if span[2] in groups} for spans in (spans_of(row), names_of(row)))
        count, right = count + len(spans) + len(names), right + len(spans & names)
    return 2 * right / max(count, 1)


def ner_score(rows: list[dict]) -> dict:
    return {
        "task": "ner", "scored": len(rows), "figure_name": "F1", "figure": f1_of(rows, GROUPS),
        "groups": {group: f1_of(rows, [group]) for group in GROUPS},
    }  # fmt: skip


SCORES = {"label": classify_score, "embedding": embed_score, "entities": ner_score}


def score(path: Path) -> dict:
    rows = read_rows(path)
    column = next((column for column in SCORES if rows and column in rows[0]), None)
    if column is None:
        raise SystemExit(f"{path}: has no rows, or none of the columns {', '.join(SCORES)}; make it with `lorry run` of packages.csv.gz")
    return {"rows": len(rows), "failed": sum(row["error"] != "" for row in rows), **SCORES[column](rows)}


def figure_text(entry: dict) -> str:
    text = f"{entry['figure_name']} {entry['figure']:.2f}"
    if "baseline" in entry:
        return f"{text} ({entry['baseline_name']}: {entry['baseline']:.2f})"
    return f"{text} ({', '.join(f'{group} {figure:.2f}' for group, figure in entry['groups'].items())})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path, metavar="OUT.csv")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'task':<10} {'rows':>6} {'failed':>6} {'scored':>6}  figure")
    for path in arguments.tables:
        entry = score(path)
        counts = f"{entry['rows']:>6} {entry['failed']:>6} {entry['scored']:>6}"
        print(json.dumps(entry) if arguments.json else f"{entry['task']:<10} {counts}  {figure_text(entry)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
