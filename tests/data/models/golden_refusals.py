"""What a loader must refuse: adapters that peft can make but that are not plain LoRA, adapters that are broken, and model
configurations that no code path computes. Each comes with words that the error message has to contain."""

import copy
import json
import shutil
import struct
import warnings

import torch
import transformers
from peft import IA3Config, LoraConfig, PrefixTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file

import golden_adapters
import golden_checkpoints
import golden_families
import golden_quantized

BASE = "llama-gqa-linear"
TINY = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
Q0, Q1 = (f"base_model.model.model.layers.{layer}.self_attn.q_proj" for layer in (0, 1))

# name -> (config made by peft, words)
MADE_BY_PEFT = {
    "ia3": (IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]), ["peft_type", "IA3"]),
    "prefix-tuning": (PrefixTuningConfig(num_virtual_tokens=3), ["peft_type", "PREFIX_TUNING"]),
}

# name -> (keys of adapter_config.json to change; None: remove the key, words; None: must be accepted, else a loader that refuses
# everything would pass)
CONFIG_EDITS = {
    "qalora": ({"use_qalora": True}, ["use_qalora"]),
    "kasa": ({"kasa_config": {"beta": 0.0001, "gamma": 0.001}}, ["kasa_config"]),
    "dora-without-tensors": ({"use_dora": True}, ["layers.0.self_attn.q_proj", "lora_magnitude_vector", "use_dora"]),
    "dora-with-lora-bias": ({"use_dora": True, "lora_bias": True}, ["lora_bias"]),
    "arrow": ({"arrow_config": {"top_k": 2}}, ["arrow_config"]),
    "layer-replication": ({"layer_replication": [[0, 2], [0, 2]]}, ["layer_replication"]),
    "alora": ({"alora_invocation_tokens": [5, 6]}, ["alora_invocation_tokens"]),
    "target-parameters": ({"target_parameters": ["mlp.experts.gate_up_proj"]}, ["target_parameters"]),
    "tokens-twice": ({"trainable_token_indices": [3, 3]}, ["trainable_token_indices", "different token ids"]),
    "tokens-beyond": ({"trainable_token_indices": [130, 131]}, ["trainable_token_indices", "131", "131 tokens", "save_embedding_layers"]),
    "tokens-elsewhere": ({"trainable_token_indices": {"q_proj": [3]}}, ["trainable_token_indices", "q_proj"]),
    "tokens-of-target": (
        {"trainable_token_indices": [3], "target_modules": ["q_proj", "embed_tokens"]}, ["trainable_token_indices", "embed_tokens", "target_modules"]),
    "tokens-without-tensor": ({"trainable_token_indices": [3]}, ["embed_tokens.token_adapter.trainable_tokens_delta", "trainable_token_indices"]),
    "embedding-without-tensors": ({"target_modules": ["q_proj", "embed_tokens"]}, ["embed_tokens.lora_embedding_A", "targets this module"]),
    "saved-embedding-without-tensor": ({"modules_to_save": ["embed_tokens"]}, ["embed_tokens.weight", "modules_to_save"]),
    "weight-tying": ({"ensure_weight_tying": True}, ["ensure_weight_tying"]),
    "unknown-key": ({"frobnication": 3}, ["frobnication"]),
    "unknown-bias": ({"bias": "some"}, ["bias", "some"]),
    "peft-type-missing": ({"peft_type": None}, ["peft_type"]),
    "peft-type-unknown": ({"peft_type": "QUUX"}, ["peft_type", "QUUX"]),
    "rank-zero": ({"r": 0}, ["r", "0"]),
    "rank-text": ({"r": "2"}, ["r"]),
    "rank-huge": ({"r": 4000000000}, ["r", "4000000000"]),
    "rank-unlike-tensors": ({"r": 3}, ["q_proj", "3", "2"]),
    "rank-pattern-unlike-tensors": ({"rank_pattern": {"layers.1.self_attn.q_proj": 5}}, ["layers.1.self_attn.q_proj", "5", "2"]),
    "alpha-text": ({"lora_alpha": "four"}, ["lora_alpha"]),
    "no-target": ({"target_modules": ["query_key_value"]}, ["query_key_value"]),
    "target-missing": ({"target_modules": None}, ["target_modules"]),
    "target-bad-regex": ({"target_modules": r".*\.(q_proj"}, ["target_modules", "(q_proj"]),
    "regex-with-layers": ({"target_modules": r".*\.q_proj", "layers_to_transform": [0]}, ["layers_to_transform"]),
    "target-without-tensors": ({"target_modules": ["q_proj", "k_proj"]}, ["k_proj"]),
    "saved-module-without-tensors": ({"modules_to_save": ["lm_head"]}, ["lm_head"]),
    "control": ({}, None),
    "control-bias": ({"bias": "all"}, None),  # this base has no biases, so there is nothing to store and nothing missing
}


def change(tensors, key, value):
    return {**tensors, key: value}


# name -> (what happens to the tensors, words)
TENSOR_EDITS = {
    "tensor-missing": (lambda t: {k: v for k, v in t.items() if k != Q1 + ".lora_B.weight"}, ["layers.1.self_attn.q_proj", "lora_B"]),
    "tensor-unknown": (lambda t: change(t, Q0 + ".lora_C.weight", torch.ones(2, 2)), ["lora_C"]),
    "tensor-not-targeted": (
        lambda t: {**t, Q0.replace("q_proj", "v_proj") + ".lora_A.weight": torch.ones(2, 60),
                   Q0.replace("q_proj", "v_proj") + ".lora_B.weight": torch.ones(36, 2)},
        ["v_proj"]),
    "layer-out-of-range": (
        lambda t: {**t, Q0.replace("layers.0", "layers.5") + ".lora_A.weight": torch.ones(2, 60),
                   Q0.replace("layers.0", "layers.5") + ".lora_B.weight": torch.ones(72, 2)},
        ["layers.5"]),
    "shape-wrong": (lambda t: change(t, Q0 + ".lora_B.weight", torch.ones(73, 2)), ["layers.0.self_attn.q_proj", "73", "72"]),
    "shape-transposed": (lambda t: change(t, Q0 + ".lora_A.weight", t[Q0 + ".lora_A.weight"].t().contiguous()),
                         ["layers.0.self_attn.q_proj", "lora_A"]),
    "shape-one-dimension": (lambda t: change(t, Q0 + ".lora_A.weight", torch.ones(120)), ["layers.0.self_attn.q_proj", "lora_A"]),
    "magnitude-without-dora": (lambda t: change(t, Q0 + ".lora_magnitude_vector", torch.ones(72)), ["lora_magnitude_vector"]),
    "not-a-number": (lambda t: change(t, Q1 + ".lora_A.weight", torch.full((2, 60), float("nan"))), ["layers.1.self_attn.q_proj"]),
    "infinite": (lambda t: change(t, Q1 + ".lora_B.weight", torch.full((72, 2), float("inf"))), ["layers.1.self_attn.q_proj"]),
    "integers": (lambda t: change(t, Q0 + ".lora_A.weight", torch.ones(2, 60, dtype=torch.int32)), ["lora_A", "I32"]),
    "empty": (lambda t: {}, ["q_proj"]),
}


def with_header(data, header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def parts(data):
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def overlapping(data):
    header, body = parts(data)
    header[Q0 + ".lora_A.weight"]["data_offsets"] = header[Q1 + ".lora_A.weight"]["data_offsets"]
    return with_header(body, header)


def beyond_the_end(data):
    header, body = parts(data)
    begin, end = header[Q0 + ".lora_A.weight"]["data_offsets"]
    header[Q0 + ".lora_A.weight"]["data_offsets"] = [begin + 1_000_000, end + 1_000_000]
    return with_header(body, header)


# name -> (what happens to the bytes of adapter_model.safetensors; None: the file is missing, words)
FILE_EDITS = {
    "file-missing": (lambda data: None, ["adapter_model.safetensors"]),
    "file-empty": (lambda data: b"", ["adapter_model.safetensors"]),
    "file-truncated": (lambda data: data[: len(data) - 37], ["adapter_model.safetensors"]),
    "header-truncated": (lambda data: data[:50], ["adapter_model.safetensors"]),
    "header-length-huge": (lambda data: struct.pack("<Q", 2**63) + data[8:], ["adapter_model.safetensors"]),
    "header-not-json": (lambda data: data[:8] + b"#" + data[9:], ["adapter_model.safetensors"]),
    "header-overlap": (overlapping, ["adapter_model.safetensors"]),
    "header-beyond-the-end": (beyond_the_end, ["adapter_model.safetensors"]),
    "trailing-bytes": (lambda data: data + b"12345678", ["adapter_model.safetensors"]),
}


def expect(folder, words):
    expected = {"base": BASE, "error_contains": words} if words is not None else {"base": BASE, "accepted": True}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def edit_config(folder, edits):
    path = folder / "adapter_config.json"
    config = {**json.loads(path.read_text()), **edits}
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in edits or value is not None}, indent=2) + "\n")


def write_broken_adapters(root, checkpoints):
    warnings.simplefilter("ignore")
    shutil.rmtree(root, ignore_errors=True)
    template = root / "template"
    golden_adapters.make(template, checkpoints, BASE, TINY, {})

    def folder_of(name, words):
        shutil.copytree(template, root / name)
        expect(root / name, words)
        return root / name

    for name, (config, words) in MADE_BY_PEFT.items():
        torch.manual_seed(golden_adapters.seed_of(name))
        config = copy.deepcopy(config)
        config.task_type = "CAUSAL_LM"
        model = get_peft_model(golden_checkpoints.load(checkpoints / BASE), config)
        (root / name).mkdir()
        golden_adapters.save(model, root / name, BASE, {}, {})
        expect(root / name, words)
    for name, (edits, words) in CONFIG_EDITS.items():
        edit_config(folder_of(name, words), edits)
    for name, (edit, words) in TENSOR_EDITS.items():
        path = folder_of(name, words) / "adapter_model.safetensors"
        save_file(edit(load_file(path)), path)
    for name, (edit, words) in FILE_EDITS.items():
        path = folder_of(name, words) / "adapter_model.safetensors"
        data = edit(path.read_bytes())
        path.unlink() if data is None else path.write_bytes(data)
    (folder_of("config-not-json", ["adapter_config.json"]) / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 4,')
    (folder_of("config-not-an-object", ["adapter_config.json"]) / "adapter_config.json").write_text("[1, 2]\n")
    (folder_of("config-missing", ["adapter_config.json"]) / "adapter_config.json").unlink()
    pickled = folder_of("pickle", ["adapter_model.bin", "safetensors"])
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    golden_adapters.make(root / "other-base", checkpoints, "llama-mha", TINY, {})
    expect(root / "other-base", ["q_proj", "48", "60"])
    shutil.rmtree(template)


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 131, "hidden_size": 48, "intermediate_size": 52,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "rope_theta": 10000.0,
}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 257, "n_embd": 36, "n_head": 3, "n_layer": 2,
    "n_positions": 128, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "torch_dtype": "float32",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

GEMMA = {**LLAMA, "model_type": "gemma", "architectures": ["GemmaForCausalLM"], "tie_word_embeddings": True}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
GPT_OSS = {**MIXTRAL, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "rope_theta": None,
           "rope_parameters": golden_families.GPT_OSS_ROPE}
PHI3 = {**LLAMA, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "original_max_position_embeddings": 64}

# name -> (base configuration, changes (None: remove the key), words).
CONFIGS = {
    "model-type-missing": (LLAMA, {"model_type": None}, ["model_type"]),
    "model-type-unknown": (LLAMA, {"model_type": "quux"}, ["model_type", "quux"]),
    "model-type-mamba": (LLAMA, {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, ["model_type", "mamba"]),
    "model-type-deepseek": (
        LLAMA, {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 8},
        ["model_type", "deepseek_v3"]),
    "model-type-llama4": (LLAMA, {"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"]}, ["model_type", "llama4"]),
    "experts-more-chosen-than-there-are": (MIXTRAL, {"num_experts_per_tok": 9}, ["num_experts_per_tok", "9"]),
    "experts-none": (MIXTRAL, {"num_local_experts": 0}, ["num_local_experts", "0"]),
    "experts-dense-layers-not-a-list": (
        {**MIXTRAL, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, {"mlp_only_layers": 1}, ["mlp_only_layers"]),
    "experts-sparse-step-zero": (
        {**MIXTRAL, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, {"decoder_sparse_step": 0},
        ["decoder_sparse_step", "0"]),
    "clipped-queries-of-olmoe": (
        {**MIXTRAL, "model_type": "olmoe", "architectures": ["OlmoeForCausalLM"]}, {"clip_qkv": 8.0}, ["clip_qkv", "8.0"]),
    "rope-of-gpt-oss-missing": (
        {**MIXTRAL, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}, {"rope_theta": None, "rope_scaling": None},
        ["rope_parameters"]),
    "experts-in-mxfp4": (MIXTRAL, {"quantization_config": {"quant_method": "mxfp4"}}, ["quantization_config", "mxfp4"]),
    "experts-on-llama": (LLAMA, {"num_local_experts": 8, "num_experts_per_tok": 2}, ["num_local_experts", "8"]),
    "experts-on-qwen2": (QWEN2, {"num_experts": 60, "moe_intermediate_size": 52}, ["num_experts", "60"]),
    "other-head": (LLAMA, {"architectures": ["LlamaForQuestionAnswering"]}, ["architectures", "LlamaForQuestionAnswering"]),
    "encoder-decoder": (LLAMA, {"is_encoder_decoder": True}, ["is_encoder_decoder"]),
    "cross-attention": (GPT2, {"add_cross_attention": True}, ["add_cross_attention"]),
    "alibi": (LLAMA, {"alibi": True}, ["alibi"]),
    "relative-positions": (LLAMA, {"position_embedding_type": "relative_key"}, ["position_embedding_type", "relative_key"]),
    **{
        f"quantized-{name}": (LLAMA, {"quantization_config": config}, words)
        for name, (config, words) in golden_quantized.REFUSED.items()
    },
    "activation-unknown": (LLAMA, {"hidden_act": "xielu"}, ["hidden_act", "xielu"]),
    "activation-unknown-gpt2": (GPT2, {"activation_function": "swiglu"}, ["activation_function", "swiglu"]),
    "dtype-integer": (LLAMA, {"torch_dtype": "int8"}, ["torch_dtype", "int8"]),
    "dtype-float8": (LLAMA, {"torch_dtype": None, "dtype": "float8_e4m3fn"}, ["dtype", "float8_e4m3fn"]),
    "rope-longrope": (
        LLAMA, {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}}, ["rope", "longrope"]),
    "rope-su": (LLAMA, {"rope_scaling": {"type": "su", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}}, ["rope", "su"]),
    "rope-mrope": (LLAMA, {"rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}, ["rope", "mrope"]),
    "rope-unknown-new-keys": (
        LLAMA, {"rope_theta": None, "rope_parameters": {"rope_type": "quux", "rope_theta": 10000.0}}, ["rope_type", "quux"]),
    "rope-per-layer-type": (
        LLAMA, {"rope_theta": None, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                                        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}},
        ["rope_parameters"]),
    "rope-not-an-object": (LLAMA, {"rope_scaling": "linear"}, ["rope_scaling"]),
    "rope-partial": (LLAMA, {"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
    "rope-partial-new-keys": (
        LLAMA, {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
        ["partial_rotary_factor", "0.25"]),
    "rope-theta-zero": (LLAMA, {"rope_theta": 0.0}, ["rope_theta"]),
    "rope-factor-missing": (LLAMA, {"rope_scaling": {"type": "linear"}}, ["factor"]),
    "rope-factor-zero": (LLAMA, {"rope_scaling": {"rope_type": "linear", "factor": 0.0}}, ["factor"]),
    "rope-llama3-incomplete": (
        LLAMA, {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}}, ["low_freq_factor"]),
    "rope-llama3-no-band": (LLAMA, {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, ["high_freq_factor"]),
    "sizes-missing": (LLAMA, {"hidden_size": None}, ["hidden_size"]),
    "sizes-text": (LLAMA, {"vocab_size": "131"}, ["vocab_size"]),
    "sizes-negative": (LLAMA, {"intermediate_size": -52}, ["intermediate_size", "-52"]),
    "sizes-zero-layers": (LLAMA, {"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
    "sizes-absurd": (LLAMA, {"num_hidden_layers": 4000000000}, ["num_hidden_layers", "4000000000"]),
    "heads-do-not-divide": (LLAMA, {"num_attention_heads": 5, "num_key_value_heads": 5}, ["num_attention_heads", "5"]),
    "heads-not-in-groups": (LLAMA, {"num_key_value_heads": 3}, ["num_key_value_heads", "3"]),
    "heads-odd-dimension": (LLAMA, {"head_dim": 13}, ["head_dim", "13"]),
    "heads-do-not-divide-gpt2": (GPT2, {"n_head": 5}, ["n_head", "5"]),
    "eps-negative": (LLAMA, {"rms_norm_eps": -1e-6}, ["rms_norm_eps"]),
    "tie-not-boolean": (LLAMA, {"tie_word_embeddings": "yes"}, ["tie_word_embeddings"]),
    "window-zero": ({**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}, {"sliding_window": 0}, ["sliding_window"]),
    "head-of-another-family": (GEMMA, {"architectures": ["LlamaForCausalLM"]}, ["architectures", "LlamaForCausalLM"]),
    "bidirectional": (GEMMA, {"use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
    "multiplier-of-another-family": (LLAMA, {"residual_multiplier": 0.22}, ["residual_multiplier", "0.22"]),
    "cap-of-another-family": (GEMMA, {"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping", "50.0"]),
    "qk-norm-of-stablelm": (
        {**LLAMA, "model_type": "stablelm", "architectures": ["StableLmForCausalLM"]}, {"qk_layernorm": True}, ["qk_layernorm"]),
    "qk-norm-of-cohere": ({**LLAMA, "model_type": "cohere", "architectures": ["CohereForCausalLM"]}, {"use_qk_norm": True}, ["use_qk_norm"]),
    "no-rope-layers-too-few": (
        {**LLAMA, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}, {"no_rope_layers": [1]}, ["no_rope_layers"]),
    "longrope-factors-too-few": (
        PHI3, {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 5, "long_factor": [2.0] * 6}}, ["short_factor", "6"]),
    "longrope-factors-missing": (PHI3, {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 6}}, ["long_factor"]),
    "linear-rope-of-phi3": (PHI3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, ["rope", "linear"]),
    "partial-rope-odd": (PHI3, {"partial_rotary_factor": 0.25}, ["partial_rotary_factor", "0.25"]),
    "text-config-missing": (GEMMA, {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, ["text_config"]),
    "text-config-of-another-family": (
        GEMMA, {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"model_type": "llama"}},
        ["text_config.model_type", "llama"]),
    "vision-of-another-family": (LLAMA, {"vision_config": {"hidden_size": 8}}, ["vision_config"]),
    "layer-types-unknown": (QWEN2, {"layer_types": ["full_attention", "chunked_attention"]}, ["layer_types", "chunked_attention"]),
    "layer-types-too-few": (QWEN2, {"layer_types": ["full_attention"]}, ["layer_types"]),
    "layer-types-without-window": (QWEN2, {"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": False},
                                   ["layer_types", "use_sliding_window"]),
}


def write_configs(root):
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, (base, changes, words) in CONFIGS.items():
        config = {key: value for key, value in {**base, **changes}.items() if value is not None}
        (root / f"{name}.json").write_text(json.dumps({"error_contains": words, "config": config}, indent=2) + "\n")
    controls = {"llama": LLAMA, "qwen2": QWEN2, "gpt2": GPT2, "gemma": GEMMA, "phi3": PHI3, "mixtral": MIXTRAL}
    controls |= {f"quantized-{name}": {**LLAMA, "quantization_config": config} for name, config in golden_quantized.ACCEPTED.items()}
    controls["quantized-mxfp4-transformers"] = {**GPT_OSS, "quantization_config": transformers.Mxfp4Config().to_dict()}
    for name, config in controls.items():
        (root / f"control-{name}.json").write_text(json.dumps({"accepted": True, "config": config}, indent=2) + "\n")
    for name, text in {"not-json": '{"model_type": "llama",', "not-an-object": "[]", "empty-file": ""}.items():
        (root / f"{name}.json").write_text(json.dumps({"error_contains": ["config.json"], "config_text": text}, indent=2) + "\n")
