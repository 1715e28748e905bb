#!/usr/bin/env python3
# Writes what training scripts save beside an adapter, by transformers, and what transformers makes of texts and chats with it: the folders
# adapter_texts/NAME, with vectors.json, that tests/engine/text/model_text_test.cpp compares with. The base is qwen2/tokenizer.json with the
# files of adapter_texts/base. Run by hand when they are to change; its outputs are committed.
#
#   pip install tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6
#   python3 tests/data/text/make_adapter_vectors.py
import json
import pathlib
import shutil
import tempfile

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from corpus import TEXTS

HERE = pathlib.Path(__file__).parent
OUT = HERE / "adapter_texts"
KEPT = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]

PLAIN = "{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"
TURNS = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|done|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}\n"
)
CHATS = [
    [{"role": "user", "content": "hello"}],
    [{"role": "system", "content": "be <tool>brief</tool>"}, {"role": "user", "content": "naïve  café"}],
]


def as_trained(tokenizer):
    """What trainers change that no answer depends on."""
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    tokenizer.model_max_length = 512
    tokenizer(["a", "a longer text"], padding=True, truncation=True, max_length=4)


def with_tokens(tokenizer):
    as_trained(tokenizer)
    tokenizer.add_tokens(["<tool>", "</tool>"])
    tokenizer.add_special_tokens({"eos_token": "<|done|>", "additional_special_tokens": ["<|turn|>"]})
    tokenizer.chat_template = TURNS


def with_template(tokenizer):
    tokenizer.chat_template = PLAIN.replace("{{ eos_token }}", " END {{ eos_token }}")


def with_end(tokenizer):
    tokenizer.eos_token = "<|im_end|>"


def save(tokenizer, folder):
    """The files that matter, each JSON on one line."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        for name in KEPT:
            text = (pathlib.Path(scratch) / name).read_text()
            if name.endswith(".json"):
                text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) + "\n"
            (folder / name).write_text(text)


def vectors_of(tokenizer):
    texts = []
    for text in TEXTS[:8] + ["<tool>x</tool> y", "a<|turn|>b<|done|>", "<|im_start|>c<|im_end|>"]:
        ids = tokenizer.encode(text)
        texts.append(
            {
                "text": text,
                "ids": ids,
                "decoded": tokenizer.decode(ids),
                "skipped": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    chats = []
    for messages in CHATS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        chats.append({"messages": messages, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False)})
    return {"eos": tokenizer.eos_token_id, "texts": texts, "chats": chats}


def main():
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / "qwen2" / "tokenizer.json"), eos_token="<|endoftext|>")
        tokenizer.chat_template = PLAIN
        tokenizer.save_pretrained(scratch)
        save(tokenizer, OUT / "base")
        (OUT / "base" / "tokenizer.json").unlink()  # qwen2/tokenizer.json
        vectors = {}
        for name, change in [("trained", as_trained), ("tokens", with_tokens), ("template", with_template), ("end", with_end)]:
            tokenizer = AutoTokenizer.from_pretrained(scratch)
            change(tokenizer)
            save(tokenizer, OUT / name)
            vectors[name] = vectors_of(AutoTokenizer.from_pretrained(OUT / name))
    lines = ",\n".join(f'"{name}":{json.dumps(value, ensure_ascii=False, separators=(",", ":"))}' for name, value in vectors.items())
    (OUT / "vectors.json").write_text("{" + lines + "}\n")


main()
