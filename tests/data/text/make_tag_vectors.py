#!/usr/bin/env python3
# Writes tag_vectors.json: whether XGrammar takes the texts in tag_cases.py for matches of the structural tags there, and generated texts
# for matches of generated tags. The test in tests/engine/tag_formats_test.cpp compares. Run by hand when the cases change; the output is
# committed and the same each time.
#
#   pip install xgrammar==0.2.8
#   python3 tests/data/text/make_tag_vectors.py
import importlib.metadata
import json
import pathlib
import random

import xgrammar
from xgrammar.testing import _is_grammar_accept_string

from tag_cases import CASES, generated

VERSION = "0.2.8"
SEED = 20261128
GENERATED = 150


def main():
    installed = importlib.metadata.version("xgrammar")
    if installed != VERSION:
        raise SystemExit(f"xgrammar is {installed}; the vectors are those of {VERSION}: pip install xgrammar=={VERSION}")
    cases = []
    for name, format, texts in [*CASES, *generated(random.Random(SEED), GENERATED)]:
        try:
            grammar = xgrammar.Grammar.from_structural_tag(json.dumps({"type": "structural_tag", "format": format}))
        except RuntimeError:
            if not name.startswith("generated"):
                raise
            continue
        matches = {text: _is_grammar_accept_string(grammar, text) for text in texts}
        cases.append(json.dumps({"name": name, "format": format, "matches": matches}))
    out = f'{{"xgrammar": "{VERSION}", "cases": [\n' + ",\n".join(cases) + "\n]}\n"
    (pathlib.Path(__file__).parent / "tag_vectors.json").write_text(out)


if __name__ == "__main__":
    main()
