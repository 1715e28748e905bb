"""Generators whose weights are not stored, and adapters on them, in checkpoints/ and adapters/: config.json and adapter_config.json as
save_pretrained writes them, tensors.json in place of the weights, and goldens."""

import json
import math
import shutil
import tempfile
import warnings
from pathlib import Path

import transformers
from peft import LoraConfig, PeftModel, get_peft_model

import golden_adapters
import golden_cases
import golden_encoder_adapters
import golden_encoders
import golden_weights
from golden_weights import SQRT3, rounded

LENGTHS = (1, 5, 17, 40)
LENGTHS_SHORT = (5, 17)
ADAPTER_LENGTHS = (5, 17)
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def decoder(hidden, heads, kv_heads, layers=2, **keys):
    return {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_hidden_layers": layers,
            "vocab_size": 67, "intermediate_size": hidden + 12, "max_position_embeddings": 160, **IDS, **keys}  # fmt: skip


def gemma2(**keys):
    """Caps and scales that show beside scores and logits of these sizes."""
    return decoder(40, 4, 2, 3, head_dim=12, query_pre_attn_scalar=20, sliding_window=7, attn_logit_softcapping=3.0,
                   final_logit_softcapping=8.0, **keys)  # fmt: skip


def gemma3(layers=4, **keys):
    # A pattern of three layers, which older configs say with a number.
    types = ["full_attention" if (layer + 1) % 3 == 0 else "sliding_attention" for layer in range(layers)]
    rope = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 2000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}  # fmt: skip
    return decoder(40, 4, 2, layers, head_dim=14, query_pre_attn_scalar=20, sliding_window=7, layer_types=types, rope_parameters=rope,
                   rms_norm_eps=1e-3, **keys)  # fmt: skip


VISION = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
LONGROPE = {"rope_type": "longrope", "rope_theta": 300.0, "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0], "partial_rotary_factor": 0.75}  # fmt: skip

GPT_OSS_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 40}  # fmt: skip


def old_gemma3(config):
    """As transformers 4 wrote it."""
    rope = config.pop("rope_parameters")
    config.pop("layer_types")
    config["sliding_window_pattern"] = 3
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = {"rope_type": "linear", "factor": rope["full_attention"]["factor"]}
    config["torch_dtype"] = config.pop("dtype")


def old_neox(config):
    rope = config.pop("rope_parameters")
    config["rotary_pct"] = rope["partial_rotary_factor"]
    config["rotary_emb_base"] = rope["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")


# name -> (class, config, options). Options: old: turns config.json into what older versions wrote; lengths of prompts; fused: the weights of
# experts as transformers 5 has them in memory, instead of those of each expert.
CHECKPOINTS = {
    "gemma": ("GemmaForCausalLM", decoder(36, 3, 1, head_dim=16, hidden_act="gelu", rms_norm_eps=1e-4), {}),
    "gemma2": ("Gemma2ForCausalLM", gemma2(), {}),
    "gemma3": ("Gemma3ForCausalLM", gemma3(), {}),
    "gemma3-old": ("Gemma3ForCausalLM", gemma3(), {"old": old_gemma3, "lengths": LENGTHS_SHORT}),
    "gemma3-nested": (
        "Gemma3ForConditionalGeneration",
        {"text_config": gemma3(3), "vision_config": VISION, "mm_tokens_per_image": 4, "image_token_index": 66, "boi_token_index": 65,
         "eoi_token_index": 64},
        {"lengths": LENGTHS_SHORT}),
    "phi3": ("Phi3ForCausalLM", decoder(36, 3, 1, sliding_window=9), {}),
    "phi3-longrope": (
        "Phi3ForCausalLM",
        decoder(64, 4, 2, original_max_position_embeddings=84, max_position_embeddings=200, rope_parameters=LONGROPE,
                tie_word_embeddings=True),
        {"lengths": (5, 86)}),
    "olmo2": ("Olmo2ForCausalLM", decoder(40, 4, 2, rms_norm_eps=1e-3), {}),
    "smollm3": ("SmolLM3ForCausalLM", decoder(40, 4, 1, 4, no_rope_layer_interval=2, rope_parameters={"rope_theta": 500.0}), {}),
    "granite": (
        "GraniteForCausalLM",
        decoder(40, 4, 2, embedding_multiplier=1.7, attention_multiplier=0.21, residual_multiplier=0.6, logits_scaling=1.3,
                tie_word_embeddings=True, attention_bias=True),
        {}),
    "gpt-neox": (
        "GPTNeoXForCausalLM",
        decoder(48, 4, 4, rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5}, layer_norm_eps=1e-3), {}),
    "gpt-neox-sequential": (
        "GPTNeoXForCausalLM",
        decoder(32, 2, 2, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast",
                rope_parameters={"rope_theta": 300.0, "partial_rotary_factor": 0.25}),
        {"old": old_neox, "lengths": LENGTHS_SHORT}),
    "starcoder2": ("Starcoder2ForCausalLM", decoder(36, 3, 1, sliding_window=11, norm_epsilon=1e-3), {}),
    "stablelm": (
        "StableLmForCausalLM",
        decoder(48, 4, 2, rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5}, layer_norm_eps=1e-3), {}),
    "stablelm-parallel": (
        "StableLmForCausalLM",
        decoder(48, 3, 3, use_parallel_residual=True, use_qkv_bias=True,
                rope_parameters={"rope_theta": 300.0, "partial_rotary_factor": 0.25}),
        {"lengths": LENGTHS_SHORT}),
    "cohere": ("CohereForCausalLM", decoder(40, 4, 2, logit_scale=0.6, rope_parameters={"rope_theta": 500.0}, layer_norm_eps=1e-3), {}),
    "cohere2": (
        "Cohere2ForCausalLM",
        decoder(40, 4, 2, 3, logit_scale=0.6, rope_parameters={"rope_theta": 500.0}, layer_norm_eps=1e-3, sliding_window=7,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        {"lengths": LENGTHS_SHORT}),
    "mixtral": ("MixtralForCausalLM", decoder(40, 4, 2, num_local_experts=5, num_experts_per_tok=2, sliding_window=9), {}),
    "mixtral-fused": (
        "MixtralForCausalLM", decoder(36, 3, 1, num_local_experts=4, num_experts_per_tok=3), {"fused": True, "lengths": LENGTHS_SHORT}),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        decoder(40, 4, 2, 4, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28,
                mlp_only_layers=[1], use_sliding_window=True, sliding_window=7, max_window_layers=2),
        {}),
    "qwen2-moe-fused": (
        "Qwen2MoeForCausalLM",
        decoder(36, 3, 1, 2, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=18, shared_expert_intermediate_size=22,
                norm_topk_prob=True, qkv_bias=False),
        {"fused": True, "lengths": LENGTHS_SHORT}),
    "qwen3-moe": (
        "Qwen3MoeForCausalLM",
        decoder(40, 4, 2, 3, head_dim=12, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True,
                decoder_sparse_step=2),
        {}),
    "qwen3-moe-fused": (
        "Qwen3MoeForCausalLM",
        decoder(36, 3, 1, head_dim=14, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=22, attention_bias=True,
                use_sliding_window=True, sliding_window=9),
        {"fused": True, "lengths": LENGTHS_SHORT}),
    "olmoe": ("OlmoeForCausalLM", decoder(40, 4, 2, num_experts=6, num_experts_per_tok=4, rms_norm_eps=1e-3), {}),
    "gpt-oss": (
        "GptOssForCausalLM",
        decoder(40, 4, 2, 3, head_dim=12, num_local_experts=5, num_experts_per_tok=2, sliding_window=7, swiglu_alpha=1.3,
                swiglu_limit=1.5, rope_parameters=GPT_OSS_ROPE),
        {}),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TOKENS = [5, 61, 62, 63, 9, 30, 31, 2, 44, 17, 50, 12]  # out of order

# name -> (checkpoint, LoraConfig arguments)
ADAPTERS = {
    "gemma-norms": ("gemma", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "down_proj"], "modules_to_save": ["norm"]}),
    "gemma2-norms": (
        "gemma2",
        {"r": 2, "lora_alpha": 4, "target_modules": [*ATTENTION, "up_proj"], "modules_to_save": ["post_feedforward_layernorm"]}),
    "gemma3-attention": ("gemma3", {"r": 3, "lora_alpha": 5, "target_modules": ATTENTION}),
    "gemma3-nested-text": (
        "gemma3-nested", {"r": 2, "lora_alpha": 3, "target_modules": r".*language_model.*\.(q_proj|v_proj|gate_proj)"}),
    "phi3-fused": ("phi3", {"r": 3, "lora_alpha": 5, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    "phi3-longrope-saved": (
        "phi3-longrope", {"r": 2, "lora_alpha": 3, "target_modules": ["gate_up_proj"], "modules_to_save": ["qkv_proj"]}),
    "olmo2-plain": ("olmo2", {"r": 3, "lora_alpha": 5, "target_modules": [*ATTENTION, "down_proj"]}),
    "smollm3-plain": ("smollm3", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "k_proj", "gate_proj"]}),
    "granite-plain": ("granite", {"r": 2, "lora_alpha": 3, "target_modules": [*ATTENTION, "down_proj"]}),
    "gpt-neox-bias-all": (
        "gpt-neox",
        {"r": 3, "lora_alpha": 5, "bias": "all", "target_modules": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]}),
    "starcoder2-bias": ("starcoder2", {"r": 2, "lora_alpha": 3, "bias": "lora_only", "target_modules": ["q_proj", "c_fc", "c_proj"]}),
    "stablelm-plain": ("stablelm", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "up_proj"]}),
    "gemma-embedding": ("gemma", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "embed_tokens"]}),
    "gemma3-embedding": ("gemma3", {"r": 3, "lora_alpha": 5, "target_modules": ["v_proj", "embed_tokens"]}),
    "gemma3-dora-embedding": (
        "gemma3", {"r": 3, "lora_alpha": 5, "use_dora": True, "target_modules": ["v_proj", "embed_tokens"]}),
    "smollm3-dora-embedding": ("smollm3", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["q_proj", "embed_tokens"]}),
    "smollm3-tokens": ("smollm3", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "trainable_token_indices": TOKENS}),
    "granite-tokens": ("granite", {"r": 2, "lora_alpha": 3, "target_modules": ["v_proj"], "trainable_token_indices": TOKENS}),
    "olmo2-tokens": (
        "olmo2",
        {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": TOKENS, "lm_head": TOKENS[4:]}}),
    "phi3-saved-embedding": ("phi3", {"r": 2, "lora_alpha": 3, "target_modules": ["o_proj"], "modules_to_save": ["embed_tokens"]}),
    "granite-saved-embedding": ("granite", {"r": 2, "lora_alpha": 3, "target_modules": ["o_proj"], "modules_to_save": ["embed_tokens"]}),
    "granite-saved-both": (
        "granite", {"r": 2, "lora_alpha": 3, "target_modules": ["o_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "mixtral-dora": ("mixtral", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["q_proj", "o_proj"]}),
    "mixtral-attention": ("mixtral", {"r": 3, "lora_alpha": 5, "target_modules": ATTENTION}),
    "qwen2-moe-linear": ("qwen2-moe", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear"}),
    "qwen3-moe-parameters": (
        "qwen3-moe",
        {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"],
         "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    "olmoe-parameters": ("olmoe", {"r": 3, "lora_alpha": 5, "target_modules": ["k_proj"], "target_parameters": ["experts.down_proj"]}),
    "gpt-oss-attention": ("gpt-oss", {"r": 3, "lora_alpha": 5, "target_modules": ATTENTION}),
    "cohere-plain": ("cohere", {"r": 3, "lora_alpha": 5, "target_modules": [*ATTENTION, "down_proj"]}),
    "cohere2-plain": ("cohere2", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "k_proj", "up_proj"]}),
    "gemma2-dora": ("gemma2", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["v_proj", "o_proj", "down_proj"]}),
    "phi3-dora": ("phi3", {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj"]}),
    "gpt-neox-dora": (
        "gpt-neox",
        {"r": 2, "lora_alpha": 3, "use_dora": True, "target_modules": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]}),
    "smollm3-layers": (
        "smollm3",
        {"r": 2, "lora_alpha": 3, "use_rslora": True, "target_modules": [*ATTENTION, "up_proj"], "layers_to_transform": [1, 2],
         "layers_pattern": ["layers"], "rank_pattern": {"layers.1.self_attn.k_proj": 4}, "alpha_pattern": {"up_proj": 5}}),
    "phi3-patterns": (
        "phi3",
        {"r": 2, "lora_alpha": 3, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"],
         "exclude_modules": r".*layers\.0\.mlp\.down_proj", "rank_pattern": {"qkv_proj": 3}, "alpha_pattern": {r"layers\.1\..*": 7}}),
    "gpt-neox-lora-bias": (
        "gpt-neox",
        {"r": 2, "lora_alpha": 3, "lora_bias": True, "target_modules": ["query_key_value", "dense", "dense_4h_to_h"],
         "exclude_modules": ["layers.0.attention.dense"], "alpha_pattern": {"query_key_value": 5}}),
}

# By how many rows the vocabulary is resized. All rows of the embedding and the head are the adapter's own.
RESIZED_ADAPTERS = {
    "gemma-resized-both": ("gemma", 5, {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "phi3-resized-both": ("phi3", 5, {"r": 2, "lora_alpha": 3, "target_modules": ["o_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "olmo2-resized-embedding": ("olmo2", 5, {"r": 2, "lora_alpha": 3, "target_modules": ["v_proj", "embed_tokens", "lm_head"]}),
    "granite-resized-embedding": ("granite", -9, {"r": 2, "lora_alpha": 3, "target_modules": ["v_proj", "embed_tokens"]}),
    "smollm3-resized-embedding": (
        "smollm3", -9, {"r": 2, "lora_alpha": 3, "target_modules": ["v_proj"], "modules_to_save": ["embed_tokens"]}),
}

# As versions before transformers 5 wrote them, with a pair of tensors for each expert's modules; peft converts them.
OLD_ADAPTERS = {
    "mixtral-experts": ("mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "w1", "w2", "w3"]}),
}


def spread(name, shape, config):
    """offset and scale as golden_weights.spread, for models that generate: with a tied head the signs of the last norm differ, as otherwise
    each token would predict itself."""
    text = config.get("text_config", config)
    base = 0.0 if text["model_type"].startswith("gemma") else 1.0
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    if name.endswith("sinks"):
        return 0, 1.5
    if len(shape) == 2 and name.endswith("_bias"):
        return 0, 0.4
    if len(shape) == 1 and not name.endswith("bias"):
        is_last = name.endswith(("model.norm.weight", "final_layer_norm.weight"))
        return (base - 1.0, 1.7) if tied and is_last else (base, 0.35)
    if "embed_tokens" in name or "embed_in" in name:
        return 0, rounded((2.5 if tied else 1.0) * SQRT3 / (math.sqrt(shape[1]) if tied else 1.0))
    if len(shape) == 3:
        return 0, rounded(1.3 * SQRT3 / math.sqrt(shape[1 if text["model_type"] == "gpt_oss" else 2]))
    if name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight")):
        return 0, rounded(2.5 * SQRT3 / math.sqrt(shape[1]))
    if "lm_head" in name or "embed_out" in name:
        return 0, rounded(3.0 * SQRT3 / math.sqrt(shape[1]))
    return golden_weights.spread(name, shape)


def load(folder, class_name):
    """The model as golden_checkpoints.load gives it, from a folder without weights."""
    with tempfile.TemporaryDirectory() as temporary:
        golden_encoders.materialize(folder, Path(temporary))
        model, info = golden_encoders.load(temporary, class_name)
    assert not any(info.values()), f"{folder.name}: {info}"
    return model


def write_checkpoint(folder, class_name, config, options):
    golden_encoders.make_folder(folder)
    with tempfile.TemporaryDirectory() as temporary:
        model_class = getattr(transformers, class_name)
        model_class(model_class.config_class(**config)).save_pretrained(temporary, save_original_format="fused" not in options)
        saved = json.loads((Path(temporary) / "config.json").read_text())
        shapes = golden_weights.shapes_of(Path(temporary) / "model.safetensors")
    golden_weights.write_spread(folder, shapes, lambda name, shape: spread(name, shape, saved))
    if "old" in options:
        options["old"](saved)
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    model = load(folder, class_name)
    text = model.config.get_text_config()
    header = {"family": model.config.model_type, "dtype": "float32", "vocab_size": text.vocab_size}
    golden_cases.write_goldens(folder, model, header, options.get("lengths", LENGTHS))


def write_adapter(folder, checkpoint, load_base, arguments, added=0):
    golden_encoders.make_folder(folder)
    config = {"task_type": "CAUSAL_LM", **arguments}
    golden_encoder_adapters.make_tensors(folder, get_peft_model(load_base(), LoraConfig(**config)), checkpoint, arguments)
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(folder / "adapter_config.json", temporary)
        golden_weights.write_safetensors(folder, Path(temporary) / "adapter_model.safetensors")
        model = PeftModel.from_pretrained(load_base(), temporary).eval()
        golden_adapters.check_loaded(model, Path(temporary))
    base = load_base()
    header = {"base": checkpoint, "vocab_size": base.config.get_text_config().vocab_size}
    golden_cases.write_goldens(folder, model, header, ADAPTER_LENGTHS, differs_from=base, added=added)


def write_old_adapter(folder, checkpoints, checkpoint, arguments):
    golden_encoders.make_folder(folder)
    class_name = CHECKPOINTS[checkpoint][0]
    rank = arguments["r"]
    shapes = {}
    for tensor in json.loads((checkpoints / checkpoint / "tensors.json").read_text())["tensors"]:
        path = tensor["name"].removesuffix(".weight")
        if path.rsplit(".", 1)[-1] in arguments["target_modules"]:
            outputs, inputs = tensor["shape"]
            shapes[f"base_model.model.{path}.lora_A.weight"] = [rank, inputs]
            shapes[f"base_model.model.{path}.lora_B.weight"] = [outputs, rank]
    scale = arguments["lora_alpha"] / rank
    scalings = {name.split(".lora_")[0]: scale for name in shapes}
    golden_weights.write_spread(folder, shapes, lambda name, shape: golden_encoder_adapters.spread(name, shape, scalings))
    config = {**LoraConfig(task_type="CAUSAL_LM", **arguments).to_dict(), "base_model_name_or_path": checkpoint}
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(folder / "adapter_config.json", temporary)
        golden_weights.write_safetensors(folder, Path(temporary) / "adapter_model.safetensors")
        model = PeftModel.from_pretrained(load(checkpoints / checkpoint, class_name), temporary).eval()
    base = load(checkpoints / checkpoint, class_name)
    header = {"base": checkpoint, "vocab_size": base.config.vocab_size}
    golden_cases.write_goldens(folder, model, header, ADAPTER_LENGTHS, differs_from=base)


def write_all(models, names):
    warnings.simplefilter("ignore")
    for name, (class_name, config, options) in CHECKPOINTS.items():
        if not names or name in names:
            write_checkpoint(models / "checkpoints" / name, class_name, json.loads(json.dumps(config)), options)
    for name, (checkpoint, arguments) in ADAPTERS.items():
        if not names or name in names:
            write_adapter(models / "adapters" / name, checkpoint, lambda: load(models / "checkpoints" / checkpoint, CHECKPOINTS[checkpoint][0]),
                          json.loads(json.dumps(arguments)))  # fmt: skip
    for name, (checkpoint, rows, arguments) in RESIZED_ADAPTERS.items():
        if not names or name in names:
            write_adapter(
                models / "adapters" / name, checkpoint,
                lambda: golden_adapters.resize(load(models / "checkpoints" / checkpoint, CHECKPOINTS[checkpoint][0]), rows, "other rows"),
                json.loads(json.dumps(arguments)), added=max(rows, 0))  # fmt: skip
    for name, (checkpoint, arguments) in OLD_ADAPTERS.items():
        if not names or name in names:
            write_old_adapter(models / "adapters" / name, models / "checkpoints", checkpoint, arguments)
