#!/usr/bin/env python3
# Checks without a GPU what ops/gpu-check computes from measured figures: floors, verdicts and the report. ctest runs it.
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ops" / "gpu"))

import floors  # noqa: E402
import parts  # noqa: E402
from goals import ROWS  # noqa: E402
from report import NOT_TUNED, markdown, rows_of  # noqa: E402

H200 = floors.Limits(copy=4.3e12, multiply=790e12)
MACHINE = {"copy_bytes_per_second": 4.3e12, "bfloat16_dot_operations_per_second": 790e12}


def step(seconds, rows=256, context=1024.0):
    return {"rows": rows, "steps": 9, "context_tokens": context, "step": {"p50_seconds": seconds}}


def adapters(ranks, base, with_adapters):
    return {"machine": MACHINE, "ranks": ranks, "decode": step(with_adapters), "adapters": {"base_decode": step(base)}}


def output(rate, prompt=128, drawn=128):
    return {"machine": MACHINE, "input_tokens": [prompt, prompt], "output_tokens": [drawn, drawn], "tokens_out_per_second": rate,
            "decode": step(0.01)}  # fmt: skip


def multiplied(by, own=False):
    return {"matmuls": by, "own_matmul": own}


def measured():
    """Every part, with each goal just reached."""
    return {
        "attention": {"machine": MACHINE, "shapes": [
            {"name": "decode, 64 x 1024", "rows": 1, "bytes_per_second": 0.81 * 4.3e12, "operations_per_second": 1.0},
            {"name": "prefill, 1 x 8192", "rows": 8192, "bytes_per_second": 1.0, "operations_per_second": 301e12}]},
        "attention_fp8_kv": {"machine": MACHINE, "shapes": [
            {"name": "decode, 64 x 1024, fp8", "rows": 1, "bytes_per_second": 0.81 * 4.3e12, "operations_per_second": 1.0}]},
        "decode": {"batch 256": {"machine": MACHINE, "decode": step(0.01600), "idle_seconds": 0.0047, "steps": 10, "graph_steps": 9}},
        "decode_plain": {"batch 256": {"machine": MACHINE, "decode": step(0.0170)}},
        "decode_sampled": {"batch 256": {"machine": MACHINE, "decode": step(0.0168)}},
        "decode_fp8_kv": {"batch 256": {"machine": MACHINE, "decode": step(0.01120)}},
        "offline": {"128/128": output(19000)},
        "offline_fp8": {"128/128": output(30500)},
        "offline_fp8_kv": {"128/128": output(30500)},
        "adapters": {"few": adapters([16] * 8, 0.0160, 0.01679), "mixed": adapters([8, 16, 32, 64] * 16, 0.0160, 0.01950),
                     "padded": adapters([64] * 64, 0.0160, 0.0210)},
        "adapters_loop": {"few": {"turns": 8, "decode": step(0.005, rows=32)}, "mixed": {"turns": 64, "decode": step(0.004, rows=4)}},
        "loading": {"loading_steps": 100, "step_p50_seconds": 0.006, "loading_delay_seconds": 0.0019, "quiet_delay_seconds": 0.0001,
                    "load_seconds": 0.3},
        "baselines": {"Lorry": output(19000), "transformers": {"engine": "transformers 5", "tokens_per_second": 3800, "step_seconds": 0.05},
                      "a paged torch loop": {"engine": "torch 2", "tokens_per_second": 9500, "step_seconds": 0.02},
                      "a static torch loop": {"missing": "torch is not installed"}},
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
        self.assertEqual(len(found), 18)

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
        self.assertEqual(missed(lambda facts: facts["offline_fp8_kv"].update({"128/128": output(30300)})),
                         ["fp8 with an fp8 cache against bf16, 128/128"])  # fmt: skip
        few = "8 of rank 16, batch 256: added to a step of 16.00 ms"
        self.assertEqual(missed(lambda facts: facts["adapters"].update(few=adapters([16] * 8, 0.0160, 0.01681))), [few])
        mixed = "64 of ranks 8 to 64, batch 256: added to a step of 16.00 ms"
        self.assertEqual(missed(lambda facts: facts["adapters"].update(mixed=adapters([8, 16, 32, 64] * 16, 0.0160, 0.01952))), [mixed])
        share = "64 of ranks 8 to 64, batch 256: of the step"
        self.assertEqual(missed(lambda facts: facts["adapters"].update(mixed=adapters([8, 16, 32, 64] * 16, 0.0120, 0.01530))), [share])
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
        text = markdown(entries_of(facts), [], "What was seen", {})
        for line in ("| offline_fp8 | fp8 against bf16, 128/128 | not measured: offline has not passed |  |  | >= 1.6 times |  |",
                     "| adapters_loop | the same 8 in one batch | not measured: adapters has not passed |  |  | faster |  |"):  # fmt: skip
            self.assertIn(line, text)
        del facts["decode"]
        self.assertIn("| decode_fp8_kv | fp8 cache against bf16, batch 256 | not measured: decode has not passed |",
                      markdown(entries_of(facts), [], "What was seen", {}))  # fmt: skip

    # A card with room for 192 sequences has a shorter step, of which the same adapters are a larger share.
    def test_a_share_that_was_worked_out_for_another_batch_is_no_verdict(self):
        facts = measured()
        facts["adapters"]["mixed"]["decode"]["rows"] = 192
        self.assertNotIn("64 of ranks 8 to 64, batch 192: of the step", verdicts(facts))
        self.assertIn("| adapters | 64 of ranks 8 to 64, batch 192: of the step | 21.9 % |", markdown(entries_of(facts), [], "", {}))


class Report(unittest.TestCase):
    def test_it_has_a_row_for_each_goal_and_a_table_for_each_part(self):
        device = {"name": "NVIDIA H200", "driver_version": "580.1", "torch": "2.11"}
        text = markdown(entries_of({"device": device} | measured()), [], "What was seen", {})
        for line in ("name NVIDIA H200, driver_version 580.1, torch 2.11.",
                     "| decode | step of batch 256 at 1024 tokens | 16.00 ms | 12.85 ms | 80.3 % | >= 80 % | reached |",
                     "| step of batch 256 without graphs at 1024 tokens | 17.00 ms, 16.00 ms with them | 12.85 ms | 75.6 % |  |  |",
                     "| step of batch 256 drawn with penalties at 1024 tokens | 16.80 ms, 16.00 ms greedy | 12.85 ms | 76.5 % |  |  |",
                     "| offline_fp8 | fp8 against bf16, 128/128 | 1.61 times | 1.71 times | 93.9 % | >= 1.6 times | reached |",
                     "| offline_fp8_kv | fp8 with an fp8 cache against bf16, 128/128 | 1.61 times | 1.93 times | 83.2 % | >= 1.6",
                     "| 8 adapters in a loop: a step of all | 40.00 ms | 13.01 ms | 32.5 % |  |  |",
                     "| adapters_loop | the same 8 in one batch | 16.79 ms, 2.4 times as fast | 13.01 ms | 77.5 % | faster | reached |",
                     "| adapters | 64 of ranks 8 to 64, batch 256: of the step | 21.9 % | 14.6 % |  | <= 27 % in a batch of 256 |",
                     "## loading: passed", "| an adapter is there after | 300.00 ms |",
                     "| transformers (transformers 5) | 3800 tokens/s, a step 50.00 ms | 23596 tokens/s | 16.1 %; Lorry is 5.00 times",
                     "| a paged torch loop (torch 2) | 9500 tokens/s, a step 20.00 ms | 23596 tokens/s | 40.3 %; Lorry is 2.00 times",
                     "| a static torch loop | not there: torch is not installed |",
                     "| Lorry: of its rate without adapters | 94.7 % |"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("not measured", text)
        self.assertNotIn("Not reached", text)

    def test_what_was_not_reached_stands_there_with_its_reason(self):
        facts = measured()
        facts["decode"]["batch 256"] |= {"decode": step(0.02), "idle_seconds": 0.01}
        text = markdown(entries_of(facts), [], "What was seen", {"decode: step of": "the blocks wait for the tables"})
        self.assertIn("- decode: step of batch 256 at 1024 tokens: 20.00 ms 64.3 % (>= 80 %). Why: the blocks wait for the tables\n", text)
        self.assertIn("batch 256: 1.00 ms 5.0 % of a step (< 3 %). Why: not found out yet\n", text)
        self.assertEqual(text.count("Why: "), 2)

    def test_parts_that_failed_or_did_not_run_have_no_figures(self):
        entries = entries_of({"kernels": {"tests passed": 812}, "matmul": {"device": "x", "seen": ["// a", "{1},"]}})
        entries["decode"] = {"passed": False, "date": "2026-11-23", "of": STAMP, "seconds": 0.1, "why": "no GPU\nat all"}
        text = markdown(entries, [], "What was seen", {})
        for line in ("| decode | all of it | not measured |", "| loading | all of it | not measured |", "## decode: FAILED",
                     "    no GPU\n    at all", "| tests passed | 812 |", "seen:\n\n    // a\n    {1},"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("device:", text)

    # Pins: a part measured with an earlier build or on another card appeared among the new ones.
    def test_parts_of_different_runs_are_told_apart(self):
        facts = measured()
        facts["decode"]["batch 256"] |= multiplied("cuBLASLt 13.1.0 for the shapes in build/gpu-check/matmul-table")
        entries = entries_of(facts)
        text = markdown(entries, [], "What was seen", {})
        self.assertIn("commit abc1234, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0.", text)
        self.assertIn("2026-11-23, 1.5 s; commit abc1234, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0; matmuls by cuBLASLt "
                      "13.1.0 for the shapes in build/gpu-check/matmul-table", text)  # fmt: skip
        self.assertNotIn("different runs", text)
        entries["loading"]["of"] = STAMP | {"commit": "def5678"}
        text = markdown(entries, [], "What was seen", {})
        self.assertIn("**These parts are of different runs", text)
        self.assertIn("- commit def5678, GPU NVIDIA H200, driver 580.1, cudart 13.1, cuBLASLt 13.1.0: loading", text)

    # Pins: where the tuner had chosen no algorithm, figures of another matmul were reported as Lorry's.
    def test_what_our_own_kernel_multiplied_says_so_at_each_figure(self):
        facts = measured()
        why = "what there is, without rows for compute capability 9.0 with 132 processors"
        facts["decode"]["batch 256"] |= multiplied(why, own=True)
        facts["offline_fp8"]["128/128"] |= multiplied("cuBLASLt 13.1.0 for the shapes in x; fp8 otherwise", own=True)
        facts["offline"]["128/128"] |= multiplied("cuBLASLt 13.1.0 for the shapes in x, own kernels for others")
        facts["matmul_fp8"] = {NOT_TUNED: ["28672 x 4096", "4096 x 14336"]}
        entries = {"matmul": {"passed": False, "date": "2026-11-23", "of": STAMP, "seconds": 590.0, "why": "too slow"}} | entries_of(facts)
        text = markdown(entries, [], "What was seen", {})
        for line in ("| decode | step of batch 256 at 1024 tokens | 16.00 ms (OWN MATMUL) | 12.85 ms |", f"**Multiplied by {why}.**",
                     "**part matmul failed; part matmul_fp8 had no time for 28672 x 4096, 4096 x 14336, for which there are no new "
                     "rows; without a table of cuBLASLt's algorithms our own kernel multiplied in decode, offline_fp8: these "
                     "figures"):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("bf16 128/128, batch 256 | 19000 tokens/s (OWN", text)
        self.assertNotIn("OWN", markdown(entries_of(measured()), [], "What was seen", {}))

    def test_every_part_with_goals_is_a_part(self):
        self.assertLessEqual(set(ROWS), set(parts.PARTS))


if __name__ == "__main__":
    unittest.main()
