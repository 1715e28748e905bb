#!/usr/bin/env python3
"""Measures the same work in torch, with random weights of the same shape. Run by ops/gpu-check with its own Python.

    ops/gpu/baselines.py generate    Hugging Face transformers: generate() over one static batch
    ops/gpu/baselines.py peft        the same with adapters mixed in the batch (adapter_names)
    ops/gpu/baselines.py paged       a loop in plain torch: KV cache in pages, each decode step one CUDA graph
    ops/gpu/baselines.py static      the same with a KV cache that is allocated in full for each sequence

Prints a line of JSON: "engine", the seconds of the best run, its rate, and the seconds of each step after the first; or "missing" with the
reason if a library or the GPU is missing.
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

# Small enough to run on any machine.
TINY = Shape(layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2, head_dim=16, vocabulary=128)
ADAPTERS = 8
RANK = 16
EPSILON = 1e-5
ROPE_BASE = 500000.0
PAGE_TOKENS = 64
PROMPT_TOKENS_MAX = 16384  # prefilled at a time


class Missing(Exception):
    """A library or the GPU is missing."""


def versions(*packages: str) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def whole_pages(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS


class Generate:
    """Hugging Face transformers. run() of each engine returns the drawn tokens, [batch, output]."""

    def __init__(self, shape: Shape, device: str) -> None:
        from transformers import AutoModelForCausalLM, LlamaConfig

        fields = asdict(shape)
        config = LlamaConfig(
            hidden_size=fields["hidden"], intermediate_size=fields["intermediate"], num_hidden_layers=fields["layers"],
            num_attention_heads=fields["heads"], num_key_value_heads=fields["kv_heads"], head_dim=fields["head_dim"],
            vocab_size=fields["vocabulary"], max_position_embeddings=8192, attn_implementation="sdpa", rope_theta=ROPE_BASE,
            rms_norm_eps=EPSILON,
        )  # fmt: skip
        with torch.device(device):
            # Versions have different default types.
            self.model = AutoModelForCausalLM.from_config(config).to(dtype=torch.get_default_dtype()).eval()
        self.engine = versions("torch", "transformers")
        self.more: dict = {}

    def run(self, prompts, output: int):
        sequences = self.model.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=output, min_new_tokens=output,
            pad_token_id=0, **self.more,
        )  # fmt: skip
        return sequences[:, prompts.shape[1] :]


class Peft(Generate):
    def __init__(self, shape: Shape, device: str) -> None:
        from peft import LoraConfig, get_peft_model

        super().__init__(shape, device)
        names = [f"lora-{i}" for i in range(ADAPTERS)]
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear", init_lora_weights=False)
        self.model = get_peft_model(self.model, config, adapter_name=names[0])
        for name in names[1:]:
            self.model.add_adapter(name, config)
        # New adapters are float32, unlike the base.
        self.model = self.model.to(dtype=torch.get_default_dtype(), device=device).eval()
        self.names = names
        self.engine = versions("torch", "transformers", "peft")

    def run(self, prompts, output: int):
        self.more = {"adapter_names": [self.names[i % ADAPTERS] for i in range(len(prompts))]}
        return super().run(prompts, output)


class Paged:
    """The model written by hand. Keys and values are stored in pages, and a table maps pages to sequences. A decode step moves queries to
    pages, not pages to queries: attention reads each page once and in place, and moves only scores and sums. There is one CUDA graph of
    the step for each number of pages that a sequence reaches. Prompts must be equally long; decoding does not need that."""

    name = f"KV cache in pages of {PAGE_TOKENS} tokens"

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
        self.engine = f"{versions('torch')}, {self.name}, {'CUDA graphs' if device == 'cuda' else 'no graphs'}"
        self.allocated = None

    def page_tokens_of(self, _length: int) -> int:
        return PAGE_TOKENS

    def allocate(self, batch: int, prompt: int, output: int) -> None:
        shape = self.shape
        self.allocated = (batch, prompt, output)
        length = whole_pages(prompt + output)
        self.page_tokens = self.page_tokens_of(length)
        self.sequences = torch.arange(batch, device=self.device)
        # The n-th pages of all sequences are adjacent, so that the pages in use come first.
        pages = torch.arange(batch * length // self.page_tokens, device=self.device)
        self.table = pages.view(-1, batch).T.contiguous()  # [batch, pages of a sequence]
        self.owners, self.turns = pages % batch, pages // batch  # of each page: its sequence, and its number there
        self.keys = self.values = None  # frees the memory of the previous work before allocating
        self.keys, self.values = (
            [torch.zeros(len(pages), shape.kv_heads, self.page_tokens, shape.head_dim, device=self.device) for _ in range(shape.layers)]
            for _ in range(2)
        )
        frequencies = ROPE_BASE ** (-torch.arange(0, shape.head_dim, 2, device=self.device, dtype=torch.float32) / shape.head_dim)
        angles = torch.outer(torch.arange(length, device=self.device, dtype=torch.float32), frequencies).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(self.head.dtype), angles.sin().to(self.head.dtype)
        self.places = torch.arange(length, device=self.device)
        self.drawn = torch.zeros(batch, dtype=torch.long, device=self.device)
        self.positions = torch.zeros(batch, dtype=torch.long, device=self.device)
        # By the number of tokens that attention reads. Captured now, while the cache has no contents that warming up could overwrite.
        lengths = {whole_pages(position + 1) for position in range(prompt, prompt + output - 1)}
        self.graphs = {length: self.captured(length) for length in sorted(lengths)} if self.device == "cuda" else {}

    def captured(self, length: int):
        """A graph of the step. Kernels first run once on a side stream, as capturing requires."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.positions.zero_()
            self.decode(length)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.decode(length)
        return graph

    def attend(self, q, layer: int, length: int, later):
        """Attention of one query per sequence, [batch, KV heads, group, size], to its first `length` tokens except the later ones."""
        pages = self.table[:, : length // self.page_tokens]
        used = pages.numel()
        owners, turns = self.owners[:used], self.turns[:used]
        of_pages = q[owners] @ self.keys[layer][:used].transpose(2, 3)
        scores = of_pages[pages].permute(0, 2, 3, 1, 4).flatten(3)  # [batch, KV heads, group, length]
        shares = scores.masked_fill_(later, float("-inf")).softmax(dim=-1).unflatten(3, (-1, self.page_tokens))
        sums = shares.permute(0, 3, 1, 2, 4)[owners, turns] @ self.values[layer][:used]
        return sums[pages].sum(dim=1)

    def rotate(self, x, positions):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos[positions][:, None] + torch.cat((-second, first), dim=-1) * self.sin[positions][:, None]

    def forward(self, tokens, positions, sequences, attend):
        """Returns the greedy tokens of the last rows. tokens, positions: [sequences, rows]. attend computes attention from q, k and v,
        [sequences, heads, rows, size], and the layer's number."""
        shape = self.shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        pages, slots = self.table[sequences[:, None], positions // self.page_tokens], positions % self.page_tokens
        x = self.tokens[tokens]
        for number, layer in enumerate(self.layers):
            qkv = functional.rms_norm(x, (shape.hidden,), layer["norm1"], EPSILON) @ layer["qkv"].T
            q, k, v = (part.unflatten(-1, (-1, shape.head_dim)).transpose(1, 2) for part in qkv.split((width, kv_width, kv_width), dim=-1))
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            self.keys[number][pages, :, slots] = k.transpose(1, 2)
            self.values[number][pages, :, slots] = v.transpose(1, 2)
            x = x + attend(q, k, v, number).transpose(1, 2).flatten(2) @ layer["out"].T
            gate, up = (functional.rms_norm(x, (shape.hidden,), layer["norm2"], EPSILON) @ layer["gate_up"].T).chunk(2, dim=-1)
            x = x + (functional.silu(gate) * up) @ layer["down"].T
        return (functional.rms_norm(x[:, -1], (shape.hidden,), None, EPSILON) @ self.head.T).argmax(dim=-1)

    def read(self, prompts, sequences) -> None:
        def attend(q, k, v, _layer):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        positions = self.places[: prompts.shape[1]].expand(prompts.shape)
        self.drawn[sequences] = self.forward(prompts, positions, sequences, attend)

    def decode(self, length: int) -> None:
        later = (self.places[:length] > self.positions[:, None])[:, None, None]

        def attend(q, _k, _v, layer):
            grouped = q.reshape(len(q), self.shape.kv_heads, -1, self.shape.head_dim) * self.shape.head_dim**-0.5
            return self.attend(grouped, layer, length, later).reshape(q.shape)

        self.drawn.copy_(self.forward(self.drawn[:, None], self.positions[:, None], self.sequences, attend))
        self.positions.add_(1)

    def run(self, prompts, output: int):
        batch, prompt = prompts.shape
        if self.allocated != (batch, prompt, output):
            self.allocate(batch, prompt, output)
        # Prefill in parts, because the activations of prompts are large.
        for sequences in self.sequences.split(max(1, PROMPT_TOKENS_MAX // prompt)):
            self.read(prompts[sequences], sequences)
        self.positions.fill_(prompt)
        drawn = [self.drawn.clone()]
        for position in range(prompt, prompt + output - 1):
            length = whole_pages(position + 1)
            if self.graphs:
                self.graphs[length].replay()
            else:
                self.decode(length)
            drawn.append(self.drawn.clone())
        return torch.stack(drawn, dim=1)


class Static(Paged):
    """The same with one page per sequence, as long as a sequence can get, so every sequence takes the memory of the longest from its start.
    If all are equally long, attention reads the same bytes in fewer, larger matmuls and moves nothing: the stronger baseline."""

    name = "static KV cache"

    def page_tokens_of(self, length: int) -> int:
        return length

    def attend(self, q, layer: int, length: int, later):
        keys, values = self.keys[layer][:, :, :length], self.values[layer][:, :, :length]
        return (q @ keys.transpose(2, 3)).masked_fill_(later, float("-inf")).softmax(dim=-1) @ values


WAYS = {"generate": Generate, "peft": Peft, "paged": Paged, "static": Static}


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
    parser.add_argument("--tiny", action="store_true", help="use a tiny shape, to try the script")
    arguments = parser.parse_args()
    try:
        print(json.dumps(measure(arguments)))
    except (Missing, ImportError) as error:
        print(json.dumps({"missing": str(error)}))


if __name__ == "__main__":
    main()
