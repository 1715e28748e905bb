"""Writes the report of ops/gpu-check as Markdown. Pure."""

from dataclasses import replace

from goals import ROWS, Row

HEADER = ["what", "measured", "floor", "of it", "goal", "verdict"]
NOT_TUNED = "no time was left for"  # how matmul names these shapes
TUNING_PARTS = ("matmul", "matmul_fp8")  # later parts use the table that they make
VERDICT = {True: "reached", False: "**not reached**", None: ""}


def facts_of(entries: dict) -> dict:
    """The facts of the parts that passed."""
    return {name: entry["facts"] for name, entry in entries.items() if entry["passed"]}


def matmuls_of(facts: dict) -> dict[str, bool]:
    """What multiplied, if programs report it, and whether that was Lorry's own kernel instead of cuBLASLt."""
    said = [value for value in (facts, *facts.values()) if isinstance(value, dict) and "own_matmul" in value]
    return dict(sorted((value["matmuls"], value["own_matmul"]) for value in said))


def without_table(facts: dict) -> list[str]:
    """The reasons why Lorry's own kernel multiplied instead of cuBLASLt. Such figures are not those of a normal run."""
    return [text for text, own in matmuls_of(facts).items() if own]


def rows_of(entries: dict) -> dict[str, list[Row]]:
    """The rows of each part. Figures that were multiplied without a table are marked."""
    facts = facts_of(entries)
    marks = {part: " (OWN MATMUL)" if without_table(facts[part]) else "" for part in ROWS if part in facts}
    return {part: [replace(row, measured=row.measured + mark) for row in ROWS[part](facts)] for part, mark in marks.items()}


def table(rows: list[list[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in [cells[0], ["---"] * len(cells[0]), *cells[1:]]]


def goal_rows(entries: dict) -> list[list[str]]:
    """Every goal, part by part. A goal that was not measured has no verdict; neither has a part that did not pass."""
    measured = rows_of(entries)
    rows = []
    for part in ROWS:
        if part not in measured:
            rows.append([part, "all of it", "not measured", "", "", "", ""])
        for row in measured.get(part, []):
            if row.goal:
                rows.append([part, row.what, row.measured, row.floor, row.share, row.goal, VERDICT[row.reached]])
    return rows


def missed_lines(entries: dict, reasons: dict[str, str]) -> list[str]:
    """The goals that were not reached, with the reason if it is known. reasons: keys are beginnings of "PART: WHAT"."""
    lines = []
    for part, rows in rows_of(entries).items():
        for row in rows:
            if row.reached is False:
                name = f"{part}: {row.what}"
                why = next((reason for beginning, reason in reasons.items() if name.startswith(beginning)), "not found out yet")
                lines.append(f"- {name}: {row.measured} {row.share} ({row.goal}). Why: {why}")
    return ["Not reached:", "", *lines, ""] if lines else []


def stamp_text(entry: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in entry["of"].items())


def stamp_lines(entries: dict) -> list[str]:
    """What the parts were measured with; if they differ, which parts with what."""
    parts: dict[str, list[str]] = {}
    for name, entry in entries.items():
        parts.setdefault(stamp_text(entry), []).append(name)
    if len(parts) == 1:
        return [f"{next(iter(parts))}.", ""]
    warning = "**These parts are of different runs: a difference between their figures may be a difference between the runs.**"
    return [warning, "", *(f"- {text}: {', '.join(names)}" for text, names in parts.items()), ""]


def own_kernel_lines(entries: dict) -> list[str]:
    """A warning about figures that Lorry's own kernel multiplied instead of cuBLASLt."""
    facts = facts_of(entries)
    lines = []
    for part in TUNING_PARTS:
        if part in entries and part not in facts:
            lines.append(f"part {part} failed")
        if facts.get(part, {}).get(NOT_TUNED):
            lines.append(f"part {part} had no time for {', '.join(facts[part][NOT_TUNED])}, for which there are no new rows")
    parts = [part for part in ROWS if part in facts and without_table(facts[part])]
    if parts:
        lines.append(f"without a table of cuBLASLt's algorithms our own kernel multiplied in {', '.join(parts)}")
    return [f"**{'; '.join(lines)}: these figures are not what cuBLASLt would give.**", ""] if lines else []


def part_lines(name: str, entry: dict, rows: list[Row] | None) -> list[str]:
    matmuls = [f"matmuls by {text}" for text in matmuls_of(entry.get("facts", {}))]
    seen = [f"{entry['date']}, {entry['seconds']} s", stamp_text(entry), *matmuls]
    lines = [f"## {name}: {'passed' if entry['passed'] else 'FAILED'}", "", "; ".join(seen), ""]
    if not entry["passed"]:
        return [*lines, *("    " + line for line in entry["why"].splitlines()), ""]
    lines += [f"**Multiplied by {text}.**\n" for text in without_table(entry["facts"])]
    if rows is not None:
        return [*lines, *table([HEADER, *([row.what, row.measured, row.floor, row.share, row.goal, VERDICT[row.reached]] for row in rows)]),
                ""]  # fmt: skip
    plain = [[key, str(value)] for key, value in entry["facts"].items() if not isinstance(value, list)]
    lines += [*table([["", ""], *plain]), ""]
    for key, value in entry["facts"].items():
        if isinstance(value, list):
            lines += [f"{key}:", "", *("    " + line for line in value), ""]
    return lines


def markdown(entries: dict, algorithms: list[str], title: str, reasons: dict[str, str]) -> str:
    """The whole report. algorithms: the rows of the table that the parts used."""
    measured = rows_of(entries)
    lines = [f"# {title}", "", *stamp_lines(entries)]
    if "device" in facts_of(entries):
        lines += [", ".join(f"{key} {value}" for key, value in entries["device"]["facts"].items()) + ".", ""]
    lines += [
        "A floor is the time that the work's bytes and operations take at the rates at which this GPU copied and multiplied in the same "
        "run; of it: the share of the floor's rate that was reached, or how many times the floor's time it took.",
        "",
        *table([["part", *HEADER], *goal_rows(entries)]),
        "",
        *own_kernel_lines(entries),
        *missed_lines(entries, reasons),
    ]
    for name, entry in entries.items():
        lines += part_lines(name, entry, measured.get(name))
    if algorithms:
        lines += ["## Rows for kernels/cuda/cublaslt/matmul_table.cpp", "", *("    " + row for row in algorithms), ""]
    return "\n".join(lines)
