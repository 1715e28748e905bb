#!/usr/bin/env python3
# Runs OpenAI's Python and Node libraries, unchanged, against `lorry up` with the example's models: all checks of calls.py. ctest runs it as
# `openai_sdk`. Exit code 77: a library is not installed.
#
#   tests/sdk/sdk_check.py PROGRAM     PROGRAM is lorry
import contextlib
import re
import subprocess
import sys
from pathlib import Path

import libraries
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


def main() -> None:
    program = str(Path(sys.argv[1]).resolve())
    with lorry_up(program, libraries.EXAMPLE, "--calls-max", str(CALLS_MAX)) as url:
        check_generation(url, "any")
    with lorry_up(program, libraries.EXAMPLE / "encoder") as url:
        check_encoder(url, "any")
    libraries.end()


if __name__ == "__main__":
    main()
