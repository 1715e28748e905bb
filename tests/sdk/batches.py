# Checks of files and batches by OpenAI's library for Python, against any server of the example's models. Each check takes a client of
# libraries.clients(). Used by sdk_check.py, of `lorry up`, and batches_check.py, of `lorry serve`.
import asyncio
import io
import json
import os

from libraries import PATIENCE, error_of, openai

OPEN = ("validating", "in_progress", "finalizing", "cancelling")


def line(number: int, **body) -> dict:
    body = {"model": "base", "prompt": f"Package: lib{number}", "max_tokens": 3, "temperature": 0} | body
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/completions", "body": body}


def jsonl(lines: list[dict]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


async def begin(client, lines: list[dict], **more):
    file = await client.files.create(file=("jobs.jsonl", jsonl(lines)), purpose="batch")
    return await client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", **more)


async def after(client, batch_id: str, is_reached, pause: float = 0.2):
    """The batch, once that is true of it."""
    async with asyncio.timeout(PATIENCE):
        while not is_reached(batch := await client.batches.retrieve(batch_id)):
            await asyncio.sleep(pause)
    return batch


async def ended(client, batch_id: str):
    return await after(client, batch_id, lambda batch: batch.status not in OPEN)


async def rows(client, file_id: str | None) -> dict[str, dict]:
    if file_id is None:
        return {}
    found = [json.loads(text) for text in (await client.files.content(file_id)).text.splitlines()]
    by_id = {row["custom_id"]: row for row in found}
    assert len(by_id) == len(found), "each line has one row"
    return by_id


async def check_files(client, other=None) -> None:
    """other: a client of another tenant, if there is one."""
    before = {file.id async for file in client.files.list()}
    content = jsonl([line(0)])
    files = [await client.files.create(file=(name, content), purpose="batch") for name in ("a.jsonl", "../../b.jsonl", "c.jsonl")]
    assert files[1].filename == "../../b.jsonl" and files[1].bytes == len(content) and files[1].object == "file", files
    newest_first = [file.id async for file in client.files.list(limit=2) if file.id not in before]  # the library asks for all pages
    assert len(newest_first) == 3 and set(newest_first) == {file.id for file in files}, newest_first
    oldest_first = [file.id async for file in client.files.list(order="asc", purpose="batch") if file.id not in before]
    assert oldest_first == newest_first[::-1], oldest_first
    assert await client.files.retrieve(files[0].id) == files[0]
    assert (await client.files.content(files[0].id)).read() == content
    if other:
        for refused in (other.files.retrieve, other.files.content, other.files.delete):
            await error_of(openai.NotFoundError, refused, files[0].id)
        assert [file async for file in other.files.list()] == []
    for file in files:
        assert (await client.files.delete(file.id)).deleted
    await error_of(openai.NotFoundError, client.files.retrieve, files[0].id)
    error = await error_of(openai.BadRequestError, client.files.create, file=("a", b"x"), purpose="fine-tune")
    assert error.code == "invalid_upload" and error.param == "purpose", error
    large = os.urandom(1 << 20) * 5
    file = await client.files.create(file=io.BytesIO(large), purpose="batch")
    assert (await client.files.content(file.id)).read() == large
    await client.files.delete(file.id)


async def check_batch(client, other=None) -> None:
    lines = [line(i) for i in range(20)] + [line(20, temperature="warm"), line(21, model="nobody")]
    batch = await begin(client, lines, metadata={"job": "nightly"})
    assert batch.status == "validating" and batch.metadata == {"job": "nightly"}, batch
    if other:
        await error_of(openai.NotFoundError, other.batches.retrieve, batch.id)
        await error_of(openai.NotFoundError, other.batches.cancel, batch.id)
    batch = await ended(client, batch.id)
    assert batch.status == "completed" and batch.errors is None, batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (22, 20, 2), batch
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at, batch
    well = await rows(client, batch.output_file_id)
    assert well.keys() == {f"line-{i}" for i in range(20)}, well
    response = well["line-3"]["response"]
    assert response["status_code"] == 200 and response["body"]["usage"]["completion_tokens"] == 3, response
    failed = await rows(client, batch.error_file_id)
    assert {row["response"]["body"]["error"]["code"] for row in failed.values()} == {"invalid_type", "model_not_found"}, failed
    assert (await client.files.retrieve(batch.output_file_id)).purpose == "batch_output"
    assert batch.id in [each.id async for each in client.batches.list(limit=1)]
    await error_of(openai.ConflictError, client.batches.cancel, batch.id)


async def check_wrong_batches(client) -> None:
    batch = await begin(client, [line(0), line(0), line(1) | {"url": "/v1/embeddings"}])
    batch = await ended(client, batch.id)
    assert batch.status == "failed" and batch.output_file_id is None, batch
    assert [(error.line, error.code) for error in batch.errors.data] == [(2, "duplicate_custom_id"), (3, "unsupported_url")], batch
    create = client.batches.create
    wrong = {"input_file_id": "file-nothing", "endpoint": "/v1/completions", "completion_window": "24h"}
    assert (await error_of(openai.BadRequestError, create, **wrong)).param == "input_file_id"
    assert (await error_of(openai.BadRequestError, create, **wrong | {"completion_window": "1h"})).param == "completion_window"
