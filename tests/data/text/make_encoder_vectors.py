#!/usr/bin/env python3
"""Trains a tiny tokenizer of each class that encoder models use, and writes what transformers makes of texts and pairs of texts.

The vectors are what tests/engine/text/encoder_test.cpp compares with. Run by hand when they are to change; the
outputs are committed. Trained files that are there stay, because training is not the same each time.

  pip install tokenizers==0.23.3 transformers==5.23.0 sentencepiece==0.2.3 protobuf==7.36.2
  python3 tests/data/text/make_encoder_vectors.py

Writes encoders/NAME/: the files as they are downloaded (vocab.txt, spm.model and the like, tokenizer_config.json), tokenizer.json as
transformers converts them, and vectors.json. A token in vectors.json is [id, type, text, word, begin, end].
"""
import importlib
import io
import json
import pathlib
import tempfile
import types

import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import CORPUS

VERSIONS = {"tokenizers": "0.23.3", "transformers": "5.23.0", "sentencepiece": "0.2.3"}
HERE = pathlib.Path(__file__).parent / "encoders"
# The package has a function of the same name.
converters = importlib.import_module("transformers.convert_slow_tokenizer")

TEXTS = [
    "",
    " ",
    "The lorry leaves the depot.",
    "  two  spaces \t tab\nline  ",
    "It's the driver's; they're sure, isn't it?",
    "Straße, naïve CAFÉ, cafe\u0301, A\u030a ÅNGSTRÖM",
    "卡车把货物运到仓库。トラック 트럭",
    "emoji 😀👍🏽 🇩🇪 ❤️ 👨‍👩‍👧",
    "nul \x00 bell \x07 bom \ufeff zero\u200bwidth nbsp\u00a0x \u2028 \ufffd",
    "unassigned \u0378 \U000e0fff private \ue000 noncharacter \uffff",
    "ＦＵＬＬ width ﬁ ligature ① Ⅷ ½ ``quoted''",
    "12345678 3.14 1,000 lorry2021",
    "tail space ",
    "new\r\n\r\nlines<mask>and [MASK] here </s> [SEP]x",
    "lorry" * 12,
]
PAIRS = [
    ("Where is the lorry?", "The lorry leaves the depot in the morning."),
    ("", "only the second"),
    ("only the first", ""),
    ("", ""),
    ("Straße 😀 卡车", "  cafe\u0301  und\u00a0mehr "),
]
LONG = ("The driver reads the list in the morning.", "When a load is finished the driver signs for it; nobody waits.")
# Precompiled maps of the usual rules have 240 kB; these rules make one of 2 kB.
RULES = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u2028": " ", "\x07": "", "\u200b": " ", "\ufeff": "",
         "ﬁ": "fi", "①": "1", "Ⅷ": "VIII", "½": "1⁄2", "e\u0301": "é", "A\u030a": "Å",
         **{chr(code): chr(code - 0xFEE0) for code in range(0xFF21, 0xFF5B)}}


def wordpiece(specials, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=360, limit_alphabet=120, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    vocabulary = tokenizer.get_vocab()
    return {"vocab.txt": "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get))}


def byte_level(specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=380, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=specials, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"], ensure_ascii=False), "merges.txt": merges}


def sentence_pieces(name, **options):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".tsv") as rules:
        rules.write("".join(f"{code_points(key)}\t{code_points(value)}\n" for key, value in RULES.items()))
        rules.flush()
        defaults = {"vocab_size": 220, "hard_vocab_limit": False, "character_coverage": 0.99, "minloglevel": 2,
                    "normalization_rule_tsv": rules.name}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, **{**defaults, **options})
    return {name: model.getvalue()}


def code_points(text):
    return " ".join(f"{ord(character):X}" for character in text)


def class_of(name):
    return lambda folder, config: getattr(transformers, name).from_pretrained(folder)._tokenizer


ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>",
           "mask_token": "<mask>"}
DEBERTA = {"bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
           "cls_token": "[CLS]", "mask_token": "[MASK]"}
ALBERT = {**DEBERTA, "unk_token": "<unk>", "pad_token": "<pad>"}
T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def converted(converter, file, tokens, **defaults):
    """What the converter of transformers makes of a SentencePiece model, with the special tokens that its class adds."""

    def convert(folder, config):
        options = {**defaults, **{key: value for key, value in config.items() if key != "tokenizer_class"}}
        original = types.SimpleNamespace(vocab_file=str(folder / file), add_prefix_space=True, **options)
        named = {**tokens, **{key: value for key, value in config.items() if key in tokens}}
        ids = {}
        original.convert_tokens_to_ids = lambda token: ids.get(token, 0)
        first = getattr(converters, converter)(original).converted()
        special = [AddedToken(token, special=True, normalized=False, lstrip=name == "mask_token") for name, token in named.items()]
        first.add_tokens(list({token.content: token for token in special}.values()))
        ids.update(first.get_vocab(with_added_tokens=True))
        # The post-processor of the converter asks for ids.
        post_processor = getattr(converters, converter)(original).post_processor()
        if post_processor:
            first.post_processor = post_processor
        return first

    return convert


def modernbert(folder, config):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")])
    tokenizer.add_special_tokens([AddedToken("[MASK]", special=True, normalized=False, lstrip=True)])
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    return tokenizer


BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# name: (training, conversion, tokenizer_config.json)
KINDS = {
    "bert_uncased": (lambda: wordpiece(BERT_SPECIALS, True), class_of("BertTokenizer"), {"tokenizer_class": "BertTokenizer"}),
    "bert_cased": (
        lambda: wordpiece(BERT_SPECIALS, False),
        class_of("BertTokenizer"),
        {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "tokenize_chinese_chars": False},
    ),
    "bert_accents": (
        lambda: wordpiece(BERT_SPECIALS, True),
        class_of("BertTokenizer"),
        {"tokenizer_class": "DistilBertTokenizer", "strip_accents": False},
    ),
    "mpnet": (
        lambda: wordpiece(["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"], True),
        class_of("MPNetTokenizer"),
        {"tokenizer_class": "MPNetTokenizer"},
    ),
    "roberta": (lambda: byte_level(ROBERTA_SPECIALS), class_of("RobertaTokenizer"), {"tokenizer_class": "RobertaTokenizer"}),
    "roberta_prefix": (
        lambda: byte_level(ROBERTA_SPECIALS),
        class_of("RobertaTokenizer"),
        {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True, "trim_offsets": False},
    ),
    "gpt2": (lambda: byte_level(["<|endoftext|>"]), class_of("GPT2Tokenizer"), {"tokenizer_class": "GPT2Tokenizer"}),
    "qwen2": (lambda: byte_level(["<|endoftext|>"]), class_of("Qwen2Tokenizer"), {"tokenizer_class": "Qwen2Tokenizer"}),
    "modernbert": (dict, modernbert, {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]", "pad_token": "[PAD]"}),
    "xlm_roberta": (
        lambda: sentence_pieces("sentencepiece.bpe.model"),
        converted("XLMRobertaConverter", "sentencepiece.bpe.model", ROBERTA),
        {"tokenizer_class": "XLMRobertaTokenizer"},
    ),
    "camembert": (
        lambda: sentence_pieces("sentencepiece.bpe.model"),
        converted("CamembertConverter", "sentencepiece.bpe.model", ROBERTA),
        {"tokenizer_class": "CamembertTokenizer"},
    ),
    "deberta_v2": (
        lambda: sentence_pieces("spm.model", pad_id=0, pad_piece="[PAD]", bos_id=1, bos_piece="[CLS]", eos_id=2, eos_piece="[SEP]",
                                unk_id=3, unk_piece="[UNK]", user_defined_symbols=["depot"]),
        converted("DebertaV2Converter", "spm.model", DEBERTA, do_lower_case=False, split_by_punct=False),
        {"tokenizer_class": "DebertaV2Tokenizer"},
    ),
    "deberta_lower": (
        lambda: sentence_pieces("spm.model", pad_id=0, pad_piece="[PAD]", bos_id=1, bos_piece="[CLS]", eos_id=2, eos_piece="[SEP]",
                                unk_id=3, unk_piece="[UNK]"),
        converted("DebertaV2Converter", "spm.model", DEBERTA),
        {"tokenizer_class": "DebertaV2TokenizerFast", "do_lower_case": True, "split_by_punct": True},
    ),
    "albert": (
        lambda: sentence_pieces("spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"]),
        converted("AlbertConverter", "spiece.model", ALBERT, keep_accents=False, do_lower_case=True),
        {"tokenizer_class": "AlbertTokenizer"},
    ),
    "t5": (
        lambda: sentence_pieces("spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
        converted("T5Converter", "spiece.model", T5, _extra_ids=100),
        {"tokenizer_class": "T5Tokenizer"},
    ),
}


def tokens_of(encoding):
    texts, words = encoding.sequence_ids, encoding.word_ids
    return [
        [id, encoding.type_ids[i], -1 if texts[i] is None else texts[i], -1 if words[i] is None else words[i],
         *((0, 0) if texts[i] is None else encoding.offsets[i])]
        for i, id in enumerate(encoding.ids)
    ]


def limited(tokenizer, first, second, limit, side, strategy):
    case = {"first": first, "second": second, "max_tokens": limit, "side": side, "strategy": strategy}
    tokenizer.enable_truncation(limit, strategy=strategy, direction=side)
    try:
        return {**case, "tokens": tokens_of(tokenizer.encode(first, second))}
    except BaseException as error:
        return {**case, "error": str(error)}
    finally:
        tokenizer.no_truncation()


def windows(tokenizer, text, limit, stride):
    tokenizer.enable_truncation(limit, stride=stride)
    encoding = tokenizer.encode(text)
    tokenizer.no_truncation()
    return {"text": text, "max_tokens": limit, "stride": stride, "windows": [tokens_of(one) for one in [encoding, *encoding.overflowing]]}


def vectors_of(tokenizer):
    first, second = LONG
    limits = [
        limited(tokenizer, *texts, 13, side, strategy)
        for texts in ((first, None), (first, second), (second, first))
        for side in ("right", "left")
        for strategy in ("longest_first", "only_first", "only_second")
    ]
    added = [tokenizer.num_special_tokens_to_add(pair) for pair in (False, True)]
    return {
        "added": added,
        "single": [{"text": text, "tokens": tokens_of(tokenizer.encode(text))} for text in TEXTS],
        "pairs": [{"first": a, "second": b, "tokens": tokens_of(tokenizer.encode(a, b))} for a, b in PAIRS],
        "limited": limits,
        "windows": [windows(tokenizer, first, limit, stride) for limit, stride in ((9, 0), (9, 3), (7, 4), (10000, 2))],
    }


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    for module in (tokenizers, transformers, sentencepiece):
        if module.__version__ != VERSIONS[module.__name__]:
            raise SystemExit(f"{module.__name__} is {module.__version__}, the vectors are made with {VERSIONS[module.__name__]}")
    for name, (train, convert, config) in KINDS.items():
        folder = HERE / name
        file = folder / "tokenizer.json"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for part, content in train().items():
                (folder / part).write_bytes(content if isinstance(content, bytes) else content.encode())
            write(folder / "tokenizer_config.json", config)
            tokenizer = convert(folder, config)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.save(str(file), pretty=False)
        write(folder / "vectors.json", vectors_of(Tokenizer.from_file(str(file))))


if __name__ == "__main__":
    main()
