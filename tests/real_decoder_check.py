#!/usr/bin/env python3
"""Lorry answers as transformers and peft do with a real model: SmolLM2-135M-Instruct, which ops/setup --tests unpacks, and an adapter.

    real_decoder_check.py LORRY

Answers in float32 are compared with tests/data/models/smollm2.json: texts, tokens of prompts, log-probabilities of all drawn tokens. Then
the model fills in a form in bfloat16. Exit code 77: the model is not there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += map(str, ROOT.glob(".deps/tools/lib/python3*/site-packages"))  # of ops/setup --tests
sys.path.insert(0, str(ROOT / "tests/data/models"))
MODEL = ROOT / ".deps/smollm2/model"
ERROR_MOST = 5e-3  # of a log-probability; two float32 engines differ by their order of additions

FORM = {
    "type": "object", "additionalProperties": False, "required": ["name", "is_open", "year"],
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 20}, "is_open": {"type": "boolean"},
                   "year": {"type": "integer", "minimum": 1900, "maximum": 2030}},
}


def run(lorry: str, scratch: pathlib.Path, jobs: list, *flags: str) -> dict:
    """Answers of a run of these (model, body) by their place in the list."""
    lines = [json.dumps({"custom_id": str(at), "method": "POST", "url": "/v1/chat/completions",
                         "body": {"model": model, "temperature": 0, **body}}) for at, (model, body) in enumerate(jobs)]
    (scratch / "jobs.jsonl").write_text("\n".join(lines) + "\n")
    done = subprocess.run([lorry, "run", scratch / "jobs.jsonl", "-o", scratch / "out.jsonl", "--overwrite", "--model", MODEL, *flags],
                          capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"lorry run ended with {done.returncode}:\n{done.stderr}")
    rows = [json.loads(line) for line in (scratch / "out.jsonl").read_text().splitlines()]
    return {int(row["custom_id"]): row["response"]["body"] for row in rows}


def chat(prompt: str) -> list:
    return [{"role": "user", "content": prompt}]


def differences(case: dict, body: dict) -> list:
    choice = body["choices"][0]
    drawn = [token["logprob"] for token in choice["logprobs"]["content"]]
    # Lorry's list has no end token.
    wanted = case["logprobs"][:len(drawn)] if case["finish_reason"] == "stop" else case["logprobs"]
    pairs = [("text", choice["message"]["content"], case["text"]), ("finish_reason", choice["finish_reason"], case["finish_reason"]),
             ("prompt_tokens", body["usage"]["prompt_tokens"], case["prompt_tokens"]), ("tokens drawn", len(drawn), len(wanted))]
    found = [f"{what} is {got!r} instead of {want!r}" for what, got, want in pairs if got != want]
    error = max((abs(a - b) for a, b in zip(drawn, wanted)), default=0)
    if not error <= ERROR_MOST:
        found.append(f"a log-probability differs by {error}")
    return [f"{case['model']}, {case['prompt'][:40]!r}: {each}" for each in found]


def main() -> None:
    lorry = sys.argv[1]
    if not MODEL.is_dir():
        print("SmolLM2-135M-Instruct is not there; ops/setup --tests unpacks it")
        sys.exit(77)
    from golden_smollm2 import write_adapter

    goldens = json.loads((ROOT / "tests/data/models/smollm2.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        write_adapter(scratch / "adapters" / "seeded")
        jobs = [(case["model"], {"messages": chat(case["prompt"]), "max_tokens": goldens["max_tokens"], "logprobs": True})
                for case in goldens["cases"]]
        answers = run(lorry, scratch, jobs, "--dtype", "float32", "--adapters", str(scratch / "adapters"))
        faults = [fault for at, case in enumerate(goldens["cases"]) for fault in differences(case, answers[at])]
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": FORM}}
        told = "The Blue Door is a bar that opened in 1987 and is still open today. Fill in the form as JSON with name, is_open and year."
        filled = run(lorry, scratch, [("base", {"messages": chat(told), "max_tokens": 60, "response_format": form})])
        text = filled[0]["choices"][0]["message"]["content"]
        row = json.loads(text)
        if list(row) != list(FORM["properties"]) or not isinstance(row["is_open"], bool) or not 1900 <= row["year"] <= 2030:
            faults.append(f"the form is {text}")
    for fault in faults:
        print(fault)
    print(f"{len(goldens['cases'])} answers compared; the form: {text}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
