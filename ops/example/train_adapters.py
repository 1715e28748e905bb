#!/usr/bin/env python3
"""Trains the example's LoRA adapters with PEFT on the base model.

Third step of the example (README.md); reads WORK/packages.jsonl and the base model's folder, writes one PEFT folder per
task under --out. Ranks and targets differ on purpose: a batch that mixes these adapters is what Lorry is for.
Only the answer's tokens are trained on. The learning rate follows the share of the task's minutes that has passed. The base is bfloat16,
as it is stored; the adapter's weights and their updates are float32.
"""

import argparse
import json
import math
import random
import shutil
import time
from pathlib import Path

from common import TASKS, chat_prompt, gold_answer, load_packages, prepare_cpu, user_text

prepare_cpu()

import torch  # noqa: E402 (after prepare_cpu, as OpenMP reads its settings once)
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]

# share: of --minutes.
SETTINGS = {
    "section": {"share": 0.5, "rank": 32, "alpha": 64, "targets": "all-linear", "rate": 2e-3, "decay": 0.05},
    "synopsis": {"share": 0.31, "rank": 16, "alpha": 32, "targets": ATTENTION, "rate": 3e-3, "decay": 0.0},
    "tags": {"share": 0.11, "rank": 8, "alpha": 16, "targets": FEED_FORWARD, "rate": 3e-3, "decay": 0.05},
    "language": {"share": 0.08, "rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj"], "rate": 4e-3, "decay": 0.0},
}


def examples_of(task: str, packages: list[dict], tokenizer) -> list[tuple[list[int], list[int]]]:
    """(prompt ids, answer ids with the end of turn) of each package that has an answer."""
    pairs = [(chat_prompt(user_text(p)), answer) for p in packages if (answer := gold_answer(task, p)) is not None]
    prompts = tokenizer([prompt for prompt, _ in pairs], add_special_tokens=False)["input_ids"]
    answers = tokenizer([answer + "<|end|>" for _, answer in pairs], add_special_tokens=False)["input_ids"]
    return list(zip(prompts, answers))


def batches(examples: list, tokens_max: int, rng: random.Random):
    """Yields (epoch, batch) without end: examples of similar length, at most tokens_max padded tokens, in random order."""
    epoch = 0
    while True:
        order = sorted(examples, key=lambda e: len(e[0]) + len(e[1]) + rng.random() * 12)
        groups: list[list] = [[]]
        for example in order:
            if (len(groups[-1]) + 1) * (len(example[0]) + len(example[1]) + 12) > tokens_max:
                groups.append([])
            groups[-1].append(example)
        rng.shuffle(groups)
        for group in groups:
            yield epoch, group
        epoch += 1


def loss_of(model, group: list) -> tuple[torch.Tensor, float]:
    """Mean loss per answer token, and the share of answers with every token right, given the gold tokens before it."""
    length = max(len(prompt) + len(answer) for prompt, answer in group) - 1
    inputs = torch.zeros(len(group), length, dtype=torch.long)
    rows, columns, targets = [], [], []
    for row, (prompt, answer) in enumerate(group):
        ids = prompt + answer
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        rows += [row] * len(answer)
        columns += range(len(prompt) - 1, len(ids) - 1)
        targets += answer
    # Padding is on the right, so causal attention needs no mask. The head computes only the rows that count in the loss.
    causal = model.get_base_model()
    hidden = causal.model(input_ids=inputs, use_cache=False).last_hidden_state
    logits = causal.lm_head(hidden[rows, columns])
    target = torch.tensor(targets)
    wrong = torch.zeros(len(group)).index_add_(0, torch.tensor(rows), (logits.argmax(-1) != target).float())
    return torch.nn.functional.cross_entropy(logits.float(), target), (wrong == 0).float().mean().item()


def dev_figures(model, examples: list) -> str:
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        results = [loss_of(model, examples[i : i + 50]) for i in range(0, len(examples), 50)]
    model.train()
    return f"dev loss {sum(r[0].item() for r in results) / len(results):.4f} exact {sum(r[1] for r in results) / len(results):.4f}"


def save(model, out: Path) -> None:
    """Saves the adapter as PEFT does, in bfloat16, with the name of the base instead of its path on this machine."""
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    weights = load_file(out / "adapter_model.safetensors")
    save_file({name: w.to(torch.bfloat16) for name, w in weights.items()}, out / "adapter_model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "base"
    config["target_modules"] = sorted(config["target_modules"])
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def train(task: str, arguments, splits: dict) -> None:
    settings = SETTINGS[task]
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16, attn_implementation="eager")
    rank, alpha, rate = arguments.rank or settings["rank"], arguments.alpha or settings["alpha"], arguments.rate or settings["rate"]
    if arguments.resume:
        model = PeftModel.from_pretrained(base, arguments.resume / task, is_trainable=True)
    else:
        targets = settings["targets"]
        lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM")
        model = get_peft_model(base, lora)
    parameters = [p for p in model.parameters() if p.requires_grad]
    dev = examples_of(task, splits["dev"], tokenizer)
    examples = examples_of(task, splits["train"], tokenizer)
    minutes = arguments.minutes * (settings["share"] if arguments.share is None else arguments.share)
    count = sum(p.numel() for p in parameters)
    print(f"{task}: {len(examples)} examples, rank {rank}, {count:,} parameters, {minutes:.1f} min", flush=True)
    adam = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=settings["decay"])
    source = batches(examples, arguments.batch_tokens, rng)
    start = time.monotonic()
    step = tokens = 0
    losses: list[float] = []
    while (share := (time.monotonic() - start) / (60 * minutes)) < 1:
        adam.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 30) * (0.5 + 0.5 * math.cos(math.pi * share))
        epoch, group = next(source)
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = loss_of(model, group)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        tokens += sum(len(prompt) + len(answer) for prompt, answer in group)
        losses.append(loss.item())
        if step % 50 == 0:
            speed = tokens / (time.monotonic() - start)
            loss = sum(losses) / len(losses)
            print(f"{task} step {step} epoch {epoch} share {share:.2f} {speed:.0f} tokens/s loss {loss:.4f}", flush=True)
            losses = []
        if step % 200 == 0:
            print(f"{task} {dev_figures(model, dev)}", flush=True)
    out = arguments.out / task
    shutil.rmtree(out, ignore_errors=True)
    save(model, out)
    print(f"{task} done: {step} steps, {tokens:,} tokens, epoch {epoch}; {dev_figures(model, dev)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("build/example"), help="folder of packages.jsonl (default: %(default)s)")
    parser.add_argument("--model", type=Path, default=Path("build/example/model"), help="the base model's folder (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/example/adapters"), help="folder to write (default: %(default)s)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--minutes", type=float, default=32, help="time for all tasks, divided by SETTINGS (default: %(default)s)")
    parser.add_argument("--share", type=float, help="this task's share of --minutes, instead of SETTINGS")
    parser.add_argument("--resume", type=Path, help="continue from the adapters in this folder, with a new schedule")
    parser.add_argument("--rank", type=int, help="instead of SETTINGS")
    parser.add_argument("--alpha", type=int, help="instead of SETTINGS")
    parser.add_argument("--rate", type=float, help="instead of SETTINGS")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="padded tokens per step (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    splits = load_packages(arguments.work)
    for task in arguments.tasks:
        train(task, arguments, splits)


if __name__ == "__main__":
    main()
