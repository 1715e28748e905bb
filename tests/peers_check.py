#!/usr/bin/env python3
# Checks what ops/bench-peers computes and refuses, with a fake driver instead of engines, so that nothing need be installed, and what
# ops/bench-startup and ops/bench-serve refuse. ctest runs it.
import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ops" / "peers"))

from driver import Request, run_merged  # noqa: E402
from engines import ENCODERS, ENGINES, SCRIPTS, engines_of  # noqa: E402
from install import Place  # noqa: E402
from process import Driver, Failure  # noqa: E402
from report import Entrant, agreement, introduction, kept_rows, ratio_of, ratio_rows, shape_section  # noqa: E402
from works import ANSWER, SHAPES, WORKS, make_free, make_opening, make_requests, make_warm_up  # noqa: E402

# Answers with the requested number of zeros, half of it to requests with a schema of a batch of 1.
# A batch of 2 gets one token too few, a batch of 3 ends it with a message, a batch of 4 hangs.
DRIVER = """
import json, sys, time
print(json.dumps({"engine": "made up", "load_seconds": 0.5, "settings": "none"}), flush=True)
for line in sys.stdin:
    work = json.loads(line)
    if work["batch"] == 3:
        sys.exit("out of luck")
    if work["batch"] == 4:
        time.sleep(60)
    half = [work["batch"] == 1 and "schema" in request for request in work["requests"]]
    wanted = [request.get("output_tokens", 1) // (1 + one) for one, request in zip(half, work["requests"])]
    outputs = [[0] * (tokens - (work["batch"] == 2)) for tokens in wanted]
    print(json.dumps({"seconds": 2.0, "outputs": outputs, "peak_memory_bytes": 7}), flush=True)
"""


def entrants():
    return [
        Entrant("Lorry", "bf16", "Lorry 1", ["as it is"], rates={"W1": [300.0, 240.0], "W2": []}, rates_beside={"W1": [150.0, 60.0]}),
        Entrant("slow", "bf16", "Slow 2", ["fast"], rates={"W1": [100.0, 110.0]}),
        Entrant("fast", "bf16", "Fast 3", ["faster"], rates={"W1": [200.0], "W2": [5.0]}),
        Entrant("fast", "int8", "Fast 3", ["narrow"], rates={"W1": [900.0, 900.0]}, switched={"W1": [0.0], "A8m": [0.2, 0.4, 0.3]}),
    ]


class Report(unittest.TestCase):
    def test_a_ratio_is_lorrys_best_to_the_best_peer_of_the_same_precision(self):
        ratio = ratio_of(entrants(), "W1", "bf16")
        self.assertEqual(ratio.peer.name, "fast")
        self.assertAlmostEqual(ratio.best, 1.5)
        self.assertEqual(ratio.rounds, [1.5])  # one of them failed before the second round

    def test_there_is_no_ratio_where_one_side_is_missing(self):
        self.assertIsNone(ratio_of(entrants(), "W2", "bf16"))  # Lorry failed
        self.assertIsNone(ratio_of(entrants(), "W1", "int8"))  # Lorry did not run
        self.assertIsNone(ratio_of(entrants()[:1], "W1", "bf16"))  # no peer did

    def test_outputs_agree_by_what_the_task_asks_for(self):
        self.assertAlmostEqual(agreement("embed", [[3.0, 0.0], [1.0, 1.0]], [[6.0, 0.0], [1.0, -1.0]]), 0.5)
        self.assertAlmostEqual(agreement("classify", [[0.1, 0.9], [2.0, 1.0]], [[1.0, 5.0], [1.0, 2.0]]), 0.5)
        self.assertAlmostEqual(agreement("token_classify", [[1, 2, 3], [4]], [[1, 2, 0], [4]]), 0.75)
        self.assertAlmostEqual(agreement("generate", [[1, 9], [2]], [[1, 7], [3]]), 0.5)

    def test_what_a_neighbour_leaves_is_the_median_share_of_the_rounds(self):
        self.assertAlmostEqual(entrants()[0].kept("W1"), (0.5 + 0.25) / 2)
        self.assertEqual(kept_rows(entrants(), ["W1"])[1:3], [["Lorry", "bf16", "38%"], ["slow", "bf16", "–"]])

    def test_the_page_names_ratios_settings_and_what_is_left_out(self):
        page = "\n".join([*introduction("Measured on paper", "with a pencil", ["W1"], 2),
                          *shape_section("S", entrants(), ["W1"], {"lost": "no wheel"})])  # fmt: skip
        for text in ("Measured on paper; with a pencil.", "| W1 | bf16 | Lorry | 300 | fast | 200 | **1.50** | 1.50–1.50 |",
                     "| slow | bf16 | 110 |", "- Fast 3, int8: narrow", "- lost: no wheel"):  # fmt: skip
            self.assertIn(text, page)
        self.assertEqual(len(ratio_rows(entrants(), ["W1"])), 2)

    def test_each_of_ours_has_its_ratio_to_the_best_peer(self):
        some = [Entrant("Lorry", "int4", rates={"D1": [300.0]}), Entrant("lorry-gptq", "int4", rates={"D1": [250.0]}),
                Entrant("llama.cpp", "int4", rates={"D1": [100.0]}), Entrant("openvino", "int4", rates={"D1": [50.0]})]  # fmt: skip
        rows = ratio_rows(some, ["D1"])[1:]
        self.assertEqual([row[2:7] for row in rows], [["Lorry", "300", "llama.cpp", "100", "**3.00**"],
                                                      ["lorry-gptq", "250", "llama.cpp", "100", "**2.50**"]])  # fmt: skip

    def test_the_page_says_what_structures_cost(self):
        one = Entrant("fast", "bf16", rates={"J1": [90.0, 80.0]}, rates_free={"J1": [100.0, 100.0]}, answers={"J1": [0.9, 0.8]},
                      invalid={"J1": 3})  # fmt: skip
        page = "\n".join(shape_section("T", [one, Entrant("late", "bf16")], ["J1"], {}))
        self.assertIn("| J1 | fast | bf16 | 90 | 100 | **0.85** | 0.90 | 100 | 3 of 128 |", page)
        self.assertNotIn("J1 | late", page)
        self.assertNotIn("match a schema", "\n".join(shape_section("S", entrants(), ["W1"], {})))

    def test_the_page_says_what_merging_took(self):
        page = "\n".join(shape_section("S", entrants(), ["W1", "A8m"], {}))
        self.assertIn("share of A8m's time, which the rate counts: fast int8 30%.", page)
        self.assertNotIn("A8m's time", "\n".join(shape_section("S", entrants(), ["W1"], {})))


class Works(unittest.TestCase):
    def test_requests_have_the_lengths_and_tokens_that_the_rate_counts(self):
        for work in WORKS.values():
            requests = make_requests(work, 1000, "seed")
            self.assertEqual(len(requests), work.requests)
            lengths = {len(request["prompt"]) for request in requests}
            self.assertEqual(lengths, set(range(work.input_tokens_min or work.input_tokens, work.input_tokens + 1)), work.name)
            self.assertTrue(all(0 <= token < 1000 for request in requests for token in request["prompt"]))
            self.assertEqual(any("output_tokens" in request for request in requests), not SHAPES[work.shapes[0]].is_encoder())
        for name, tokens in (("W3", 4 * 100 + 28 * 10), ("W2", 128 * 257), ("E2", 48 * 256)):
            requests = make_requests(WORKS[name], 1000, "seed")
            outputs = [[0] * request.get("output_tokens", 7) for request in requests]  # 7: of a vector
            self.assertEqual(WORKS[name].tokens_of(requests, outputs), tokens)

    def test_a_structured_work_has_a_schema_and_free_text_of_as_many_tokens(self):
        requests = make_requests(WORKS["J1"], 1000, "1")
        [schema] = {request["schema"] for request in requests}
        self.assertEqual(json.loads(schema), ANSWER)
        self.assertEqual(list(ANSWER["properties"]), ANSWER["required"])
        outputs = [[0] * (index + 1) for index in range(len(requests))]
        free = make_free(requests, outputs)
        self.assertEqual([request["output_tokens"] for request in free], list(range(1, 65)))
        self.assertFalse(any("schema" in request for request in free))
        self.assertEqual([request["prompt"] for request in free], [request["prompt"] for request in requests])
        self.assertEqual(WORKS["J1"].tokens_of(requests, outputs), 65 * 32)
        self.assertTrue(all(SHAPES[letter].tokenizer for work in WORKS.values() if work.structured for letter in work.shapes))

    def test_a_work_is_done_with_shapes_of_one_task(self):
        for work in WORKS.values():
            self.assertEqual(len({SHAPES[letter].task for letter in work.shapes}), 1, work.name)
            self.assertTrue(engines_of(SHAPES[work.shapes[0]].task))

    def test_runs_share_nothing_but_what_a_work_shares_within_itself(self):
        first, again, other = (make_requests(WORKS["W2s"], 49152, seed) for seed in ("1", "1", "2"))
        self.assertEqual(first, again)
        self.assertEqual(len(os.path.commonprefix([request["prompt"] for request in first])), 200)
        self.assertNotEqual(first[0]["prompt"][:200], other[0]["prompt"][:200])
        self.assertEqual(len({tuple(request["prompt"][:8]) for request in make_requests(WORKS["W2"], 49152, "1")}), 128)
        [opening] = make_opening(WORKS["W2s"], 49152, "1")
        self.assertEqual(len(os.path.commonprefix([opening["prompt"], first[0]["prompt"]])), 200)
        self.assertNotIn(opening, first)
        self.assertEqual(make_opening(WORKS["W2"], 49152, "1"), [])

    def test_a_warm_up_fills_the_batch_and_sees_all_adapters(self):
        requests = make_warm_up(WORKS["A8"], 49152)
        self.assertEqual(len(requests), 64)
        self.assertEqual(len({request["adapter"] for request in requests}), 8)


class Merging(unittest.TestCase):
    def test_each_adapter_is_merged_once_and_answers_come_in_the_order_of_the_requests(self):
        class Recorder:
            turns = []

            def switch(self, adapter):
                self.turns.append([adapter])

            def run(self, requests, batch):
                self.turns[-1].append(len(requests))
                return [[request.prompt[0]] * request.output_tokens for request in requests]

        requests = [Request([index], f"lora-{index % 3}", 2) for index in range(7)]
        outputs, seconds = run_merged(Recorder(), requests, 8)
        self.assertEqual(outputs, [[index] * 2 for index in range(7)])
        self.assertEqual(Recorder.turns, [["lora-0", 3], ["lora-1", 2], ["lora-2", 2]])
        self.assertGreaterEqual(seconds, 0.0)

    def test_an_engine_mixes_adapters_or_says_why_not_and_likewise_for_merging(self):
        for work in WORKS.values():
            self.assertIn(work.mode(), ("base", "mixed", "merged", "structured"))
        self.assertEqual([work.name for work in WORKS.values() if work.mode() == "merged"], ["A8m", "E3m"])
        peers = {name: engine for name, engine in ENGINES.items() if engine.driver and not engine.variant_of}
        self.assertEqual({name for name, engine in peers.items() if not engine.refusal("mixed")}, {"transformers", "vllm"})
        self.assertEqual({name for name, engine in peers.items() if not engine.refusal("merged")}, {"transformers", "openvino"})
        self.assertEqual({name for name, engine in peers.items() if not engine.refusal("structured")}, {"llama.cpp", "vllm"})
        self.assertEqual(ENGINES["ctranslate2"].refusal("structured"), "it has no grammars")
        self.assertFalse(any(engine.refusal("base") for engine in ENGINES.values()))
        classifiers = engines_of("classify")
        self.assertEqual({name for name, engine in classifiers.items() if not engine.no_adapters}, {"sentence-transformers"})
        self.assertEqual({name for name, engine in classifiers.items() if not engine.no_merging}, {"sentence-transformers", "openvino"})
        self.assertIn("llama.cpp", engines_of("embed"))
        self.assertNotIn("llama.cpp", classifiers)


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


class Drivers(unittest.TestCase):
    requests = [{"prompt": [1], "output_tokens": 3, "adapter": None}]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, code=DRIVER):
        driver = Driver([sys.executable, "-c", code], Path(self.folder.name) / "log")
        self.addCleanup(driver.close)
        return driver

    def test_a_driver_answers_and_is_stopped_between_its_turns(self):
        driver = self.start()
        self.assertEqual(driver.hello["engine"], "made up")
        self.assertEqual(driver.ask(self.requests, 1)["seconds"], 2.0)
        self.assertTrue(wait_for(lambda: Path(f"/proc/{driver.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"))

    def test_an_answer_with_too_few_tokens_does_not_count(self):
        with self.assertRaisesRegex(Failure, "drew 2 tokens"):
            self.start().ask(self.requests, 2)

    def test_an_answer_may_end_before_its_limit_if_it_matches_a_schema(self):
        structured = [self.requests[0] | {"schema": "{}"}]
        self.assertEqual(self.start().ask(structured, 2)["outputs"], [[0, 0]])
        with self.assertRaisesRegex(Failure, "drew 0 tokens"):
            self.start().ask([structured[0] | {"output_tokens": 1}], 2)

    def test_a_text_that_was_not_encoded_does_not_count(self):
        texts = [{"prompt": [1], "adapter": None}] * 2
        self.assertEqual(self.start().ask(texts, 1, "embed")["outputs"], [[0], [0]])
        with self.assertRaisesRegex(Failure, "answered 0 of 2 texts"):
            self.start().ask(texts, 2, "embed")

    def test_a_driver_that_ends_leaves_its_last_word(self):
        with self.assertRaisesRegex(Failure, "out of luck"):
            self.start().ask(self.requests, 3)
        with self.assertRaisesRegex(Failure, "No module named"):
            self.start("import not_there")

    def test_a_driver_that_hangs_is_killed(self):
        driver = self.start()
        driver.run_seconds_max = 0.2
        with self.assertRaisesRegex(Failure, "took longer than 0 s"):
            driver.ask(self.requests, 4)
        self.assertIsNotNone(driver.process.wait(60))


class MeasuresLorry:
    """What all scripts do that need the program. script: its name in ops."""

    script = ""

    def bench(self, *arguments):
        return subprocess.run([str(ROOT / "ops" / self.script), *arguments], capture_output=True, text=True, timeout=300)

    def test_without_lorry_it_says_how_to_get_it(self):
        done = self.bench("--lorry", "/nowhere/lorry")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ops/build", done.stderr)


class Program(MeasuresLorry, unittest.TestCase):
    script = "bench-peers"

    def bench(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            return super().bench("--dir", folder, *arguments)

    def test_wrong_calls_are_refused_and_say_what_there_is(self):
        for arguments, word in ((["--works", "W1,W9"], "W9"), (["--peers", "nobody"], "openvino"), (["--shape", "X"], "S, G, T"),
                                (["--rounds", "0"], "no number from 1"), (["--precision", "int2"], "int4"),
                                (["--shape", "S", "--works", "J1d"], "no chosen shape")):  # fmt: skip
            done = self.bench(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(word, done.stderr)

    def test_all_works_and_peers_are_listed(self):
        listed = self.bench("--list").stdout
        for name in [*WORKS, *ENGINES, *ENCODERS]:
            self.assertIn(name + ":", listed)

    def test_every_engine_has_its_driver_and_every_script_compiles(self):
        for engine in [*ENGINES.values(), *ENCODERS.values()]:
            if engine.driver:
                self.assertTrue((SCRIPTS / engine.driver).exists(), engine.driver)
        for script in SCRIPTS.glob("*.py"):
            compile(script.read_text(), str(script), "exec")

    def test_an_installer_that_fails_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder))
            with self.assertRaisesRegex(Failure, "no such wheel"):
                place.run("x", [sys.executable, "-c", "import sys; sys.exit('no such wheel')"])
            self.assertFalse(place.done_before("x", "1"))
            place.mark_done("x", "1")
            self.assertTrue(place.done_before("x", "1"))
            self.assertFalse(place.done_before("x", "2"))


class Races(unittest.TestCase):
    def make_race(self, folder, shape, **arguments):
        bench = runpy.run_path(str(ROOT / "ops" / "bench-peers"))
        defaults = {"works": list(WORKS), "peers": list(ENGINES), "precision": ["int4"], "rounds": 1, "neighbour": False, "lorry": "lorry"}
        return bench["Race"](argparse.Namespace(**(defaults | arguments)), Place(folder), shape)

    def test_a_checkpoint_in_codes_has_its_own_weights_and_the_same_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            race = self.make_race(Path(folder), "S")
            plain, codes = race.settings("Lorry", "int4"), race.settings("lorry-gptq", "int4")
        self.assertEqual(plain, ["--quantize", "int4", *codes])
        self.assertEqual(codes[:2], ["--kv-dtype", "int8"])

    def test_a_round_of_answers_runs_as_much_free_text_and_counts_invalid_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            race = self.make_race(Path(folder), "T", works=["J1d"])
            race.command = lambda name, precision, mode: [sys.executable, "-c", DRIVER]
            race.place.count_matching = lambda shape, schema, outputs: sum(len(output) < 256 for output in outputs) - 2
            race.run_works([WORKS["J1d"]], [("Lorry", "bf16"), ("vllm-guidance", "bf16"), ("ctranslate2", "bf16")], "structured")
        self.assertEqual(race.left_out, {"ctranslate2 from J1d": "it has no grammars"})
        for name in ("Lorry", "vllm-guidance"):
            entrant = race.entrants[name, "bf16"]
            self.assertEqual((entrant.rates, entrant.rates_free), ({"J1d": [6 * 128 / 2]}, {"J1d": [6 * 128 / 2]}))
            self.assertEqual((entrant.answers, entrant.invalid), ({"J1d": [3.0]}, {"J1d": 2}))

    def test_a_variant_of_an_engine_only_does_works_with_schemas(self):
        with tempfile.TemporaryDirectory() as folder:
            race = self.make_race(Path(folder), "S")
            self.assertFalse(race.has_works(ENGINES["vllm-guidance"]))
            self.assertTrue(race.has_works(ENGINES["vllm"]))
            self.assertTrue(self.make_race(Path(folder), "T").has_works(ENGINES["vllm-guidance"]))


class Startup(MeasuresLorry, unittest.TestCase):
    script = "bench-startup"

    def test_wrong_calls_are_refused(self):
        for arguments in (["--adapters", "1"], ["--rounds", "0"]):
            done = self.bench(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("at least two adapters", done.stderr)


class Calls(MeasuresLorry, unittest.TestCase):
    script = "bench-serve"

    def test_wrong_calls_are_refused(self):
        for arguments in (["--connections", "1,none"], ["--connections", "0"], ["--seconds", "0"]):
            done = self.bench(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("is no number from 1", done.stderr)


if __name__ == "__main__":
    unittest.main()
