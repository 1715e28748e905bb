#!/usr/bin/env python3
# Runs the files and batches of OpenAI's Python and Node libraries, unchanged, against two `lorry serve` over a real Kafka, with the
# example's model: with keys, tenants, wrong lines, a cancel, and a gateway that is killed in the middle of a batch. ctest runs it as
# `openai_sdk_batches`; LORRY_KAFKA_ADDRESS_FILE names the file with the broker's address.
#
#   tests/sdk/batches_check.py PROGRAM     PROGRAM is lorry
import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from libraries import EXAMPLE, ROOT, error_of, openai, run_node

OPEN = ("validating", "in_progress", "finalizing", "cancelling")
PATIENCE = 120
SESSION = 10  # seconds: of gateways, in their group


def line(number: int, **body) -> dict:
    body = {"model": "base", "prompt": f"Package: lib{number}", "max_tokens": 3, "temperature": 0} | body
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/completions", "body": body}


def jsonl(lines: list[dict]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


class Stack:
    """A broker's topics, a worker, and gateways."""

    def __init__(self, program: str, brokers: str, folder: Path, closing: contextlib.ExitStack) -> None:
        self.program, self.folder, self.closing = program, folder, closing
        self.flags = ["--brokers", brokers, "--prefix", f"sdk{os.getpid()}"]
        self.lorry("topics", "create", "--partitions", "2")
        self.keys = [self.key("search"), self.key("mails")]

    def lorry(self, *arguments: str) -> str:
        done = subprocess.run([self.program, *arguments, *self.flags], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def key(self, tenant: str) -> str:
        return self.lorry("keys", "create", "--tenant", tenant, "--name", "test", "--batches").split()[0]

    def start(self, *arguments: str) -> subprocess.Popen:
        log = open(self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log", "w+")
        started = subprocess.Popen([self.program, *arguments, *self.flags], stderr=log, stdout=subprocess.DEVNULL, cwd=ROOT)
        started.log = log
        self.closing.callback(lambda: (started.kill(), started.wait()))
        return started

    def worker(self) -> subprocess.Popen:
        return self.start(
            "worker", "--model", str(EXAMPLE / "model"), "--group", self.flags[-1], "--member", "worker-1",
            "--metrics-address", "off", "--threads", "1", "--ledger", str(self.folder / "ledger.sqlite"),
        )

    def gateway(self) -> tuple[subprocess.Popen, str]:
        started = self.start("serve", "--base-name", "model", "--listen", "127.0.0.1:0", "--files", str(self.folder / "files"))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = Path(started.log.name).read_text()
            if found := re.search(r'"gateway_started".*?"port":(\d+)', text):
                return started, f"http://127.0.0.1:{found[1]}/v1"
            assert started.poll() is None, text
            time.sleep(0.1)
        raise AssertionError(f"the gateway did not start: {text}")


def ended(client: openai.OpenAI, batch_id: str):
    deadline = time.monotonic() + PATIENCE
    while (batch := client.batches.retrieve(batch_id)).status in OPEN:
        assert time.monotonic() < deadline, batch
        time.sleep(0.2)
    return batch


def rows(client: openai.OpenAI, file_id: str | None) -> dict[str, dict]:
    if file_id is None:
        return {}
    found = [json.loads(text) for text in client.files.content(file_id).text.splitlines()]
    by_id = {row["custom_id"]: row for row in found}
    assert len(by_id) == len(found), "each line has one row"
    return by_id


def begin(client: openai.OpenAI, lines: list[dict], **more):
    file = client.files.create(file=("jobs.jsonl", jsonl(lines)), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", **more)


def leave_orphans(folder: Path) -> list[Path]:
    """What killed gateways may leave: a content without a record, and half of an upload."""
    folder.mkdir()
    names = [f"file-{'0' * 32}", f".file-{'1' * 32}.{'2' * 32}"]
    for name in names:
        (folder / name).write_text("x")
        os.utime(folder / name, (time.time() - 7200,) * 2)
    return [folder / name for name in names]


def wait_until_gone(orphans: list[Path]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(orphan.exists() for orphan in orphans):
        assert time.monotonic() < deadline, orphans
        time.sleep(0.2)


def check_files(client: openai.OpenAI, other: openai.OpenAI) -> None:
    content = jsonl([line(0)])
    files = [client.files.create(file=(name, content), purpose="batch") for name in ("a.jsonl", "../../b.jsonl", "c.jsonl")]
    assert files[1].filename == "../../b.jsonl" and files[1].bytes == len(content) and files[1].object == "file", files
    newest_first = [file.id for file in client.files.list(limit=2)]  # the library asks for all pages
    assert len(newest_first) == 3 and set(newest_first) == {file.id for file in files}, newest_first
    assert [file.id for file in client.files.list(order="asc", purpose="batch")] == newest_first[::-1]
    assert client.files.retrieve(files[0].id) == files[0]
    assert client.files.content(files[0].id).read() == content
    error_of(openai.NotFoundError, other.files.retrieve, files[0].id)
    error_of(openai.NotFoundError, other.files.content, files[0].id)
    error_of(openai.NotFoundError, other.files.delete, files[0].id)
    assert list(other.files.list()) == []
    for file in files:
        assert client.files.delete(file.id).deleted
    error_of(openai.NotFoundError, client.files.retrieve, files[0].id)
    error = error_of(openai.BadRequestError, client.files.create, file=("a", b"x"), purpose="fine-tune")
    assert error.code == "invalid_upload" and error.param == "purpose", error
    large = os.urandom(1 << 20) * 5
    file = client.files.create(file=io.BytesIO(large), purpose="batch")
    assert client.files.content(file.id).read() == large
    client.files.delete(file.id)


def check_batch(client: openai.OpenAI, other: openai.OpenAI) -> None:
    lines = [line(i) for i in range(20)] + [line(20, temperature="warm"), line(21, model="nobody")]
    batch = begin(client, lines, metadata={"job": "nightly"})
    assert batch.status == "validating" and batch.metadata == {"job": "nightly"}, batch
    error_of(openai.NotFoundError, other.batches.retrieve, batch.id)
    error_of(openai.NotFoundError, other.batches.cancel, batch.id)
    batch = ended(client, batch.id)
    assert batch.status == "completed" and batch.errors is None, batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (22, 20, 2), batch
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at, batch
    well = rows(client, batch.output_file_id)
    assert well.keys() == {f"line-{i}" for i in range(20)}, well
    response = well["line-3"]["response"]
    assert response["status_code"] == 200 and response["body"]["usage"]["completion_tokens"] == 3, response
    failed = rows(client, batch.error_file_id)
    assert {row["response"]["body"]["error"]["code"] for row in failed.values()} == {"invalid_type", "model_not_found"}, failed
    assert client.files.retrieve(batch.output_file_id).purpose == "batch_output"
    assert batch.id in [each.id for each in client.batches.list(limit=1)]
    error_of(openai.ConflictError, client.batches.cancel, batch.id)


def check_wrong_batches(client: openai.OpenAI) -> None:
    batch = begin(client, [line(0), line(0), line(1) | {"url": "/v1/embeddings"}])
    batch = ended(client, batch.id)
    assert batch.status == "failed" and batch.output_file_id is None, batch
    assert [(error.line, error.code) for error in batch.errors.data] == [(2, "duplicate_custom_id"), (3, "unsupported_url")], batch
    create = client.batches.create
    wrong = {"input_file_id": "file-nothing", "endpoint": "/v1/completions", "completion_window": "24h"}
    assert error_of(openai.BadRequestError, create, **wrong).param == "input_file_id"
    assert error_of(openai.BadRequestError, create, **wrong | {"completion_window": "1h"}).param == "completion_window"


async def check_async(client: openai.AsyncOpenAI) -> None:
    file = await client.files.create(file=("jobs.jsonl", jsonl([line(0)])), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    while (batch := await client.batches.retrieve(batch.id)).status in OPEN:
        await asyncio.sleep(0.2)
    assert batch.status == "completed", batch
    assert json.loads((await client.files.content(batch.output_file_id)).text)["custom_id"] == "line-0"
    assert file.id in [each.id async for each in client.files.list(limit=1)]


def check_cancel(client: openai.OpenAI, stack: Stack, worker: subprocess.Popen) -> subprocess.Popen:
    """Of a batch that no worker runs: a new worker ends its jobs as cancelled."""
    worker.terminate()
    worker.wait()
    batch = begin(client, [line(i) for i in range(30)])
    while client.batches.retrieve(batch.id).status == "validating":
        time.sleep(0.1)
    assert client.batches.cancel(batch.id).status == "cancelling"
    worker = stack.worker()
    batch = ended(client, batch.id)
    assert batch.status == "cancelled" and batch.cancelled_at >= batch.cancelling_at, batch
    all_rows = rows(client, batch.output_file_id) | rows(client, batch.error_file_id)
    assert all_rows.keys() == {f"line-{i}" for i in range(30)}, all_rows
    return worker


def wait_for_results(client: openai.OpenAI, batch_id: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (seen := client.batches.retrieve(batch_id)).request_counts.completed < count and seen.status in OPEN:
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def check_broken_gateways(stack: Stack, gateways: list) -> None:
    """Each line has one row and one job, although gateways are killed in the middle of batches, and stop until they have lost theirs."""
    count = 4000
    client = openai.OpenAI(base_url=gateways[0][1], api_key=stack.keys[0], max_retries=0)
    batch = begin(client, [line(i, max_tokens=1 + i % 40) for i in range(count)])
    for done in (1, 200, 400):
        wait_for_results(client, batch.id, done)
        gateways[0][0].send_signal(signal.SIGKILL)
        gateways[0][0].wait()
        del gateways[0]
        gateways.append(stack.gateway())
        client = openai.OpenAI(base_url=gateways[0][1], api_key=stack.keys[0], max_retries=0)
    for stopped, other in (gateways, reversed(gateways)):
        client = openai.OpenAI(base_url=other[1], api_key=stack.keys[0], max_retries=0)
        stopped[0].send_signal(signal.SIGSTOP)
        time.sleep(SESSION + 2)
        stopped[0].send_signal(signal.SIGCONT)
    batch = ended(client, batch.id)
    assert batch.status == "completed" and batch.request_counts.completed == count, batch
    assert rows(client, batch.output_file_id).keys() == {f"line-{i}" for i in range(count)}
    jobs = subprocess.run(
        [stack.program, "collect", "--batch", batch.id, "-o", str(stack.folder / "all.jsonl"), *stack.flags],
        capture_output=True, text=True, cwd=ROOT,
    )
    assert f"{count:,} of {count:,} jobs ended, all well" in jobs.stderr, jobs.stderr


def main() -> None:
    program = str(Path(sys.argv[1]).resolve())
    address = os.environ.get("LORRY_KAFKA_ADDRESS_FILE")
    if address is None:
        print("skipped: LORRY_KAFKA_ADDRESS_FILE is not set: nothing was tested against a real Kafka")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        stack = Stack(program, Path(address).read_text().strip(), Path(folder), closing)
        worker = stack.worker()
        orphans = leave_orphans(stack.folder / "files")
        gateways = [stack.gateway(), stack.gateway()]
        clients = [openai.OpenAI(base_url=url, api_key=stack.keys[0], max_retries=0) for _, url in gateways]
        other = openai.OpenAI(base_url=gateways[1][1], api_key=stack.keys[1], max_retries=0)
        wait_until_gone(orphans)
        check_files(clients[0], other)
        check_batch(clients[0], other)
        check_wrong_batches(clients[1])

        async def run() -> None:
            async with openai.AsyncOpenAI(base_url=gateways[0][1], api_key=stack.keys[0], max_retries=0) as client:
                await check_async(client)

        asyncio.run(run())
        run_node("batches_check.mjs", gateways[1][1], stack.keys[0], timeout=PATIENCE)
        worker = check_cancel(clients[1], stack, worker)
        check_broken_gateways(stack, gateways)
        for gateway, _ in gateways:
            gateway.terminate()
            assert gateway.wait(timeout=60) == 0, "a gateway ends by SIGTERM with exit code 0"
    print("files and batches: all well")


if __name__ == "__main__":
    main()
