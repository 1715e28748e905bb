"""Programs that ops/gpu-check runs, those of a part for less than ten minutes together, and what they print."""

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
MADE_UP_BYTES_MAX = 32 * 2**30  # a model's weights and its adapters'


class Failure(Exception):
    pass


class PartTime:
    """What the running part has left; parts run one after the other."""

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
    """What the pack's programs need: libraries, test data, and memory for the weights that they make up, where it holds them."""
    # cuBLASLt may be this Python's, as it comes with torch.
    pip = [folder for path in sys.path for folder in sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib")))]
    variables = {"LD_LIBRARY_PATH": ":".join([str(PACK / "lib"), os.environ.get("LD_LIBRARY_PATH", ""), *pip]),
                 "LORRY_TEST_DATA": str(ROOT / "tests" / "data")}  # fmt: skip
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > MADE_UP_BYTES_MAX:
        variables["TMPDIR"] = str(IN_MEMORY)
    return variables


def run(command: list, environment: dict | None = None) -> tuple[str, int]:
    """Output of both streams and the exit code; a command that is missing or too slow is a Failure."""
    words = [str(word) for word in command]
    # Nobody else's programs, such as nvidia-smi, torch's Python or the profiler that starts one of the pack's, are to find these.
    packed = next((place for place, word in enumerate(words) if Path(word).is_relative_to(PACK)), None)
    if packed is not None:
        words[packed:packed] = ["env", *(f"{name}={value}" for name, value in surroundings().items())]
    variables = dict(os.environ, **(environment or {}))
    try:
        # With a group of its own, so that what it starts ends with it: a profiler's or a sanitizer's program would go on using the GPU.
        process = subprocess.Popen(words, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)  # fmt: skip
    except FileNotFoundError as error:
        raise Failure(f"{words[0]} is not there: {error.strerror}") from error
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
    """What a command printed last."""
    output, code = run(command)
    if code != 0:
        raise Failure(output[-3000:])
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise Failure(f"{command[0]} printed no JSON but {output[-3000:] or 'nothing'}") from error
