#!/usr/bin/env python3
# Writes vllm_vectors.json: what vLLM makes of OpenAI's messages, as a client sends them, with the templates in templates/. Run by hand when
# they are to change; the output is committed. vLLM itself is not installed: the functions that shape messages are taken from its source.
#
#   pip install transformers==5.24.0 jinja2==3.1.6
#   pip download --no-deps --no-binary :all: vllm==0.32.0     # and unpack it
#   python3 tests/data/text/make_vllm_vectors.py UNPACKED_VLLM
import ast
import json
import pathlib
import sys
from collections import deque

import jinja2
import transformers
from tokenizers import Tokenizer, models

from vllm_cases import CASES

HERE = pathlib.Path(__file__).parent
FILES = {
    "chat_utils.py": [
        "_collect_extra_fields", "_parse_chat_message_content_mm_part", "_parse_chat_message_content_parts",
        "_parse_chat_message_content_part", "_strip_claude_code_billing_header", "_parse_chat_message_content", "_postprocess_messages",
        "_CLAUDE_CODE_BILLING_HEADER", "PART_TYPES_TO_SKIP_NONE_CONTENT", "TEXT_PART_TYPES",
    ],
    "hf.py": [
        "_is_var_access", "_is_attr_access", "_is_var_or_elems_access", "_iter_nodes_assign_var_or_elems", "_iter_nodes_assign_messages_item",
        "_iter_nodes_assign_content_item", "_convert_developer_to_system", "_consolidate_system_messages",
    ],
}


class Anything:
    """Stands for what text messages do not use: parsers of images, log messages, types."""

    def __getattr__(self, name):
        return lambda *arguments, **named: Anything()

    def __call__(self, *arguments, **named):
        return arguments[0] if arguments else Anything()

    def __bool__(self):
        return False


def vllm_functions(folder):
    names = {"jinja2": jinja2, "json": json, "deque": deque, "cast": lambda kind, value: value, "logger": Anything(),
             "VLLMValidationError": ValueError, "MM_PARSER_MAP": {"text": lambda part: part.get("text")},
             "_KNOWN_CONTENT_PART_FIELDS": frozenset({"type", "text"})}
    for unused in ["_AssistantParser", "_ToolParser", "_reject_reserved_placeholder_in_text"]:
        names[unused] = Anything()
    names |= {"Any": object, "_ContentPart": object, "ConversationMessage": dict, "ChatCompletionContentPartTextParam": dict}
    for file, wanted in FILES.items():
        tree = ast.parse((folder / "vllm" / "renderers" / file).read_text(encoding="utf-8"))
        chosen = [node for node in tree.body if getattr(node, "name", None) in wanted
                  or (isinstance(node, ast.Assign) and node.targets[0].id in wanted)]
        assert len(chosen) == len(wanted), f"{file} is not vLLM 0.32's"
        future = ast.parse("from __future__ import annotations").body
        exec(compile(ast.Module(body=future + chosen, type_ignores=[]), file, "exec"), names)
    return names


def rendered(vllm, case):
    source = (HERE / "templates" / f"{case['template']}.jinja").read_text(encoding="utf-8")
    tree = transformers.utils.chat_template_utils._compile_jinja_template(source).environment.parse(source)
    walks = next(vllm["_iter_nodes_assign_content_item"](tree), None) is not None
    messages = []
    for message in json.loads(json.dumps(case["messages"])):
        messages += vllm["_parse_chat_message_content"](message, Anything(), "openai" if walks else "string", False)
    vllm["_postprocess_messages"](messages)
    if any(message["role"] == "developer" for message in messages) and '"developer"' not in source and "'developer'" not in source:
        messages = vllm["_consolidate_system_messages"](vllm["_convert_developer_to_system"](messages))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")), bos_token="<s>", eos_token="</s>"
    )
    try:
        return {"text": tokenizer.apply_chat_template(messages, chat_template=source, add_generation_prompt=True, tokenize=False)}
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}


def main():
    vllm = vllm_functions(pathlib.Path(sys.argv[1]))
    vectors = [{**case, **rendered(vllm, case)} for case in CASES]
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False, separators=(",", ":")) for vector in vectors)
    (HERE / "vllm_vectors.json").write_text(f"[{lines}]\n", encoding="utf-8")


main()
