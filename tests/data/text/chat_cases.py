# The chats that make_vectors.py has transformers render with the templates in templates/.

WEATHER = {
    "type": "function",
    "function": {
        "name": "road_state",
        "description": "How a road is, \"now\" & <here>.",
        "parameters": {
            "type": "object",
            "properties": {
                "road": {"type": "string", "description": "Name, such as Straße 7"},
                "lanes": {"type": "array", "items": {"type": "integer"}},
                "depth": {"type": "number", "default": 0.5, "minimum": 1e-07},
            },
            "required": ["road"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}}

SYSTEM = {"role": "system", "content": "  You drive a lorry. "}
HELLO = {"role": "user", "content": "Is the road clear?"}
ANSWER = {"role": "assistant", "content": " It is, as far as I see. "}
THANKS = {"role": "user", "content": "Thanks! 👍🏽 谢谢\n"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call12345", "type": "function", "function": {"name": "road_state", "arguments": {"road": "Straße 7", "lanes": [1, 2], "wet": True, "z": None}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call12345", "name": "road_state", "content": "{\"state\": \"clear\"}"}
RESULT_OBJECT = {"role": "tool", "tool_call_id": "call12345", "content": {"state": "clear", "depth": 1.0}}
THOUGHT = {"role": "assistant", "content": "<think>\nLook first.\n</think>\n\nYes."}
REASONED = {"role": "assistant", "reasoning": "Look twice.", "content": "Still yes."}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "first"}, {"type": "image"}, {"type": "text", "text": "second"}, {"type": "video"}, {"type": "text", "text": "never"}],
}

VALUES = {
    "role": "user",
    "content": "héllo",
    "numbers": [1, 2, 3, 4],
    "flags": [True, False, None],
    "floats": [1.0, 0.1, 1e-05, 1e16, 1.5e-07, 123456789012345680.0, 0.0001, -0.0, 2.5],
    "nested": {"b": [1, {"c": "d"}], "a": "x\"y'z", "é": {"k": None, "t": True}, "empty": []},
    "strings": ["plain", "it's", "\"quoted\"", "both ' and \"", "tab\tnew\nline\\", "nul\u0001del\u007f", "é 😀 \u2028", ""],
    "schema": {"type": "array", "items": {"type": "string"}},
    "people": [{"name": "Ada", "age": 36}, {"name": "Bo", "age": 25}, {"name": "Cy", "age": 0}],
}

# Functions with each kind of type that harmony.jinja writes.
SHAPES = {
    "type": "function",
    "function": {
        "name": "shapes",
        "description": "Draws \"shapes\".",
        "parameters": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["disc", "square"], "description": "Which", "default": "disc"},
                "label": {"type": "string", "nullable": True},
                "size": {"type": ["number", "string"]},
                "points": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "default": [[0, 1]]},
                "many": {"type": "array", "items": {"type": "object", "properties": {"first_name": {"type": "string"}, "last_name": {"type": "string"}}}},
                "loose": {"type": "array"},
                "either": {"oneOf": [{"type": "string", "default": "é"}, {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}]},
                "nested": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {}}, "required": ["b"]},
                "free": {"type": "object"},
            },
            "required": ["kind", "points"],
        },
    },
}
DEVELOPER = {"role": "developer", "content": "Answer in French."}
THOUGHTFUL_CALL = {**CALL, "reasoning": "I must look."}
TODAY = {"date": "2026-11-27"}


def case(name, template, messages, **rest):
    return {"name": name, "template": template, "messages": messages, **rest}


CASES = [
    case("system and turns", "llama2", [SYSTEM, HELLO, ANSWER, THANKS]),
    case("no system", "llama2", [HELLO]),
    case("turns out of order", "llama2", [HELLO, THANKS]),
    case("plain", "llama3", [SYSTEM, HELLO, ANSWER, THANKS], extra={"date_string": "26 Jul 2024"}),
    case("no prompt for an answer", "llama3", [HELLO, ANSWER], extra={"date_string": "26 Jul 2024"}, add_generation_prompt=False),
    case("tools", "llama3", [SYSTEM, HELLO, CALL, RESULT], tools=[WEATHER, CLOCK], extra={"date_string": "26 Jul 2024"}),
    case("a result that is an object", "llama3", [HELLO, CALL, RESULT_OBJECT], tools=[CLOCK], extra={"date_string": "26 Jul 2024"}),
    case("two calls at once", "llama3", [HELLO, {**CALL, "tool_calls": CALL["tool_calls"] * 2}], extra={"date_string": "26 Jul 2024"}),
    case("plain", "qwen25", [HELLO, ANSWER, THANKS]),
    case("system", "qwen25", [SYSTEM, HELLO]),
    case("tools", "qwen25", [SYSTEM, HELLO, CALL, RESULT, RESULT, ANSWER, THANKS], tools=[WEATHER, CLOCK]),
    case("an empty list of tools", "qwen25", [HELLO], tools=[]),
    case("thoughts", "qwen25", [HELLO, THOUGHT, THANKS, THOUGHT]),
    case("thoughts under another name", "qwen25", [HELLO, REASONED]),
    case("thinking switched off", "qwen25", [HELLO], extra={"enable_thinking": False}),
    case("plain", "mistral", [SYSTEM, HELLO, ANSWER, THANKS]),
    case("tools", "mistral", [HELLO, CALL, RESULT, ANSWER, THANKS], tools=[WEATHER, CLOCK]),
    case("bad call id", "mistral", [HELLO, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "id": "short"}]}]),
    case("unknown role", "mistral", [HELLO, {"role": "narrator", "content": "x"}]),
    case("plain", "chatml", [HELLO, ANSWER, THANKS]),
    case("system", "chatml", [SYSTEM, HELLO], add_generation_prompt=False),
    case("content in parts", "chatml", [PARTS, ANSWER]),
    case("generation blocks", "generation", [HELLO, ANSWER]),
    case("plain", "harmony", [HELLO, ANSWER, THANKS], extra=TODAY),
    case("system and effort", "harmony", [SYSTEM, HELLO], extra={**TODAY, "reasoning_effort": "high"}),
    case("developer", "harmony", [DEVELOPER, HELLO], extra=TODAY),
    case("tools", "harmony", [SYSTEM, HELLO], tools=[WEATHER, CLOCK, SHAPES], extra=TODAY),
    case("a call with its thought", "harmony", [HELLO, THOUGHTFUL_CALL, RESULT], tools=[WEATHER], extra=TODAY),
    case("a call before an answer", "harmony", [HELLO, THOUGHTFUL_CALL, RESULT, REASONED, THANKS], tools=[WEATHER], extra=TODAY),
    case("a call with content and a thought", "harmony", [HELLO, {**THOUGHTFUL_CALL, "content": "First"}], extra=TODAY),
    case("a result without a call", "harmony", [HELLO, RESULT], extra=TODAY),
    case("no prompt for an answer", "harmony", [HELLO, REASONED], extra=TODAY, add_generation_prompt=False),
    case("built-in tools", "harmony", [HELLO], extra={**TODAY, "builtin_tools": ["browser", "python"]}),
    case("values", "python_values", [VALUES], extra={"extra_word": "word", "eos_token": "<end>"}),
    case("reasoning under all names", "message_keys", [{"role": "assistant", "thinking": "t", "content": "c", "reasoning_content": None}]),
]
