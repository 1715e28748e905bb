#!/usr/bin/env python3
"""What the same work takes in torch, on random weights of the same shape: run by ops/gpu-check, with whatever Python calls it.

    ops/gpu/baselines.py generate    Hugging Face transformers: generate() over one static batch
    ops/gpu/baselines.py peft        the same with adapters mixed in the batch (adapter_names)
    ops/gpu/baselines.py graphs      a loop in plain torch: static KV cache, each decode step one CUDA graph

Prints a line of JSON: "engine", the seconds of the best run, its rate, and the seconds of each step after the first; or "missing", and
why, where a library or the GPU is not there.
"""

import argparse
import importlib.metadata
import json
import time
from dataclasses import asdict

from floors import LLAMA_8B, Shape

try:
    import torch
    from torch.nn import functional
except ImportError:
    torch = None

# Small enough to try this script anywhere.
TINY = Shape(layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2, head_dim=16, vocabulary=128)
ADAPTERS = 8
RANK = 16
EPSILON = 1e-5
ROPE_BASE = 500000.0


class Missing(Exception):
    """A library or the GPU."""


def versions(*packages: str) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


class Generate:
    def __init__(self, shape: Shape, device: str) -> None:
        from transformers import AutoModelForCausalLM, LlamaConfig

        fields = asdict(shape)
        config = LlamaConfig(
            hidden_size=fields["hidden"], intermediate_size=fields["intermediate"], num_hidden_layers=fields["layers"],
            num_attention_heads=fields["heads"], num_key_value_heads=fields["kv_heads"], head_dim=fields["head_dim"],
            vocab_size=fields["vocabulary"], max_position_embeddings=8192, attn_implementation="sdpa",
        )  # fmt: skip
        with torch.device(device):
            # Versions differ in the type that they choose by themselves.
            self.model = AutoModelForCausalLM.from_config(config).to(dtype=torch.get_default_dtype()).eval()
        self.engine = versions("torch", "transformers")
        self.more: dict = {}

    def run(self, prompts, output: int) -> None:
        self.model.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=output, min_new_tokens=output,
            pad_token_id=0, **self.more,
        )  # fmt: skip


class Peft(Generate):
    def __init__(self, shape: Shape, device: str) -> None:
        from peft import LoraConfig, get_peft_model

        super().__init__(shape, device)
        names = [f"lora-{i}" for i in range(ADAPTERS)]
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear", init_lora_weights=False)
        self.model = get_peft_model(self.model, config, adapter_name=names[0])
        for name in names[1:]:
            self.model.add_adapter(name, config)
        # New adapters are float32; the base is not.
        self.model = self.model.to(dtype=torch.get_default_dtype(), device=device).eval()
        self.names = names
        self.engine = versions("torch", "transformers", "peft")

    def run(self, prompts, output: int) -> None:
        self.more = {"adapter_names": [self.names[i % ADAPTERS] for i in range(len(prompts))]}
        super().run(prompts, output)


class Graphs:
    """The model by hand. Sequences are equally long, so that one position serves all; attention reads the whole static cache, masked."""

    def __init__(self, shape: Shape, device: str) -> None:
        self.shape = shape
        self.device = device
        scale = shape.hidden**-0.5

        def weight(outputs, inputs):
            return torch.randn(outputs, inputs, device=device) * scale

        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.tokens = weight(shape.vocabulary, shape.hidden)
        self.head = weight(shape.vocabulary, shape.hidden)
        self.layers = [
            {"qkv": weight(width + 2 * kv_width, shape.hidden), "out": weight(shape.hidden, width),
             "gate_up": weight(2 * shape.intermediate, shape.hidden), "down": weight(shape.hidden, shape.intermediate),
             "norm1": torch.ones(shape.hidden, device=device), "norm2": torch.ones(shape.hidden, device=device)}
            for _ in range(shape.layers)
        ]  # fmt: skip
        self.engine = versions("torch") + ", static KV cache and " + ("CUDA graphs" if device == "cuda" else "no graphs")
        self.state = None

    def allocate(self, batch: int, length: int) -> None:
        shape = self.shape
        self.state = (batch, length)
        caches = [torch.zeros(batch, shape.kv_heads, length, shape.head_dim, device=self.device) for _ in range(2 * shape.layers)]
        self.caches = list(zip(caches[::2], caches[1::2], strict=True))
        frequencies = ROPE_BASE ** (-torch.arange(0, shape.head_dim, 2, device=self.device, dtype=torch.float32) / shape.head_dim)
        angles = torch.outer(torch.arange(length, device=self.device, dtype=torch.float32), frequencies).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(self.head.dtype), angles.sin().to(self.head.dtype)
        self.places = torch.arange(length, device=self.device)
        self.drawn = torch.zeros(batch, 1, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.graph = None

    def rotate(self, x, positions):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos[positions] + torch.cat((-second, first), dim=-1) * self.sin[positions]

    def attend(self, q, layer: int, prompt: bool):
        keys, values = self.caches[layer]
        batch, heads, rows, size = q.shape
        if prompt:
            return functional.scaled_dot_product_attention(q, keys[:, :, :rows], values[:, :, :rows], is_causal=True, enable_gqa=True)
        grouped = q.view(batch, self.shape.kv_heads, heads // self.shape.kv_heads, size)
        scores = (grouped @ keys.transpose(2, 3) * size**-0.5).masked_fill(self.places > self.position, float("-inf"))
        return (scores.softmax(dim=-1) @ values).view(batch, heads, rows, size)

    def forward(self, tokens, positions, prompt: bool):
        """Greedy tokens of the last rows."""
        shape = self.shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        x = self.tokens[tokens]
        for number, layer in enumerate(self.layers):
            qkv = functional.rms_norm(x, (shape.hidden,), layer["norm1"], EPSILON) @ layer["qkv"].T
            q, k, v = (part.unflatten(-1, (-1, shape.head_dim)).transpose(1, 2) for part in qkv.split((width, kv_width, kv_width), dim=-1))
            self.caches[number][0].index_copy_(2, positions, self.rotate(k, positions))
            self.caches[number][1].index_copy_(2, positions, v)
            attended = self.attend(self.rotate(q, positions), number, prompt)
            x = x + attended.transpose(1, 2).flatten(2) @ layer["out"].T
            gate, up = (functional.rms_norm(x, (shape.hidden,), layer["norm2"], EPSILON) @ layer["gate_up"].T).chunk(2, dim=-1)
            x = x + (functional.silu(gate) * up) @ layer["down"].T
        ones = torch.ones(shape.hidden, device=self.device)
        return (functional.rms_norm(x[:, -1:], (shape.hidden,), ones, EPSILON) @ self.head.T).argmax(dim=-1)

    def decode(self) -> None:
        self.drawn.copy_(self.forward(self.drawn, self.position, prompt=False))
        self.position.add_(1)

    def capture(self) -> None:
        """Kernels run once on a side stream first, as capture asks for."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.position.zero_()
            self.decode()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.decode()

    def run(self, prompts, output: int) -> None:
        batch, length = prompts.shape
        if self.state != (batch, length + output):
            self.allocate(batch, length + output)
        if self.device == "cuda" and self.graph is None:
            self.capture()
        # Prompts in parts: their activations are large.
        positions = self.places[:length]
        part = max(1, 16384 // length)
        whole = self.caches
        for begin in range(0, batch, part):
            self.caches = [(keys[begin : begin + part], values[begin : begin + part]) for keys, values in whole]
            self.drawn[begin : begin + part] = self.forward(prompts[begin : begin + part], positions, prompt=True)
        self.caches = whole
        self.position.fill_(length)
        for _ in range(output - 1):
            self.graph.replay() if self.graph else self.decode()


WAYS = {"generate": Generate, "peft": Peft, "graphs": Graphs}


def measure(arguments: argparse.Namespace) -> dict:
    if torch is None:
        raise Missing("torch is not installed")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise Missing("torch has no GPU")
    shape = TINY if arguments.tiny else LLAMA_8B
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    prompts = torch.randint(0, shape.vocabulary, (arguments.batch, arguments.prompt), device=arguments.device)
    way = WAYS[arguments.way](shape, arguments.device)

    def best_seconds(output: int) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.monotonic()
            with torch.inference_mode():
                way.run(prompts, output)
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.monotonic() - began)
        return best

    first, seconds = best_seconds(1), best_seconds(arguments.output)
    return {"engine": way.engine, "seconds": seconds, "tokens_per_second": arguments.batch * arguments.output / seconds,
            "step_seconds": (seconds - first) / (arguments.output - 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="The same work in torch.")
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, to try the script")
    arguments = parser.parse_args()
    try:
        print(json.dumps(measure(arguments)))
    except (Missing, ImportError) as error:
        print(json.dumps({"missing": str(error)}))


if __name__ == "__main__":
    main()
