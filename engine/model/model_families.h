// The table of model families: everything that distinguishes one from another. Its keys and defaults are those of transformers'
// configuration classes. Read by model_config.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/model/module_names.h"
#include "kernels/ops.h"

namespace lorry::engine {

// Whether a projection has a bias: never, always, or as a key of the config says.
enum class Bias : std::uint8_t { never, always, by_attention_key, by_mlp_key };
// Where a family's norms have biases: layer norms always, or as norm_bias says (ModernBERT).
enum class NormBias : std::uint8_t { by_kind, by_norm_key };
// Which layers have a sliding window: none, all, or those from max_window_layers on.
// alternating: as ModernBERT's layer_types and local_attention say, to both sides.
enum class Windows : std::uint8_t { none, all, from_layer, alternating };
// Which row of the table of positions belongs to a text's first token: 0, or the one after the padding token's id (RoBERTa).
enum class FirstPosition : std::uint8_t { zero, after_padding };
// How positions reach attention: a rope with one theta, one for each kind of window (ModernBERT), or not by rope.
enum class Rope : std::uint8_t { none, one, by_window };
// What attention scores are multiplied by: 1/sqrt(head_dim), or what GPT-2's scale_attn_* keys say.
enum class AttentionScale : std::uint8_t { by_head_dim, by_scale_attn_keys };

// The keys of config.json whose names differ between families.
struct Keys {
    const char* hidden;
    const char* heads;
    const char* layers;
    const char* max_positions;
    const char* intermediate;
    const char* activation;
    const char* epsilon;
};
inline constexpr Keys common_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                  "intermediate_size", "hidden_act",          "rms_norm_eps"};
inline constexpr Keys gpt2_keys{"n_embd", "n_head", "n_layer", "n_positions", "n_inner", "activation_function", "layer_norm_epsilon"};
inline constexpr Keys bert_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                "intermediate_size", "hidden_act",          "layer_norm_eps"};
inline constexpr Keys distilbert_keys{"dim",        "n_heads",    "n_layers",      "max_position_embeddings",
                                      "hidden_dim", "activation", "layer_norm_eps"};
inline constexpr Keys modernbert_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                      "intermediate_size", "hidden_activation",   "norm_eps"};

// Everything that distinguishes one family from another. To add a family, add a row to `families`.
struct FamilyTraits {
    std::string_view model_type;
    std::string_view stem;    // of its architectures: "Llama" of "LlamaForCausalLM"
    bool is_encoder = false;  // a token sees the whole text
    const Keys& keys = common_keys;
    const ModuleNames& names = llama_names;
    const ModuleNames* names_unless_legacy = nullptr;  // where config.json has legacy = false (DeBERTa); nullptr: there is no such key
    kernels::NormKind norm = kernels::NormKind::rms;
    AttentionScale attention_scale = AttentionScale::by_head_dim;
    bool heads_have_keys = true;  // num_key_value_heads and head_dim are read; false: kv_heads = heads, head_dim = hidden / heads
    const char* activation_default = "silu";
    double epsilon_default = 1e-6;
    std::int64_t max_positions_default = 2048;
    std::optional<std::int64_t> intermediate_default = std::nullopt;  // times hidden; nullopt: the key is required
    std::optional<std::int64_t> kv_heads_default = std::nullopt;      // when the key is absent; nullopt: as many as heads
    std::optional<std::int64_t> head_dim_default = std::nullopt;      // when the key is absent; nullopt: hidden / heads
    Bias attention_bias = Bias::never;
    Bias output_bias = Bias::never;
    Bias mlp_bias = Bias::never;
    NormBias norm_bias = NormBias::by_kind;
    bool qk_norm = false;
    bool tied_default = false;
    Windows windows = Windows::none;
    Rope rope = Rope::one;
    FirstPosition first_position = FirstPosition::zero;
    std::int32_t padding_default = 0;  // pad_token_id when the key is absent, where first_position needs it
    std::int64_t token_types_default = 0;
};

// BERT and the encoders with its layers.
constexpr FamilyTraits bert_like(std::string_view model_type, std::string_view stem, const ModuleNames& names, const Keys& keys) {
    return {.model_type = model_type,
            .stem = stem,
            .is_encoder = true,
            .keys = keys,
            .names = names,
            .norm = kernels::NormKind::layer,
            .heads_have_keys = false,
            .activation_default = "gelu",
            .epsilon_default = 1e-12,
            .max_positions_default = 512,
            .intermediate_default = 4,
            .attention_bias = Bias::always,
            .output_bias = Bias::always,
            .mlp_bias = Bias::always,
            .tied_default = true,
            .rope = Rope::none,
            .token_types_default = names.types != nullptr ? 2 : 0};
}
// Positions count from the padding token's id on.
constexpr FamilyTraits roberta_like(std::string_view model_type, std::string_view stem, const ModuleNames& names) {
    FamilyTraits traits = bert_like(model_type, stem, names, bert_keys);
    traits.first_position = FirstPosition::after_padding;
    traits.padding_default = 1;
    return traits;
}

constexpr FamilyTraits deberta_like(std::string_view model_type, std::string_view stem) {
    FamilyTraits traits = bert_like(model_type, stem, deberta_names, bert_keys);
    traits.names_unless_legacy = &new_deberta_names;
    traits.epsilon_default = 1e-7;
    traits.token_types_default = 0;
    return traits;
}

inline constexpr std::array families = {
    FamilyTraits{.model_type = "gpt2",
                 .stem = "GPT2",
                 .keys = gpt2_keys,
                 .names = gpt2_names,
                 .norm = kernels::NormKind::layer,
                 .attention_scale = AttentionScale::by_scale_attn_keys,
                 .heads_have_keys = false,
                 .activation_default = "gelu_new",
                 .epsilon_default = 1e-5,
                 .max_positions_default = 1024,
                 .intermediate_default = 4,
                 .attention_bias = Bias::always,
                 .output_bias = Bias::always,
                 .mlp_bias = Bias::always,
                 .tied_default = true,
                 .rope = Rope::none},
    FamilyTraits{.model_type = "llama",
                 .stem = "Llama",
                 .attention_bias = Bias::by_attention_key,
                 .output_bias = Bias::by_attention_key,
                 .mlp_bias = Bias::by_mlp_key},
    FamilyTraits{
        .model_type = "mistral", .stem = "Mistral", .max_positions_default = 131072, .kv_heads_default = 8, .windows = Windows::all},
    FamilyTraits{.model_type = "qwen2",
                 .stem = "Qwen2",
                 .max_positions_default = 32768,
                 .kv_heads_default = 32,
                 .attention_bias = Bias::always,
                 .windows = Windows::from_layer},
    FamilyTraits{.model_type = "qwen3",
                 .stem = "Qwen3",
                 .max_positions_default = 32768,
                 .kv_heads_default = 32,
                 .head_dim_default = 128,
                 .attention_bias = Bias::by_attention_key,
                 .output_bias = Bias::by_attention_key,
                 .qk_norm = true,
                 .windows = Windows::from_layer},
    bert_like("bert", "Bert", bert_names, bert_keys),
    bert_like("electra", "Electra", electra_names, bert_keys),
    bert_like("distilbert", "DistilBert", distilbert_names, distilbert_keys),
    roberta_like("roberta", "Roberta", roberta_names),
    roberta_like("xlm-roberta", "XLMRoberta", roberta_names),
    roberta_like("camembert", "Camembert", roberta_names),
    roberta_like("mpnet", "MPNet", mpnet_names),
    deberta_like("deberta-v2", "DebertaV2"),
    FamilyTraits{.model_type = "modernbert",
                 .stem = "ModernBert",
                 .is_encoder = true,
                 .keys = modernbert_keys,
                 .names = modernbert_names,
                 .norm = kernels::NormKind::layer,
                 .heads_have_keys = false,
                 .activation_default = "gelu",
                 .epsilon_default = 1e-5,
                 .max_positions_default = 8192,
                 .attention_bias = Bias::by_attention_key,
                 .output_bias = Bias::by_attention_key,
                 .mlp_bias = Bias::by_mlp_key,
                 .norm_bias = NormBias::by_norm_key,
                 .tied_default = true,
                 .windows = Windows::alternating,
                 .rope = Rope::by_window},
};

}  // namespace lorry::engine
