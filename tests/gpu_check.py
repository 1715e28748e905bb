#!/usr/bin/env python3
# Checks ops/gpu-check without a GPU: floors against published ones, verdicts, the report, what may travel. With a `lorry` as its argument
# it rehearses the benchmarks on the CPU instead: same commands, tiny work. ctest runs both.
import contextlib
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

import floors  # noqa: E402
import memory  # noqa: E402
import ncu  # noqa: E402
import pack  # noqa: E402
import parts  # noqa: E402
import process  # noqa: E402
from goals import ROWS  # noqa: E402
from report import NOT_TUNED, markdown, rows_of  # noqa: E402
from work import Work, rehearsal  # noqa: E402

H200 = floors.Limits(copy=4.3e12, multiply=790e12)
MACHINE = {"copy_bytes_per_second": 4.3e12, "bfloat16_dot_operations_per_second": 790e12}


def step(seconds, rows=256, context=1024.0):
    return {"rows": rows, "steps": 9, "context_tokens": context, "step": {"p50_seconds": seconds}}


def adapters(ranks, base, with_adapters):
    return {"machine": MACHINE, "ranks": ranks, "decode": step(with_adapters), "adapters": {"base_decode": step(base)}}


def output(rate, prompt=128, drawn=128):
    return {"machine": MACHINE, "input_tokens": [prompt, prompt], "output_tokens": [drawn, drawn], "tokens_out_per_second": rate,
            "decode": step(0.01)}  # fmt: skip


def measured():
    """Every part, each goal just reached."""
    return {
        "attention": {"machine": MACHINE, "shapes": [
            {"name": "decode, 64 x 1024", "rows": 1, "bytes_per_second": 0.81 * 4.3e12, "operations_per_second": 1.0},
            {"name": "prefill, 1 x 8192", "rows": 8192, "bytes_per_second": 1.0, "operations_per_second": 301e12}]},
        "attention_fp8_kv": {"machine": MACHINE, "shapes": [
            {"name": "decode, 64 x 1024, fp8", "rows": 1, "bytes_per_second": 0.81 * 4.3e12, "operations_per_second": 1.0}]},
        "decode": {"batch 256": {"machine": MACHINE, "decode": step(0.01600), "idle_seconds": 0.0047, "steps": 10, "graph_steps": 9}},
        "decode_plain": {"batch 256": {"machine": MACHINE, "decode": step(0.0170)}},
        "decode_fp8_kv": {"batch 256": {"machine": MACHINE, "decode": step(0.01120)}},
        "offline": {"128/128": output(19000)},
        "offline_fp8": {"128/128": output(30500)},
        "adapters": {"few": adapters([16] * 8, 0.0160, 0.01679), "mixed": adapters([8, 16, 32, 64] * 16, 0.0160, 0.01950),
                     "padded": adapters([64] * 64, 0.0160, 0.0210)},
        "adapters_loop": {"few": {"turns": 8, "decode": step(0.005, rows=32)}, "mixed": {"turns": 64, "decode": step(0.004, rows=4)}},
        "loading": {"loading_steps": 100, "step_p50_seconds": 0.006, "loading_delay_seconds": 0.0019, "quiet_delay_seconds": 0.0001,
                    "load_seconds": 0.3},
        "baselines": {"Lorry": output(19000), "transformers": {"engine": "transformers 5", "tokens_per_second": 3800, "step_seconds": 0.05},
                      "a torch loop": {"missing": "torch is not installed"}},
        "baselines_adapters": {"Lorry": output(18000), "transformers with peft": {"missing": "No module named 'peft'"}},
    }  # fmt: skip


STAMP = {"commit": "abc1234", "GPU": "NVIDIA H200", "driver": "580.1", "cudart": "13.1", "cuBLASLt": "13.1.0"}


def entries_of(facts):
    return {name: {"passed": True, "date": "2026-11-23", "of": STAMP, "seconds": 1.5, "facts": value} for name, value in facts.items()}


def verdicts(facts):
    return {row.what: row.reached for rows in rows_of(entries_of(facts)).values() for row in rows if row.reached is not None}


class Floors(unittest.TestCase):
    def test_a_decode_step_takes_what_was_worked_out_by_hand(self):
        for rows, published in ((64, 5.49e-3), (256, 12.85e-3)):
            self.assertAlmostEqual(floors.decode_seconds(floors.LLAMA_8B, H200, rows, 1024), published, delta=0.005e-3)

    def test_offline_work_takes_what_was_worked_out_by_hand(self):
        for prompt, drawn, published in ((128, 128, 23.5e3), (1000, 1000, 12.1e3), (512, 128, 9.3e3)):
            floor = floors.output_tokens_per_second(floors.LLAMA_8B, H200, prompt, drawn, 256)
            self.assertAlmostEqual(floor / published, 1.0, delta=0.005)

    def test_adapters_add_what_was_worked_out_by_hand(self):
        self.assertEqual(floors.LLAMA_8B.rank_weights() * 2, 5242880)
        base = floors.decode_seconds(floors.LLAMA_8B, H200, 256, 1024)
        for ranks, mean, published in ((128, 16, 0.012), (64 * 30, 30, 0.18), (64 * 64, 64, 0.39)):
            self.assertAlmostEqual(floors.adapter_seconds(floors.LLAMA_8B, H200, ranks, 256, mean) / base, published, delta=0.005)

    def test_fp8_halves_projections_and_not_the_head(self):
        head = 4096 * 128256
        alone = floors.matmul_seconds(floors.LLAMA_8B, H200, 1, 1)
        narrow = floors.matmul_seconds(floors.LLAMA_8B, H200, 1, 1, fp8=True)
        self.assertAlmostEqual((alone - 2 * head / H200.copy) / (narrow - 2 * head / H200.copy), 2.0)

    def test_fp8_is_taken_to_be_twice_as_fast_where_it_was_not_measured(self):
        seconds = [floors.matmul_seconds(floors.LLAMA_8B, limits, 4096, 0, fp8=True)
                   for limits in (H200, floors.Limits(4.3e12, 790e12, 1580e12), floors.Limits(4.3e12, 790e12, 1185e12))]  # fmt: skip
        self.assertEqual(seconds[0], seconds[1])
        head = 2 * floors.LLAMA_8B.head_weights() / H200.copy
        self.assertAlmostEqual((seconds[2] - head) / (seconds[0] - head), 1 / 0.75)
        facts = {"offline_fp8": {"128/128": output(30500)}}
        self.assertIn("assumed", rows_of(entries_of(facts))["offline_fp8"][0].floor)
        facts["offline_fp8"]["128/128"]["machine"] = MACHINE | {"fp8_dot_operations_per_second": 1500e12}
        self.assertNotIn("assumed", rows_of(entries_of(facts))["offline_fp8"][0].floor)

    def test_an_fp8_cache_has_a_byte_for_each_element_and_a_word_for_each_head(self):
        self.assertEqual(floors.LLAMA_8B.token_bytes(), 131072)
        self.assertEqual(floors.LLAMA_8B.token_bytes(fp8_kv=True), 2 * 32 * 8 * 132)

    def test_products_count_where_they_take_longer_than_bytes(self):
        few, many = (floors.matmul_seconds(floors.LLAMA_8B, H200, rows, rows) for rows in (64, 1024))
        self.assertAlmostEqual(few, 2 * 7_504_658_432 / H200.copy)
        self.assertAlmostEqual(many, 2 * 1024 * 7_504_658_432 / H200.multiply)


class Goals(unittest.TestCase):
    def test_each_goal_is_reached_when_it_just_is(self):
        found = verdicts(measured())
        self.assertEqual({what: reached for what, reached in found.items() if not reached}, {})
        self.assertEqual(len(found), 16)

    def test_each_goal_is_missed_when_it_just_is(self):
        def missed(change):
            facts = measured()
            change(facts)
            return [what for what, reached in verdicts(facts).items() if not reached]

        self.assertEqual(missed(lambda facts: facts["attention"]["shapes"][0].update(bytes_per_second=0.79 * 4.3e12)),
                         ["decode, 64 x 1024"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["attention"]["shapes"][1].update(operations_per_second=299e12)),
                         ["prefill, 1 x 8192"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["decode"]["batch 256"].update(decode=step(0.01610))),
                         ["step of batch 256 at 1024 tokens"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["decode"]["batch 256"].update(idle_seconds=0.0049)),
                         ["GPU without work between steps, batch 256"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["decode"]["batch 256"].update(graph_steps=0)), ["steps that were graphs, batch 256"])
        self.assertEqual(missed(lambda facts: facts["attention_fp8_kv"]["shapes"][0].update(bytes_per_second=0.79 * 4.3e12)),
                         ["decode, 64 x 1024, fp8"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["decode_fp8_kv"]["batch 256"].update(decode=step(0.01125))),
                         ["step of batch 256, fp8 cache at 1024 tokens"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["decode_fp8_kv"]["batch 256"].update(decode=step(0.01601))),
                         ["step of batch 256, fp8 cache at 1024 tokens", "fp8 cache against bf16, batch 256"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["offline"].update({"128/128": output(18800)})), ["bf16 128/128, batch 256"])
        self.assertEqual(missed(lambda facts: facts["offline_fp8"].update({"128/128": output(30300)})), ["fp8 against bf16, 128/128"])
        few = "8 of rank 16, batch 256: added to a step of 16.00 ms"
        self.assertEqual(missed(lambda facts: facts["adapters"].update(few=adapters([16] * 8, 0.0160, 0.01681))), [few])
        mixed = "64 of ranks 8 to 64, batch 256: added to a step of 16.00 ms"
        self.assertEqual(missed(lambda facts: facts["adapters"].update(mixed=adapters([8, 16, 32, 64] * 16, 0.0160, 0.01952))), [mixed])
        self.assertEqual(missed(lambda facts: facts["adapters"].update(padded=adapters([64] * 64, 0.0160, 0.01949))),
                         ["true ranks instead of padded ones save"])  # fmt: skip
        self.assertEqual(missed(lambda facts: facts["adapters_loop"]["few"].update(turns=3)), ["the same 3 in one batch"])
        self.assertEqual(missed(lambda facts: facts["loading"].update(loading_delay_seconds=0.0021)),
                         ["longest delay while an adapter is loaded, in 100 steps of 6.00 ms"])  # fmt: skip

    def test_what_needs_two_parts_waits_for_both(self):
        facts = measured()
        del facts["offline"], facts["adapters"]
        self.assertNotIn("fp8 against bf16, 128/128", verdicts(facts))
        self.assertNotIn("the same 8 in one batch", verdicts(facts))


class Report(unittest.TestCase):
    def test_it_has_a_row_for_each_goal_and_a_table_for_each_part(self):
        device = {"name": "NVIDIA H200", "driver_version": "580.1", "torch": "2.11"}
        text = markdown(entries_of({"device": device} | measured()), "What was seen", {})
        for line in ("name NVIDIA H200, driver_version 580.1, torch 2.11.",
                     "| decode | step of batch 256 at 1024 tokens | 16.00 ms | 12.85 ms | 80.3 % | >= 80 % | reached |",
                     "| step of batch 256 without graphs at 1024 tokens | 17.00 ms, 16.00 ms with them | 12.85 ms | 75.6 % |  |  |",
                     "| offline_fp8 | fp8 against bf16, 128/128 | 1.61 times |  |  | >= 1.6 times | reached |",
                     "## loading: passed", "| an adapter is there after | 300.00 ms |",
                     "| transformers (transformers 5) | 3800 tokens/s, a step 50.00 ms | 23596 tokens/s | 16.1 %; Lorry is 5.00 times",
                     "| a torch loop | not there: torch is not installed |",
                     "| Lorry: of its rate without adapters | 94.7 % |"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("not measured", text)
        self.assertNotIn("Not reached", text)

    def test_what_was_not_reached_stands_there_with_its_reason(self):
        facts = measured()
        facts["decode"]["batch 256"] |= {"decode": step(0.02), "idle_seconds": 0.01}
        text = markdown(entries_of(facts), "What was seen", {"decode: step of": "the blocks wait for the tables"})
        self.assertIn("- decode: step of batch 256 at 1024 tokens: 20.00 ms 64.3 % (>= 80 %). Why: the blocks wait for the tables\n", text)
        self.assertIn("batch 256: 1.00 ms 5.0 % of a step (< 3 %). Why: not found out yet\n", text)
        self.assertEqual(text.count("Why: "), 2)

    def test_parts_that_failed_or_did_not_run_have_no_figures(self):
        entries = entries_of({"kernels": {"tests passed": 812}, "matmul": {"device": "x", "rows for the table": ["// a", "{1},"]}})
        entries["decode"] = {"passed": False, "date": "2026-11-23", "of": STAMP, "seconds": 0.1, "why": "no GPU\nat all"}
        text = markdown(entries, "What was seen", {})
        for line in ("| decode | all of it | not measured |", "| loading | all of it | not measured |", "## decode: FAILED",
                     "    no GPU\n    at all", "| tests passed | 812 |", "rows for the table:\n\n    // a\n    {1},"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("device:", text)

    # Pins: a part that an earlier build or another card had passed stood beside new ones as if it were theirs.
    def test_parts_of_different_runs_are_told_apart(self):
        facts = measured()
        facts["decode"]["batch 256"]["matmuls"] = "cuBLASLt 13.1.0 for the shapes in build/gpu-check/matmul-table"
        entries = entries_of(facts)
        text = markdown(entries, "What was seen", {})
        self.assertIn("commit abc1234, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0.", text)
        self.assertIn("2026-11-23, 1.5 s; commit abc1234, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0; matmuls by cuBLASLt "
                      "13.1.0 for the shapes in build/gpu-check/matmul-table", text)  # fmt: skip
        self.assertNotIn("different runs", text)
        entries["loading"]["of"] = STAMP | {"commit": "def5678"}
        text = markdown(entries, "What was seen", {})
        self.assertIn("**These parts are of different runs", text)
        self.assertIn("- commit def5678, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0: loading", text)

    # Pins: where the tuner had left nothing, figures of another matmul stood there as if they were Lorry's.
    def test_what_our_own_kernel_multiplied_says_so_at_each_figure(self):
        facts = measured()
        why = "own kernels, as kernels/cuda/matmul_table.cpp has no rows for compute capability 9.0 with 132 processors"
        facts["decode"]["batch 256"]["matmuls"] = why
        facts["offline_fp8"]["128/128"]["matmuls"] = "cuBLASLt 13.1.0 for the shapes in x, own kernels for others; fp8 by own kernels, as …"
        facts["offline"]["128/128"]["matmuls"] = "cuBLASLt 13.1.0 for the shapes in x, own kernels for others"
        facts["matmul_fp8"] = {NOT_TUNED: ["28672 x 4096", "4096 x 14336"]}
        entries = {"matmul": {"passed": False, "date": "2026-11-23", "of": STAMP, "seconds": 590.0, "why": "too slow"}} | entries_of(facts)
        text = markdown(entries, "What was seen", {})
        for line in ("| decode | step of batch 256 at 1024 tokens | 16.00 ms (OWN MATMUL) | 12.85 ms |", f"**Multiplied by {why}.**",
                     "**part matmul failed; part matmul_fp8 had no time for 28672 x 4096, 4096 x 14336, which our own kernel multiplies in "
                     "all parts; without a table of cuBLASLt's algorithms our own kernel multiplied in decode, offline_fp8: these figures"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("bf16 128/128, batch 256 | 19000 tokens/s (OWN", text)
        self.assertNotIn("OWN", markdown(entries_of(measured()), "What was seen", {}))

    def test_without_a_gpu_the_stamp_says_so(self):
        with mock.patch.object(parts, "run", side_effect=process.Failure("nvidia-smi is not there")), \
                mock.patch.object(parts, "program", return_value=mock.Mock(read_text=lambda encoding: "abc1234")):  # fmt: skip
            self.assertEqual(parts.stamp(Work(lorry=Path("lorry"))), {"commit": "abc1234", "GPU": "none"})

    def test_every_part_with_goals_is_a_part(self):
        self.assertLessEqual(set(ROWS), set(parts.PARTS))


class Pack(unittest.TestCase):
    def test_what_is_too_large_to_travel_is_refused(self):
        pack.check_size(49_999_999, 10 * 2**20)
        with self.assertRaisesRegex(process.Failure, "below 50 MB"):
            pack.check_size(50_000_000, 0)
        with self.assertRaisesRegex(process.Failure, "below 64 MiB"):
            pack.check_size(40_000_000, 26 * 2**20)

    def test_what_the_repository_holds_of_it_leaves_the_archive_its_room(self):
        beside = sum(pack.size_of(ROOT / name) for name in pack.BESIDE)
        self.assertLess(beside + 40_000_000, pack.TRAVEL_BYTES_MAX)

    def test_programs_travel_stripped_with_their_libraries_and_are_unpacked_once(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
            root = Path(folder)
            for name in ("build/lorry", "build/tests/test_kernels_gpu", "build/tests/test_engine_gpu", *pack.BESIDE):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(Path(sys.executable).resolve().read_bytes() if name.startswith("build") else b"x")
            place = root / "build" / "gpu-check"
            for module, name, value in ((pack, "ROOT", root), (pack, "PACK", place), (process, "PACK", place), (process, "ROOT", root),
                                        (pack, "ARCHIVE", root / "build" / "gpu-check.tar.gz")):  # fmt: skip
                patches.enter_context(mock.patch.object(module, name, value))
            self.assertIn("build/gpu-check.tar.gz holds", pack.pack())
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
    """Cards by the MiB that nvidia-smi says they have."""

    H100, H200 = 81559, 143771
    TAKEN_BEFORE = 5.5 * 2**30  # at least 2.1 GiB of it are a step's activations

    def commands_on(self, mebibytes):
        """Of every part that gives an engine work, by part and number."""
        work = Work(lorry=Path("lorry"), card_bytes=mebibytes * 2**20)
        commands = {}
        for name in ("decode", "decode_fp8_kv", "offline", "offline_fp8", "adapters", "adapters_loop", "loading", "baselines_adapters"):
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

    # Pins: --kv-memory 80GiB was more than an H100 has, so that ten parts ended before they began.
    def test_every_batch_fits_the_card(self):
        for mebibytes in (self.H100, self.H200):
            commands = self.commands_on(mebibytes)
            self.assertEqual(len(commands), 17)
            for name, flags in commands.items():
                self.assertNotIn("--kv-memory", flags)
                if "--max-batch" not in flags:
                    continue
                # As ops/engine_setup.cpp divides it: adapters, a sixteenth for nobody, the rest for keys and values.
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
                          "adapters_loop 14": ("4", "3")})  # fmt: skip

    def test_a_card_without_room_for_the_model_says_so(self):
        with self.assertRaisesRegex(process.Failure, "the card's 24 GiB hold no batch of sequences of 1088 tokens beside the model"):
            self.commands_on(24 * 1024)

    def test_the_card_is_asked_once_and_may_not_answer(self):
        line = "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 9.0, 1980 MHz, 2619 MHz\n"
        for output, code, expected in ((line, 0, 81559 * 2**20), ("no devices", 6, None), (line.replace("81559 MiB", "[N/A]"), 0, None)):
            parts.card.cache_clear()
            with mock.patch.object(parts, "run", return_value=(output, code)):
                self.assertEqual(parts.card_bytes(), expected)
        parts.card.cache_clear()


# As `ncu --csv --print-units base --metrics …` prints it, between what the program itself prints.
def ncu_line(launch, kernel, metric, unit, value):
    return (f'"{launch}","4021","lorry","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0",'
            f'"Command line profiler metrics","{metric}","{unit}","{value}"')  # fmt: skip


def ncu_output():
    names = "void lorry::kernels::cuda::<unnamed>::embed<lorry::Bfloat16>(EmbedTask)", "sm90_xmma_gemm_bf16", "void sample(SampleTask)"
    lines = ["==PROF== Connected to process 4021 (/x/lorry)", '==PROF== Profiling "embed" - 0: 0%....50%....100% - 1 pass', "requests  2",
             '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
             '"Section Name","Metric Name","Metric Unit","Metric Value"']  # fmt: skip
    # One before the steps, one step that draws nothing, two that do, one behind them.
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

    def test_where_it_is_not_there_or_not_permitted_the_part_says_so(self):
        with mock.patch.object(parts.shutil, "which", return_value=None):
            self.assertEqual(parts.profile(Work(lorry=Path("lorry"))), {"ncu": "is not installed: nothing was profiled"})
        self.assertIn("is not permitted", self.profile("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1)["ncu"])
        with self.assertRaisesRegex(process.Failure, "exit code 1, 0 steps"):
            self.profile("out of memory", 1)


class Parts(unittest.TestCase):
    # Pins: nvidia-smi and torch's Python loaded the pack's libraries in the place of their own.
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

    # Pins: 64 adapters of 4 ranks were 64 files of 21 GB together, made for minutes.
    def test_ranks_that_repeat_are_named_once(self):
        work = Work(lorry=Path("lorry"))
        for ranks, named in ((work.few, "16"), (work.mixed, "8,16,32,64"), ((8, 16, 16), "8,16,16")):
            self.assertEqual(parts.adapter_flags(ranks)[:4], ("--random-adapters", len(ranks), "--ranks", named))

    # Pins: what was tuned had to be compiled into the program before anything multiplied with it.
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

    # Pins: a part that was ended while it tuned left no table, and every part behind it multiplied without one.
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

    # Pins: with 2,048 tokens a step no more than 117 of 256 sequences ever decoded together, and a decode step of all was waited for.
    def test_all_sequences_of_a_batch_decode_together(self):
        for work in (Work(lorry=Path("lorry")), rehearsal(Path("lorry"))):
            for batch in work.batches:
                # A step reads what decoding leaves of its tokens.
                prefills = -(-batch * work.context // (max(work.step_tokens, batch) - batch))
                self.assertLess(prefills, work.decoded, f"{work.shape}, {batch} sequences")

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
        with self.assertRaisesRegex(process.Failure, "did not end within the 590 s that a part has"):
            process.run(self.play("import time; time.sleep(60)"))

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
        self.assertEqual(self.check("--list").stdout.split(), list(parts.PARTS))

    def test_without_torch_a_baseline_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text("raise ImportError('no torch')", encoding="utf-8")
            done = subprocess.run([sys.executable, str(ROOT / "ops" / "gpu" / "baselines.py"), "graphs"], capture_output=True, text=True,
                                  env=dict(os.environ, PYTHONPATH=folder), timeout=300, check=True)  # fmt: skip
        self.assertEqual(json.loads(done.stdout), {"missing": "torch is not installed"})


class Rehearsal(unittest.TestCase):
    """The commands of the benchmarks, and that the report finds the figures it judges."""

    lorry = Path()

    def test_the_benchmarks_run_and_are_judged(self):
        names = ["decode", "attention", "offline", "offline_fp8", "adapters", "loading", "adapters_loop", "decode_plain", "decode_fp8_kv",
                 "attention_fp8_kv"]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report"
            command = [str(ROOT / "ops" / "gpu-check"), "--rehearse", str(self.lorry), "--report", str(report)]
            command += [word for name in names for word in ("--part", name)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            entries = json.loads(Path(f"{report}.json").read_text(encoding="utf-8"))
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
