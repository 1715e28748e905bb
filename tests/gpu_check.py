#!/usr/bin/env python3
# Checks without a GPU how ops/gpu-check runs its parts: what it packs, what fits a card and the time, and which results count as passed.
# Given a `lorry` program, it runs the commands of the benchmarks on the CPU instead, with tiny work. ctest runs both.
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ops" / "gpu"))

import memory  # noqa: E402
import ncu  # noqa: E402
import pack  # noqa: E402
import parts  # noqa: E402
import process  # noqa: E402
from gpu_report_check import MACHINE, STAMP, entries_of, output  # noqa: E402
from progress import Part, expected_seconds, first_that_fits, left_to_run  # noqa: E402
from report import rows_of  # noqa: E402
from work import Work, rehearsal  # noqa: E402


class Pack(unittest.TestCase):
    def test_programs_travel_stripped_with_their_libraries_and_are_unpacked_once(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
            root = Path(folder)
            for name in ("build/lorry", "build/tests/test_gpu"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(Path(sys.executable).resolve().read_bytes())
            place = root / "build" / "gpu-check"
            for module, name, value in ((pack, "ROOT", root), (pack, "PACK", place), (process, "PACK", place), (process, "ROOT", root),
                                        (pack, "ARCHIVE", root / "build" / "gpu-check.tar.gz")):  # fmt: skip
                patches.enter_context(mock.patch.object(module, name, value))
            self.assertRegex(pack.pack(), r"^build/gpu-check.tar.gz holds [\d.]+ MB: programs of [\d.]+ MB and libraries of [\d.]+ MB$")
            with mock.patch.object(pack, "ARCHIVE_BYTES_MAX", 1), self.assertRaisesRegex(process.Failure, "must be below"):
                pack.pack()
            libraries = sorted(file.name for file in (place / "lib").iterdir())
            self.assertFalse([name for name in libraries if name.startswith("libc.so")])
            (place / "lorry").write_text("older", encoding="utf-8")
            os.utime(place / "commit", ns=(0, 0))
            pack.unpack()
            self.assertTrue(os.access(pack.program("lorry"), os.X_OK))
            self.assertNotEqual(pack.program("lorry").read_bytes(), b"older")
            (place / "lorry").write_text("kept", encoding="utf-8")
            pack.unpack()
            self.assertEqual(pack.program("lorry").read_text(encoding="utf-8"), "kept")


class Memory(unittest.TestCase):
    """Cards by the memory in MiB that nvidia-smi reports."""

    H100, H200 = 81559, 143771
    TAKEN_BEFORE = 5.5 * 2**30  # at least 2.1 GiB of it are a step's activations

    def commands_on(self, mebibytes):
        """Of every part that gives an engine work, by part and number."""
        work = Work(lorry=Path("lorry"), card_bytes=mebibytes * 2**20)
        commands = {}
        for name in ("decode", "decode_fp8_kv", "offline", "offline_fp8", "adapters", "adapters_loop", "loading", "baselines_adapters",
                     "decode_sampled", "offline_fp8_kv"):  # fmt: skip
            def call(command, name=name):
                words = [str(word) for word in command]
                if "bench" not in words:
                    return {}
                commands[f"{name} {len(commands)}"] = {flag: value for flag, value in zip(words, words[1:]) if flag.startswith("--")}
                batch = int(words[words.index("--max-batch") + 1]) if "--max-batch" in words else 0
                return {"machine": MACHINE, "decode": {"rows": batch}}

            with mock.patch.object(parts, "last_json", side_effect=call):
                getattr(parts, name)(work)
        return commands

    # Pins: --kv-memory 80GiB was more than an H100 has, so ten parts failed at their start.
    def test_every_batch_fits_the_card(self):
        for mebibytes in (self.H100, self.H200):
            commands = self.commands_on(mebibytes)
            self.assertEqual(len(commands), 21)
            for name, flags in commands.items():
                self.assertNotIn("--kv-memory", flags)
                if "--max-batch" not in flags:
                    continue
                # As ops/engine_setup.cpp divides it: adapters, a sixteenth kept free, the rest for keys and values.
                available = mebibytes * 2**20 - 2 * 8_030_000_000 - self.TAKEN_BEFORE
                given = flags.get("--adapter-memory", "2048MiB")
                cache = available * 15 / 16 - int(given.removesuffix("MiB")) * 2**20
                tokens = int(flags["--input-tokens"]) + int(flags["--output-tokens"]) + 64
                self.assertGreaterEqual(cache, int(flags["--max-batch"]) * tokens * 131072, f"{name} in {mebibytes} MiB: {flags}")

    def test_adapters_get_what_they_take(self):
        self.assertEqual(memory.adapter_bytes((16,) * 8), round(1.05 * 128 * 5242880))
        flags = [flags for name, flags in self.commands_on(self.H200).items() if name.startswith(("adapters ", "loading"))]
        self.assertEqual([each["--adapter-memory"] for each in flags], ["672MiB", "10080MiB", "21504MiB", "2688MiB"])

    def test_only_what_does_not_fit_is_smaller(self):
        def batches(mebibytes):
            return {name: flags["--max-batch"] for name, flags in self.commands_on(mebibytes).items() if "--max-batch" in flags}

        large, small = batches(self.H200), batches(self.H100)
        self.assertEqual({value for name, value in large.items() if "loop" not in name}, {"64", "256"})
        self.assertEqual({name: (large[name], value) for name, value in small.items() if value != large[name]},
                         {"offline 5": ("256", "208"), "offline_fp8 8": ("256", "208"), "adapters 10": ("256", "192"),
                          "adapters 11": ("256", "192"), "adapters 12": ("256", "192"), "adapters_loop 13": ("32", "24"),
                          "adapters_loop 14": ("4", "3"), "offline_fp8_kv 19": ("256", "208")})  # fmt: skip

    def test_a_card_without_room_for_the_model_says_so(self):
        with self.assertRaisesRegex(process.Failure, "the card has 24 GiB: no batch of sequences of 1088 tokens fits with the model"):
            self.commands_on(24 * 1024)

    def test_the_card_is_asked_once_and_may_not_answer(self):
        line = "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 9.0, 1980 MHz, 2619 MHz\n"
        for output, code, expected in ((line, 0, 81559 * 2**20), ("no devices", 6, None), (line.replace("81559 MiB", "[N/A]"), 0, None)):
            parts.card.cache_clear()
            with mock.patch.object(parts, "run", return_value=(output, code)):
                self.assertEqual(parts.card_bytes(), expected)
        parts.card.cache_clear()


# The output of `ncu --csv --print-units base --metrics …`, mixed with that of the program.
def ncu_line(launch, kernel, metric, unit, value):
    return (f'"{launch}","4021","lorry","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0",'
            f'"Command line profiler metrics","{metric}","{unit}","{value}"')  # fmt: skip


def ncu_output():
    names = "void lorry::kernels::cuda::<unnamed>::embed<lorry::Bfloat16>(EmbedTask)", "sm90_xmma_gemm_bf16", "void sample(SampleTask)"
    lines = ["==PROF== Connected to process 4021 (/x/lorry)", '==PROF== Profiling "embed" - 0: 0%....50%....100% - 1 pass', "requests  2",
             '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
             '"Section Name","Metric Name","Metric Unit","Metric Value"']  # fmt: skip
    # One before the steps, one step that draws nothing, two that do, one after them.
    kernels = [names[1], *names[:2], *names, *names[:2], *names[1:], names[1]]
    for launch, kernel in enumerate(kernels):
        lines += [ncu_line(launch, kernel, "dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", 10 * launch),
                  ncu_line(launch, kernel, "gpu__time_duration.sum", "ns", "1,000" if kernel == names[0] else "4,000"),
                  ncu_line(launch, kernel, "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "5.50")]  # fmt: skip
    return "\n".join(lines)


class Ncu(unittest.TestCase):
    def test_its_launches_are_cut_into_steps(self):
        steps = ncu.steps_of(ncu.launches_of(ncu_output()))
        gemm = "sm90_xmma_gemm_bf16"
        self.assertEqual([[launch.kernel for launch in step] for step in steps],
                         [["embed", gemm, "sample"], ["embed", gemm, gemm, "sample"]])  # fmt: skip
        self.assertEqual({name: round(figure, 9) for name, figure in steps[0][0].figures.items()},
                         {"memory": 30.0, "time": 1e-6, "compute": 5.5})  # fmt: skip

    def test_a_step_is_unfinished_when_its_last_kernel_is_missing(self):
        launches = ncu.launches_of(ncu_output())
        self.assertEqual(ncu.unfinished_step(launches), [])
        self.assertEqual([launch.kernel for launch in ncu.unfinished_step(launches[:5])], ["embed", "sm90_xmma_gemm_bf16"])
        self.assertEqual(ncu.unfinished_step(launches[:1]), [])

    def test_kernels_have_short_names(self):
        for kernel, name in (("void lorry::kernels::cuda::(anonymous namespace)::norm<float>(NormTask)", "norm"), ("attend(int)", "attend"),
                             ("void cutlass::Kernel2<cutlass_80_tensorop>(T1::Params)", "Kernel2"), ("nvjet", "nvjet")):  # fmt: skip
            self.assertEqual(ncu.short_name(kernel), name)

    def test_the_slowest_kernels_have_their_shares(self):
        steps = ncu.steps_of(ncu.launches_of(ncu_output()))
        self.assertEqual(list(ncu.slowest(steps[1]).items()), [
            ("sm90_xmma_gemm_bf16", "62 % of 0.01 ms in 2 launches, memory 75 %, compute 6 %"),
            ("sample", "31 % of 0.01 ms in 1 launches, memory 90 %, compute 6 %"),
            ("embed", "8 % of 0.01 ms in 1 launches, memory 60 %, compute 6 %")])  # fmt: skip

    def profile(self, output, code=0):
        with mock.patch.object(parts.shutil, "which", return_value="ncu"), mock.patch.object(parts, "run", return_value=(output, code)):
            return parts.profile(Work(lorry=Path("lorry")))

    def test_the_part_names_kernels_of_both_kinds_of_step(self):
        facts = self.profile(ncu_output())
        self.assertEqual(list(facts)[0], "prefill: sm90_xmma_gemm_bf16")
        self.assertEqual(len(facts), 6)

    # Pins: ncu replayed kernels for longer than --for allowed and was ended, and all its measurements were lost.
    def test_when_the_time_is_over_what_it_has_seen_counts(self):
        lines = ncu_output().splitlines()
        # Cut in the second step that draws.
        seen = "\n".join([line for line in lines if not line.startswith('"') or line.split(",")[0].strip('"') in ("ID", *"01234567")])
        script = f"""import subprocess, sys
words = sys.argv[1:]
code = subprocess.run(words[words.index("--metrics") + 2 :], check=False).returncode
print({seen!r})
sys.exit(code)"""
        self.addCleanup(setattr, process.PartTime, "end", process.PartTime.end)
        with tempfile.TemporaryDirectory() as folder:
            ncu, program = Path(folder) / "ncu", Path(folder) / "lorry"
            ncu.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
            program.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
            for file in (ncu, program):
                file.chmod(0o755)
            process.PartTime.end = parts.time.monotonic() + parts.PROFILE_MARGIN_SECONDS + 1
            began = parts.time.monotonic()
            with mock.patch.object(parts.shutil, "which", return_value=ncu):
                facts = parts.profile(Work(lorry=program))
            self.assertLess(parts.time.monotonic() - began, 20)
        gemm = "sm90_xmma_gemm_bf16"
        self.assertEqual(list(facts), [f"a step that was cut short: {gemm}", "a step that was cut short: embed", f"prefill: {gemm}",
                                       "prefill: sample", "prefill: embed", "ended"])  # fmt: skip
        self.assertEqual(facts["ended"], "after 1 s, with 8 launches profiled")

    def test_where_it_is_not_there_or_not_permitted_the_part_says_so(self):
        with mock.patch.object(parts.shutil, "which", return_value=None):
            self.assertEqual(parts.profile(Work(lorry=Path("lorry"))), {"ncu": "is not installed: nothing was profiled"})
        self.assertIn("is not permitted", self.profile("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1)["ncu"])
        with self.assertRaisesRegex(process.Failure, "exit code 1, 0 steps"):
            self.profile("out of memory", 1)


class Parts(unittest.TestCase):
    def test_without_a_gpu_the_stamp_says_so(self):
        with mock.patch.object(parts, "run", side_effect=process.Failure("nvidia-smi is not there")), \
                mock.patch.object(parts, "program", return_value=mock.Mock(read_text=lambda encoding: "abc1234")):  # fmt: skip
            self.assertEqual(parts.stamp(Work(lorry=Path("lorry"))), {"commit": "abc1234", "GPU": "none"})

    # Pins: nvidia-smi and torch's Python loaded the pack's libraries instead of their own.
    def test_only_the_packs_programs_get_its_surroundings(self):
        show = "import os; print(os.environ.get('LD_LIBRARY_PATH', 'none'))"
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(process, "PACK", Path(folder)), \
                mock.patch.dict(os.environ, clear=False):  # fmt: skip
            os.environ.pop("LD_LIBRARY_PATH", None)
            self.assertEqual(process.run(self.play(show))[0], "none\n")
            own = Path(folder) / "lorry"
            own.symlink_to(sys.executable)
            self.assertTrue(process.run([own, "-c", show])[0].startswith(folder))

    def test_memory_holds_what_is_made_up_where_there_is_enough(self):
        for free, expected in ((2**40, "/dev/shm"), (64 * 2**20, None)):
            with mock.patch.object(process.shutil, "disk_usage", return_value=mock.Mock(free=free)):
                self.assertEqual(process.surroundings().get("TMPDIR"), expected)

    # Pins: 64 adapters of 4 ranks were 64 files, 21 GB in all, which took minutes to write.
    def test_ranks_that_repeat_are_named_once(self):
        work = Work(lorry=Path("lorry"))
        for ranks, named in ((work.few, "16"), (work.mixed, "8,16,32,64"), ((8, 16, 16), "8,16,16")):
            self.assertEqual(parts.adapter_flags(ranks)[:4], ("--random-adapters", len(ranks), "--ranks", named))

    # Pins: a tuned table took effect only after it was compiled into the program.
    def test_what_matmul_found_is_what_later_parts_multiply_with(self):
        work = Work(lorry=Path("lorry"))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(parts, "TABLE", Path(folder) / "table"), \
                mock.patch.object(parts, "last_json", return_value=output(1.0)) as call:  # fmt: skip
            parts.throughput(work, 256, 256, 128, 128)
            self.assertNotIn("--matmul-table", call.call_args.args[0])
            parts.TABLE.touch()
            parts.throughput(work, 256, 256, 128, 128)
            words = call.call_args.args[0]
            self.assertEqual(words[words.index("--matmul-table") + 1], parts.TABLE)

    # Pins: a part that was ended while tuning left no table, and every later part multiplied without one.
    def test_tuning_ends_before_its_part_does(self):
        self.addCleanup(setattr, process.PartTime, "end", process.PartTime.end)
        for left, expected in ((590, 300), (100, 70), (10, 1)):
            process.PartTime.end = parts.time.monotonic() + left
            with mock.patch.object(parts, "last_json", return_value={}) as call:
                parts.tune(Work(lorry=Path("lorry")), Path("table"), 300, ("--quantize", "fp8"))
            words = call.call_args.args[0]
            self.assertEqual(words[words.index("--seconds-max") + 1], expected)

    def test_cublaslt_must_multiply_something(self):
        tuning = {"matmuls": [{"buckets": [1]}, {"buckets": []}]}
        machine = {"rates": {"fp8_dot_operations_per_second": 1e15}}

        def check(verb, tuning):
            told = f"cuBLASLt multiplies 32 x 48 bfloat16\ncuBLASLt {verb} 32 x 48 fp8_rows\n"
            with contextlib.ExitStack() as patches:
                for name, value in (("chip", machine), ("last_json", tuning), ("tested", ({"tests passed": 7}, told))):
                    patches.enter_context(mock.patch.object(parts, name, return_value=value))
                patches.enter_context(mock.patch.object(parts, "program", side_effect=Path))
                return parts.cublaslt(Work(lorry=Path("lorry")))

        facts = check("multiplies", tuning)
        self.assertEqual(facts["goldens' shapes that it multiplies, fp8"], "1 of 2")
        self.assertEqual(facts["their shapes that it multiplies, fp8_rows"], "1 of 1")
        with self.assertRaisesRegex(process.Failure, "multiplied nothing"):
            check("does not multiply", tuning)
        with self.assertRaisesRegex(process.Failure, "no algorithm with the same bits"):
            check("multiplies", {"matmuls": [{"buckets": []}]})

    # Pins: with 2,048 tokens a step at most 117 of 256 sequences decoded together, but the part waited for a decode step of all.
    def test_all_sequences_of_a_batch_decode_together(self):
        for work in (Work(lorry=Path("lorry")), rehearsal(Path("lorry"))):
            for batch in work.batches:
                # A step prefills with the tokens that decoding leaves.
                prefills = -(-batch * work.context // (max(work.step_tokens, batch) - batch))
                self.assertLess(prefills, work.decoded, f"{work.shape}, {batch} sequences")

    def test_goals_are_measured_at_the_sizes_that_they_were_set_for(self):
        work = Work(lorry=Path("lorry"))
        self.assertEqual((work.shape, work.batches, work.context, work.prompts), ("llama-3.1-8b", (64, 256), 1024, (1024, 8192)))
        self.assertEqual([shape[:2] for shape in work.offline], [(128, 128), (1000, 1000), (512, 128)])
        self.assertEqual((work.few, sorted(set(work.mixed)), len(work.mixed)), ((16,) * 8, [8, 16, 32, 64], 64))

    def play(self, script):
        """A test program that prints this."""
        return [sys.executable, "-c", script]

    def test_skipped_and_missing_tests_are_failures(self):
        passed = "print('[       OK ] A.b (3 ms)')"
        self.assertEqual(parts.tests(self.play(passed)), {"tests passed": 1})
        for script in (passed + "; print('[  SKIPPED ] A.c (0 ms)')", passed + "; print('[  FAILED  ] A.c (0 ms)')", "pass",
                       passed + "; raise SystemExit(9)"):  # fmt: skip
            with self.assertRaises(process.Failure):
                parts.tests(self.play(script))

    def test_what_prints_no_json_is_a_failure(self):
        self.assertEqual(process.last_json(self.play("print('loading'); print('[1]')")), [1])
        for script, why in (("print('no figures')", "no figures"), ("pass", "nothing"), ("raise SystemExit('out of memory')", "memory")):
            with self.assertRaisesRegex(process.Failure, why):
                process.last_json(self.play(script))

    def test_all_programs_of_a_part_share_its_time(self):
        self.addCleanup(setattr, process.PartTime, "end", process.PartTime.end)
        process.PartTime.begin()
        self.assertEqual(process.run(self.play("print(1)")), ("1\n", 0))
        process.PartTime.end = 0.0
        with self.assertRaisesRegex(process.Failure, "did not end within the 590 s that the part had"):
            process.run(self.play("import time; time.sleep(60)"))

    # Pins: a sanitizer that took too long was ended, but the program under it continued to use the GPU.
    def test_what_a_program_started_ends_with_it(self):
        self.addCleanup(setattr, process.PartTime, "end", process.PartTime.end)
        with tempfile.TemporaryDirectory() as folder:
            late = Path(folder) / "late"
            # The child waits from its start, so that it exists when its parent reports it.
            child = f"read -t 9 || touch {late}"
            process.PartTime.begin(5.0)
            with self.assertRaisesRegex(process.Failure, "within the 5 s that the part had; it said:\nloading"):
                process.run(self.play("import subprocess; child = subprocess.Popen(['bash', '-c', "
                                      f"{child!r}], stdin=subprocess.PIPE); print('loading', flush=True); child.wait()"))  # fmt: skip
            parts.time.sleep(6)
            self.assertFalse(late.exists())

    def test_each_share_of_a_sanitizers_tests_is_a_part(self):
        with mock.patch.object(parts, "tests", return_value={}) as call, mock.patch.object(parts, "program", side_effect=Path), \
                mock.patch.object(parts.shutil, "which", return_value="compute-sanitizer"):  # fmt: skip
            for name in ("racecheck_1", "racecheck_4"):
                parts.PARTS[name].run(Work(lorry=Path("lorry")))
        self.assertEqual([each.args[1] for each in call.call_args_list],
                         [{"GTEST_TOTAL_SHARDS": "4", "GTEST_SHARD_INDEX": index} for index in ("0", "3")])  # fmt: skip

    def test_figures_without_limits_or_of_another_batch_are_failures(self):
        work = Work(lorry=Path("lorry"))
        with mock.patch.object(parts, "last_json", return_value={"machine": None}), self.assertRaisesRegex(process.Failure, "cuBLASLt"):
            parts.attention(work)
        with mock.patch.object(parts, "last_json", return_value=output(1.0)), self.assertRaisesRegex(process.Failure, "no step decoded 64"):
            parts.decode(work)


class Program(unittest.TestCase):
    def check(self, *arguments):
        return subprocess.run([str(ROOT / "ops" / "gpu-check"), *arguments], capture_output=True, text=True, timeout=300, check=False)

    def test_wrong_calls_are_refused(self):
        self.assertEqual(self.check("--part", "nothing").returncode, 2)
        self.assertEqual(self.check("--list").stdout.split()[::2], list(parts.PARTS))

    def test_without_torch_a_baseline_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text("raise ImportError('no torch')", encoding="utf-8")
            done = subprocess.run([sys.executable, str(ROOT / "ops" / "gpu" / "baselines.py"), "paged"], capture_output=True, text=True,
                                  env=dict(os.environ, PYTHONPATH=folder), timeout=300, check=True)  # fmt: skip
        self.assertEqual(json.loads(done.stdout), {"missing": "torch is not installed"})


def gpu_check():
    """The program, as a module."""
    loader = importlib.machinery.SourceFileLoader("gpu_check_program", str(ROOT / "ops" / "gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Progress(unittest.TestCase):
    """Runs that continue where earlier ones ended."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report = Path(folder.name) / "report"
        self.table = Path(folder.name) / "table"
        self.ran = []
        self.broken = {"example"}

    def part(self, name, seconds):
        def run(_):
            self.ran.append(name)
            if name in self.broken:
                raise process.Failure("no luck")
            if name == "matmul":
                self.table.write_text("90 132 a row\n", encoding="utf-8")
            own = name == "loss" and not self.table.exists()
            return {"figure": 1, "matmuls": "rows or none", "own_matmul": own}

        return Part(run, seconds)

    def call(self, *arguments):
        """The parts that ran, and the exit code."""
        program = gpu_check()
        program.PARTS = {name: self.part(name, seconds) for name, seconds in
                         (("device", 1), ("matmul", 100), ("example", 2), ("loss", 400))}  # fmt: skip
        self.ran = []
        words = ["gpu-check", "--rehearse", "lorry", "--report", str(self.report), *arguments]
        with mock.patch.object(sys, "argv", words), mock.patch.object(parts, "TABLE", self.table), \
                mock.patch.object(program, "stamp", return_value=STAMP), contextlib.redirect_stderr(io.StringIO()) as said:  # fmt: skip
            code = program.main()
        self.said = said.getvalue()
        return self.ran, code

    # Pins: after a run was ended in its tenth minute, the next run began with the first part again.
    def test_what_fits_the_time_runs_and_the_next_call_goes_on(self):
        self.assertEqual(self.call("--for", "50"), (["device", "example"], 1))
        self.assertIn("gpu-check: did not fit: matmul (about 100 s), loss (about 400 s)\n", self.said)
        self.assertEqual(self.call("--for", "350"), (["matmul", "example"], 1))
        self.broken.clear()
        self.assertEqual(self.call("--for", "500"), (["loss", "example"], 0))
        self.assertEqual(self.call("--for", "500"), ([], 0))
        self.assertEqual(self.call("--for", "500", "--part", "loss"), ([], 0))
        self.assertEqual(self.call("--part", "loss"), (["loss"], 0))

    # Pins: figures measured with Lorry's own kernel still counted as passed once there was a table.
    def test_what_was_multiplied_without_a_table_runs_again_once_there_is_one(self):
        self.broken = {"matmul"}
        self.assertEqual(self.call("--for", "550"), (["device", "matmul", "example", "loss"], 1))
        self.broken.clear()
        self.assertEqual(self.call("--for", "550"), (["matmul"], 0))
        self.assertEqual(self.call("--for", "550"), (["loss"], 0))
        self.assertEqual(self.call("--for", "550"), ([], 0))

    # Pins: figures without a key ended the run, and all later parts had no figures.
    def test_a_part_whose_figures_cannot_be_judged_fails_alone(self):
        program = gpu_check()
        program.PARTS = {"decode": Part(lambda _: {"batch 64": {}}, 1), "example": Part(lambda _: {}["figure"], 1),
                         "device": self.part("device", 1)}  # fmt: skip
        words = ["gpu-check", "--rehearse", "lorry", "--report", str(self.report)]
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(program.main(), 1)
        for line in ("decode: FAILED", "KeyError: 'decode'", "example: FAILED", "KeyError: 'figure'", "device: passed"):
            self.assertIn(line, said.getvalue())

    # Pins: on another machine the table was missing, and benchmarks multiplied without it.
    def test_the_table_is_kept_in_the_report(self):
        self.assertEqual(self.call("--part", "matmul"), (["matmul"], 0))
        self.table.unlink()
        self.call("--part", "device")
        self.assertEqual(self.table.read_text(encoding="utf-8"), "90 132 a row\n")
        self.assertIn("## Rows for kernels/cuda/cublaslt/matmul_table.cpp\n\n    90 132 a row\n",
                      Path(f"{self.report}.md").read_text(encoding="utf-8"))  # fmt: skip
        self.table.write_text("90 132 measured since\n", encoding="utf-8")
        self.call("--part", "device")
        self.assertEqual(json.loads(Path(f"{self.report}.json").read_text(encoding="utf-8"))["table"], ["90 132 measured since"])

    def test_parts_of_another_commit_or_card_have_not_run(self):
        two = {"device": self.part("device", 1), "matmul": self.part("matmul", 100)}
        entries = entries_of({"device": {}})
        self.assertEqual(left_to_run(two, entries, STAMP), ["matmul"])
        self.assertEqual(left_to_run(two, entries, STAMP | {"commit": "def5678"}), ["device", "matmul"])

    def test_a_part_takes_what_it_took_before(self):
        part = self.part("matmul", 100)
        for entry, expected in ((None, 100), ({"passed": True, "seconds": 30.0}, 30), ({"passed": False, "seconds": 3.0}, 100),
                                ({"passed": False, "seconds": 590.0}, 590)):  # fmt: skip
            self.assertEqual(expected_seconds(part, entry), expected)
        self.assertIsNone(first_that_fits(["matmul"], {"matmul": part}, {}, 99.0))
        self.assertEqual(first_that_fits(["matmul"], {"matmul": part}, {}, 100.0), "matmul")

    def test_the_parts_that_tell_the_most_fit_one_call(self):
        names = ["device", "kernels", "goldens", "invariance", "matmul", "decode"]
        self.assertEqual(list(parts.PARTS)[: len(names)], names)
        self.assertLess(sum(parts.PARTS[name].seconds for name in names), 590)


class Rehearsal(unittest.TestCase):
    """Runs the commands of the benchmarks and checks that the report finds the figures that it judges."""

    lorry = Path()

    def test_the_benchmarks_run_and_are_judged(self):
        names = ["decode", "attention", "offline", "adapters", "offline_fp8", "loading", "adapters_loop", "offline_fp8_kv", "decode_plain",
                 "decode_sampled", "decode_fp8_kv", "attention_fp8_kv"]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report"
            command = [str(ROOT / "ops" / "gpu-check"), "--rehearse", str(self.lorry), "--report", str(report)]
            command += [word for name in names for word in ("--part", name)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            entries = json.loads(Path(f"{report}.json").read_text(encoding="utf-8"))["parts"]
            text = Path(f"{report}.md").read_text(encoding="utf-8")
        self.assertEqual(list(entries), names)
        self.assertTrue(text.startswith("# A rehearsal"))
        work = rehearsal(self.lorry)
        rows = rows_of(entries)
        self.assertEqual(len(rows["attention"]), len(work.batches) + len(work.prompts))
        self.assertEqual(len(rows["decode"]), 3 * len(work.batches))
        self.assertEqual([row.what for row in rows["adapters_loop"]][1], "the same 2 in one batch")
        self.assertTrue(all(row.measured for part in rows.values() for row in part))
        self.assertGreater(entries["loading"]["facts"]["loading_steps"], 0)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        Rehearsal.lorry = Path(sys.argv.pop()).resolve()
        unittest.main(defaultTest="Rehearsal")
    del Rehearsal
    unittest.main()
