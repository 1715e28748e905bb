#!/usr/bin/env python3
"""Looks with valgrind for decisions that depend on undefined values, while the program samples at the extremes of what jobs may ask.

    tests/undefined_values.py PROGRAM      for example build/lorry; takes half a minute or more

Runs jobs in batches through `lorry run` with a tiny model and --isa avx2, because valgrind does not know AVX-512. ctest runs it as
`undefined_values` where valgrind is installed; exit code 77: it is not.
"""

import itertools
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).parent / "data"
MODEL = DATA / "models" / "checkpoints" / "llama-mqa-tied"
TOKENIZER = DATA / "text" / "gpt2" / "tokenizer.json"
VOCABULARY = 257  # of the tokenizer; the model has more

EXTREMES = {
    "temperature": [0, 1e-40, 1e-300, 1e-6, 2],
    "top_p": [1e-40, 1e-300, 1e-7, 1],
    "top_k": [-1, 0, 1, 2, 2147483647],
    "min_p": [0, 1e-40, 1e-300, 1],
    "repetition_penalty": [1e-40, 1e-6, 1, 2],
    "presence_penalty": [-2, 2],
    "frequency_penalty": [-2, 2],
    "logit_bias": [{str(token): -100 for token in range(VOCABULARY)}, {"7": 100, "8": 100}],
    "n": [1, 3],
    "logprobs": [0, 20],
    "echo": [True],
    "min_tokens": [3],
}


def jobs():
    """Each extreme alone, then each pair of fields with values drawn from a fixed seed."""
    bodies = [{field: value} for field, values in EXTREMES.items() for value in values]
    draw = random.Random(26)
    for first, second in itertools.combinations(EXTREMES, 2):
        bodies.append({first: draw.choice(EXTREMES[first]), second: draw.choice(EXTREMES[second])})
    for number, body in enumerate(bodies):
        more = {"model": "base", "prompt": [1 + number % 50, 2, 3, 2], "max_tokens": 3, "seed": number}
        yield {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": more | body}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "model"
        shutil.copytree(MODEL, model)
        shutil.copy(TOKENIZER, model)
        lines = list(jobs())
        (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in lines))
        command = [
            "valgrind", "--quiet", "--error-exitcode=99",
            sys.argv[1], "run", folder / "jobs.jsonl", "-o", folder / "out.jsonl", "--model", model, "--device", "cpu",
            "--isa", "avx2", "--threads", "1", "--kv-memory", "4MiB", "--max-batch", "16",
        ]
        run = subprocess.run(command, capture_output=True, text=True)
        out = folder / "out.jsonl"
        results = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    refused = [result["custom_id"] for result in results if (result["response"] or {}).get("status_code") != 200]
    print(f"{len(results)} of {len(lines)} jobs ended, {len(refused)} of them refused")
    for number in refused:
        print(f"  refused: {lines[int(number)]['body']}")
    if run.returncode != 0 or len(results) != len(lines):
        print(run.stderr, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
