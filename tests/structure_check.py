#!/usr/bin/env python3
# Holds answers of the example's model to several hundred structures, and checks every answer with validators that are not Lorry's: JSON
# schemas with the package jsonschema (draft 2020-12, with formats), regular expressions and choices with Python. Schemas that the
# validator itself finds wrong, and answers that were damaged on purpose and still pass, fail the check. Chats and completions take turns.
# Models of random weights then answer with n, stop, logprobs, min_tokens and penalties: one with the example's tokenizer, which is
# byte-level BPE, and one with a tokenizer converted from SentencePiece. Some jobs are answered again one by one, with the same texts. The
# example's `tags` jobs and tables with --schema come last. ctest runs it as `structured_answers`.
#
#   tests/structure_check.py PROGRAM [--jobs FILE]     PROGRAM is lorry; --jobs also writes the jobs there
import argparse
import copy
import csv
import json
import math
import random
import re
import shutil
import struct
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
TAGS_JOBS = 195
TAGS_RIGHT_LEAST = 0.38  # a little below the README's figure: processors add up in different orders
MAX_TOKENS = 700  # with the prompt, the context of the example's model is 1,024
NAMES = ["name", "size", "tags", "größe", "日付", "a b", 'quo"te', "émoji 🚚", "x", "licence", "depends", "maintainer"]
WORDS = ["amd64", "arm64", "all", "optional", "required", "ünïcode", "日本", 'a"b', "back\\slash", "line\nbreak", "🚚"]
PATTERNS = [
    "^[a-z]{2,8}$", "^[A-Z][a-z]{1,9}( [A-Z][a-z]{1,9})?$", "^\\d{1,3}(\\.\\d{1,3}){0,2}$", "^(amd|arm)64$", "^[a-z0-9][a-z0-9+.-]{1,12}$",
    "^\\w{3}$",
]  # fmt: skip
FORMATS = ["date", "time", "date-time", "duration", "email", "ipv4", "ipv6", "uuid", "hostname", "uri"]
NO_FORMAT = "\x00 no format @"  # none of them, but an email of the validator's
ADVERSE = [  # drawn many times each: what answers got wrong once
    {"type": "number"}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "exclusiveMinimum": 10, "maximum": 10.5}, {"type": "number", "exclusiveMaximum": 0, "minimum": -2},
    {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 3}, {"type": "integer", "multipleOf": 3.0, "minimum": 0},
    {"type": "string", "format": "date", "pattern": "^2023-0"}, {"type": "string", "format": "date-time", "pattern": "^0"},
    {"type": "string", "format": "time", "pattern": "^12:00:"},
    {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"],
     "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
    *({"type": "string", "format": name} for name in FORMATS),
]  # fmt: skip
ADVERSE_DRAWS = 24


class Maker:
    """Makes schemas whose answers are bounded, so that nearly all of them end within MAX_TOKENS."""

    def __init__(self, seed: str):
        self.draw = random.Random(seed)

    def schema(self, depth: int) -> dict:
        kinds = [self.text, self.number, self.choice, self.constant, self.literal]
        if depth > 0:
            kinds += 2 * [self.object, self.array, self.union, self.tuple]
            kinds += [self.merged, self.free, self.few]
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

    def merged(self, depth: int) -> dict:
        names = self.draw.sample(NAMES, 2)
        parts = [{"type": "object", "properties": {name: self.schema(depth - 1)}, "required": [name]} for name in names]
        allowed = {name: True for part in parts for name in part["properties"]}
        return {"allOf": parts, "type": "object", "properties": allowed, "additionalProperties": False}

    def free(self, depth: int) -> dict:
        return {"type": "object", "properties": {"name": self.schema(0)}, "required": ["name"],
                "patternProperties": {"^x[a-c]$": self.schema(depth - 1)}, "additionalProperties": False, "maxProperties": 3}

    def few(self, depth: int) -> dict:
        names = self.draw.sample(NAMES, 3)
        bound = self.draw.choice([{"minProperties": 1}, {"maxProperties": 1}, {"minProperties": 1, "maxProperties": 1}])
        return {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}, "additionalProperties": False} | bound

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


SPECIALS = [str(token["id"]) for token in json.loads((EXAMPLE / "model/tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
            if token["special"]]  # fmt: skip
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
        if len(jobs) % 4 == 1:  # what is special would be in the text, and the model wants it
            body |= {"skip_special_tokens": False, "logit_bias": dict.fromkeys(SPECIALS, 20)}
        url = "/v1/chat/completions"
        if len(jobs) % 5 == 4:
            url = "/v1/completions"
            body["prompt"] = "\n".join(message["content"] for message in body.pop("messages"))
        jobs.append({"custom_id": f"{kind}-{index}", "method": "POST", "url": url, "body": body | members})

    for i, schema in enumerate(schemas()):
        if i % 2 == 0:
            add("schema", i, {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}})
        else:
            add("schema", i, {"structured_outputs": {"json": schema, "disable_any_whitespace": i % 4 == 1}})
    for i, schema in enumerate(ADVERSE):
        add("adverse", i, {"structured_outputs": {"json": schema}, "n": ADVERSE_DRAWS, "temperature": 1.5, "max_tokens": 150})
    for i, regex in enumerate(REGEXES):
        add("regex", i, {"structured_outputs": {"regex": regex}})
    for i, choices in enumerate(CHOICES):
        add("choice", i, {"structured_outputs": {"choice": choices}})
    return jobs


def damaged(answer, schema: dict) -> list:
    """Answers that can not match: another type, a member or an element too many, a value beyond its bounds or its pattern."""
    if "anyOf" in schema or "allOf" in schema or not ("type" in schema or "enum" in schema or "const" in schema):
        return []
    versions = [[answer] if not isinstance(answer, list) else {"a": answer}]
    if isinstance(answer, dict):
        if schema.get("additionalProperties") is False:
            versions.append(answer | {"not there": 1})
        for name in schema.get("required", []):
            versions.append({key: value for key, value in copy.deepcopy(answer).items() if key != name})
        for name, value in answer.items():
            versions += [answer | {name: version} for version in damaged(value, schema.get("properties", {}).get(name) or {})]
    if isinstance(answer, list):
        if "maxItems" in schema:
            versions.append((answer or [None]) * (schema["maxItems"] + 1))
        for i, (value, item) in enumerate(zip(answer, schema.get("prefixItems", []))):
            versions += [answer[:i] + [version] + answer[i + 1:] for version in damaged(value, item)]
    if "enum" in schema:
        versions.append("not listed")
    if "pattern" in schema or "maxLength" in schema:
        versions.append("~" * 100)
    if schema.get("format") not in (None, "email"):
        versions.append(NO_FORMAT)
    versions += [schema[bound] - 1 for bound in ("minimum", "exclusiveMinimum") if bound in schema]
    versions += [schema[bound] + 1 for bound in ("maximum", "exclusiveMaximum") if bound in schema]
    if "multipleOf" in schema:
        versions.append(answer + schema["multipleOf"] / 2)
    return versions


def space_error(job: dict, text: str) -> str | None:
    """Why the white space of a JSON text is not what was asked for: none, or one space after each comma and colon."""
    signs = re.sub(r'"(?:\\.|[^"\\])*"', "", text)
    rest = signs if job["body"].get("structured_outputs", {}).get("disable_any_whitespace") else re.sub(r"([,:]) ", r"\1", signs)
    return f"it has white space: {signs[:100]!r}" if re.search(r"\s", rest) else None


def check_json(job: dict, text: str, schema: dict) -> tuple[str | None, int]:
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        answer = json.loads(text)
        json.dumps(answer, allow_nan=False)
    except ValueError as error:
        return f"it is not JSON for every reader: {error}", 0
    errors = [error.message for error in validator.iter_errors(answer)]
    if errors:
        return "; ".join(errors)[:300], 0
    if why := space_error(job, text):
        return why, 0
    versions = damaged(answer, schema)
    for version in versions:
        if validator.is_valid(version):
            return f"the validator takes the damaged answer {json.dumps(version)[:200]}", 0
    return None, len(versions)


def check_answer(job: dict, text: str) -> tuple[str | None, int]:
    """Why the answer does not match, or None; and how many damaged ones were rejected."""
    kind, index = job["custom_id"].split("-")
    if kind == "regex":
        return (None if re.fullmatch(REGEXES[int(index)], text, re.ASCII) else "it does not match"), 0
    if kind == "choice":
        return (None if text in CHOICES[int(index)] else "it is none of the choices"), 0
    return check_json(job, text, ADVERSE[int(index)] if kind == "adverse" else schemas_by_index[int(index)])


schemas_by_index: list[dict] = schemas()


def random_model(folder: Path, tokenizer: Path | None = None) -> Path:
    """The example's model with random weights and a context for 1,024 tokens after the prompt. tokenizer: in place of its own, with as
    many tokens or fewer; </s> has the id 2."""
    shutil.copytree(EXAMPLE / "model", folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}), encoding="utf-8")
    weights = bytearray((folder / "model.safetensors").read_bytes())
    begin = 8 + struct.unpack("<Q", weights[:8])[0]
    drawn = bytearray(random.Random(30).randbytes(len(weights) - begin))
    drawn[1::2] = drawn[1::2].translate(bytes(0x3D if byte % 2 else 0xBD for byte in range(256)))  # of bfloat16: 0.03 to 0.12
    weights[begin:] = drawn
    (folder / "model.safetensors").write_bytes(weights)
    if tokenizer:
        shutil.copy(tokenizer, folder / "tokenizer.json")
        (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}', encoding="utf-8")
        (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
        for name in ("config.json", "generation_config.json"):
            settings = json.loads((folder / name).read_text(encoding="utf-8"))
            (folder / name).write_text(json.dumps(settings | {"eos_token_id": 2}), encoding="utf-8")
    return folder


def with_more_fields(jobs: list[dict]) -> list[dict]:
    """Each job of the base, with fields that structures meet."""
    def more(job: dict) -> list[dict]:
        logprobs = {"logprobs": 2} if "prompt" in job["body"] else {"logprobs": True, "top_logprobs": 2}
        return [{"n": 2}, {"stop": ["zzz"]}, logprobs, {"min_tokens": 5}, {"frequency_penalty": 0.5},
                {"presence_penalty": 1, "repetition_penalty": 1.1}]  # fmt: skip
    return [job | {"body": job["body"] | {"model": "base", "max_tokens": 1024} | more(job)[i % 6]} for i, job in enumerate(jobs)]


def run(program: str, jobs: list[dict], folder: Path, model: list, path: Path | None = None) -> dict[str, list[dict] | str]:
    """The choices of each job's answer, or why it was refused."""
    path, out = path or folder / "jobs.jsonl", folder / "results.jsonl"
    out.unlink(missing_ok=True)
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
    result = subprocess.run([str(word) for word in [program, "run", path, "-o", out, *model]], capture_output=True, text=True)
    if not out.exists():
        raise SystemExit(f"failed: {result.stdout}{result.stderr}")
    bodies = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    for state in folder.glob("results.jsonl*"):
        shutil.rmtree(state) if state.is_dir() else state.unlink()
    return {name: body["error"]["message"][:200] if "error" in body else body["choices"] for name, body in bodies.items()}


def check(what: str, jobs: list[dict], results: dict) -> bool:
    """Prints what the answers are, and says whether they are right."""
    failures, refused, finished, unfinished, rejected = [], [], 0, 0, 0
    for job in jobs:
        choices = results[job["custom_id"]]
        is_bounded = not job["custom_id"].startswith("adverse")
        if isinstance(choices, str):
            refused.append(f"{job['custom_id']}: {choices}")
            continue
        for choice in choices:
            if choice["finish_reason"] != "stop":
                unfinished += is_bounded
                continue
            finished += is_bounded
            text = text_of(choice)
            why, damaged_count = check_answer(job, text)
            rejected += damaged_count
            if why:
                failures.append(f"{job['custom_id']}: {why}: {text[:300]}")
    accepted = len(jobs) - len(refused)
    print(f"{what}: {len(jobs)} structures: {accepted} accepted, {finished} of the bounded answers finished, {unfinished} were cut, "
          f"{len(failures)} do not match, {rejected} damaged ones were rejected")
    for line in refused + failures:
        print(line)
    enough = finished >= math.ceil(FINISHED_LEAST * (finished + unfinished))
    return accepted >= ACCEPTED_LEAST * len(jobs) and enough and not failures and rejected >= accepted


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--jobs", type=Path)
    arguments = parser.parse_args()
    for schema in schemas_by_index:
        Draft202012Validator.check_schema(schema)
    if unchecked := [name for name in FORMATS if name not in Draft202012Validator.FORMAT_CHECKER.checkers]:
        raise SystemExit(f"failed: the validator does not check {unchecked} (ops/setup --tests)")
    jobs = make_jobs()
    example = ["--model", EXAMPLE / "model", "--adapters", EXAMPLE / "adapters"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = run(arguments.program, jobs, folder, example, arguments.jobs)
        good = check("the example's model", jobs, results)
        some = [job for job in jobs[::8] if not job["custom_id"].startswith("adverse")]
        alone = run(arguments.program, some, folder, [*example, "--max-batch", "1"])
        good = same_alone(alone, results) and good
        # Without the trees, which random weights may grow for ever.
        of_base = with_more_fields([job for job in jobs[:110] if "$defs" not in str(job["body"])])
        drawn = run(arguments.program, of_base, folder, ["--model", random_model(folder / "model")])
        good = check("random weights", of_base, drawn) and good
        pieces = random_model(folder / "pieces", ROOT / "tests/data/text/llama2/tokenizer.json")
        some = of_base[::2]
        drawn = run(arguments.program, some, folder, ["--model", pieces])
        good = check("random weights, SentencePiece", some, drawn) and good
        alone = run(arguments.program, some[::4], folder, ["--model", pieces, "--max-batch", "1"])
        good = same_alone(alone, drawn) and good
        good = check_tags(arguments.program, folder, example) and good
        good = check_tables(arguments.program, folder, example) and good
    return 0 if good else 1


def check_tags(program: str, folder: Path, example: list) -> bool:
    """The example's own jobs with a schema: every answer parses and validates, and as many are right as the example's README says."""
    lines = map(json.loads, (EXAMPLE / "jobs/heldout.jsonl").read_text(encoding="utf-8").splitlines())
    jobs = [job for job in lines if job["body"]["model"] == "tags"]
    answers = map(json.loads, (EXAMPLE / "jobs/answers.jsonl").read_text(encoding="utf-8").splitlines())
    gold = {line["custom_id"]: line["answer"] for line in answers}
    results = run(program, jobs, folder, example)
    parsed = right = 0
    for job in jobs:
        answer = json.loads(texts(results[job["custom_id"]])[0])
        parsed += Draft202012Validator(job["body"]["response_format"]["json_schema"]["schema"]).is_valid(answer)
        right += answer == json.loads(gold[job["custom_id"]])
    print(f"tags: {len(jobs)} jobs, {parsed} answers parse and validate, {right} are right")
    return len(jobs) == TAGS_JOBS and parsed == len(jobs) and right >= TAGS_RIGHT_LEAST * len(jobs)


def check_tables(program: str, folder: Path, example: list) -> bool:
    """--schema: a column for each member, an object in JSON lines, the text of an answer that was cut, and files that are no schema."""
    (folder / "in.csv").write_text("id,text\n1,a library for numbers\n2,a game of chess\n", encoding="utf-8")
    size = {"type": "integer", "minimum": 0, "maximum": 99}
    properties = {"kind": {"enum": ["library", "game"]}, "size": size}
    schema = {"type": "object", "properties": properties, "required": ["kind", "size"]}

    def table(name: str, schema: str, *flags: str) -> tuple[str, str]:
        (folder / "schema.json").write_text(schema, encoding="utf-8")
        columns = ["--id", "id", "--text", "text", "--schema", folder / "schema.json"]
        command = [program, "run", folder / "in.csv", "-o", folder / name, *example, *columns, *flags]
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        return (folder / name).read_text(encoding="utf-8") if (folder / name).exists() else "", result.stderr

    rows = list(csv.DictReader(table("whole.csv", json.dumps(schema))[0].splitlines()))
    cut = list(csv.DictReader(table("cut.csv", json.dumps(schema), "--max-tokens", "3")[0].splitlines()))
    closed = json.dumps(schema | {"additionalProperties": False})
    objects = [json.loads(line) for line in table("whole.jsonl", closed)[0].splitlines()]
    halves = [json.loads(line) for line in table("cut.jsonl", closed, "--max-tokens", "3")[0].splitlines()]
    filled = [row["kind"] in ("library", "game") and row["size"].isdecimal() and not row["result"] for row in rows]
    empty = [not row["kind"] and row["result"].startswith("{") and "--max-tokens" in row["error"] for row in cut]
    good = {
        "columns": len(rows) == 2 and all(filled),
        "cut rows": len(cut) == 2 and all(empty),
        "objects": len(objects) == 2 and all(Draft202012Validator(schema).is_valid(row["result"]) for row in objects),
        "cut lines": len(halves) == 2 and all(row["result"].startswith("{") and "--max-tokens" in row["error"] for row in halves),
        "no object": 'give it the member "type": "object"' in table("none.csv", '{"type": "string"}')[1],
        "no JSON": "the file is not JSON" in table("none.csv", "{")[1],
    }
    print(f"tables: {', '.join(f'{name} {ok}' for name, ok in good.items())}")
    return all(good.values())


def same_alone(alone: dict, results: dict) -> bool:
    others = [name for name, choices in alone.items() if texts(choices) != texts(results[name])]
    if others:
        print(f"other answers one by one: {others}")
    return not others


def text_of(choice: dict) -> str:
    return choice["text"] if "text" in choice else choice["message"]["content"]


def texts(choices: list[dict] | str) -> list[str]:
    return [choices] if isinstance(choices, str) else [text_of(choice) for choice in choices]


if __name__ == "__main__":
    sys.exit(main())
