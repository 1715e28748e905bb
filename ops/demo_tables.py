#!/usr/bin/env python3
"""Prints what an encoder wrote into the tables of ops/demo: a score for each task, and the first rows beside the right answers.

demo_tables.py SECTIONS.csv VECTORS.csv ENTITIES.csv [--colour] [--width N]
Python's standard library only.
"""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent / "example"))
from demo_report import Style, one_line  # noqa: E402
from score_table import figure_text, names_of, nearest, read_rows, score, spans_of, vectors_of  # noqa: E402

ASKS = {"classify": "description → archive section", "embed": "description → vector; nearest neighbour", "ner": "names in the description"}


def done(path: Path) -> list[dict]:
    """The rows that did not end with an error."""
    return [row for row in read_rows(path) if not row["error"]]


def print_scores(tables: list[Path], style: Style) -> None:
    print(style("1", f"{'task':<10} {'asks':<40} {'rows':>6} {'ok':>6}  score"))
    for path in tables:
        entry = score(path)
        ok_text = style("32" if entry["failed"] == 0 else "31", f"{entry['rows'] - entry['failed']:>6,}")
        print(f"{style('36', entry['task'].ljust(10))} {ASKS[entry['task']]:<40} {entry['rows']:>6,} {ok_text}  {figure_text(entry)}")


def print_answer(style: Style, name: str, answer: str, right: bool, verdict: str) -> None:
    print(f"{style('36', name)} → {style('1', answer)}  {style('32' if right else '33', verdict)}")


def print_sections(rows: list[dict], style: Style) -> None:
    for row in rows:
        right = row["label"] == row["section"]
        verdict = "right" if right else f"the archive says: {row['section']}"
        print_answer(style, row["package"], f"{row['label']} ({float(row['probability']):.2f})", right, verdict)


def print_neighbours(rows: list[dict], count: int, style: Style) -> None:
    vectors = vectors_of(rows)
    for at, row in enumerate(rows[:count]):
        other, product = nearest(vectors, at)
        sections = row["section"], rows[other]["section"]
        print_answer(style, row["package"], f"{rows[other]['package']} ({product:.2f})", sections[0] == sections[1], ", ".join(sections))


def print_entities(rows: list[dict], style: Style, width: int) -> None:
    for row in rows:
        print(style("90", one_line(row["description"], width)))
        spans, names = spans_of(row), names_of(row)
        text = row["description"]
        found = [f"{text[span[0] : span[1]]} {style('32' if span in names else '33', span[2])}" for span in spans]
        missed = [text[name[0] : name[1]] for name in names if name not in spans]
        print("  → " + ", ".join(found or ["no names"]) + (f"; missed: {', '.join(missed)}" if missed else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("sections", "vectors", "entities"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--colour", action="store_true")
    parser.add_argument("--width", type=int, default=100)
    arguments = parser.parse_args()
    style = Style(arguments.colour)
    print_scores([arguments.sections, arguments.vectors, arguments.entities], style)
    print("\nThe first packages, and their sections:\n")
    print_sections(done(arguments.sections)[:4], style)
    print("\nThe packages with the most similar descriptions, and both sections:\n")
    print_neighbours(done(arguments.vectors), 4, style)
    print("\nThe names in the first descriptions:\n")
    print_entities(done(arguments.entities)[:3], style, max(60, min(arguments.width, 120)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
