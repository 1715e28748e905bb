# Checks of calls by OpenAI's library for Python, against any server of the example's models: chats, streams, answers by a schema,
# completions, embeddings, models, and the library's classes of errors. Each check takes a client of libraries.clients(), so all methods are
# called synchronously and asynchronously. Used by sdk_check.py, of `lorry up`, and batches_check.py, of `lorry serve`.
import asyncio
import json
import time
import urllib.request

from libraries import clients, error_of, openai, run_node
import pydantic  # which openai brings

CALLS_MAX = 4
PROMPT = "Package: libfoo-dev\nDescription:"
CHAT = [{"role": "user", "content": "A Perl module for reading CSV files"}]
ADAPTERS = ["language", "section", "synopsis", "tags"]


async def check_chats(client) -> None:
    asked = {"model": "section", "messages": CHAT, "max_tokens": 8, "temperature": 0}
    answer = await client.chat.completions.create(**asked)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert choice.message.role == "assistant" and choice.message.content, answer
    assert choice.finish_reason in ("stop", "length"), answer
    assert answer.usage.completion_tokens > 0 and answer.usage.total_tokens > answer.usage.completion_tokens, answer
    assert answer._request_id.startswith("call-"), answer

    # The parts of a stream are the answer, and the usage comes last.
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content, (text, choice)
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert chunks[-1].choices == [] and chunks[-1].usage == answer.usage, chunks[-1]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == choice.finish_reason

    async with client.chat.completions.stream(**asked) as events:
        parts = [event.delta async for event in events if event.type == "content.delta"]
        assert "".join(parts) == text, parts
        assert (await events.get_final_completion()).choices[0].message.content == text


class Verdict(pydantic.BaseModel):
    is_library: bool
    size: int = pydantic.Field(ge=0, le=9)


async def check_parse(client) -> None:
    answer = await client.chat.completions.parse(model="base", messages=CHAT, response_format=Verdict, max_tokens=60)
    assert isinstance(answer.choices[0].message.parsed, Verdict), answer


async def check_completions(client) -> None:
    asked = {"model": "base", "max_tokens": 12, "temperature": 0}
    answer = await client.completions.create(**asked, prompt=[PROMPT, PROMPT], logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1], answer
    assert answer.choices[0].text == answer.choices[1].text, answer
    assert len(answer.choices[0].logprobs.tokens) == 12, answer
    stream = await client.completions.create(**asked, prompt=PROMPT, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == answer.choices[0].text


async def check_models(client) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == ["model", *ADAPTERS], names
    assert (await client.models.retrieve("section")).owned_by == "lorry"


async def check_errors(client) -> None:
    chat = client.chat.completions.create
    error = await error_of(openai.NotFoundError, chat, model="nobody", messages=CHAT)
    assert error.code == "model_not_found" and error.param == "model", error
    error = await error_of(openai.BadRequestError, chat, model="base", messages=CHAT, temperature="warm")
    assert error.code == "invalid_type" and error.param == "temperature" and error.type == "invalid_request_error", error
    # A stream that is refused has a status, too.
    error = await error_of(openai.BadRequestError, chat, model="base", messages=CHAT, temperature=9, stream=True)
    assert error.code == "invalid_value", error
    error = await error_of(openai.BadRequestError, chat, model="base", messages=CHAT, extra_body={"unheard_of": 1})
    assert error.code == "unsupported_field" and "unheard_of" in error.message, error
    error = await error_of(openai.BadRequestError, client.embeddings.create, model="base", input="a text")
    assert error.code == "unsupported_by_model", error
    error = await error_of(openai.NotFoundError, client.responses.create, model="base", input="hello")
    assert "/v1/chat/completions" in error.message, error
    await error_of(openai.NotFoundError, client.models.retrieve, model="nobody")
    error = await error_of(openai.APIStatusError, chat, model="base", messages=[{"role": "user", "content": "x" * (1 << 20)}])
    assert error.status_code == 413 and error.code == "payload_too_large", error


async def check_together(client: openai.AsyncOpenAI) -> None:
    async def ask(model: str) -> str:
        stream = await client.chat.completions.create(model=model, messages=CHAT, max_tokens=8, temperature=0, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    texts = await asyncio.gather(*[ask(model) for model in ("section", "language", "section")])
    assert texts[0] == texts[2] and texts[0], texts


async def check_full(client: openai.AsyncOpenAI) -> None:
    """More calls than calls_max are refused; those of clients that go away make room at once."""
    long = {"model": "base", "prompt": PROMPT, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
    streams = [await client.completions.create(**long, stream=True) for _ in range(CALLS_MAX)]
    for stream in streams:
        await anext(aiter(stream))
    error = await error_of(openai.RateLimitError, client.completions.create, **long)
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


async def check_embeddings(client) -> None:
    # The library asks for base64 and unpacks it.
    answer = await client.embeddings.create(model="base", input=["a library", "ein Buch"])
    plain = await client.embeddings.create(model="base", input="a library", encoding_format="float")
    assert [entry.index for entry in answer.data] == [0, 1], answer
    assert len(answer.data[0].embedding) == len(plain.data[0].embedding) > 100, plain
    assert all(abs(a - b) < 1e-6 for a, b in zip(answer.data[0].embedding, plain.data[0].embedding)), plain
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > 0, answer


def page(url: str, key: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})) as answer:
        return answer.read().decode()


def check_generation(server: str, key: str) -> None:
    """All calls of a server of the model that generates, whose calls_max is CALLS_MAX. The key has the scope admin."""

    async def run() -> None:
        async with clients(f"{server}/v1", key) as pair:
            for check in (check_chats, check_parse, check_completions, check_models, check_errors):
                for client in pair:
                    await check(client)
            await check_together(pair[1])
            await check_full(pair[1])

    assert page(f"{server}/healthz", key) == "running\n"
    asyncio.run(run())
    run_node("calls_check.mjs", f"{server}/v1", key, "generation", timeout=60)
    metrics = page(f"{server}/metrics", key)
    assert 'lorry_requests_total{url="/v1/chat/completions",status="200"}' in metrics, metrics
    assert 'status="429"' in metrics and 'status="499"' in metrics, metrics


def check_encoder(server: str, key: str) -> None:
    """All calls of a server of the encoder."""

    def post(path: str, body: dict) -> dict:
        fields = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        with urllib.request.urlopen(urllib.request.Request(server + path, json.dumps(body).encode(), fields)) as answer:
            return json.load(answer)

    async def run() -> None:
        async with clients(f"{server}/v1", key) as pair:
            for client in pair:
                await check_embeddings(client)

    asyncio.run(run())
    run_node("calls_check.mjs", f"{server}/v1", key, "encoder", timeout=60)
    # These urls are not OpenAI's.
    answer = post("/classify", {"model": "section", "input": ["A Perl module for reading CSV files"]})
    assert answer["data"][0]["label"] == "perl", answer
    answer = post("/token_classify", {"model": "entities", "input": "a Perl module"})
    assert isinstance(answer["data"], list), answer
    answer = post("/score", {"model": "base", "text_1": "a Perl module", "text_2": ["a Perl library", "a game"]})
    assert len(answer["data"]) == 2, answer
    answer = post("/rerank", {"model": "base", "query": "a Perl module", "documents": ["a game", "a Perl library"]})
    assert answer["results"][0]["index"] == 1, answer
