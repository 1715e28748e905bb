#!/usr/bin/env python3
# Trains a tiny tokenizer of each kind and writes what Hugging Face's own code makes of texts, ids and chats: the vectors that
# tests/engine/text_*_test.cpp compare with. Run by hand when they are to change; its outputs are committed. Training is not the same
# each time, so a tokenizer.json that is there stays: the vectors then come out as they were.
#
#   pip install tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6
#   python3 tests/data/text/make_vectors.py
#
# Writes NAME/tokenizer.json and NAME/vectors.json for each kind, and chat_vectors.json.
import json
import pathlib
import random

import jinja2
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.decoders import DecodeStream

from chat_cases import CASES
from corpus import CORPUS, TEXTS

VERSIONS = {"tokenizers": "0.23.3", "transformers": "5.23.0", "jinja2": "3.1.6"}
HERE = pathlib.Path(__file__).parent
SEED = 20261121

WORDS_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS_QWEN2 = WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level_bpe(words, specials, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    if words is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        split = pre_tokenizers.Split(Regex(words), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def gpt2():
    tokenizer = byte_level_bpe(None, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer = byte_level_bpe(WORDS_LLAMA3, specials, ignore_merges=True)
    bos = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    template = processors.TemplateProcessing(single=f"{bos[0]} $A", pair=f"{bos[0]} $A {bos[0]} $B", special_tokens=[bos])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2():
    tokenizer = byte_level_bpe(WORDS_QWEN2, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False), AddedToken("dépôt", special=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def sentencepiece_bpe(controls):
    """A byte fall-back BPE as converted from SentencePiece: the byte tokens are part of the model's vocabulary, after the specials."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    # The limit keeps what is not Latin out of the vocabulary, so that it falls back to bytes.
    trainer = trainers.BpeTrainer(vocab_size=260, limit_alphabet=90, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    names = controls + [f"<0x{byte:02X}>" for byte in range(256)] + sorted(model["vocab"], key=model["vocab"].get)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={name: id for id, name in enumerate(names)},
            merges=[tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    replace = decoders.Replace("▁", " ")
    tokenizer.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[bos])
    return tokenizer


def llama2():
    tokenizer = sentencepiece_bpe(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def mistral():
    tokenizer = sentencepiece_bpe(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return tokenizer


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, limit_alphabet=120, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return tokenizer


def words():
    """No decoder at all: the library joins tokens with spaces."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(CORPUS[:6], trainers.WordLevelTrainer(vocab_size=60, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


KINDS = [gpt2, llama3, qwen2, llama2, mistral, bert, unigram, words]


def fallback_byte(token):
    return int(token[3:5], 16) if len(token) == 6 and token.startswith("<0x") and token.endswith(">") else None


def loses_characters(tokens):
    """Whether a run of byte tokens is not UTF-8 but begins with complete characters: there a stream must differ from decode."""
    run = bytearray()
    for token in tokens + [""]:
        byte = fallback_byte(token)
        if byte is not None:
            run.append(byte)
            continue
        try:
            run.decode()
        except UnicodeDecodeError as error:
            if error.start > 0:
                return True
        run.clear()
    return False


def random_ids(tokenizer, rng, byte_fallback):
    """Ids as a model without sense would make them, broken characters included."""
    size = tokenizer.get_vocab_size()
    while True:
        ids = [rng.randrange(size) for _ in range(rng.choice([1, 2, 5, 30]))]
        if not (byte_fallback and loses_characters([tokenizer.id_to_token(id) for id in ids])):
            return ids


def stream_of(tokenizer, ids):
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, id) or "" for id in ids]


def vectors_of(name, tokenizer, rng):
    specials = [added.content for added in tokenizer.get_added_tokens_decoder().values()]
    texts = TEXTS + ["".join(f"{token}x {token}" for token in specials), f" {specials[-1]} " if specials else " <unk> "]
    encoded = []
    for text in texts:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        encoded.append({"text": text, "ids": plain, "with_special": tokenizer.encode(text).ids, "stream": stream_of(tokenizer, plain)})
    byte_fallback = name in ("llama2", "mistral")
    sequences = [entry["with_special"] for entry in encoded] + [random_ids(tokenizer, rng, byte_fallback) for _ in range(40)]
    decoded = [
        {
            "ids": ids,
            "text": tokenizer.decode(ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True),
        }
        for ids in sequences
    ]
    # A prompt ends anywhere between two characters; what follows is what its ids add to the text.
    continued = []
    for entry in encoded:
        for cut in {1, len(entry["ids"]) // 2, len(entry["ids"]) - 1}:
            prompt, ids = entry["with_special"][:cut], entry["with_special"][cut:]
            before, both = tokenizer.decode(prompt), tokenizer.decode(prompt + ids)
            if cut > 0 and ids and prompt and before and not before.endswith("\ufffd") and both.startswith(before):
                continued.append({"prompt": prompt, "ids": ids, "text": both[len(before) :]})
    tokens = [{"id": id, "token": tokenizer.id_to_token(id)} for id in range(tokenizer.get_vocab_size())]
    special = sorted(id for id, added in tokenizer.get_added_tokens_decoder().items() if added.special)
    return {"vocabulary_size": tokenizer.get_vocab_size(), "special": special, "tokens": tokens[:: max(1, len(tokens) // 40)],
            "encode": encoded, "decode": decoded, "continue": continued}


def rendered(case):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")), bos_token="<s>", eos_token="</s>"
    )
    template = (HERE / "templates" / f"{case['template']}.jinja").read_text(encoding="utf-8")
    try:
        return {
            "text": tokenizer.apply_chat_template(
                case["messages"],
                chat_template=template,
                tools=case.get("tools"),
                add_generation_prompt=case.get("add_generation_prompt", True),
                tokenize=False,
                **case.get("extra", {}),
            )
        }
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    for module in (tokenizers, transformers, jinja2):
        if module.__version__ != VERSIONS[module.__name__]:
            raise SystemExit(f"{module.__name__} is {module.__version__}, the vectors are made with {VERSIONS[module.__name__]}")
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for kind in KINDS:
        folder = HERE / kind.__name__
        file = folder / "tokenizer.json"
        if not file.exists():
            folder.mkdir(exist_ok=True)
            trained = kind()
            if kind is bert:
                # A file may ask for both; at inference neither is applied.
                trained.enable_truncation(8)
                trained.enable_padding(length=16, pad_id=0, pad_token="[PAD]")
            trained.save(str(file), pretty=False)
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        write(folder / "vectors.json", vectors_of(kind.__name__, tokenizer, rng))
    write(HERE / "chat_vectors.json", [{**case, **rendered(case)} for case in CASES])


if __name__ == "__main__":
    main()
