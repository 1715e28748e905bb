#!/usr/bin/env python3
# Runs OpenAI's Python and Node libraries, unchanged, against `lorry up` with the example's models: chats, streams, answers by a schema,
# completions, embeddings, models, the libraries' classes of errors, clients that go away. ctest runs it as `openai_sdk`.
#
#   tests/sdk/sdk_check.py PROGRAM     PROGRAM is lorry
import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from libraries import EXAMPLE, ROOT, error_of, openai, run_node
import pydantic  # which openai brings

CALLS_MAX = 4
PROMPT = "Package: libfoo-dev\nDescription:"
CHAT = [{"role": "user", "content": "A Perl module for reading CSV files"}]


@contextlib.contextmanager
def lorry_up(program: str, *arguments: str):
    """The url of a server that is ready."""
    command = [program, "up", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if found := re.match(r"ready: (http://127\.0\.0\.1:\d+)/v1", line):
                break
        else:
            raise SystemExit("".join(lines))
        with subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL):
            try:
                yield found[1]
            finally:
                server.terminate()
                code = server.wait(timeout=30)
    assert code == 0, f"lorry up ends by SIGTERM with exit code 0, not {code}"


def check_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="section", messages=CHAT, max_tokens=8, temperature=0)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert choice.message.role == "assistant" and choice.message.content, answer
    assert choice.finish_reason in ("stop", "length"), answer
    assert answer.usage.completion_tokens > 0 and answer.usage.total_tokens > answer.usage.completion_tokens, answer
    assert answer._request_id.startswith("call-"), answer

    # The parts of a stream are the answer, and the usage comes last.
    stream = client.chat.completions.create(
        model="section", messages=CHAT, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content, (text, choice)
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert chunks[-1].choices == [] and chunks[-1].usage == answer.usage, chunks[-1]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == choice.finish_reason

    with client.chat.completions.stream(model="section", messages=CHAT, max_tokens=8, temperature=0) as events:
        assert events.get_final_completion().choices[0].message.content == text


class Verdict(pydantic.BaseModel):
    is_library: bool
    size: int = pydantic.Field(ge=0, le=9)


def check_parse(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="base", messages=CHAT, response_format=Verdict, max_tokens=60)
    assert isinstance(answer.choices[0].message.parsed, Verdict), answer


def check_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="base", prompt=[PROMPT, PROMPT], max_tokens=12, temperature=0, logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1], answer
    assert answer.choices[0].text == answer.choices[1].text, answer
    assert len(answer.choices[0].logprobs.tokens) == 12, answer
    stream = client.completions.create(model="base", prompt=PROMPT, max_tokens=12, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


def check_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["model", "language", "section", "synopsis", "tags"], names
    assert client.models.retrieve("section").owned_by == "lorry"


def check_embeddings(client: openai.OpenAI) -> None:
    # The library asks for base64 and unpacks it.
    answer = client.embeddings.create(model="base", input=["a library", "ein Buch"])
    plain = client.embeddings.create(model="base", input="a library", encoding_format="float")
    assert [entry.index for entry in answer.data] == [0, 1], answer
    assert len(answer.data[0].embedding) == len(plain.data[0].embedding) > 100, plain
    assert all(abs(a - b) < 1e-6 for a, b in zip(answer.data[0].embedding, plain.data[0].embedding)), plain
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > 0, answer


def check_errors(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create
    error = error_of(openai.NotFoundError, chat, model="nobody", messages=CHAT)
    assert error.code == "model_not_found" and error.param == "model", error
    error = error_of(openai.BadRequestError, chat, model="base", messages=CHAT, temperature="warm")
    assert error.code == "invalid_type" and error.param == "temperature" and error.type == "invalid_request_error", error
    # A stream that is refused has a status, too.
    error = error_of(openai.BadRequestError, chat, model="base", messages=CHAT, temperature=9, stream=True)
    assert error.code == "invalid_value", error
    error = error_of(openai.BadRequestError, chat, model="base", messages=CHAT, extra_body={"unheard_of": 1})
    assert error.code == "unsupported_field" and "unheard_of" in error.message, error
    error = error_of(openai.BadRequestError, client.embeddings.create, model="base", input="a text")
    assert error.code == "unsupported_by_model", error
    error = error_of(openai.NotFoundError, client.responses.create, model="base", input="hello")
    assert "/v1/chat/completions" in error.message, error
    error_of(openai.NotFoundError, client.models.retrieve, model="nobody")
    error = error_of(openai.APIStatusError, chat, model="base", messages=[{"role": "user", "content": "x" * (1 << 20)}])
    assert error.status_code == 413 and error.code == "payload_too_large", error


async def check_async(client: openai.AsyncOpenAI) -> None:
    async def ask(model: str) -> str:
        stream = await client.chat.completions.create(model=model, messages=CHAT, max_tokens=8, temperature=0, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    texts = await asyncio.gather(*[ask(model) for model in ("section", "language", "section")])
    assert texts[0] == texts[2] and texts[0], texts
    assert (await client.completions.create(model="base", prompt=PROMPT, max_tokens=3)).usage.completion_tokens == 3
    assert [model.id async for model in client.models.list()][0] == "model"


async def check_full(client: openai.AsyncOpenAI) -> None:
    """More calls than calls_max are refused; those of clients that go away make room at once."""
    long = {"model": "base", "prompt": PROMPT, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
    streams = [await client.completions.create(**long, stream=True) for _ in range(CALLS_MAX)]
    for stream in streams:
        await anext(aiter(stream))
    try:
        await client.completions.create(**long)
        raise AssertionError("no RateLimitError")
    except openai.RateLimitError as error:
        assert error.code == "too_many_calls" and error.response.headers["retry-after"] == "1", error
    for stream in streams:
        await stream.close()
    begin = time.monotonic()
    while True:
        try:
            await client.completions.create(model="base", prompt=PROMPT, max_tokens=1)
            break
        except openai.RateLimitError:
            assert time.monotonic() - begin < 5, "calls of clients that went away still take places"
            await asyncio.sleep(0.05)


def page(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def check_generation(program: str) -> None:
    up = lorry_up(program, "--model", str(EXAMPLE / "model"), "--adapters", str(EXAMPLE / "adapters"), "--calls-max", str(CALLS_MAX))
    with up as url:
        assert page(f"{url}/healthz") == "running\n"
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        for check in (check_chats, check_parse, check_completions, check_models, check_errors):
            check(client)
        for check in (check_async, check_full):

            async def run(check=check):
                async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as other:
                    await check(other)

            asyncio.run(run())
        run_node("sdk_check.mjs", f"{url}/v1", timeout=60)
        metrics = page(f"{url}/metrics")
        assert 'lorry_requests_total{url="/v1/chat/completions",status="200"}' in metrics, metrics
        assert 'status="429"' in metrics and 'status="499"' in metrics, metrics


def check_encoder(program: str) -> None:
    folder = EXAMPLE / "encoder"
    with lorry_up(program, "--model", str(folder / "model"), "--adapters", str(folder / "adapters")) as url:
        check_embeddings(openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0))
        answer = post(f"{url}/classify", {"model": "section", "input": ["A Perl module for reading CSV files"]})
        assert answer["data"][0]["label"] == "perl", answer
        answer = post(f"{url}/token_classify", {"model": "entities", "input": "a Perl module"})
        assert isinstance(answer["data"], list), answer
        answer = post(f"{url}/score", {"model": "base", "text_1": "a Perl module", "text_2": ["a Perl library", "a game"]})
        assert len(answer["data"]) == 2, answer
        answer = post(f"{url}/rerank", {"model": "base", "query": "a Perl module", "documents": ["a game", "a Perl library"]})
        assert answer["results"][0]["index"] == 1, answer


def main() -> None:
    program = str(Path(sys.argv[1]).resolve())
    check_generation(program)
    check_encoder(program)


if __name__ == "__main__":
    main()
