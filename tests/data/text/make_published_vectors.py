#!/usr/bin/env python3
# Has transformers encode, decode and render with tokenizers and chat templates of published models: the vectors that
# tests/engine/text/published_test.cpp compares with. Run by hand when they are to change; its outputs are committed, the tokenizers
# are not: ops/setup --tests downloads them.
#
#   pip install transformers==5.24.0 jinja2==3.1.6 sentencepiece==0.2.1
#   ops/setup --tests
#   python3 tests/data/text/make_published_vectors.py
#
# Writes published/texts.json, and published/NAME.json for each folder of .deps/tokenizers.
import json
import pathlib
import random

import jinja2
import transformers

from chat_cases import ANSWER, CALL, CLOCK, HELLO, RESULT, SYSTEM, THANKS, THOUGHT, WEATHER
from corpus import CORPUS, TEXTS

VERSIONS = {"transformers": "5.24.0", "jinja2": "3.1.6"}
HERE = pathlib.Path(__file__).parent
TOKENIZERS = HERE.parent.parent.parent / ".deps" / "tokenizers"
SEED = 20261127

# transformers drops null contents, and some of these templates need one. vllm_cases.py has those.
CALL = {**CALL, "content": ""}
CHATS = {
    "one question": {"messages": [HELLO]},
    "system and turns": {"messages": [SYSTEM, HELLO, ANSWER, THANKS]},
    "an answer at the end": {"messages": [HELLO, ANSWER], "add_generation_prompt": False},
    "tools": {"messages": [SYSTEM, HELLO], "tools": [WEATHER, CLOCK]},
    "a call": {"messages": [HELLO, CALL, RESULT], "tools": [WEATHER, CLOCK]},
    "a call, answered": {"messages": [SYSTEM, HELLO, CALL, RESULT, ANSWER, THANKS], "tools": [WEATHER]},
    "a thought": {"messages": [HELLO, THOUGHT, THANKS]},
    "no thinking": {"messages": [HELLO], "extra": {"enable_thinking": False}},
    "two users": {"messages": [HELLO, THANKS]},
}


def texts_of():
    """Beside those of the tiny tokenizers, longer ones."""
    return TEXTS + sorted(set(CORPUS)) + ["<s> [INST] <|im_start|>user\n<start_of_turn><|eot_id|><think>\n</think> <tool_call>"]


def ids_of(tokenizer, text, special):
    return tokenizer(text, add_special_tokens=special)["input_ids"]


def rendered(tokenizer, chat):
    try:
        return {"text": tokenizer.apply_chat_template(
            chat["messages"], tools=chat.get("tools"), add_generation_prompt=chat.get("add_generation_prompt", True), tokenize=False,
            date_string="27 Nov 2026", **chat.get("extra", {}))}
    except jinja2.exceptions.UndefinedError:
        return {"error": ""}  # any message
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}


# Version 5 of transformers gives the class LlamaTokenizer a pre-tokenizer that drops a space at the beginning of a text. The file and the
# original SentencePiece model keep it.
AS_IN_FILE = {"llama2"}


def vectors_of(folder):
    loader = transformers.PreTrainedTokenizerFast if folder.name in AS_IN_FILE else transformers.AutoTokenizer
    tokenizer = loader.from_pretrained(folder)
    rng = random.Random(SEED)
    encode = [{"ids": ids_of(tokenizer, text, False), "with_special": ids_of(tokenizer, text, True)} for text in texts_of()]
    for entry in encode:
        if entry["ids"] == entry["with_special"]:
            del entry["with_special"]
    decode = []
    for count in [1, 2, 5, 30] * 8:
        ids = [rng.randrange(len(tokenizer)) for _ in range(count)]
        decode.append({
            "ids": ids,
            "text": tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        })
    vectors = {"vocabulary_size": len(tokenizer), "encode": encode, "decode": decode}
    if tokenizer.chat_template:
        vectors["chats"] = {name: rendered(tokenizer, chat) for name, chat in CHATS.items()}
    return vectors


def write(name, value):
    path = HERE / "published" / f"{name}.json"
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    for module in (transformers, jinja2):
        if module.__version__ != VERSIONS[module.__name__]:
            raise SystemExit(f"{module.__name__} is {module.__version__}, the vectors are made with {VERSIONS[module.__name__]}")
    write("texts", {"texts": texts_of(), "chats": CHATS})
    for folder in sorted(path for path in TOKENIZERS.iterdir() if path.is_dir()):
        write(folder.name, vectors_of(folder))


if __name__ == "__main__":
    main()
