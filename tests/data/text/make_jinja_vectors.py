#!/usr/bin/env python3
# Writes jinja_vectors.json: what Python's jinja2, set up as transformers sets it up, makes of the templates in jinja_cases.py. The test in
# tests/engine/text/jinja_test.cpp compares. Run by hand when the cases change; the output is committed and the same each time.
#
#   pip install jinja2==3.1.6
#   python3 tests/data/text/make_jinja_vectors.py
#   python3 tests/data/text/make_jinja_vectors.py --compare liblorry_text.so --count 100000 --seed 7
#
# The second form writes nothing. It renders the cases and COUNT generated templates with both engines and prints each difference. The
# library is `cargo rustc --release --lib --crate-type cdylib` of engine/text.
import argparse
import ctypes
import json
import pathlib
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox
import jinja2.utils

from jinja_cases import CONTEXT, EXPRESSIONS, MESSAGES, REFUSED, TEMPLATES, generated

VERSION = "3.1.6"
HERE = pathlib.Path(__file__).parent
SEED = 20261125
GENERATED = 1500
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """transformers' AssistantTracker, as far as it concerns the text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_plain"), [], [], body).set_lineno(line)

    def _plain(self, caller):
        return caller()


def environment():
    """The environment of transformers 5.23.0 and 5.24.0, utils/chat_template_utils.py."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.now().strftime(format)

    class TemplateDict:
        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    class TemplateNamespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                TemplateNamespace._check_name(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            TemplateNamespace._check_name(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def _check_name(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(name)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    made.globals["dict"] = TemplateDict()
    made.globals["namespace"] = TemplateNamespace
    return made


ENVIRONMENT = environment()


def variables():
    return {**json.loads(json.dumps(CONTEXT)), **SPECIAL_TOKENS, "documents": None, "messages": json.loads(json.dumps(MESSAGES)),
            "tools": None, "add_generation_prompt": True}


def reference(source):
    """The text, or None where jinja2 fails in any way."""
    try:
        return ENVIRONMENT.from_string(source).render(**variables())
    except Exception:
        return None


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


SINK_WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Sink(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("write", SINK_WRITE)]


class Request(ctypes.Structure):
    _fields_ = [("messages", View), ("tools", View), ("extra", View), ("add_generation_prompt", ctypes.c_bool)]


class Lorry:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.lorry_text_chat_template_new.argtypes = [View, ctypes.c_void_p, Sink]
        self.library.lorry_text_chat_template_render.argtypes = [ctypes.c_void_p, ctypes.c_void_p, Sink, Sink]
        self.library.lorry_text_chat_template_free.argtypes = [ctypes.c_void_p]
        self.written = b""

        def write(_, data, size):
            self.written = ctypes.string_at(data, size)

        self.sink = Sink(None, SINK_WRITE(write))
        self.request = Request(self.view(json.dumps(MESSAGES)), self.view(""), self.view(json.dumps(CONTEXT)), True)

    @staticmethod
    def view(text):
        data = text.encode("utf-8", "surrogatepass")
        return View(data, len(data))

    def render(self, source):
        """(text, None) or (None, error)."""
        handle = ctypes.c_void_p()
        description = json.dumps({"templates": {"default": source}, "special_tokens": SPECIAL_TOKENS})
        if self.library.lorry_text_chat_template_new(self.view(description), ctypes.byref(handle), self.sink):
            return None, "load: " + self.written.decode()
        failed = self.library.lorry_text_chat_template_render(handle, ctypes.byref(self.request), self.sink, self.sink)
        text = self.written.decode()
        self.library.lorry_text_chat_template_free(handle)
        return (None, text) if failed else (text, None)


def cases():
    return ["{{ " + expression + " }}" for expression in EXPRESSIONS] + TEMPLATES


def compare(library, seed, count):
    lorry = Lorry(library)
    counts = {"equal": 0, "other text": 0, "refused": 0, "accepted": 0}
    for source in [*cases(), *generated(seed, count)]:
        expected, (actual, error) = reference(source), lorry.render(source)
        if actual == expected:
            counts["equal"] += 1
            continue
        kind = "other text" if None not in (actual, expected) else "refused" if actual is None else "accepted"
        counts[kind] += 1
        print(f"{kind}: {source!r}\n    jinja2 {expected!r}\n    lorry  {error if actual is None else repr(actual)}")
    print(counts)


def vector(source):
    if source in REFUSED:
        return {"source": source, "refused": True}
    text = reference(source)
    return {"source": source} if text is None else {"source": source, "text": text}


def write():
    """A vector without text is an error in jinja2. Of the generated ones, those stay that render to a short text without an address."""
    vectors = [vector(source) for source in cases()]
    for source in generated(SEED, GENERATED):
        made = vector(source)
        if " at 0x" not in made.get("text", " at 0x") and len(made["text"]) < 300:
            vectors.append({**made, "generated": True})
    lines = ",\n".join(json.dumps(made, ensure_ascii=True, separators=(",", ":")) for made in vectors)
    # The context is JSON in a string, so that a reader of this file does not change its numbers.
    head = json.dumps({"context": json.dumps(CONTEXT, separators=(",", ":")), "messages": MESSAGES}, separators=(",", ":"))[:-1]
    (HERE / "jinja_vectors.json").write_text(f'{head},"vectors":[\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(vectors)} vectors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", metavar="LIBRARY")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=GENERATED)
    arguments = parser.parse_args()
    if jinja2.__version__ != VERSION:
        raise SystemExit(f"jinja2 is {jinja2.__version__}, the vectors are made with {VERSION}")
    if arguments.compare:
        return compare(arguments.compare, arguments.seed, arguments.count)
    write()


if __name__ == "__main__":
    main()
