"""Packs the programs and their libraries into one archive for the machine with the GPU, and unpacks it there. Used by ops/gpu-check."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from process import PACK, ROOT, Failure, run

ARCHIVE = ROOT / "build" / "gpu-check.tar.gz"
PROGRAMS = ["lorry", "tests/test_gpu"]
# Libraries that every Linux has, and those that must be the GPU machine's own.
LEFT_OUT = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|util|gcc_s|cuda)\.so.*|linux-vdso.*)$")
ARCHIVE_BYTES_MAX = 45_000_000  # so that it is copied in a moment


def size_of(place: Path) -> int:
    return place.stat().st_size if place.is_file() else sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def pack() -> str:
    """Makes the archive and returns a line that describes it."""
    shutil.rmtree(PACK, ignore_errors=True)
    (PACK / "lib").mkdir(parents=True)
    for name in PROGRAMS:
        built = ROOT / "build" / name
        if not built.exists():
            raise Failure(f"{built} is missing: run ops/setup --cuda, then ops/build release lorry test_gpu")
        subprocess.run(["strip", "-o", PACK / built.name, built], check=True)
        for library, path in re.findall(r"(\S+) => (/\S+)", run(["ldd", built])[0]):
            if not LEFT_OUT.match(library):
                subprocess.run(["strip", "-o", PACK / "lib" / library, path], check=True)
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    (PACK / "commit").write_text(commit.stdout.strip() or "unknown", encoding="utf-8")
    with tarfile.open(ARCHIVE, "w:gz") as archive:
        archive.add(PACK, PACK.name)
    programs = sum(size_of(PACK / Path(name).name) for name in PROGRAMS)
    described = (f"build/{ARCHIVE.name} holds {size_of(ARCHIVE) / 1e6:.1f} MB: programs of {programs / 1e6:.1f} MB and libraries of "
                 f"{size_of(PACK / 'lib') / 1e6:.1f} MB")  # fmt: skip
    if size_of(ARCHIVE) >= ARCHIVE_BYTES_MAX:
        raise Failure(f"{described}; it must be below {ARCHIVE_BYTES_MAX / 1e6:.0f} MB")
    return described


def unpack() -> None:
    """Unpacks the archive if it has not been unpacked yet or is newer than what was unpacked."""
    stamp = PACK / "commit"
    if not ARCHIVE.exists() or (stamp.exists() and stamp.stat().st_mtime_ns >= ARCHIVE.stat().st_mtime_ns):
        return
    shutil.rmtree(PACK, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(PACK.parent)
    stamp.touch()


def program(name: str) -> Path:
    path = PACK / Path(name).name
    if not path.exists():
        raise Failure(f"{path} is missing: run ops/gpu-check --pack on the build machine, and copy build/{ARCHIVE.name} here")
    return path
