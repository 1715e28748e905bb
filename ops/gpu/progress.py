"""Which part of ops/gpu-check runs next, where there is not time for all. Pure.

An entry of the report is what a part left when it last ran: whether it passed, its seconds, and what it holds for (stamp in parts.py).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Part(NamedTuple):
    run: Callable  # of the work, to facts
    seconds: int  # that it is expected to take before it has ever run


def expected_seconds(part: Part, entry: dict | None) -> float:
    """What it took, if it passed; one that failed may have been cut short."""
    if entry is None:
        return part.seconds
    return entry["seconds"] if entry["passed"] else max(part.seconds, entry["seconds"])


def left_to_run(parts: Mapping[str, Part], entries: dict, of: dict) -> list[str]:
    """Those that have not passed for this commit, card and versions, in the parts' order; those that failed for them come last."""
    of_this = {name: entry for name, entry in entries.items() if entry["of"] == of}
    untried = [name for name in parts if name not in of_this]
    return untried + [name for name in parts if name in of_this and not of_this[name]["passed"]]


def first_that_fits(names: list[str], parts: Mapping[str, Part], entries: dict, seconds: float) -> str | None:
    return next((name for name in names if expected_seconds(parts[name], entries.get(name)) <= seconds), None)
