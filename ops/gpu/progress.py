"""Chooses the part that ops/gpu-check runs next when there is not time for all. Pure.

An entry of the report is the result of a part's last run: whether it passed, its seconds, and what was measured (stamp in parts.py).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Part(NamedTuple):
    run: Callable  # takes the work, returns facts
    seconds: int  # expected before it has ever run


def expected_seconds(part: Part, entry: dict | None) -> float:
    """The time of its last run if it passed; a failed run may have been cut short."""
    if entry is None:
        return part.seconds
    return entry["seconds"] if entry["passed"] else max(part.seconds, entry["seconds"])


def left_to_run(parts: Mapping[str, Part], entries: dict, of: dict) -> list[str]:
    """The parts that have not passed for this commit, card and versions, in order; those that failed for them come last."""
    of_this = {name: entry for name, entry in entries.items() if entry["of"] == of}
    untried = [name for name in parts if name not in of_this]
    return untried + [name for name in parts if name in of_this and not of_this[name]["passed"]]


def first_that_fits(names: list[str], parts: Mapping[str, Part], entries: dict, seconds: float) -> str | None:
    return next((name for name in names if expected_seconds(parts[name], entries.get(name)) <= seconds), None)
