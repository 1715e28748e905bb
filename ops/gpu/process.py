"""Runs the programs of ops/gpu-check and returns their output. Those of a part together get less than ten minutes. Used by parts.py."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACK = ROOT / "build" / "gpu-check"
PART_SECONDS = 590
IN_MEMORY = Path("/dev/shm")
MADE_UP_BYTES_MAX = 32 * 2**30  # of a model and its adapters


class Failure(Exception):
    pass


class PartTime:
    """The time that the running part has left. Parts run one after the other."""

    end: float | None = None
    seconds: float = PART_SECONDS

    @classmethod
    def begin(cls, seconds_max: float = PART_SECONDS) -> None:
        cls.seconds = min(PART_SECONDS, seconds_max)
        cls.end = time.monotonic() + cls.seconds

    @classmethod
    def left(cls) -> float:
        return PART_SECONDS if cls.end is None else max(0.0, cls.end - time.monotonic())


def surroundings() -> dict[str, str]:
    """Environment of the packed programs: libraries, test data, and a folder in memory for random weights if it is large enough."""
    # cuBLASLt may be the one that torch brings to this Python.
    pip = [folder for path in sys.path for folder in sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib")))]
    variables = {"LD_LIBRARY_PATH": ":".join([str(PACK / "lib"), os.environ.get("LD_LIBRARY_PATH", ""), *pip]),
                 "LORRY_TEST_DATA": str(ROOT / "tests" / "data")}  # fmt: skip
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > MADE_UP_BYTES_MAX:
        variables["TMPDIR"] = str(IN_MEMORY)
    return variables


def run(command: list, environment: dict | None = None) -> tuple[str, int]:
    """Returns the output of both streams and the exit code. Raises Failure if the command is missing or too slow."""
    words = [str(word) for word in command]
    # Only for packed programs: nvidia-smi, torch's Python or a profiler that starts a packed one must not load the packed libraries.
    packed = next((place for place, word in enumerate(words) if Path(word).is_relative_to(PACK)), None)
    if packed is not None:
        words[packed:packed] = ["env", *(f"{name}={value}" for name, value in surroundings().items())]
    variables = dict(os.environ, **(environment or {}))
    try:
        # In its own process group, so that its children end with it: a program under a profiler or a sanitizer would keep using the GPU.
        process = subprocess.Popen(words, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)  # fmt: skip
    except FileNotFoundError as error:
        raise Failure(f"{words[0]} cannot be run: {error.strerror}") from error
    with process:
        try:
            return process.communicate(timeout=PartTime.left())[0], process.returncode
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = process.communicate()[0][-1000:]
            raise Failure(f"{' '.join(words)} did not end within the {PartTime.seconds:.0f} s that the part had; it said:\n"
                          f"{said}") from error  # fmt: skip


def last_json(command: list) -> dict:
    """The JSON in the last line that a command printed."""
    output, code = run(command)
    if code != 0:
        raise Failure(output[-3000:])
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise Failure(f"{command[0]} printed no JSON but {output[-3000:] or 'nothing'}") from error
