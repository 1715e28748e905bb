#!/usr/bin/env python3
# Holds answers of the example's model to several hundred structures, and checks every answer with validators that are not Lorry's: JSON
# schemas with the package jsonschema (draft 2020-12, with formats), regular expressions and choices with Python. Schemas that the
# validator itself finds wrong, and answers that were damaged on purpose and still pass, fail the check. ctest runs it as
# `structured_answers`.
#
#   tests/structure_check.py PROGRAM [--jobs FILE]     PROGRAM is lorry; --jobs also writes the jobs there
import argparse
import copy
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += map(str, ROOT.glob(".deps/tools/lib/python3*/site-packages"))  # of ops/setup --tests
try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("skipped: the package jsonschema is not installed (ops/setup --tests)")
    sys.exit(77)

EXAMPLE = ROOT / "ops" / "example"
SCHEMAS = 320
ACCEPTED_LEAST = 0.97  # of the schemas, all of which use documented keywords
FINISHED_LEAST = 0.95
MAX_TOKENS = 700  # with the prompt, the context of the example's model is 1,024
NAMES = ["name", "size", "tags", "größe", "日付", "a b", 'quo"te', "émoji 🚚", "x", "licence", "depends", "maintainer"]
WORDS = ["amd64", "arm64", "all", "optional", "required", "ünïcode", "日本", 'a"b', "back\\slash", "line\nbreak", "🚚"]
PATTERNS = [
    "^[a-z]{2,8}$", "^[A-Z][a-z]{1,9}( [A-Z][a-z]{1,9})?$", "^\\d{1,3}(\\.\\d{1,3}){0,2}$", "^(amd|arm)64$", "^[a-z0-9][a-z0-9+.-]{1,12}$",
    "^\\w{3}$",
]  # fmt: skip
FORMATS = ["date", "time", "date-time", "email", "ipv4", "uuid", "hostname"]


class Maker:
    """Makes schemas whose answers are bounded, so that nearly all of them end within MAX_TOKENS."""

    def __init__(self, seed: str):
        self.draw = random.Random(seed)

    def schema(self, depth: int) -> dict:
        kinds = [self.text, self.number, self.choice, self.constant, self.literal]
        if depth > 0:
            kinds += 2 * [self.object, self.array, self.union, self.tuple]
        return self.draw.choice(kinds)(depth)

    def text(self, _depth: int) -> dict:
        form = self.draw.randrange(4)
        if form == 0:
            return {"type": "string", "pattern": self.draw.choice(PATTERNS)}
        if form == 1:
            return {"type": "string", "format": self.draw.choice(FORMATS), "maxLength": 60}
        least = self.draw.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + self.draw.randrange(1, 25)}

    def number(self, _depth: int) -> dict:
        low = self.draw.choice([-1000, -3, 0, 1, 7, 100])
        high = low + self.draw.choice([1, 10, 900])
        kind = self.draw.choice(["integer", "integer", "number"])
        bounds = [{"minimum": low, "maximum": high}, {"exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}]
        schema = {"type": kind} | self.draw.choice(bounds)
        if kind == "integer" and high - low >= 10 and self.draw.random() < 0.3:
            schema["multipleOf"] = self.draw.choice([2, 5])
        return schema

    def choice(self, _depth: int) -> dict:
        count = self.draw.choice([2, 3, 8, 8, 300])
        values = self.draw.sample(WORDS, min(count, len(WORDS))) + [f"value-{i}" for i in range(count - len(WORDS))]
        if self.draw.random() < 0.3:
            values += [None, 7, True]
        return {"enum": values}

    def constant(self, _depth: int) -> dict:
        return {"const": self.draw.choice([*WORDS, 42, -1.5, False, None])}

    def literal(self, _depth: int) -> dict:
        return {"type": self.draw.choice(["boolean", "null", ["boolean", "null"]])}

    def object(self, depth: int) -> dict:
        names = self.draw.sample(NAMES, self.draw.randrange(1, 5))
        required = [name for name in names if self.draw.random() < 0.7]
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}, "required": required}
        # Without it, the model may add members without end.
        schema["additionalProperties"] = False
        return schema

    def array(self, depth: int) -> dict:
        least = self.draw.randrange(3)
        return {"type": "array", "items": self.schema(depth - 1), "minItems": least, "maxItems": least + self.draw.randrange(1, 4)}

    def tuple(self, depth: int) -> dict:
        items = [self.schema(depth - 1) for _ in range(self.draw.randrange(1, 4))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}

    def union(self, depth: int) -> dict:
        options = [self.object(depth - 1), self.array(depth - 1), self.literal(0)]
        return {"anyOf": self.draw.sample(options, self.draw.randrange(2, 4))}

    def recursive(self, depth: int) -> dict:
        """A tree of any depth: its leaves are short, so that most answers end."""
        node = {"type": "object", "properties": {"value": self.schema(0), "children": {
            "type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": depth}}, "required": ["value"], "additionalProperties": False}
        return {"$defs": {"node": node}, "$ref": "#/$defs/node"}

    def tagged(self, _depth: int) -> dict:
        def option(tag: str) -> dict:
            return {"type": "object", "properties": {"kind": {"const": tag}, "value": self.schema(0)}, "required": ["kind", "value"],
                    "additionalProperties": False}
        return {"oneOf": [option(tag) for tag in ("package", "source", "quelle ü")]}


def schemas() -> list[dict]:
    makers = [Maker(f"schema {i}") for i in range(SCHEMAS)]
    kinds = [lambda m: m.object(2), lambda m: m.object(3), lambda m: m.array(2), lambda m: m.recursive(1), lambda m: m.tagged(1),
             lambda m: m.schema(1)]
    return [kinds[i % len(kinds)](maker) for i, maker in enumerate(makers)]


REGEXES = ["[a-c]{2,5}", "(yes|no|maybe)", r"\d{4}-\d{2}-\d{2}", r"Answer: [a-z ]{3,30}\.", "a?b?c?d", r"[^\x00-\x1f]{5,9}", "(?:ab){1,4}"]
CHOICES = [["yes", "no"], ["perl", "python", "p"], ["(a|b)", "[x]", "a.b", "é"], [f"choice {i}" for i in range(500)]]


def make_jobs() -> list[dict]:
    packages = [json.loads(line) for line in (EXAMPLE / "jobs/heldout.jsonl").read_text(encoding="utf-8").splitlines()[:200]]
    chats = [line["body"] for line in packages if "messages" in line["body"]]
    jobs = []

    def add(kind: str, index: int, members: dict) -> None:
        chat = chats[len(jobs) % len(chats)]
        body = {"model": chat["model"] if len(jobs) % 2 else "base", "messages": chat["messages"], "max_tokens": MAX_TOKENS, "seed": index,
                "temperature": [0, 0.7, 1][len(jobs) % 3]}
        jobs.append({"custom_id": f"{kind}-{index}", "method": "POST", "url": "/v1/chat/completions", "body": body | members})

    for i, schema in enumerate(schemas()):
        if i % 2 == 0:
            add("schema", i, {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}})
        else:
            add("schema", i, {"structured_outputs": {"json": schema, "disable_any_whitespace": i % 4 == 1}})
    for i, regex in enumerate(REGEXES):
        add("regex", i, {"structured_outputs": {"regex": regex}})
    for i, choices in enumerate(CHOICES):
        add("choice", i, {"structured_outputs": {"choice": choices}})
    return jobs


def damaged(answer, schema: dict) -> list:
    """Answers that can not match: another type, a member or an element too many."""
    versions = [] if "anyOf" in schema or "type" not in schema else [[answer] if not isinstance(answer, list) else {"a": answer}]
    if isinstance(answer, dict) and schema.get("additionalProperties") is False:
        versions.append(answer | {"not there": 1})
        for name in schema.get("required", []):
            versions.append({key: value for key, value in copy.deepcopy(answer).items() if key != name})
    if isinstance(answer, list) and "maxItems" in schema:
        versions.append((answer or [None]) * (schema["maxItems"] + 1))
    return versions


def check_answer(job: dict, text: str) -> tuple[str | None, int]:
    """Why the answer does not match, or None; and how many damaged ones were rejected."""
    kind, index = job["custom_id"].split("-")
    if kind == "regex":
        return (None if re.fullmatch(REGEXES[int(index)], text, re.ASCII) else "it does not match"), 0
    if kind == "choice":
        return (None if text in CHOICES[int(index)] else "it is none of the choices"), 0
    schema = schemas_by_index[int(index)]
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        answer = json.loads(text)
    except ValueError as error:
        return f"it is not JSON: {error}", 0
    errors = [error.message for error in validator.iter_errors(answer)]
    if errors:
        return "; ".join(errors)[:300], 0
    if job["body"].get("structured_outputs", {}).get("disable_any_whitespace") and text != json.dumps(
        answer, ensure_ascii=False, separators=(",", ":")) and re.search(r'[\]}"0-9el]\s*[,:]\s', re.sub(r'"(?:\\.|[^"\\])*"', '""', text)):
        return "it has white space", 0
    versions = damaged(answer, schema)
    for version in versions:
        if validator.is_valid(version):
            return f"the validator takes the damaged answer {json.dumps(version)[:200]}", 0
    return None, len(versions)


schemas_by_index: list[dict] = schemas()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--jobs", type=Path)
    arguments = parser.parse_args()
    for schema in schemas_by_index:
        Draft202012Validator.check_schema(schema)
    jobs = make_jobs()
    failures, refused, finished, rejected = [], [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.jobs or Path(folder) / "jobs.jsonl"
        path.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
        out = Path(folder) / "results.jsonl"
        command = [arguments.program, "run", path, "-o", out, "--model", EXAMPLE / "model", "--adapters", EXAMPLE / "adapters"]
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if not out.exists():
            raise SystemExit(f"failed: {result.stdout}{result.stderr}")
        results = {line["custom_id"]: line for line in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    for job in jobs:
        body = results[job["custom_id"]]["response"]["body"]
        if "error" in body:
            refused.append(f"{job['custom_id']}: {body['error']['message'][:200]}")
            continue
        choice = body["choices"][0]
        if choice["finish_reason"] != "stop":
            continue
        finished += 1
        why, damaged_count = check_answer(job, choice["message"]["content"])
        rejected += damaged_count
        if why:
            failures.append(f"{job['custom_id']}: {why}: {choice['message']['content'][:300]}")
    accepted = len(jobs) - len(refused)
    print(f"{len(jobs)} structures: {accepted} accepted, {finished} answers finished, {finished - len(failures)} of them match, "
          f"{rejected} damaged ones were rejected")
    for line in refused + failures:
        print(line)
    good = accepted >= ACCEPTED_LEAST * len(jobs) and finished >= FINISHED_LEAST * accepted and not failures and rejected >= 300
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
