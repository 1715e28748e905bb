#!/usr/bin/env python3
# Prints docs/sdk-session.md: a session with OpenAI's library for Python, as Python's prompt shows it, against a `lorry serve` over a real
# Kafka with the example's model.
#
#   LORRY_KAFKA_ADDRESS_FILE=build/kafka/address tests/sdk/transcript.py build/lorry >docs/sdk-session.md     after ops/kafka start
import code
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

from libraries import openai
from stack import Stack

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HEAD = f"""# A session with OpenAI's library

What Python {PYTHON} shows with the package openai {openai.__version__}, unchanged, against a `lorry serve` over Kafka with the
example's model and adapters (`ops/example`). `tests/sdk/transcript.py` has run it and written this page. The key was made by
`lorry keys create --tenant search --name test --batches`. How to serve is in [serve.md](serve.md).
"""
# (title, statements)
PARTS = [
    ("Models", """
from openai import OpenAI
client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key=key, max_retries=0)
[model.id for model in client.models.list()]
client.models.retrieve("section")
"""),
    ("A chat, whole and as a stream", """
chats = client.chat.completions
asked = {"model": "section", "max_tokens": 8, "temperature": 0}
asked["messages"] = [{"role": "user", "content": "A Perl module for reading CSV files"}]
answer = chats.create(**asked)
answer.choices[0].message.content, answer.choices[0].finish_reason
answer.usage.prompt_tokens, answer.usage.completion_tokens
for chunk in chats.create(**asked, stream=True, stream_options={"include_usage": True}):
    print(chunk.choices[0].delta.content if chunk.choices else chunk.usage.total_tokens)

"""),
    ("An answer that matches a schema", """
from pydantic import BaseModel
class Verdict(BaseModel):
    is_library: bool

parsed = chats.parse(**asked | {"model": "base", "max_tokens": 40}, response_format=Verdict)
parsed.choices[0].message.parsed
"""),
    ("Completions", """
prompt = "Package: libfoo-dev\\nDescription:"
client.completions.create(model="base", prompt=prompt, max_tokens=12, temperature=0).choices[0].text
"""),
    ("Errors", """
import openai
try:
    client.completions.create(model="nobody", prompt="x")
except openai.NotFoundError as error:
    print(error.status_code, error.code, error.param, error.type)

try:
    client.responses.create(model="base", input="hello")
except openai.NotFoundError as error:
    print(error.message)

"""),
    ("A file and a batch", """
import json, time
body = {"model": "base", "max_tokens": 3, "temperature": 0}
bodies = [body | {"prompt": f"Package: lib{i}"} for i in range(20)] + [{"model": "nobody", "prompt": "x"}]
line = {"method": "POST", "url": "/v1/completions"}
lines = [line | {"custom_id": f"line-{i}", "body": each} for i, each in enumerate(bodies)]
content = "\\n".join(json.dumps(line) for line in lines).encode()
file = client.files.create(file=("jobs.jsonl", content), purpose="batch")
file.filename, file.bytes, file.purpose
asked = {"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h"}
batch = client.batches.create(**asked)
batch.status
while batch.status in ("validating", "in_progress", "finalizing"):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)

batch.status, batch.request_counts.completed, batch.request_counts.failed
rows = [json.loads(row) for row in client.files.content(batch.output_file_id).text.splitlines()]
texts = {row["custom_id"]: row["response"]["body"]["choices"][0]["text"] for row in rows}
len(texts), texts["line-0"]
failed = json.loads(client.files.content(batch.error_file_id).text)
failed["custom_id"], failed["response"]["body"]["error"]["code"]
try:
    client.batches.cancel(batch.id)
except openai.ConflictError as error:
    print(error.message)

client.files.delete(file.id).deleted
"""),
]


class Prompt(code.InteractiveConsole):
    """Python's prompt, whose input are lines and whose output is text."""

    def __init__(self, names: dict) -> None:
        super().__init__(names)
        self.text = ""

    def write(self, data: str) -> None:
        raise AssertionError(data)  # an error that the session does not catch

    def type(self, line: str) -> None:
        waits = bool(self.buffer)
        self.text += f"{'...' if waits else '>>>'} {line}".rstrip() + "\n"
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.push(line)
        self.text += shown.getvalue()


def main() -> None:
    brokers = Path(os.environ["LORRY_KAFKA_ADDRESS_FILE"]).read_text().strip()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        stack = Stack(str(Path(sys.argv[1]).resolve()), brokers, Path(folder) / "transcript", closing)
        key = stack.key("search", "--batches")
        stack.worker()
        server = stack.gateway()[1]
        prompt = Prompt({"key": key})
        print(HEAD, end="")
        for title, statements in PARTS:
            prompt.text = ""
            for line in statements.strip("\n").split("\n"):
                prompt.type(line.replace("http://127.0.0.1:8000", server))
            if prompt.buffer:
                prompt.type("")  # ends a block
            text = prompt.text.replace(server, "http://127.0.0.1:8000")
            print(f"\n## {title}\n\n" + re.sub(r"(?m)^(?=.)", "    ", text), end="")


if __name__ == "__main__":
    main()
