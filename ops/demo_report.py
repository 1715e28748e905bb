#!/usr/bin/env python3
"""Prints the end of ops/demo: a table with a row per kind of job, and the first results beside the right answers.

demo_report.py JOBS.jsonl RESULTS.jsonl STATUSES.jsonl ANSWERS.jsonl [--colour] [--width N]
STATUSES.jsonl is what `lorry jobs --batch ID --json` prints. Python's standard library only.
"""

import argparse
import json
import sys
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent / "example"))
from score import answer_text, figure_of, score  # noqa: E402

# What the example's kinds of jobs (a custom_id begins with its kind) ask for.
KINDS = {
    "section": "description → archive section",
    "classify": "description → most likely section",
    "synopsis": "description → one line",
    "tags": "description → facets as JSON",
    "language": "description → written in",
    "base": "continues a package's entry",
}


def read_lines(path: Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def kind_of(custom_id: str) -> str:
    return custom_id.split("-")[0]


def prompt_text(job: dict) -> str:
    body = job["body"]
    return body["prompt"] if "prompt" in body else body["messages"][-1]["content"]


def one_line(text: str, width: int) -> str:
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" …")


class Style:
    def __init__(self, colour: bool):
        self.colour = colour

    def __call__(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour else text


def tokens_by_kind(statuses: list[dict]) -> tuple[dict[str, int], dict[str, int], float]:
    """Tokens read and written by kind, and the seconds from the first start to the last end."""
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    for status in statuses:
        kind = kind_of(status["id"].split("/")[-1])
        read[kind] = read.get(kind, 0) + status["usage"]["prompt_tokens"]
        written[kind] = written.get(kind, 0) + status["usage"]["completion_tokens"]
    started = [status["started_at"] for status in statuses if status["started_at"] is not None]
    finished = [status["finished_at"] for status in statuses if status["finished_at"] is not None]
    seconds = (max(finished) - min(started)) / 1000 if started and finished else 0.0
    return read, written, max(seconds, 0.001)


def kinds_of(jobs: list[dict]) -> dict[str, str]:
    """Kind to adapter, in the order of KINDS; kinds that it does not know come last."""
    adapters = {kind_of(job["custom_id"]): job["body"]["model"] for job in jobs}
    known = [kind for kind in KINDS if kind in adapters]
    return {kind: adapters[kind] for kind in known + sorted(set(adapters) - set(known))}


def print_table(jobs: list[dict], results: list[dict], statuses: list[dict], tasks: dict[str, dict], style: Style) -> None:
    read, written, seconds = tokens_by_kind(statuses)
    head = f"{'adapter':<10} {'job':<34} {'jobs':>5} {'ok':>5} {'tokens':>8} {'tokens/s':>9}  score"
    print(style("1", head))
    total = {"jobs": 0, "ok": 0, "tokens": 0}
    for kind, adapter in kinds_of(jobs).items():
        what = KINDS.get(kind, kind)
        own = [record for record in results if kind_of(record["custom_id"]) == kind]
        if not own:
            continue
        ok = sum(answer_text(record) is not None for record in own)
        tokens = read.get(kind, 0) + written.get(kind, 0)
        entry = tasks.get(kind, {})
        figure = f"{entry['figure_name']} {entry['figure']:.2f}" if entry.get("figure") is not None else "–"
        ok_text = style("32" if ok == len(own) else "31", f"{ok:>5}")
        print(f"{style('36', f'{adapter:<10}')} {what:<34} {len(own):>5} {ok_text} {tokens:>8,} {tokens / seconds:>9,.0f}  {figure}")
        total["jobs"] += len(own)
        total["ok"] += ok
        total["tokens"] += tokens
    print(style("1", f"{'all':<10} {f'in one batch, {seconds:.1f} s':<34} {total['jobs']:>5} {total['ok']:>5} "
                     f"{total['tokens']:>8,} {total['tokens'] / seconds:>9,.0f}"))


def print_examples(jobs: list[dict], results: list[dict], gold: dict[str, str], style: Style, width: int) -> None:
    by_id = {record["custom_id"]: record for record in results}
    for kind, adapter in kinds_of(jobs).items():
        job = next((job for job in jobs if kind_of(job["custom_id"]) == kind), None)
        record = by_id.get(job["custom_id"]) if job else None
        if record is None:
            continue
        answer = answer_text(record)
        print(f"{style('36', f'{adapter:<10}')} {style('90', one_line(prompt_text(job), width - 11))}")
        if answer is None:
            error = (record.get("response") or {}).get("body", {}).get("error") or record.get("error") or {}
            print(f"           {style('31', 'failed: ' + one_line(error.get('message', '?'), width - 19))}")
            continue
        right = gold.get(job["custom_id"])
        print(f"         → {style('1', one_line(answer, width - 11))}")
        if right is None:
            continue
        figure = figure_of(kind, answer, right)
        verdict = style("32", "right") if figure == 1 else f"ROUGE-L {figure:.2f}" if kind == "synopsis" else style("33", "wrong")
        note = "" if figure == 1 else f"; the archive says: {one_line(right, width - 40)}"
        print(f"           {verdict}{note}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("jobs", "results", "statuses", "answers"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--colour", action="store_true")
    parser.add_argument("--width", type=int, default=100)
    arguments = parser.parse_args()
    style = Style(arguments.colour)
    jobs = read_lines(arguments.jobs)
    results = read_lines(arguments.results)
    gold = {record["custom_id"]: record["answer"] for record in read_lines(arguments.answers)}
    tasks = score([arguments.results], arguments.answers)
    print_table(jobs, results, read_lines(arguments.statuses), tasks, style)
    print("\nThe first job of each kind, on packages that no training has seen:\n")
    print_examples(jobs, results, gold, style, max(60, min(arguments.width, 120)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
