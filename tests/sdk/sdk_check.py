#!/usr/bin/env python3
# Runs OpenAI's Python and Node libraries, unchanged, against `lorry up` with the example's models: all checks of calls.py, and files and
# batches. ctest runs it as `openai_sdk`. Exit code 77: a library is not installed.
#
#   tests/sdk/sdk_check.py PROGRAM     PROGRAM is lorry
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import libraries
from batches import begin, check_batch, check_files, check_wrong_batches, ended, line, rows
from calls import CALLS_MAX, check_encoder, check_generation


@contextlib.contextmanager
def lorry_up(program: str, folder: Path, *arguments: str):
    """The url of a server of the folder's model and adapters, once it is ready."""
    command = [program, "up", "--port", "0", "--model", folder / "model", "--adapters", folder / "adapters", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=libraries.ROOT) as server:
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


async def check_large_batch(client) -> None:
    """Its lines have 12 MB, of which the broker holds 5 MiB at a time."""
    lines = [line(i, user=os.urandom(450_000).hex()) for i in range(14)]
    batch = await ended(client, (await begin(client, lines)).id)
    assert batch.status == "completed" and batch.request_counts.completed == len(lines), batch
    assert len(await rows(client, batch.output_file_id)) == len(lines), batch


def check_batches(server: str) -> None:
    async def run() -> None:
        async with libraries.clients(f"{server}/v1", "any") as (synchronous, client):
            await check_files(client)
            await check_batch(synchronous)
            await check_wrong_batches(client)
            await check_large_batch(client)

    asyncio.run(run())
    libraries.run_node("batches_check.mjs", f"{server}/v1", "any", timeout=libraries.PATIENCE)


def main() -> None:
    program = str(Path(sys.argv[1]).resolve())
    with lorry_up(program, libraries.EXAMPLE, "--calls-max", str(CALLS_MAX)) as url:
        check_generation(url, "any")
        check_batches(url)
    with lorry_up(program, libraries.EXAMPLE / "encoder") as url:
        check_encoder(url, "any")
    libraries.end()


if __name__ == "__main__":
    main()
