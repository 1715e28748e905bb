#!/usr/bin/env python3
"""Trains the example's tokenizer and base model on the descriptions of the train and extra splits.

Second step of the example (README.md); reads WORK/packages.jsonl. Writes a Hugging Face folder: config.json, bfloat16
model.safetensors, generation_config.json, tokenizer.json, tokenizer_config.json. The learning rate follows the share of
--minutes that has passed, so that the run ends annealed whatever the machine's speed.
Hidden matrices are trained with Muon (Jordan et al. 2024), embeddings and norms with Adam. Weights and their updates are
float32; forward and backward run on a bfloat16 copy, which CPUs with AMX multiply many times faster.
"""

import argparse
import math
import random
import time
from pathlib import Path

from common import CHAT_TEMPLATE, SPECIAL_TOKENS, load_packages, prepare_cpu, pretraining_text

prepare_cpu()

import torch  # noqa: E402 (after prepare_cpu, as OpenMP reads its settings once)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

VOCABULARY = 4096
POSITIONS = 1024


def train_tokenizer(packages: list[dict], out: Path) -> None:
    """Trains a byte-level BPE and saves it with the chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = (f"Package: {p['package']}\nSynopsis: {p['synopsis']}\nDescription: {p['description']}" for p in packages)
    tokenizer.train_from_iterator(texts, trainer)
    bos = tokenizer.token_to_id("<|bos|>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", bos)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        pad_token="<|pad|>",
        additional_special_tokens=SPECIAL_TOKENS[3:],
        chat_template=CHAT_TEMPLATE,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(out)


def make_config(arguments) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=arguments.hidden,
        intermediate_size=arguments.intermediate,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        num_key_value_heads=arguments.kv_heads,
        head_dim=arguments.hidden // arguments.heads,
        max_position_embeddings=POSITIONS,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        bos_token_id=SPECIAL_TOKENS.index("<|bos|>"),
        eos_token_id=[SPECIAL_TOKENS.index("<|eos|>"), SPECIAL_TOKENS.index("<|end|>")],
        pad_token_id=SPECIAL_TOKENS.index("<|pad|>"),
        use_cache=True,
    )


def save(model: LlamaForCausalLM, out: Path) -> None:
    """Saves a bfloat16 copy. The model itself stays in float32."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy = copy.to(torch.bfloat16)
    copy.config.dtype = torch.bfloat16
    copy.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id, eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id, do_sample=False
    )
    copy.save_pretrained(out)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized by five Newton-Schulz steps: for matrices only."""

    def __init__(self, parameters, lr: float, momentum: float = 0.95, weight_decay: float = 0.05):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            # Matrices of equal shape are orthogonalized together: small ones alone would not use all cores.
            shapes: dict[tuple, list[torch.Tensor]] = {}
            for weight in group["params"]:
                shapes.setdefault(tuple(weight.shape), []).append(weight)
            for (rows, columns), weights in shapes.items():
                updates = []
                for weight in weights:
                    state = self.state[weight]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(weight)
                    momentum = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                    updates.append(weight.grad.lerp(momentum, group["momentum"]))
                for weight, update in zip(weights, orthogonalize(torch.stack(updates)).float()):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonalize(gradients: torch.Tensor) -> torch.Tensor:
    """The nearest half-orthogonal matrices, roughly: singular values end between 0.7 and 1.2. [count, rows, columns]"""
    tall = gradients.size(1) > gradients.size(2)
    x = gradients.mT if tall else gradients
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


def windows(tokenizer, packages: list[dict], length: int, rng: random.Random):
    """Yields packed windows [length + 1] without end. Each epoch shuffles the packages and draws their formats again."""
    epoch = 0
    while True:
        order = packages[:]
        rng.shuffle(order)
        buffer: list[int] = []
        for begin in range(0, len(order), 2000):
            texts = [pretraining_text(package, rng) for package in order[begin : begin + 2000]]
            for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
                buffer.extend(ids)
            count = (len(buffer) - 1) // length
            chunks = [buffer[i * length : i * length + length + 1] for i in range(count)]
            buffer = buffer[count * length :]
            rng.shuffle(chunks)
            for chunk in chunks:
                yield epoch, chunk
        epoch += 1


def loss_of(model, batch: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def dev_loss(model, tokenizer, packages: list[dict], length: int) -> float:
    """Mean loss per token on the dev split, the same windows every time."""
    source = windows(tokenizer, packages, length, random.Random(1))
    chunks = []
    for epoch, chunk in source:
        if epoch > 0:
            break
        chunks.append(chunk)
    with torch.no_grad():
        losses = [loss_of(model, torch.tensor(chunks[i : i + 32])).item() for i in range(0, len(chunks) - 31, 32)]
    return sum(losses) / len(losses)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("build/example"), help="folder of packages.jsonl (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/example/model"), help="folder to write (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=84, help="time to train for (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--intermediate", type=int, default=640)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--length", type=int, default=192, help="tokens per window (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=21, help="windows per step (default: %(default)s)")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.004)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile, which needs g++")
    parser.add_argument("--checkpoint-minutes", type=float, default=5)
    return parser.parse_args()


class Trainer:
    """Trains a model in bfloat16 from master weights in float32: Muon for the layers' matrices, Adam for the rest."""

    def __init__(self, model, arguments: argparse.Namespace):
        self.arguments = arguments
        # Eager attention: at these lengths a plain matrix product beats torch's fused kernel for the CPU.
        fast = LlamaForCausalLM._from_config(model.config, attn_implementation="eager").bfloat16()
        self.pairs = list(zip(model.parameters(), fast.parameters()))
        self.compiled = fast if arguments.no_compile else torch.compile(fast)
        matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
        self.others = [p for p in model.parameters() if not any(p is m for m in matrices)]
        self.muon = Muon(matrices, lr=arguments.muon_lr)
        self.adam = torch.optim.Adam(self.others, lr=arguments.adam_lr, betas=(0.9, 0.95))

    def step(self, chunks: list[list[int]], scale: float) -> float:
        """Trains one step on a batch of windows with the learning rates times `scale`. Returns the loss."""
        self.muon.param_groups[0]["lr"] = self.arguments.muon_lr * scale
        self.adam.param_groups[0]["lr"] = self.arguments.adam_lr * scale
        with torch.no_grad():
            for weight, copy in self.pairs:
                copy.copy_(weight)
                copy.grad = None
        loss = loss_of(self.compiled, torch.tensor(chunks))
        loss.backward()
        for weight, copy in self.pairs:
            weight.grad = copy.grad.float()
        torch.nn.utils.clip_grad_norm_(self.others, 1.0)
        self.muon.step()
        self.adam.step()
        return loss.item()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    splits = load_packages(arguments.work)
    arguments.out.mkdir(parents=True, exist_ok=True)
    packages = splits["train"] + splits["extra"]
    train_tokenizer(packages, arguments.out)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.out)
    model = LlamaForCausalLM(make_config(arguments))
    trainer = Trainer(model, arguments)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, seed {arguments.seed}", flush=True)

    source = windows(tokenizer, packages, arguments.length, rng)
    start = time.monotonic()
    saved = start
    step = tokens = 0
    window_loss = 0.0
    window_start, window_tokens = start, 0
    while True:
        share = (time.monotonic() - start) / (60 * arguments.minutes)
        if share >= 1:
            break
        drawn = [next(source) for _ in range(arguments.batch)]
        loss = trainer.step([chunk for _, chunk in drawn], min(1.0, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * share)))
        step += 1
        tokens += arguments.batch * arguments.length
        window_tokens += arguments.batch * arguments.length
        window_loss += loss
        if step % 20 == 0:
            now = time.monotonic()
            print(
                f"step {step} epoch {drawn[-1][0]} {tokens / 1e6:.2f} M tokens {(now - start) / 60:.1f} min "
                f"{window_tokens / (now - window_start):.0f} tokens/s loss {window_loss / 20:.3f} share {share:.3f}",
                flush=True,
            )
            window_start, window_tokens, window_loss = now, 0, 0.0
        if time.monotonic() - saved > 60 * arguments.checkpoint_minutes:
            save(model, arguments.out)
            print(f"saved; dev loss {dev_loss(model, tokenizer, splits['dev'], arguments.length):.4f}", flush=True)
            saved = time.monotonic()
    save(model, arguments.out)
    print(f"done: {step} steps, {tokens:,} tokens; dev loss {dev_loss(model, tokenizer, splits['dev'], arguments.length):.4f}", flush=True)


if __name__ == "__main__":
    main()
