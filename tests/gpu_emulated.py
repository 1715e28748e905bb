#!/usr/bin/env python3
# Runs the parts of ops/gpu-check as on a machine with a GPU, with the `lorry` program that has an emulated GPU, given as the argument. Each
# command of the parts runs once, with tiny work. Scripts that print similar output replace NVIDIA's tools and the test programs, which
# ctest runs on that GPU anyway. ctest runs it.
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from gpu_check import ROOT, ncu_output

import pack  # isort: skip
import parts  # isort: skip
import process  # isort: skip
from goals import ROWS  # isort: skip
from report import markdown, rows_of  # isort: skip
from work import rehearsal  # isort: skip

SHAPE = "stories260k"
# Parts that only run other programs, and one whose shapes would take hours; it has the same command as `matmul`.
LEFT_OUT = {"kernels", "goldens", "invariance", "matmul_others",
            *(name for name in parts.PARTS if name.startswith(("memcheck_", "racecheck_")))}  # fmt: skip
TOOLS = {
    "nvidia-smi": """import sys
print(", ".join({"name": "emulated", "driver_version": "580.1"}.get(field, "7") for field in sys.argv[1].split("=")[1].split(",")))""",
    # The program follows its own flags.
    "ncu": f"""import subprocess, sys
words = sys.argv[1:]
done = subprocess.run(words[words.index("--metrics") + 2 :], check=False)
sys.stdout.write({ncu_output()!r})
sys.exit(done.returncode)""",
    "test_gpu": """for inputs in ("bfloat16", "fp8_rows"):
    print("cuBLASLt multiplies 32 x 48", inputs)
print("[       OK ] A.b (3 ms)")""",
}  # fmt: skip


def of_root(root: Path) -> None:
    """The files of the repository that the parts read, with one job, and a configuration for commands that take the batch from it."""
    (root / "lorry.toml").write_text("max_batch = 1\nstep_tokens = 32\n", encoding="utf-8")
    for name in ("ops/example/model", "ops/example/adapters", "ops/gpu", "tests/data"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(ROOT / name)
    (root / "ops/example/jobs").mkdir()
    for name in ("section", "heldout"):
        lines = (ROOT / f"ops/example/jobs/{name}.jsonl").read_text(encoding="utf-8").splitlines()
        job = json.loads(min(lines, key=len))
        job["body"]["max_tokens"] = 4
        (root / f"ops/example/jobs/{name}.jsonl").write_text(json.dumps(job) + "\n", encoding="utf-8")


class Emulated(unittest.TestCase):
    lorry = Path()

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = root / "build" / "gpu-check"
        place.mkdir(parents=True)
        of_root(root)
        (place / "lorry").symlink_to(self.lorry)
        (place / "commit").write_text("abc1234", encoding="utf-8")
        for name, script in TOOLS.items():
            (place / name).write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
            (place / name).chmod(0o755)
        for module in (pack, process, parts):
            stack.enter_context(mock.patch.object(module, "PACK", place))
        for module in (process, parts):
            stack.enter_context(mock.patch.object(module, "ROOT", root))
        for name in ("TABLE", "TEST_TABLE"):
            stack.enter_context(mock.patch.object(parts, name, place / name))
        stack.enter_context(mock.patch.dict(os.environ, {"PATH": f"{place}:{os.environ['PATH']}"}))
        self.work = dataclasses.replace(rehearsal(place / "lorry"), shape=SHAPE, device="cuda", batches=(2, 4), profiled_layers=1,
                                        decoded=4, offline=((8, 3, 4),), few=(8, 8), mixed=(8, 16) * 2)  # fmt: skip

    def test_the_parts_run_and_are_judged(self):
        of = parts.stamp(self.work)
        self.assertEqual(of["GPU"], "emulated")
        entries = {}
        for name, part in parts.PARTS.items():
            if name in LEFT_OUT:
                continue
            began = time.monotonic()
            with self.subTest(name):
                facts = json.loads(json.dumps(part.run(self.work)))
                seconds = round(time.monotonic() - began, 1)
                entries[name] = {"passed": True, "date": "2026-11-23", "of": of, "seconds": seconds, "facts": facts}
        text = markdown(entries, parts.table_rows(), "A rehearsal on the emulated GPU", {})
        rows = rows_of(entries)
        self.assertTrue(set(ROWS) <= set(rows) and all(row.measured for part in rows.values() for row in part), text)
        # The tuned table was used.
        self.assertRegex(entries["decode"]["facts"]["batch 2"]["matmuls"], "^cuBLASLt ")
        self.assertRegex(entries["offline_fp8"]["facts"]["8/3"]["matmuls"], "^cuBLASLt ")
        self.assertNotIn("OWN MATMUL", text)
        self.assertGreater(entries["decode"]["facts"]["batch 2"]["graph_steps"], 0)
        self.assertEqual(entries["decode_plain"]["facts"]["batch 2"]["graph_steps"], 0)
        self.assertEqual(entries["decode_sampled"]["facts"]["batch 4"]["sampling"]["temperature"], 0.8)
        self.assertEqual(entries["decode"]["facts"]["batch 4"]["sampling"]["temperature"], 0.0)

    def test_what_our_own_kernel_multiplied_is_marked(self):
        facts = {"decode": {"batch 2": parts.throughput(self.work, 2, 2, 8, 4)}}
        entries = {"decode": {"passed": True, "date": "2026-11-23", "of": {}, "seconds": 1.0, "facts": facts["decode"]}}
        self.assertRegex(rows_of(entries)["decode"][0].measured, r"\(OWN MATMUL\)$")

    def lorry_says(self, *words, code=0):
        """Both streams."""
        output, ended = process.run([self.lorry, *words])
        self.assertEqual(ended, code, f"{words}:\n{output}")
        return output

    def test_people_read_the_same(self):
        machine = self.lorry_says("bench", "machine", "--device", "cuda")
        self.assertRegex(machine, r"^emulated \(compute capability 9.0, 1 processors\).*\ncopy")
        self.assertIn("90 1 130100 bfloat16", self.lorry_says("bench", "tune", "--device", "cuda", "--random-weights", SHAPE))
        with_model = ("--device", "cuda", "--random-weights", SHAPE, "--layers", "1")
        short = ("--requests", "2", "--repeat", "1", "--input-tokens", "4", "--output-tokens", "3")
        started = self.lorry_says("bench", "throughput", *with_model, *short)
        for line in (r"device +cuda \(emulated\)", "matmuls +own kernels", "KV cache .* tokens; one job holds up to",
                     "adapters .*, and half of what the KV cache has to spare", "graphs .* for decoding steps of",
                     "steps .* to compute with, set aside", "memory .* of 1.0 GiB are left"):  # fmt: skip
            self.assertRegex(started, line)
        self.lorry_says("bench", "adapters", *with_model, *short, "--random-adapters", "3", "--ranks", "8", "--cached", "2")

    def test_memory_is_the_devices(self):
        throughput = ("bench", "throughput", "--device", "cuda", "--random-weights", SHAPE, "--layers", "1", "--requests", "1")
        for words, code, why in ((("--kv-memory", "2GiB"), 2, "less than the total of 1.0 GiB"),
                                 (("--kv-memory", "900MiB", "--adapter-memory", "200MiB"), 1, "are free now"),
                                 (("--adapter-memory", "2GiB"), 2, "less than the total of 1.0 GiB"),
                                 (("--adapter-memory", "1023MiB"), 1, "no memory is left for a KV cache"),
                                 (("--graph-memory", "2GiB"), 1, "are free now"),
                                 (("--quantize", "int8"), 2, "the GPU has no int8 weights: choose fp8"),
                                 (("--kv-dtype", "int8"), 2, "the GPU has no int8 KV cache: choose fp8")):  # fmt: skip
            self.assertIn(why, self.lorry_says(*throughput, *words, code=code))


if __name__ == "__main__":
    Emulated.lorry = Path(sys.argv.pop()).resolve()
    unittest.main()
