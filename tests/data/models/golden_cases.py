"""Runs a reference model on prompts and writes goldens.json + goldens.safetensors; used by the scripts beside it."""

import copy
import json
import random
import zlib

import torch
from safetensors.torch import save_file

GAP_MIN = 5e-3  # smallest distance between the two best logits at any greedy step, far above the 1e-4 that tests allow
DISTINCT_MIN = 16  # distinct tokens among 64, so that a run stuck in a loop is not taken for agreement
LOGIT_NOISE_MAX = 5e-5  # float32 against float64: what summation order may change
GREEDY_TOKENS = 64


def seed_of(*parts):
    return zlib.crc32("/".join(str(part) for part in parts).encode())


def reset_dynamic_rope(model):
    """The rotary module remembers the longest sequence it saw; without this a case would depend on the case before it."""
    for module in model.modules():
        if getattr(module, "rope_type", None) == "dynamic":
            module.max_seq_len_cached = module.original_max_seq_len
            module.inv_freq = module.original_inv_freq.clone()


@torch.no_grad()
def generate(model, prompt, count):
    """The prompt in one call, then one token per call with a KV cache. Returns logits [prompt, vocab], the logits of every
    greedy step [count, vocab] and the tokens; the end-of-sequence token does not stop it."""
    reset_dynamic_rope(model)
    output = model(torch.tensor([prompt]), use_cache=True)
    prompt_logits = output.logits[0]
    steps, tokens = [prompt_logits[-1]], [int(prompt_logits[-1].argmax())]
    while len(tokens) < count:
        output = model(torch.tensor([[tokens[-1]]]), past_key_values=output.past_key_values, use_cache=True)
        steps.append(output.logits[0, -1])
        tokens.append(int(steps[-1].argmax()))
    return prompt_logits, torch.stack(steps), tokens


@torch.no_grad()
def forward_whole(model, tokens):
    reset_dynamic_rope(model)
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def gap_min(steps):
    best = steps.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).min())


def is_dynamic(model):
    return any(getattr(module, "rope_type", None) == "dynamic" for module in model.modules())


def write_goldens(folder, model, header, lengths, count=GREEDY_TOKENS, notes=None, differs_from=None, added=0):
    """header: what goldens.json says beside the cases. differs_from: a base model whose tokens and logits must not be the
    adapter's, else the golden would prove nothing about the adapter. added: how many of the last tokens were added to the
    vocabulary; some must be in each prompt and be drawn."""
    model.eval()
    precise = copy.deepcopy(model).double()
    vocab = header["vocab_size"]
    cases, tensors, noise_max = [], {}, 0.0
    for index, length in enumerate(lengths):
        for attempt in range(400):
            generator = random.Random(seed_of(folder.name, length, attempt))
            prompt = [generator.randrange(vocab) for _ in range(length)]
            if added > 0 and max(prompt) < vocab - added:
                continue
            prompt_logits, steps, tokens = generate(model, prompt, count)
            if added > 0 and max(tokens) < vocab - added:
                continue
            if gap_min(steps) > GAP_MIN and len(set(tokens)) >= DISTINCT_MIN:
                break
        else:
            raise SystemExit(f"{folder.name}: no prompt of length {length} without near ties")
        if not is_dynamic(model):  # there the frequencies of a whole sequence are not those of its steps
            whole = forward_whole(model, prompt + tokens[:-1])
            assert (whole[length - 1 :] - steps).abs().max() < 1e-4, f"{folder.name}: cached and whole forward disagree"
        noise = float((forward_whole(precise, prompt).float() - prompt_logits).abs().max())
        assert noise < LOGIT_NOISE_MAX, f"{folder.name}: float32 noise {noise}"
        noise_max = max(noise, noise_max)
        if differs_from is not None:
            base_logits, _, base_tokens = generate(differs_from, prompt, count)
            assert base_tokens != tokens and (base_logits - prompt_logits).abs().max() > 0.1, f"{folder.name}: no effect"
        case = {"prompt": prompt, "greedy": tokens, "gap_min": round(gap_min(steps), 5)}
        if notes and notes[index]:
            case["note"] = notes[index]
        cases.append(case)
        tensors[f"case{index}.logits"] = prompt_logits.contiguous()
        tensors[f"case{index}.last"] = steps[-1].contiguous()
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    (folder / "goldens.json").write_text(json.dumps(header)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    save_file(tensors, folder / "goldens.safetensors")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{folder.name:28} {parameters:7} parameters  logit std {prompt_logits.std():5.2f}  "
        f"gap {min(case['gap_min'] for case in cases):.4f}  float32 noise {noise_max:.1e}  "
        f"distinct {min(len(set(case['greedy'])) for case in cases)}"
    )
