"""LoRA adapters as peft's save_pretrained writes them, over the checkpoints beside them, and what peft computes with them."""

import json
import math
import shutil
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file

import golden_cases
import golden_checkpoints
from golden_cases import seed_of

PROMPT_LENGTHS = (5, 23)
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]

# name -> (checkpoint, LoraConfig arguments, options). Options: dtype: storage; trains: the input or output embeddings are trained without modules_to_save
# and saved by save_embedding_layers; edit: keys of adapter_config.json changed after
# saving (the weights stay right for them); may_refuse: the words of a refusal that is as good as the golden; rows: by how many the vocabulary
# is resized; saves: save_embedding_layers, "auto" unless given.
ADAPTERS = {
    "plain": ("llama-gqa-linear", {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}, {}),
    "rank3-attention": ("llama-gqa-linear", {"r": 3, "lora_alpha": 7, "target_modules": ATTENTION}, {}),
    "rank5-mlp-bfloat16": ("llama-gqa-linear", {"r": 5, "lora_alpha": 10, "target_modules": MLP}, {"dtype": BF16}),
    "rank12-rslora": (
        "llama-gqa-linear", {"r": 12, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "o_proj", "down_proj"]},
        {"dtype": F16}),
    "patterns": (
        "llama-gqa-linear",
        {"r": 4, "lora_alpha": 6, "target_modules": ATTENTION + ["down_proj"],
         "rank_pattern": {"layers.0.self_attn.k_proj": 2, "k_proj": 5, r"model\.layers\.1\..*(q|o)_proj": 9, "^o_proj": 7},
         "alpha_pattern": {"q_proj": 11, r"layers\.0\..*_proj": 24, "model.layers.1.mlp.down_proj": 3}},
        {}),
    "patterns-rslora": (
        "llama-gqa-linear",
        {"r": 3, "lora_alpha": 4, "use_rslora": True, "target_modules": ["k_proj", "v_proj", "up_proj"],
         "rank_pattern": {"up_proj": 6}, "alpha_pattern": {"v_proj": 9}},
        {}),
    "layers-list": ("llama-gqa-linear", {"r": 4, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1]}, {}),
    "layers-int-pattern": (
        "llama-gqa-linear",
        {"r": 2, "lora_alpha": 5, "target_modules": ["mlp.up_proj", "v_proj"], "layers_to_transform": 0, "layers_pattern": "layers"},
        {}),
    "regex": (
        "llama-gqa-linear",
        {"r": 2, "lora_alpha": 3, "target_modules": r"model\.layers\.(0|7)\.self_attn\.[qo]_proj|.*\.1\.mlp\.(?!gate).*_proj"}, {}),
    "all-linear": ("llama-gqa-linear", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear"},
                   {"dtype": BF16, "edit": {"target_modules": "all-linear"}}),
    "lm-head": ("llama-gqa-linear", {"r": 3, "lora_alpha": 3, "target_modules": ["q_proj", "lm_head"]}, {"dtype": BF16}),
    "embedding": ("llama-gqa-linear", {"r": 3, "lora_alpha": 3, "target_modules": ["v_proj", "embed_tokens"]},
                  {"dtype": BF16}),
    "trained-embedding": ("llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"]}, {"dtype": BF16, "trains": "input"}),
    "qwen2-tied-embedding": ("qwen2", {"r": 3, "lora_alpha": 3, "target_modules": ["v_proj", "embed_tokens"]}, {"dtype": BF16}),
    "qwen2-tied-trained": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"]}, {"dtype": BF16, "trains": "input"}),
    "gpt2-embedding": ("gpt2", {"r": 3, "target_modules": ["c_attn", "wte"], "fan_in_fan_out": True}, {"dtype": BF16}),
    "saved-head": ("llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
                   {"dtype": BF16}),
    "trained-head": ("llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"]}, {"dtype": BF16, "trains": "output"}),
    "saved-norms": ("llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "modules_to_save": ["norm"]}, {}),
    "exclude-list": (
        "llama-gqa-linear",
        {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], "exclude_modules": ["layers.1.self_attn.q_proj"]}, {}),
    "exclude-regex": (
        "llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": MLP, "exclude_modules": r".*layers\.0\.mlp\.(up|down)_proj"},
        {}),
    "bias-all": ("llama-bias", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "up_proj"], "bias": "all"}, {}),
    "bias-all-saved": ("llama-bias", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "all", "modules_to_save": ["v_proj"]},
                       {"dtype": BF16}),
    "bias-lora-only": ("llama-bias", {"r": 2, "lora_alpha": 4, "target_modules": ["k_proj", "down_proj"], "bias": "lora_only"}, {}),
    "lora-bias": ("llama-bias", {"r": 2, "lora_alpha": 3, "target_modules": ["o_proj"], "lora_bias": True},
                  {"may_refuse": ["lora_bias"]}),
    "gpt2-plain": ("gpt2", {"r": 8, "lora_alpha": 16, "target_modules": ["c_attn"], "fan_in_fan_out": True}, {}),
    "gpt2-all-linear": ("gpt2", {"r": 3, "lora_alpha": 4, "target_modules": "all-linear", "fan_in_fan_out": True}, {"dtype": BF16}),
    "gpt2-bias-all": ("gpt2", {"r": 2, "target_modules": ["mlp.c_proj"], "bias": "all", "fan_in_fan_out": True}, {}),
    "qwen2-plain": ("qwen2", {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}, {"dtype": BF16}),
    "qwen2-tied-lm-head": ("qwen2", {"r": 5, "lora_alpha": 5, "target_modules": ["k_proj", "lm_head"]}, {"dtype": BF16}),
    "qwen2-tied-saved-head": (
        "qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["gate_proj"], "modules_to_save": ["lm_head"]}, {"dtype": BF16}),
    "qwen3-plain": ("qwen3", {"r": 6, "lora_alpha": 9, "target_modules": ATTENTION + MLP}, {"dtype": BF16}),
    "dora": ("llama-gqa-linear", {"r": 3, "lora_alpha": 5, "use_dora": True, "target_modules": [*ATTENTION, *MLP],
                                  "rank_pattern": {"o_proj": 2}, "alpha_pattern": {"down_proj": 7}}, {}),
    "dora-lm-head": ("llama-gqa-linear", {"r": 2, "use_dora": True, "use_rslora": True, "target_modules": ["o_proj", "lm_head"]},
                     {"dtype": BF16}),
    "dora-saved-head": (
        "llama-gqa-linear",
        {"r": 2, "lora_alpha": 4, "use_dora": True, "target_modules": ["k_proj", "down_proj"], "modules_to_save": ["lm_head"]}, {"dtype": F16}),
    "dora-zeros": ("llama-gqa-linear", {"r": 2, "use_dora": True, "target_modules": ["q_proj", "o_proj", "down_proj"]}, {"dtype": F16}),
    "dora-bias-all": (
        "llama-bias",
        {"r": 2, "lora_alpha": 4, "use_dora": True, "bias": "all", "target_modules": ["q_proj", "o_proj", "up_proj", "down_proj"]}, {}),
    "gpt2-dora": ("gpt2", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": "all-linear", "fan_in_fan_out": True},
                  {"dtype": BF16}),
    "qwen2-tied-dora": ("qwen2", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["q_proj", "lm_head"]}, {"dtype": BF16}),
    "mistral-plain": ("mistral", {"r": 4, "lora_alpha": 8, "target_modules": ["k_proj", "v_proj", "down_proj"]}, {"dtype": BF16}),
    "resized-plain": ("llama-gqa-linear", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}, {"dtype": BF16, "rows": 7}),
    "qwen2-resized-embedding": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "embed_tokens"]}, {"dtype": BF16, "rows": 7}),
    "qwen3-resized-tokens": (
        "qwen3-tied-bias", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "trainable_token_indices": [3, *range(131, 138)]},
        {"dtype": F16, "rows": 7}),
    "shrunk-plain": ("qwen2-window", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}, {"dtype": BF16, "rows": -11}),
    "shrunk-lm-head": ("llama-gqa-linear", {"r": 2, "lora_alpha": 2, "target_modules": ["q_proj", "lm_head"]},
                       {"dtype": BF16, "rows": -11, "saves": False}),
}


@torch.no_grad()
def resize(model, rows, *seed):
    """The model with so many more rows of its embedding and its head, whose values follow from the seed."""
    vocabulary = model.config.get_text_config().vocab_size
    model.resize_token_embeddings(vocabulary + rows, mean_resizing=False)
    for index, layer in enumerate([model.get_input_embeddings(), model.get_output_embeddings()]):
        if rows > 0:
            added = layer.weight[vocabulary:]
            normal = torch.randn(added.shape, generator=torch.Generator().manual_seed(seed_of(*seed, index)))
            added.copy_(normal * layer.weight[:vocabulary].std() * 1.2)
    return model


def load_base(folder, options, *seed):
    model = golden_checkpoints.load(folder)
    return resize(model, options["rows"], *seed) if "rows" in options else model


@torch.no_grad()
def fill(model, name, dtype):
    """Updates about as large as what they are added to; every other trained parameter (biases, saved modules) moves as well."""
    scaling = {path: module.scaling["default"] for path, module in model.named_modules() if isinstance(module, LoraLayer)}
    for path, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        normal = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed_of(name, path)))
        if "lora_embedding_A" in path or "lora_A" in path:
            parameter.copy_(normal if "embedding" in path else normal / math.sqrt(parameter.shape[1]))
        elif "lora_embedding_B" in path or "lora_B" in path:
            scale = 0.8 / (scaling[path.split(".lora_")[0]] * math.sqrt(parameter.shape[-1])) if parameter.dim() == 2 else 0.3
            parameter.copy_(normal * scale)
        else:
            parameter.add_(normal * 0.3)
        if name == "dora-zeros" and "lora_magnitude" in path:
            parameter[::3] = 0
        parameter.copy_(parameter.to(dtype))


def ordered(value):
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], str) else value


def save(model, folder, checkpoint, arguments, options):
    """save_pretrained, then: the base's name instead of a path, lists sorted, patterns in the order they were given (peft sorts
    them, and their order counts), and no model card."""
    for path, parameter in model.named_parameters():
        if parameter.requires_grad or ("rows" in options and ("embed_tokens" in path or "lm_head" in path)):
            parameter.data = parameter.data.to(options.get("dtype", F32))
    model.save_pretrained(folder, save_embedding_layers=options.get("saves", "trains" in options or "auto"))
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    config = {key: ordered(value) for key, value in json.loads(path.read_text()).items()}
    config["base_model_name_or_path"] = checkpoint
    config.update({key: arguments[key] for key in ("rank_pattern", "alpha_pattern") if key in arguments})
    config.update(options.get("edit", {}))
    path.write_text(json.dumps(config, indent=2) + "\n")


def make(folder, checkpoints, checkpoint, arguments, options):
    """An adapter folder without goldens."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = LoraConfig(task_type="CAUSAL_LM", **arguments)
    model = get_peft_model(load_base(checkpoints / checkpoint, options, folder.name), config)
    if "trains" in options:  # as training scripts do that let it learn without modules_to_save
        getattr(model, f"get_{options['trains']}_embeddings")().requires_grad_(True)
    fill(model, folder.name, options.get("dtype", F32))
    save(model, folder, checkpoint, arguments, options)


def check_loaded(model, folder):
    """peft only warns about missing or unknown tensors; here each must arrive."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for key, stored in load_file(folder / "adapter_model.safetensors").items():
        candidates = [key + ".default.weight", key.replace(".weight", ".default.weight"), key + ".default", key.replace(".bias", ".default.bias"), key]
        parts = key.split(".")
        candidates += [".".join([*parts[:i], "modules_to_save.default", *parts[i:]]) for i in range(1, len(parts))]
        assert any(c in parameters and torch.equal(parameters[c].float(), stored.float()) for c in candidates), f"{folder.name}: {key}"


def write_adapter(folder, checkpoints, checkpoint, arguments, options):
    make(folder, checkpoints, checkpoint, arguments, options)
    base = load_base(checkpoints / checkpoint, options, "other rows")  # those of the file replace them
    model = PeftModel.from_pretrained(load_base(checkpoints / checkpoint, options, "other rows"), folder).float().eval()
    check_loaded(model, folder)
    header = {"base": checkpoint, "vocab_size": base.config.vocab_size}
    if "may_refuse" in options:
        header["may_refuse"] = options["may_refuse"]
    lengths = (5, 9) if "rows" in options else PROMPT_LENGTHS
    golden_cases.write_goldens(folder, model, header, lengths, differs_from=base, added=max(options.get("rows", 0), 0))


def write_all(folder, checkpoints, names):
    warnings.simplefilter("ignore")
    for name, (checkpoint, arguments, options) in ADAPTERS.items():
        if not names or name in names:
            write_adapter(folder / name, checkpoints, checkpoint, arguments, options)
