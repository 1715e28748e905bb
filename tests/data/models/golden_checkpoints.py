"""Tiny random checkpoints of every family, as save_pretrained writes them, some rewritten to the older generation of keys."""

import json
import math
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import golden_cases
from golden_cases import seed_of

PROMPT_LENGTHS = (1, 5, 17, 40)
LLAMA_IDS = {"bos_token_id": 1, "eos_token_id": 2}
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def llama(model_type="llama", **keys):
    defaults = {"vocab_size": 131, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 52}
    return {"model_type": model_type, "num_hidden_layers": 2, "max_position_embeddings": 256, **defaults, **LLAMA_IDS, **keys}


def gpt2(**keys):
    defaults = {"n_embd": 36, "n_head": 3, "n_layer": 2, "n_positions": 128, "vocab_size": 257}
    return {"model_type": "gpt2", **defaults, "bos_token_id": 0, "eos_token_id": 0, **keys}


def rope(rope_type, theta=10000.0, **keys):
    return {"rope_type": rope_type, "rope_theta": theta, **keys}


# name -> (config, storage dtype, options). Options: old: rope keys of the older generation, given as the names its dict uses for
# the type ("type", "rope_type"); drop: keys that the file lacks; shard: largest shard; bare: names of the first GPT-2 files;
# lengths, notes: cases other than the usual.
CHECKPOINTS = {
    "gpt2": (gpt2(), F32, {}),
    "gpt2-untied": (
        gpt2(n_embd=40, n_head=2, n_inner=92, vocab_size=113, tie_word_embeddings=False, activation_function="gelu",
             scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-3),
        BF16, {"old": ()}),
    "gpt2-bare-names": (gpt2(n_embd=24, n_head=2, n_positions=96, vocab_size=97), F16,
                        {"old": (), "bare": True, "lengths": (5, 17)}),
    "llama-mha": (llama(num_key_value_heads=4), F32,
                  {"old": (), "drop": ("head_dim", "num_key_value_heads", "attention_bias", "mlp_bias", "rms_norm_eps")}),
    "llama-gqa-linear": (
        llama(hidden_size=60, num_attention_heads=6, num_key_value_heads=3, head_dim=12, intermediate_size=92, rms_norm_eps=1e-5,
              rope_parameters=rope("linear", factor=2.5)),
        BF16, {"old": ("type",)}),
    "llama-dynamic": (
        llama(hidden_size=40, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=48,
              rope_parameters=rope("dynamic", factor=3.0)),
        F16, {"lengths": (1, 5, 17, 40, 60),
              "notes": ["beyond 48 while generating"] * 4 + ["the prompt is beyond 48"]}),
    "llama-llama3": (
        llama(rope_parameters=rope("llama3", 5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=32)),
        BF16, {}),
    "llama-llama3-old": (
        llama(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, vocab_size=97,
              rope_parameters=rope("llama3", 800.0, factor=4.0, low_freq_factor=1.5, high_freq_factor=6.0,
                                   original_max_position_embeddings=64)),
        F16, {"old": ("rope_type",), "lengths": (5, 40)}),
    "llama-yarn": (llama(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64)), BF16,
                   {"old": ("type", "rope_type")}),
    "llama-yarn-mscale": (
        llama(hidden_size=40, num_attention_heads=2, num_key_value_heads=2, vocab_size=97,
              rope_parameters=rope("yarn", 3000.0, factor=8.0, original_max_position_embeddings=32, mscale=0.707,
                                   mscale_all_dim=1.1, beta_fast=4.0, beta_slow=0.5, truncate=False)),
        BF16, {}),
    "llama-yarn-factor": (
        llama(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, vocab_size=97, max_position_embeddings=128,
              rope_parameters=rope("yarn", factor=4.0, attention_factor=1.3, beta_fast=8.0)),
        F16, {"old": ("type",), "drop": ("original_max_position_embeddings",), "lengths": (5, 40)}),
    "llama-bias": (llama(hidden_size=60, num_attention_heads=3, num_key_value_heads=3, attention_bias=True, mlp_bias=True), F16, {}),
    "llama-mqa-tied": (
        llama(hidden_size=40, num_attention_heads=2, num_key_value_heads=1, head_dim=24, vocab_size=331, intermediate_size=60,
              tie_word_embeddings=True),
        BF16, {}),
    "mistral": (llama("mistral", sliding_window=7), BF16, {"old": ()}),
    "mistral-no-window": (
        llama("mistral", hidden_size=36, num_attention_heads=3, num_key_value_heads=1, vocab_size=97, sliding_window=None),
        BF16, {"lengths": (5, 40)}),
    "qwen2": (
        llama("qwen2", hidden_size=60, num_attention_heads=5, num_key_value_heads=1, tie_word_embeddings=True, max_window_layers=1,
              sliding_window=5, use_sliding_window=False, intermediate_size=44),
        F32, {"old": (), "keep": {"sliding_window": 5}, "drop": ("layer_types",)}),
    "qwen2-window": (
        llama("qwen2", hidden_size=40, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=3, vocab_size=97,
              use_sliding_window=True, sliding_window=6, max_window_layers=1, intermediate_size=44),
        BF16, {"old": (), "drop": ("layer_types",)}),
    "qwen2-layer-types": (
        llama("qwen2", hidden_size=36, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, vocab_size=97,
              use_sliding_window=True, sliding_window=9, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        F16, {}),
    "qwen3": (
        llama("qwen3", hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=20, rms_norm_eps=1e-5,
              rope_parameters=rope("default", 1000000.0)),
        BF16, {"shard": 24_000}),
    "qwen3-tied-bias": (
        llama("qwen3", hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=14, attention_bias=True,
              tie_word_embeddings=True),
        F16, {"old": (), "drop": ("layer_types",)}),
}


@torch.no_grad()
def fill(model, name):
    """Random weights that keep activations near 1 and spread the logits; norms and biases differ from their neutral values."""
    hidden, tied = model.config.hidden_size, model.config.tie_word_embeddings
    for path, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(seed_of(name, path))
        normal = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            scale = 0.3 if path.endswith("bias") else 0.25
            parameter.copy_(normal * scale + (0.0 if path.endswith("bias") else 1.0))
            if tied and path in ("model.norm.weight", "transformer.ln_f.weight"):
                parameter *= torch.randn(parameter.shape, generator=generator).sign()  # else a tied head repeats its last token
        elif "lm_head" in path or (tied and ("wte" in path or "embed_tokens" in path)):
            parameter.copy_(normal * 3.0 / math.sqrt(hidden))
        elif "wte" in path or "embed_tokens" in path or "wpe" in path:
            parameter.copy_(normal * (0.5 if "wpe" in path else 1.0))
        else:
            fan_in = parameter.shape[0] if model.config.model_type == "gpt2" else parameter.shape[1]
            gain = 1.7 if any(part in path for part in ("q_proj", "k_proj", "c_attn")) else 1.3
            parameter.copy_(normal * gain / math.sqrt(fan_in))


def to_older_keys(config, type_names):
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.45.2"
    parameters = config.pop("rope_parameters", None)
    if parameters is None:
        return
    config["rope_theta"] = parameters.pop("rope_theta")
    rope_type = parameters.pop("rope_type")
    config["rope_scaling"] = {**{key: rope_type for key in type_names}, **parameters} if type_names else None


def rewrite_config(folder, options):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if "old" in options:
        to_older_keys(config, options["old"])
    config.update(options.get("keep", {}))
    for key in options.get("drop", ()):
        config.pop(key, None)
        for name in ("rope_scaling", "rope_parameters"):
            (config.get(name) or {}).pop(key, None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def to_bare_names(folder, positions):
    """The first GPT-2 files: no `transformer.` in front, and the causal mask stored beside the weights."""
    weights = {key.removeprefix("transformer."): value for key, value in load_file(folder / "model.safetensors").items()}
    for layer in sorted({key.split(".")[1] for key in weights if key.startswith("h.")}):
        weights[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, positions, positions, dtype=torch.uint8))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder):
    """As the engine's strict mode computes: whatever the storage, float32 and plain attention."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def write_checkpoint(folder, config, dtype, options):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = dict(config)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    fill(model, folder.name)
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": options["shard"]} if "shard" in options else {}))
    if options.get("bare"):
        to_bare_names(folder, model.config.n_positions)
    rewrite_config(folder, options)
    loaded = load(folder)
    for path, parameter in model.named_parameters():
        assert torch.equal(loaded.get_parameter(path), parameter.float()), f"{folder.name}: {path} did not survive saving"
    header = {"family": loaded.config.model_type, "dtype": str(dtype).removeprefix("torch."), "vocab_size": loaded.config.vocab_size}
    golden_cases.write_goldens(folder, loaded, header, options.get("lengths", PROMPT_LENGTHS), notes=options.get("notes"))


def write_all(folder, names):
    for name, (config, dtype, options) in CHECKPOINTS.items():
        if not names or name in names:
            write_checkpoint(folder / name, config, dtype, options)
