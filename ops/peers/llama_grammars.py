"""Draws tokens that llama.cpp's grammars allow. Used by drive_llama.py."""

import ctypes
import json

import llama_cpp
import numpy as np
from llama_cpp.llama_grammar import PRIMITIVE_RULES, BuiltinRule, SchemaConverter

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # as llama_token_data


# As llama.cpp's own converter in C++ has it: strings of JSON have no control characters.
CHAR = BuiltinRule(r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})', [])


class BoundedConverter(SchemaConverter):
    """llama-cpp-python's converter of schemas to GBNF, which would leave out the bounds of integers and let control characters into
    strings. Its only white space is one space at most after each token of JSON."""

    def visit(self, schema: dict, name: str) -> str:
        if schema.get("type") != "integer":
            return super().visit(schema, name)
        return self._add_rule(name, integers(schema["minimum"], schema["maximum"]) + " space")


def integers(least: int, most: int) -> str:
    """The GBNF of an integer, with the bounds that llama.cpp's own converter in C++ would write so."""
    if 0 <= least <= most <= 9:
        return f"[{least}-{most}]"
    digits = len(str(most))
    if least != 0 or most != 10**digits - 1:
        raise ValueError(f"integers from {least} to {most}: only those of one digit or of all numbers of digits are converted")
    return f'("0" | [1-9] [0-9]{{0,{digits - 1}}})'


def grammar_of(schema: str) -> str:
    PRIMITIVE_RULES["char"] = CHAR
    converter = BoundedConverter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter.visit(json.loads(schema), "")
    return converter.format_grammar()


class Grammars:
    def __init__(self, vocabulary: int, tokens: int) -> None:
        self.vocabulary = vocabulary  # llama.cpp's handle
        self.candidates = np.zeros(tokens, CANDIDATE)
        self.kept: dict[str, object] = {}  # schema -> a sampler that has accepted nothing

    def begin(self, schema: str) -> object:
        """A sampler of one answer, which the caller frees."""
        if schema not in self.kept:
            sampler = llama_cpp.llama_sampler_init_grammar(self.vocabulary, grammar_of(schema).encode(), b"root")
            if not sampler:
                raise RuntimeError("llama.cpp cannot use the grammar of a schema")
            self.kept[schema] = sampler
        return llama_cpp.llama_sampler_clone(self.kept[schema])

    def draw(self, sampler: object, logits: np.ndarray) -> int:
        """The likeliest token that the grammar allows, which it then accepts. As in llama.cpp's programs, it looks at all tokens only if
        it does not allow the likeliest."""
        token = int(logits.argmax())
        if not self.allowed(sampler, np.array([token]), logits):
            self.allowed(sampler, np.arange(len(logits)), logits)
            token = int(self.candidates["logit"].argmax())
        llama_cpp.llama_sampler_accept(sampler, token)
        return token

    def allowed(self, sampler: object, tokens: np.ndarray, logits: np.ndarray) -> bool:
        """Makes candidates of the tokens; the logits of those that the grammar does not allow become -inf. False if it allows none."""
        some = self.candidates[: len(tokens)]
        some["id"] = tokens
        some["logit"] = logits[tokens]
        data = ctypes.cast(some.ctypes.data, llama_cpp.llama_token_data_p)
        array = llama_cpp.llama_token_data_array(data=data, size=len(tokens), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        return bool(np.isfinite(some["logit"]).any())

    def is_end(self, token: int) -> bool:
        return llama_cpp.llama_vocab_is_eog(self.vocabulary, token)
