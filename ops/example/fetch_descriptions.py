#!/usr/bin/env python3
"""Downloads Debian's package descriptions with apt and writes the example's data set.

First step of the example (README.md beside this file has them all); run by hand on a Debian
machine. Writes WORK/packages.jsonl, one package per source package first, then the others, each part sorted by package name:
  {"package", "source", "section", "synopsis", "description", "tags": [...], "related": [...], "split"}
`related` are the packages that this one depends on, recommends, suggests or enhances.
`split` is train, dev (500, for choosing settings) or heldout (2,000, for the figures and the jobs);
the other binary packages of the train sources are `extra`, which only the base models read.
Sources whose names differ only in digits (gcc-11, gcc-12) count as one, and a description that was
seen before is dropped, so that no copy of a training text is held out.
Needs only apt and Python's standard library.
"""

import argparse
import hashlib
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

HELDOUT = 2000
DEV = 500
DESCRIPTION_CHARS_MIN = 80
RELATIONS = ["Pre-Depends", "Depends", "Recommends", "Suggests", "Enhances"]


def fetch_lists(folder: Path) -> None:
    """Downloads bookworm's package lists and English translations into `folder`, not into the system's."""
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "-q", "-o", "Acquire::Languages=en", "-o", f"Dir::State::Lists={folder.resolve()}", "update"], check=True
    )


def stanzas(path: Path):
    """Yields each stanza of an apt list (compressed or not) as a dict; continuation lines keep their first blank."""
    process = subprocess.Popen(["/usr/lib/apt/apt-helper", "cat-file", str(path)], stdout=subprocess.PIPE, text=True, encoding="utf-8")
    fields: dict[str, str] = {}
    name = ""
    for line in process.stdout:
        line = line.rstrip("\n")
        if not line:
            if fields:
                yield fields
            fields = {}
        elif line[0] == " ":
            fields[name] += "\n" + line
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields
    if process.wait() != 0:
        raise SystemExit(f"{path}: apt-helper cat-file failed with {process.returncode}")


def plain_text(lines: list[str]) -> str:
    """Debian's description markup as plain text: paragraphs on one line each, verbatim lines (lists) kept apart."""
    out: list[str] = []
    paragraph: list[str] = []
    for line in lines + ["."]:
        verbatim = line.startswith(" ")
        text = " ".join(line.split())
        if text == "." or verbatim or re.match(r"[*+-] ", text):
            if paragraph:
                out.append(" ".join(paragraph))
            paragraph = []
        if text == ".":
            continue
        if verbatim:
            out.append(text)
        else:
            paragraph.append(text)
    return "\n".join(out)


def read_packages(lists: Path) -> tuple[list[dict], list[dict]]:
    """Joins Packages and Translation-en on Description-md5: one binary package per source package, and all the others."""
    translations = {}
    for path in lists.glob("*_dists_bookworm_main_i18n_Translation-en*"):
        for fields in stanzas(path):
            translations[fields["Description-md5"]] = fields["Description-en"]
    best: dict[str, dict] = {}
    every = []
    for path in sorted(lists.glob("*_dists_bookworm_main_binary-*_Packages*")):
        for fields in stanzas(path):
            text = translations.get(fields.get("Description-md5", ""))
            if text is None or "Section" not in fields:
                continue
            synopsis, *lines = text.split("\n")
            description = plain_text([line[1:] for line in lines])
            if len(description) < DESCRIPTION_CHARS_MIN:
                continue
            source = fields.get("Source", fields["Package"]).split()[0]
            package = {
                "package": fields["Package"],
                "source": source,
                "section": fields["Section"].split("/")[-1],
                "synopsis": " ".join(synopsis.split()),
                "description": description,
                "tags": sorted(tag for tag in re.split(r"[,\s]+", fields.get("Tag", "")) if tag),
                "related": sorted({name for field in RELATIONS for name in names_in(fields.get(field, ""))}),
            }
            every.append(package)
            other = best.get(source)
            if other is None or rank(package) < rank(other):
                best[source] = package
    seen: set[str] = set()
    packages = unseen(best.values(), seen)
    return packages, unseen(every, seen)


def names_in(relation: str) -> list[str]:
    """The packages that a field such as "libc6 (>= 2.34), perl:any | perl-base" names."""
    return [match[0] for entry in re.split(r"[,|]", relation) if (match := re.match(r"[a-z0-9][a-z0-9+.-]+", entry.strip()))]


def unseen(packages, seen: set[str]) -> list[dict]:
    """The packages, by name, whose description (letters only) is not yet in `seen`; adds them to it."""
    kept = []
    for package in sorted(packages, key=lambda p: p["package"]):
        key = re.sub(r"[^a-z]", "", package["description"].lower())
        if key not in seen:
            seen.add(key)
            kept.append(package)
    return kept


def rank(package: dict) -> tuple:
    """The binary package that represents its source: the one of the same name, else one with tags, else the first by name."""
    return (package["package"] != package["source"], not package["tags"], package["package"])


def group_of(package: dict) -> str:
    return re.sub(r"[0-9.]+", "", package["source"])


def assign_splits(packages: list[dict]) -> dict[str, str]:
    """Assigns splits to groups of sources (names equal up to digits) by a hash of the name, which is stable and ignores contents."""
    groups: dict[str, list[dict]] = {}
    for package in packages:
        groups.setdefault(group_of(package), []).append(package)
    splits = {}
    taken = 0
    for name in sorted(groups, key=lambda g: hashlib.sha256(g.encode()).digest()):
        # A group is held out as a whole or not at all; large groups are always used for training.
        room = HELDOUT - taken if taken < HELDOUT else HELDOUT + DEV - taken
        small = len(groups[name]) <= min(3, room)
        split = "train" if not small else "heldout" if taken < HELDOUT else "dev"
        for package in groups[name]:
            package["split"] = splits[name] = split
            taken += split != "train"
    return splits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("build/example"),
                        help="folder for lists and packages.jsonl (default: %(default)s)")
    parser.add_argument("--offline", action="store_true", help="use the lists in WORK/lists")
    arguments = parser.parse_args()
    lists = arguments.work / "lists"
    if not arguments.offline:
        fetch_lists(lists)
    packages, others = read_packages(lists)
    splits = assign_splits(packages)
    extra = [{**package, "split": "extra"} for package in others if splits.get(group_of(package)) == "train"]
    with open(arguments.work / "packages.jsonl", "w", encoding="utf-8") as out:
        for package in packages + extra:
            out.write(json.dumps(package, ensure_ascii=False) + "\n")
    sections = Counter(package["section"] for package in packages)
    print(f"{len(packages)} packages and {len(extra)} extra, {len(sections)} sections")
    print(f"{sum(bool(p['tags']) for p in packages)} with debtags")
    print("splits:", dict(Counter(package["split"] for package in packages)))
    print("largest sections:", sections.most_common(8))


if __name__ == "__main__":
    main()
