#!/usr/bin/env python3
# Runs OpenAI's Python and Node libraries, unchanged, against `lorry serve` over a real Kafka, with the example's models: all checks of
# calls.py; files and batches with keys, tenants, wrong lines and a cancel; and gateways that are killed in the middle of an upload, a
# stream and a batch. ctest runs it as `openai_sdk_batches`; LORRY_KAFKA_ADDRESS_FILE names the file with the broker's address. Exit code
# 77: it is not set, or a library is not installed.
#
#   tests/sdk/batches_check.py PROGRAM     PROGRAM is lorry
import asyncio
import collections
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import libraries
from batches import OPEN, after, begin, check_batch, check_files, check_wrong_batches, ended, jsonl, line, rows
from calls import CALLS_MAX, check_encoder, check_generation, page
from libraries import EXAMPLE, PATIENCE, ROOT, clients, error_of, openai, run_node
from stack import Stack, wait_for

SESSION = 10  # seconds: of gateways, in their group


async def check_cancel(pair: list, stack: Stack, worker: subprocess.Popen, metrics: Callable[[], str]) -> subprocess.Popen:
    """Of batches that no worker runs: they are in the metrics, and a new worker ends their jobs as cancelled."""
    worker.terminate()
    worker.wait()
    batches = [await begin(client, [line(i) for i in range(30)]) for client in pair]
    for client, batch in zip(pair, batches):
        await after(client, batch.id, lambda batch: batch.status != "validating", 0.1)
    text = metrics()
    assert 'lorry_batches{state="in_progress"} 2\n' in text and "lorry_batch_lines_waiting 60\n" in text, text
    for client, batch in zip(pair, batches):
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
    worker = stack.worker()
    for client, batch in zip(pair, batches):
        batch = await ended(client, batch.id)
        assert batch.status == "cancelled" and batch.cancelled_at >= batch.cancelling_at, batch
        all_rows = await rows(client, batch.output_file_id) | await rows(client, batch.error_file_id)
        assert all_rows.keys() == {f"line-{i}" for i in range(30)}, all_rows
    return worker


def half_of_an_upload(server: str, key: str) -> socket.socket:
    """The connection of a client that has sent half of a file and sends no more."""
    head = '--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n' \
           '--b\r\nContent-Disposition: form-data; name="file"; filename="half.jsonl"\r\n\r\n'
    host, port = re.match(r"http://(.*):(\d+)", server).groups()
    connection = socket.create_connection((host, int(port)))
    connection.sendall(f"POST /v1/files HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Length: {4 << 20}\r\n"
                       f"Content-Type: multipart/form-data; boundary=b\r\n\r\n{head}{'x' * (2 << 20)}".encode())
    return connection


async def check_killed_gateway(stack: Stack, key: str) -> tuple[str, list[Path]]:
    """A gateway that is killed in the middle of an upload and of a stream. The id of the stream's call, and what lies about of uploads,
    made old: half of this one, and a content without a record."""
    gateway, server = stack.gateway()
    asked = {"model": "base", "prompt": "Package:", "max_tokens": 200, "extra_body": {"ignore_eos": True}}
    async with clients(f"{server}/v1", key) as (_, client):
        kept = await client.files.create(file=("kept.jsonl", jsonl([line(0)])), purpose="batch")
        with half_of_an_upload(server, key):
            begun = wait_for(lambda: [path for path in stack.files.glob(".file-*") if path.stat().st_size >= 1 << 20])
            answer = await client.completions.with_raw_response.create(**asked, stream=True)
            stream = answer.parse()
            await anext(aiter(stream))
            gateway.send_signal(signal.SIGKILL)
            gateway.wait()

            async def read() -> list:
                return [chunk async for chunk in stream]

            await error_of(openai.APIConnectionError, read)
    unnamed = stack.files / f"file-{'0' * 32}"
    unnamed.write_text("x")
    left = [*begun, unnamed]
    for path in left:
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    assert sorted(stack.files.glob("file-*")) == sorted([unnamed, stack.files / kept.id])
    return answer.headers["x-request-id"], left


def check_foreign_folder(stack: Stack) -> None:
    """A gateway of another prefix would take all that is in the folder for orphans."""
    flags = [*stack.flags[:3], f"{stack.flags[3]}-other"]
    made = subprocess.run([stack.program, "topics", "create", "--partitions", "2", *flags], capture_output=True, text=True, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    serve = ["serve", "--base-name", "model", "--listen", "127.0.0.1:0", "--files", str(stack.files)]
    command = [stack.program, *serve, "--insecure-no-keys", "true", *flags]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert refused.returncode == 2 and "does not know" in refused.stderr, refused


async def check_after_the_kill(client, stack: Stack, call: str, left: list[Path]) -> None:
    assert [file.filename async for file in client.files.list()] == ["kept.jsonl"], "half of an upload is no file"
    wait_for(lambda: not any(path.exists() for path in left))
    assert (await client.files.content([file.id async for file in client.files.list()][0])).read() == jsonl([line(0)])
    # Nobody waits for the call any more, but it was accepted.
    wait_for(lambda: '"completed"' in stack.lorry("jobs", call, "--json", "--ledger", str(stack.folder / "ledger.sqlite")))


async def check_broken_gateways(stack: Stack, gateways: list, key: str) -> None:
    """Each line has one row and one job, although gateways are killed in the middle of batches, and stop until they have lost theirs."""
    count = 4000

    def client():
        return clients(f"{gateways[0][1]}/v1", key)

    async with client() as (_, asked):
        batch = await begin(asked, [line(i, max_tokens=1 + i % 40) for i in range(count)])
    for done in (1, 200, 400):
        async with client() as (_, asked):
            await after(asked, batch.id, lambda batch: batch.request_counts.completed >= done or batch.status not in OPEN, 0.05)
        gateways[0][0].send_signal(signal.SIGKILL)
        gateways[0][0].wait()
        del gateways[0]
        gateways.append(stack.gateway())
    for stopped, _ in (gateways, reversed(gateways)):
        stopped[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(SESSION + 2)
        stopped[0].send_signal(signal.SIGCONT)
    async with client() as (_, asked):
        batch = await ended(asked, batch.id)
        assert batch.status == "completed" and batch.request_counts.completed == count, batch
        assert (await rows(asked, batch.output_file_id)).keys() == {f"line-{i}" for i in range(count)}
    jobs = subprocess.run(
        [stack.program, "collect", "--batch", batch.id, "-o", str(stack.folder / "all.jsonl"), *stack.flags],
        capture_output=True, text=True, cwd=ROOT,
    )
    assert f"{count:,} of {count:,} jobs ended, all well" in jobs.stderr, jobs.stderr


def check_results(stack: Stack, call: str) -> None:
    """No job has two results: neither the call of the killed gateway, nor any other."""
    consumer = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", stack.flags[1], "--from-beginning", "--topic",
                f"{stack.flags[3]}.results", "--isolation-level", "read_committed", "--timeout-ms", "4000", "--property", "print.key=true"]
    done = subprocess.run([ROOT / "ops" / "kafka", "tool", *consumer], capture_output=True, text=True)
    counts = collections.Counter(row.split("\t", 1)[0] for row in done.stdout.splitlines() if "\t" in row)
    assert counts[call] == 1 and len(counts) > 4000, (call, counts.most_common(3), done.stderr)
    assert max(counts.values()) == 1, counts.most_common(3)


async def check_all(stack: Stack, encoder: Stack) -> None:
    keys = [stack.key("search", "--batches", "--admin"), stack.key("mails", "--batches")]
    worker = stack.worker()
    encoder.worker()
    call, left = await check_killed_gateway(stack, keys[0])
    check_foreign_folder(stack)
    gateways = [stack.gateway("--calls-max", str(CALLS_MAX)), stack.gateway()]
    # Meanwhile the group finds out that it has lost a member.
    await asyncio.to_thread(check_generation, gateways[0][1], keys[0])
    encoder_key = encoder.key("search")
    await asyncio.to_thread(check_encoder, encoder.gateway()[1], encoder_key)
    async with contextlib.AsyncExitStack() as open_clients:
        pairs = [await open_clients.enter_async_context(clients(f"{server}/v1", keys[0])) for _, server in gateways]
        others = await open_clients.enter_async_context(clients(f"{gateways[1][1]}/v1", keys[1]))
        await check_after_the_kill(pairs[0][0], stack, call, left)
        for client, other in zip(pairs[0], others):
            await check_files(client, other)
            await check_batch(client, other)
        for client in pairs[1]:
            await check_wrong_batches(client)
        run_node("batches_check.mjs", f"{gateways[1][1]}/v1", keys[0], timeout=PATIENCE)
        await check_cancel(pairs[1], stack, worker, lambda: page(f"{gateways[1][1]}/metrics", keys[0]))
    await check_broken_gateways(stack, gateways, keys[0])
    check_results(stack, call)
    for gateway, _ in gateways:
        gateway.terminate()
        assert gateway.wait(timeout=60) == 0, "a gateway ends by SIGTERM with exit code 0"


def main() -> None:
    program = str(Path(sys.argv[1]).resolve())
    address = os.environ.get("LORRY_KAFKA_ADDRESS_FILE")
    if address is None:
        print("skipped: LORRY_KAFKA_ADDRESS_FILE is not set: nothing was tested against a real Kafka")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        brokers = Path(address).read_text().strip()
        stack = Stack(program, brokers, Path(folder) / "sdk", closing)
        encoder = Stack(program, brokers, Path(folder) / "sdk-encoder", closing, EXAMPLE / "encoder")
        asyncio.run(check_all(stack, encoder))
    libraries.end()


if __name__ == "__main__":
    main()
