"""Runs an encoder or a classifier on token sequences and writes goldens.json + goldens.safetensors; used by golden_encoders.py and
golden_encoder_adapters.py.

The sequences run as one padded batch; each alone, in float32 and in float64, must give the same.
"""

import copy
import json
import random

import torch
from safetensors.torch import save_file

from golden_cases import seed_of

ALONE_NOISE_MAX = 2e-5  # padded batch against each sequence alone
DOUBLE_NOISE_MAX = 5e-5  # float32 against float64
EFFECT_MIN = 1e-2  # what zeroing a tensor must change


def inner(model):
    """The model inside the head, or the model itself where it is bare."""
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    return getattr(base, base.base_model_prefix, base)


def make_cases(name, config, lengths):
    """Sequences without the padding id, as RoBERTa and its kin count positions by ids that are not padding."""
    ids = [token for token in range(config.vocab_size) if token != config.pad_token_id]
    cases = []
    for index, length in enumerate(lengths):
        generator = random.Random(seed_of("encoder", name, length))
        case = {"tokens": [generator.choice(ids) for _ in range(length)]}
        if getattr(config, "type_vocab_size", 0) > 1:
            split = length if index % 2 == 0 and index != len(lengths) - 1 else length // 2
            case["types"] = [int(position >= split) for position in range(length)]
        cases.append(case)
    if len(lengths) > 2 and "types" in cases[2]:
        cases[2]["types"] = [generator.randrange(2) for _ in cases[2]["tokens"]]
    return cases


@torch.no_grad()
def forward(model, cases):
    """Per case: hidden [tokens, hidden], and logits where the model has a head: [labels], or [tokens, labels or vocab]."""
    longest = max(len(case["tokens"]) for case in cases)
    pad = inner(model).config.pad_token_id

    def padded(rows, value):
        return torch.tensor([row + [value] * (longest - len(row)) for row in rows])

    inputs = {"input_ids": padded([case["tokens"] for case in cases], pad),
              "attention_mask": padded([[1] * len(case["tokens"]) for case in cases], 0)}  # fmt: skip
    if "types" in cases[0]:
        inputs["token_type_ids"] = padded([case["types"] for case in cases], 0)
    hidden = []
    hook = inner(model).register_forward_hook(lambda module, arguments, output: hidden.append(output[0]))
    logits = getattr(model(**inputs), "logits", None)
    hook.remove()
    results = []
    for index, case in enumerate(cases):
        count = len(case["tokens"])
        result = {"hidden": hidden[0][index, :count]}
        if logits is not None:
            result["logits"] = logits[index] if logits.dim() == 2 else logits[index, :count]
        results.append(result)
    return results


def difference(left, right):
    return max(float((a[key] - b[key]).abs().max()) for a, b in zip(left, right, strict=True) for key in a)


def has_no_effect(name, names, head):
    """A bias on keys adds the same to all scores of a query, and softmax drops it, unless positions look at keys as well (p2c). The
    pooler of a bare encoder is for heads. A decoder with a bias of its own replaces cls.predictions.bias."""
    if name.endswith((".key.bias", "k_lin.bias", "attn.k.bias", "pos_key_proj.bias")):
        return True
    if name.endswith(".key_proj.bias"):
        prefix = name.removesuffix("key_proj.bias")
        return prefix + "pos_key_proj.bias" in names and prefix + "pos_query_proj.bias" not in names
    if name == "cls.predictions.bias":
        return "cls.predictions.decoder.bias" in names
    return "pooler." in name and head is None


@torch.no_grad()
def check_effects(name, model, cases, results, parameters, head):
    """Zeroing any tensor must change the results, else the goldens would prove nothing about it."""
    smallest = (float("inf"), "")
    names = {path for path, _ in parameters}
    for path, parameter in parameters:
        kept = parameter.clone()
        parameter.zero_()
        effect = difference(results, forward(model, cases))
        parameter.copy_(kept)
        if has_no_effect(path, names, head):
            assert effect < DOUBLE_NOISE_MAX, f"{name}: {path} has an effect"
            continue
        assert effect > EFFECT_MIN, f"{name}: zeroing {path} changes no more than {effect}"
        smallest = min(smallest, (effect, path))
    return smallest


def write_goldens(folder, model, header, cases, parameters):
    """header: what goldens.json says beside the cases. parameters: (name, parameter) of the tensors that must have an effect."""
    results = forward(model, cases)
    head = results[0].get("logits")
    alone = [forward(model, [case])[0] for case in cases]
    alone_noise = difference(results, alone)
    double = copy.deepcopy(model).double()
    noise = difference(results, [forward(double, [case])[0] for case in cases])
    assert alone_noise < ALONE_NOISE_MAX and noise < DOUBLE_NOISE_MAX, f"{folder.name}: noise {alone_noise} alone, {noise} in float32"
    effect, path = check_effects(folder.name, model, cases, results, parameters, head)
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    (folder / "goldens.json").write_text(json.dumps(header)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    tensors = {f"case{index}.{key}": value.contiguous() for index, result in enumerate(results) for key, value in result.items()}
    save_file(tensors, folder / "goldens.safetensors")
    logits = torch.cat([result["logits"].reshape(-1) for result in results]) if head is not None else torch.zeros(2)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder.name:28} {size:6} bytes  logit std {logits.std():5.2f}  noise {alone_noise:.0e} alone, {noise:.0e} in float32  "
          f"least effect {effect:.2f} {path}")  # fmt: skip
    return results
