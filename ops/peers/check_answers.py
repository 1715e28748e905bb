"""Prints how many answers match the schema that they had to match. Run by ops/bench-peers in the environment of transformers:

check_answers.py MODEL_FOLDER FILE with FILE {"schema": text, "outputs": [[ids], ...]}
"""

import json
import sys
from pathlib import Path

import jsonschema
from tokenizers import Tokenizer


def matches(validator: jsonschema.Draft202012Validator, text: str) -> bool:
    try:
        return validator.is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def main() -> None:
    folder, file = map(Path, sys.argv[1:])
    work = json.loads(file.read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    validator = jsonschema.Draft202012Validator(json.loads(work["schema"]))
    texts = [tokenizer.decode(output, skip_special_tokens=True) for output in work["outputs"]]
    wrong = [text for text in texts if not matches(validator, text)]
    print(len(texts) - len(wrong))
    print(*map(repr, wrong), sep="\n", file=sys.stderr)  # for the log


main()
