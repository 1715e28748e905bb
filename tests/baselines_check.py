#!/usr/bin/env python3
# Checks on the CPU the loops in torch that ops/gpu-check compares Lorry with: their greedy tokens must be those of transformers with the
# same weights. ctest runs it, and skips it if neither its own Python nor that of ops/bench-peers has torch and transformers.
import importlib.util
import json
import os
import subprocess
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".peers" / "transformers" / "bin" / "python"
SKIPPED = 77
sys.path.insert(0, str(ROOT / "ops" / "gpu"))

if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers")):
    if PEERS_PYTHON.exists() and Path(sys.prefix).resolve() != PEERS_PYTHON.parent.parent.resolve():
        os.execv(PEERS_PYTHON, [PEERS_PYTHON, *sys.argv])
    print("skipped: torch and transformers are not installed (ops/bench-peers installs them into .peers)")
    sys.exit(SKIPPED)

import baselines  # noqa: E402
import torch  # noqa: E402

SEED = 7


class Loops(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        torch.manual_seed(SEED)
        self.transformers = baselines.Generate(baselines.TINY, "cpu")
        for layer in self.transformers.model.model.layers:
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                torch.nn.init.uniform_(norm.weight, 0.5, 1.5)

    def loop(self, way):
        """With the weights of transformers."""
        loop = way(baselines.TINY, "cpu")
        base = self.transformers.model.model
        loop.tokens, loop.head = base.embed_tokens.weight, self.transformers.model.lm_head.weight
        for ours, layer in zip(loop.layers, base.layers, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            ours["qkv"] = torch.cat([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
            ours["gate_up"] = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
            ours["out"], ours["down"] = attention.o_proj.weight, mlp.down_proj.weight
            ours["norm1"], ours["norm2"] = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        return loop

    # Pages end at 64 and 128 tokens: within the prompt, at its end, and while tokens are drawn.
    def test_they_draw_what_transformers_draws(self):
        for prompt, output in ((5, 3), (60, 70), (64, 2), (100, 40)):
            prompts = torch.randint(0, baselines.TINY.vocabulary, (3, prompt))
            expected = self.transformers.run(prompts, output)
            self.assertGreater(len(expected.unique()), 2)
            for way in (baselines.Paged, baselines.Static):
                with self.subTest(f"{way.__name__}, {prompt} and {output} tokens"), torch.inference_mode():
                    loop = self.loop(way)
                    self.assertEqual(loop.run(prompts, output).tolist(), expected.tolist())
                    self.assertEqual(loop.run(prompts, output).tolist(), expected.tolist(), "the second time")

    def test_prompts_are_read_in_parts(self):
        prompts = torch.randint(0, baselines.TINY.vocabulary, (5, 9))
        with torch.inference_mode(), unittest.mock.patch.object(baselines, "PROMPT_TOKENS_MAX", 20):
            drawn = self.loop(baselines.Paged).run(prompts, 4)
        self.assertEqual(drawn.tolist(), self.transformers.run(prompts, 4).tolist())

    def test_sequences_of_different_lengths_decode_together(self):
        prompts = [torch.randint(0, baselines.TINY.vocabulary, (1, length)) for length in (110, 70, 3)]
        expected = [self.transformers.run(prompt, 30)[0].tolist() for prompt in prompts]
        for way in (baselines.Paged, baselines.Static):
            with self.subTest(way.__name__), torch.inference_mode():
                loop = self.loop(way)
                loop.allocate(len(prompts), 110, 30)
                for sequence, prompt in enumerate(prompts):
                    loop.read(prompt, torch.tensor([sequence]))
                loop.positions.copy_(torch.tensor([prompt.shape[1] for prompt in prompts]))
                drawn = [loop.drawn.clone()]
                for _ in range(29):
                    loop.decode(baselines.whole_pages(int(loop.positions.max()) + 1))
                    drawn.append(loop.drawn.clone())
                self.assertEqual(torch.stack(drawn, dim=1).tolist(), expected)


class Program(unittest.TestCase):
    def test_each_way_prints_its_figures(self):
        for way in baselines.WAYS:
            with self.subTest(way):
                if way == "peft" and importlib.util.find_spec("peft") is None:
                    self.skipTest("peft is not installed")
                done = subprocess.run([sys.executable, str(ROOT / "ops" / "gpu" / "baselines.py"), way, "--tiny", "--device", "cpu",
                                       "--batch", "2", "--prompt", "4", "--output", "3"], capture_output=True, text=True, timeout=300,
                                      check=True)  # fmt: skip
                figures = json.loads(done.stdout.splitlines()[-1])
                self.assertEqual(list(figures), ["engine", "seconds", "tokens_per_second", "step_seconds"])
                self.assertIn("torch", figures["engine"])


if __name__ == "__main__":
    unittest.main()
