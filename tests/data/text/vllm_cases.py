# The chats that make_vllm_vectors.py has vLLM shape and render: messages as clients of OpenAI's API send them. Left out are the chats that
# Lorry refuses or renders otherwise on purpose: see docs/jobs.md.


def part(text):
    return {"type": "text", "text": text}


USER = {"role": "user", "content": "2+2?"}
PARTS = {"role": "user", "content": [part("one"), part("two")]}
SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Answer in French."}
DEVELOPER_PARTS = {"role": "developer", "content": [part("Answer"), part("in French.")]}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1, "id": 18446744073709551615}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4"}
RESULT_PARTS = {"role": "tool", "tool_call_id": "c1", "content": [part("4"), part("four")]}
NULLS = {"refusal": None, "annotations": [], "audio": None, "function_call": None}


def assistant(**members):
    return {"role": "assistant", **members}


def calling(function):
    return assistant(content=None, tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", **function}}])


CHATS = {
    "texts": [SYSTEM, USER, assistant(content="4"), USER],
    "parts": [PARTS, assistant(content=[part("three")]), USER],
    "empty texts": [{"role": "user", "content": ""}, assistant(content=""), {"role": "user", "content": []}],
    "null content": [USER, assistant(content=None), USER],
    "no content": [USER, assistant(), USER],
    "null members": [USER, assistant(content="fine", tool_calls=None, **NULLS), USER],
    "an empty list of calls": [USER, assistant(content="fine", tool_calls=[]), USER],
    "an empty list of calls and null content": [USER, assistant(content=None, tool_calls=[]), USER],
    "a call with null content": [USER, assistant(content=None, tool_calls=[CALL], **NULLS), RESULT],
    "a call without content": [USER, assistant(tool_calls=[CALL]), RESULT],
    "a call with content": [USER, assistant(content="Let me see.", tool_calls=[CALL, CALL]), RESULT],
    "arguments that are empty": [USER, calling({"arguments": ""})],
    "arguments that are null": [USER, calling({"arguments": None})],
    "arguments that are missing": [USER, calling({})],
    "arguments that are an object": [USER, calling({"arguments": {"y": [1.5]}})],
    "developer": [DEVELOPER, USER],
    "developer in parts": [DEVELOPER_PARTS, USER],
    "developer after system": [SYSTEM, DEVELOPER, USER],
    "developer later": [USER, assistant(content="4"), DEVELOPER, USER],
    "several developers": [DEVELOPER_PARTS, USER, DEVELOPER, {"role": "system", "content": ""}, USER],
    "systems without developer": [SYSTEM, USER, SYSTEM],
    "a result in parts": [USER, assistant(content=None, tool_calls=[CALL]), RESULT_PARTS],
}
TEMPLATES = ["text_only", "parts_only", "parts_in_macro", "parts_in_parameters", "parts_if_sequence", "parts_if_iterable", "parts_and_tool",
             "parts_unless_tool", "text_or_parts", "text_or_parts_in_parameter", "calls_defined", "system_first", "developer", "qwen25"]
# vLLM takes a tool's result as text even where the template has parts only, so that the result is lost. Where it joins the system's
# messages, it makes them a text, which is lost there, too.
LOST = {
    template: {"a call with null content", "a call without content", "a call with content", "a result in parts", "developer after system",
               "developer later", "several developers"}
    for template in ["parts_only", "parts_in_macro", "parts_in_parameters", "parts_if_sequence", "parts_if_iterable"]
} | {
    template: {"developer after system", "developer later", "several developers"} for template in ["parts_and_tool", "parts_unless_tool"]
}

CASES = [
    {"name": name, "template": template, "messages": messages}
    for template in TEMPLATES
    for name, messages in CHATS.items()
    if name not in LOST.get(template, set())
]
