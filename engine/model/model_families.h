// The table of model families: everything that distinguishes one from another. Its keys and defaults are those of transformers'
// configuration classes. Read by model_config.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/model/model_config.h"
#include "engine/model/module_names.h"
#include "kernels/ops.h"

namespace lorry::engine {

// Whether a projection has a bias: as a key of the config says, or `value` where there is none.
struct Bias {
    const char* key = nullptr;  // nullptr: it is always `value`
    bool value = false;
};
inline constexpr Bias always_bias{.value = true};
inline constexpr Bias attention_key_bias{.key = "attention_bias"};
inline constexpr Bias mlp_key_bias{.key = "mlp_bias"};
// Where a family's norms have biases: layer norms always, never, or as norm_bias says (ModernBERT).
enum class NormBias : std::uint8_t { by_kind, never, by_norm_key };
// Which layers have a sliding window: none, all, those from max_window_layers on, all but each window_pattern-th (Gemma 2 and 3,
// Command-R7B), those without rope (SmolLM3), all if use_sliding_window says so (Qwen3-MoE), or then each second one below
// max_window_layers (Qwen2-MoE). alternating: as ModernBERT's layer_types and local_attention say, to both sides.
enum class Windows : std::uint8_t { none, all, from_layer, by_pattern, without_rope, all_by_key, even_below, alternating };
// Which row of the table of positions belongs to a text's first token: 0, or the one after the padding token's id (RoBERTa).
enum class FirstPosition : std::uint8_t { zero, after_padding };
// How positions reach attention: a rope with one theta, one for each kind of window (ModernBERT, Gemma 3), or not by rope.
enum class Rope : std::uint8_t { none, one, by_window };
// What attention scores are multiplied by: 1/sqrt(head_dim), what GPT-2's scale_attn_* keys say, 1/sqrt(query_pre_attn_scalar), or
// attention_multiplier.
enum class AttentionScale : std::uint8_t { by_head_dim, by_scale_attn_keys, by_query_scalar, by_multiplier };
// What embeddings are multiplied by: nothing, the root of the hidden size in the checkpoint's dtype, or embedding_multiplier.
enum class EmbeddingScale : std::uint8_t { one, root_of_hidden, by_multiplier };
// What logits are multiplied by: nothing, logit_scale, or one over logits_scaling.
enum class LogitScale : std::uint8_t { one, by_scale, by_divisor };
// Whether attention and MLP add to the residual one after the other or read the same one: always, or as use_parallel_residual says.
enum class Residual : std::uint8_t { sequential, parallel, sequential_by_key, parallel_by_key };

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
inline constexpr Keys layer_norm_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                      "intermediate_size", "hidden_act",          "layer_norm_eps"};
inline constexpr Keys starcoder2_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                      "intermediate_size", "hidden_act",          "norm_epsilon"};
inline constexpr Keys gemma2_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                  "intermediate_size", "hidden_activation",   "rms_norm_eps"};
inline constexpr Keys gpt2_keys{"n_embd", "n_head", "n_layer", "n_positions", "n_inner", "activation_function", "layer_norm_epsilon"};
inline constexpr Keys distilbert_keys{"dim",        "n_heads",    "n_layers",      "max_position_embeddings",
                                      "hidden_dim", "activation", "layer_norm_eps"};
inline constexpr Keys modernbert_keys{"hidden_size",       "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
                                      "intermediate_size", "hidden_activation",   "norm_eps"};

// The keys of rope whose names or defaults differ between families.
struct RopeKeys {
    const char* theta = "rope_theta";
    double theta_default = 10000.0;
    const char* partial = nullptr;  // which part of a head is rotated; nullptr: all of it
    double partial_default = 1.0;
    const char* window_theta = nullptr;  // of layers with a window
    double window_theta_default = 10000.0;
    bool pairs_neighbours = false;  // dimensions 2i and 2i + 1 turn together, instead of i and i + half of them (Cohere)
    bool needs_window = false;      // layers without a window have no rope (Command-R7B)
    bool needs_scaling = false;     // a config without a scaled kind is refused (GPT-OSS)
    bool has_long = false;          // its scaled kind is longrope, which old configs call su or yarn (Phi-3)
    // Counts if the top level has no original_max_position_embeddings, even if rope_parameters has one (Phi-3).
    std::optional<std::int64_t> original_default = std::nullopt;
};
inline constexpr const char* partial_key = "partial_rotary_factor";

// The keys of a mixture of experts. In each key, nullptr means that the family has none.
struct ExpertKeys {
    std::int64_t count_default;
    std::int64_t chosen_default;
    const char* intermediate = nullptr;  // nullptr: as the MLP's
    std::int64_t intermediate_default = 0;
    const char* shared_intermediate = nullptr;
    std::int64_t shared_intermediate_default = 0;
    const char* normalized = nullptr;  // nullptr: the factors of those chosen always add up to 1
    bool has_dense_layers = false;     // decoder_sparse_step and mlp_only_layers are read
};
inline constexpr ExpertKeys mixtral_expert_keys{.count_default = 8, .chosen_default = 2};
inline constexpr ExpertKeys qwen2_expert_keys{.count_default = 60,
                                              .chosen_default = 4,
                                              .intermediate = "moe_intermediate_size",
                                              .intermediate_default = 1408,
                                              .shared_intermediate = "shared_expert_intermediate_size",
                                              .shared_intermediate_default = 5632,
                                              .normalized = "norm_topk_prob",
                                              .has_dense_layers = true};
inline constexpr ExpertKeys qwen3_expert_keys{.count_default = 128,
                                              .chosen_default = 8,
                                              .intermediate = "moe_intermediate_size",
                                              .intermediate_default = 768,
                                              .normalized = "norm_topk_prob",
                                              .has_dense_layers = true};
inline constexpr ExpertKeys gpt_oss_expert_keys{.count_default = 128, .chosen_default = 4};
inline constexpr ExpertKeys olmoe_expert_keys{.count_default = 64, .chosen_default = 8, .normalized = "norm_topk_prob"};

// Keys that config.json may have for these families alone; for others they are refused (model_config.cpp).
inline constexpr std::array<std::string_view, 3> gemma_reads{"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"};
inline constexpr std::array<std::string_view, 4> granite_reads{"embedding_multiplier", "residual_multiplier", "attention_multiplier",
                                                               "logits_scaling"};
inline constexpr std::array<std::string_view, 1> partial_reads{partial_key};
inline constexpr std::array<std::string_view, 2> smollm3_reads{"no_rope_layers", "no_rope_layer_interval"};
inline constexpr std::array<std::string_view, 1> cohere_reads{"logit_scale"};
inline constexpr std::array<std::string_view, 2> cohere2_reads{"logit_scale", "position_embedding_type"};  // which is always "rope_gptj"

inline constexpr std::array<std::string_view, 3> expert_reads{"num_experts", "num_local_experts", "num_experts_per_tok"};

// Everything that distinguishes one family from another. To add a family, add a row to `families`.
struct FamilyTraits {
    std::string_view model_type;
    std::string_view stem;            // of its architectures: "Llama" of "LlamaForCausalLM"
    std::string_view text_stem = {};  // that some of its architectures have instead: "Gemma3Text"
    bool nested = false;              // its keys are under text_config, beside those of parts for images, which are left out
    std::span<const std::string_view> reads = {};
    bool is_encoder = false;  // a token sees the whole text
    const Keys* keys = &common_keys;
    const ModuleNames* names = &llama_names;
    const ModuleNames* names_unless_legacy = nullptr;  // where config.json has legacy = false (DeBERTa); nullptr: there is no such key
    kernels::NormKind norm = kernels::NormKind::rms;
    bool norm_offset = false;  // the weights of norms are stored less 1
    AttentionScale attention_scale = AttentionScale::by_head_dim;
    EmbeddingScale embedding_scale = EmbeddingScale::one;
    LogitScale logit_scale = LogitScale::one;
    bool residual_multiplier = false;                            // what is added to the residual is multiplied by residual_multiplier
    bool caps_scores = false;                                    // as attn_logit_softcapping says; false: the key does not count
    bool caps_logits = false;                                    // likewise final_logit_softcapping
    std::optional<double> attention_cap_default = std::nullopt;  // when the keys are absent; nullopt: no cap
    std::optional<double> logit_cap_default = std::nullopt;
    Residual residual = Residual::sequential;
    bool parallel_shares_norm = false;  // a parallel MLP reads what attention reads
    bool heads_have_keys = true;        // num_key_value_heads and head_dim are read; false: kv_heads = heads, head_dim = hidden / heads
    const char* activation_default = "silu";
    bool gelu_is_tanh = false;  // the name "gelu" means gelu_pytorch_tanh (Gemma's first configs)
    double epsilon_default = 1e-6;
    std::int64_t max_positions_default = 2048;
    std::optional<std::int64_t> intermediate_default = std::nullopt;  // times hidden; nullopt: the key is required
    std::optional<std::int64_t> kv_heads_default = std::nullopt;      // when the key is absent; nullopt: as many as heads
    std::optional<std::int64_t> head_dim_default = std::nullopt;      // when the key is absent; nullopt: hidden / heads
    std::optional<std::int64_t> heads_default = std::nullopt;         // likewise; nullopt: the key is required
    std::optional<std::int64_t> vocabulary_default = std::nullopt;
    Bias attention_bias = {};
    Bias output_bias = {};
    Bias mlp_bias = {};
    NormBias norm_bias = NormBias::by_kind;
    QkNorm qk_norm = QkNorm::none;
    bool tied_default = false;
    Windows windows = Windows::none;
    std::optional<std::int64_t> window_default = 4096;  // sliding_window when the key is absent; nullopt: there is no window
    std::int64_t window_pattern = 1;                    // when the key is absent or there is none
    const char* window_pattern_key = nullptr;
    Rope rope = Rope::one;
    RopeKeys rope_keys = {};
    FirstPosition first_position = FirstPosition::zero;
    std::int32_t padding_default = 0;  // pad_token_id when the key is absent, where first_position needs it
    std::int64_t token_types_default = 0;
    const ExpertKeys* experts = nullptr;  // nullptr: every layer has an MLP
    bool clamped_gate = false;            // as swiglu_alpha and swiglu_limit say
};

// BERT and the encoders with its layers.
constexpr FamilyTraits bert_like(std::string_view model_type, std::string_view stem, const ModuleNames& names, const Keys& keys) {
    return {.model_type = model_type,
            .stem = stem,
            .is_encoder = true,
            .keys = &keys,
            .names = &names,
            .norm = kernels::NormKind::layer,
            .heads_have_keys = false,
            .activation_default = "gelu",
            .epsilon_default = 1e-12,
            .max_positions_default = 512,
            .intermediate_default = 4,
            .attention_bias = always_bias,
            .output_bias = always_bias,
            .mlp_bias = always_bias,
            .tied_default = true,
            .rope = Rope::none,
            .token_types_default = names.types != nullptr ? 2 : 0};
}
// Positions count from the padding token's id on.
constexpr FamilyTraits roberta_like(std::string_view model_type, std::string_view stem, const ModuleNames& names) {
    FamilyTraits traits = bert_like(model_type, stem, names, layer_norm_keys);
    traits.first_position = FirstPosition::after_padding;
    traits.padding_default = 1;
    return traits;
}

constexpr FamilyTraits deberta_like(std::string_view model_type, std::string_view stem) {
    FamilyTraits traits = bert_like(model_type, stem, deberta_names, layer_norm_keys);
    traits.names_unless_legacy = &new_deberta_names;
    traits.epsilon_default = 1e-7;
    traits.token_types_default = 0;
    return traits;
}

// Gemma 1, 2 and 3.
constexpr FamilyTraits gemma_like(std::string_view model_type, std::string_view stem) {
    return {.model_type = model_type,
            .stem = stem,
            .norm_offset = true,
            .embedding_scale = EmbeddingScale::root_of_hidden,
            .activation_default = "gelu_pytorch_tanh",
            .max_positions_default = 8192,
            .head_dim_default = 256,
            .attention_bias = attention_key_bias,
            .output_bias = attention_key_bias,
            .tied_default = true};
}
inline constexpr FamilyTraits gemma = [] {
    FamilyTraits traits = gemma_like("gemma", "Gemma");
    traits.gelu_is_tanh = true;
    traits.kv_heads_default = 16;
    return traits;
}();
inline constexpr FamilyTraits gemma2 = [] {
    FamilyTraits traits = gemma_like("gemma2", "Gemma2");
    traits.reads = gemma_reads;
    traits.names = &gemma2_names;
    traits.keys = &gemma2_keys;
    traits.attention_scale = AttentionScale::by_query_scalar;
    traits.caps_scores = true;
    traits.caps_logits = true;
    traits.attention_cap_default = 50.0;
    traits.logit_cap_default = 30.0;
    traits.kv_heads_default = 4;
    traits.windows = Windows::by_pattern;
    traits.window_pattern = 2;
    return traits;
}();
inline constexpr FamilyTraits gemma3_text = [] {
    FamilyTraits traits = gemma2;
    traits.model_type = "gemma3_text";
    traits.stem = "Gemma3";
    traits.text_stem = "Gemma3Text";
    traits.names = &gemma3_names;
    traits.caps_scores = false;  // transformers has the key and does not use it
    traits.attention_cap_default.reset();
    traits.logit_cap_default.reset();
    traits.max_positions_default = 131072;
    traits.heads_default = 8;
    traits.vocabulary_default = 262208;
    traits.qk_norm = QkNorm::by_head;
    traits.window_pattern = 6;
    traits.window_pattern_key = "sliding_window_pattern";
    traits.rope = Rope::by_window;
    traits.rope_keys = {.theta_default = 1e6, .window_theta = "rope_local_base_freq"};
    return traits;
}();
inline constexpr FamilyTraits gemma3 = [] {
    FamilyTraits traits = gemma3_text;
    traits.model_type = "gemma3";
    traits.text_stem = {};
    traits.nested = true;
    traits.caps_logits = false;  // likewise
    traits.names = &gemma3_nested_names;
    return traits;
}();

inline constexpr FamilyTraits cohere{.model_type = "cohere",
                                     .stem = "Cohere",
                                     .reads = cohere_reads,
                                     .keys = &layer_norm_keys,
                                     .names = &cohere_names,
                                     .norm = kernels::NormKind::layer,
                                     .logit_scale = LogitScale::by_scale,
                                     .residual = Residual::parallel,
                                     .parallel_shares_norm = true,
                                     .epsilon_default = 1e-5,
                                     .max_positions_default = 8192,
                                     .attention_bias = attention_key_bias,
                                     .output_bias = attention_key_bias,
                                     .norm_bias = NormBias::never,
                                     .tied_default = true,
                                     .rope_keys = {.theta_default = 500000.0, .pairs_neighbours = true}};
inline constexpr FamilyTraits cohere2 = [] {
    FamilyTraits traits = cohere;
    traits.model_type = "cohere2";
    traits.stem = "Cohere2";
    traits.reads = cohere2_reads;
    traits.windows = Windows::by_pattern;
    traits.window_pattern = 4;
    traits.window_pattern_key = "sliding_window_pattern";
    traits.rope_keys.theta_default = 10000.0;
    traits.rope_keys.needs_window = true;
    return traits;
}();

inline constexpr std::array families = {
    FamilyTraits{.model_type = "gpt2",
                 .stem = "GPT2",
                 .keys = &gpt2_keys,
                 .names = &gpt2_names,
                 .norm = kernels::NormKind::layer,
                 .attention_scale = AttentionScale::by_scale_attn_keys,
                 .heads_have_keys = false,
                 .activation_default = "gelu_new",
                 .epsilon_default = 1e-5,
                 .max_positions_default = 1024,
                 .intermediate_default = 4,
                 .attention_bias = always_bias,
                 .output_bias = always_bias,
                 .mlp_bias = always_bias,
                 .tied_default = true,
                 .rope = Rope::none},
    FamilyTraits{.model_type = "llama",
                 .stem = "Llama",
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .mlp_bias = mlp_key_bias},
    FamilyTraits{
        .model_type = "mistral", .stem = "Mistral", .max_positions_default = 131072, .kv_heads_default = 8, .windows = Windows::all},
    FamilyTraits{.model_type = "qwen2",
                 .stem = "Qwen2",
                 .max_positions_default = 32768,
                 .kv_heads_default = 32,
                 .attention_bias = always_bias,
                 .windows = Windows::from_layer},
    FamilyTraits{.model_type = "qwen3",
                 .stem = "Qwen3",
                 .max_positions_default = 32768,
                 .kv_heads_default = 32,
                 .head_dim_default = 128,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .qk_norm = QkNorm::by_head,
                 .windows = Windows::from_layer},
    FamilyTraits{.model_type = "mixtral",
                 .stem = "Mixtral",
                 .reads = expert_reads,
                 .names = &mixtral_names,
                 .epsilon_default = 1e-5,
                 .max_positions_default = 131072,
                 .kv_heads_default = 8,
                 .windows = Windows::all,
                 .window_default = std::nullopt,
                 .rope_keys = {.theta_default = 1e6},
                 .experts = &mixtral_expert_keys},
    FamilyTraits{.model_type = "qwen2_moe",
                 .stem = "Qwen2Moe",
                 .reads = expert_reads,
                 .names = &qwen2_moe_names,
                 .max_positions_default = 32768,
                 .kv_heads_default = 16,
                 .attention_bias = {.key = "qkv_bias", .value = true},
                 .windows = Windows::even_below,
                 .experts = &qwen2_expert_keys},
    FamilyTraits{.model_type = "qwen3_moe",
                 .stem = "Qwen3Moe",
                 .reads = expert_reads,
                 .names = &qwen3_moe_names,
                 .max_positions_default = 32768,
                 .kv_heads_default = 4,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .qk_norm = QkNorm::by_head,
                 .windows = Windows::all_by_key,
                 .experts = &qwen3_expert_keys},
    FamilyTraits{.model_type = "olmoe",
                 .stem = "Olmoe",
                 .reads = expert_reads,
                 .names = &olmoe_names,
                 .epsilon_default = 1e-5,
                 .max_positions_default = 4096,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .qk_norm = QkNorm::whole,
                 .experts = &olmoe_expert_keys},
    FamilyTraits{.model_type = "gpt_oss",
                 .stem = "GptOss",
                 .reads = expert_reads,
                 .names = &gpt_oss_names,
                 .epsilon_default = 1e-5,
                 .max_positions_default = 131072,
                 .kv_heads_default = 8,
                 .head_dim_default = 64,
                 .heads_default = 64,
                 .attention_bias = {.key = "attention_bias", .value = true},
                 .output_bias = {.key = "attention_bias", .value = true},
                 .mlp_bias = always_bias,
                 .windows = Windows::by_pattern,
                 .window_default = 128,
                 .window_pattern = 2,
                 .rope_keys = {.theta_default = 150000.0, .needs_scaling = true},
                 .experts = &gpt_oss_expert_keys,
                 .clamped_gate = true},
    gemma,
    gemma2,
    gemma3_text,
    gemma3,
    FamilyTraits{.model_type = "phi3",
                 .stem = "Phi3",
                 .reads = partial_reads,
                 .names = &phi3_names,
                 .epsilon_default = 1e-5,
                 .max_positions_default = 4096,
                 .windows = Windows::all,
                 .window_default = std::nullopt,
                 .rope_keys = {.partial = partial_key, .has_long = true, .original_default = 4096}},
    FamilyTraits{.model_type = "olmo2",
                 .stem = "Olmo2",
                 .names = &olmo2_names,
                 .epsilon_default = 1e-5,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .qk_norm = QkNorm::whole},
    FamilyTraits{.model_type = "smollm3",
                 .stem = "SmolLM3",
                 .reads = smollm3_reads,
                 .max_positions_default = 32768,
                 .kv_heads_default = 4,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .mlp_bias = mlp_key_bias,
                 .tied_default = true,
                 .windows = Windows::without_rope,
                 .window_default = std::nullopt,
                 .rope_keys = {.theta_default = 2e6}},
    FamilyTraits{.model_type = "granite",
                 .stem = "Granite",
                 .reads = granite_reads,
                 .names = &granite_names,
                 .attention_scale = AttentionScale::by_multiplier,
                 .embedding_scale = EmbeddingScale::by_multiplier,
                 .logit_scale = LogitScale::by_divisor,
                 .residual_multiplier = true,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .mlp_bias = mlp_key_bias},
    FamilyTraits{.model_type = "gpt_neox",
                 .stem = "GPTNeoX",
                 .reads = partial_reads,  // transformers 4.46 to 4.57 wrote it beside rotary_pct, which counts
                 .keys = &layer_norm_keys,
                 .names = &gpt_neox_names,
                 .norm = kernels::NormKind::layer,
                 .residual = Residual::parallel_by_key,
                 .heads_have_keys = false,
                 .activation_default = "gelu",
                 .epsilon_default = 1e-5,
                 .attention_bias = {.key = "attention_bias", .value = true},
                 .output_bias = {.key = "attention_bias", .value = true},
                 .mlp_bias = always_bias,
                 .rope_keys = {.theta = "rotary_emb_base", .partial = "rotary_pct", .partial_default = 0.25}},
    FamilyTraits{.model_type = "starcoder2",
                 .stem = "Starcoder2",
                 .keys = &starcoder2_keys,
                 .names = &starcoder2_names,
                 .norm = kernels::NormKind::layer,
                 .activation_default = "gelu_pytorch_tanh",
                 .epsilon_default = 1e-5,
                 .max_positions_default = 4096,
                 .kv_heads_default = 2,
                 .attention_bias = {.key = "use_bias", .value = true},
                 .output_bias = {.key = "use_bias", .value = true},
                 .mlp_bias = {.key = "use_bias", .value = true},
                 .tied_default = true,
                 .windows = Windows::all,
                 .window_default = std::nullopt},
    FamilyTraits{.model_type = "stablelm",
                 .stem = "StableLm",
                 .reads = partial_reads,
                 .keys = &layer_norm_keys,
                 .norm = kernels::NormKind::layer,
                 .residual = Residual::sequential_by_key,
                 .parallel_shares_norm = true,
                 .epsilon_default = 1e-5,
                 .max_positions_default = 4096,
                 .kv_heads_default = 32,
                 .attention_bias = {.key = "use_qkv_bias"},
                 .rope_keys = {.partial = partial_key, .partial_default = 0.25}},
    cohere,
    cohere2,
    bert_like("bert", "Bert", bert_names, layer_norm_keys),
    bert_like("electra", "Electra", electra_names, layer_norm_keys),
    bert_like("distilbert", "DistilBert", distilbert_names, distilbert_keys),
    roberta_like("roberta", "Roberta", roberta_names),
    roberta_like("xlm-roberta", "XLMRoberta", roberta_names),
    roberta_like("camembert", "Camembert", roberta_names),
    roberta_like("mpnet", "MPNet", mpnet_names),
    deberta_like("deberta-v2", "DebertaV2"),
    FamilyTraits{.model_type = "modernbert",
                 .stem = "ModernBert",
                 .is_encoder = true,
                 .keys = &modernbert_keys,
                 .names = &modernbert_names,
                 .norm = kernels::NormKind::layer,
                 .heads_have_keys = false,
                 .activation_default = "gelu",
                 .epsilon_default = 1e-5,
                 .max_positions_default = 8192,
                 .attention_bias = attention_key_bias,
                 .output_bias = attention_key_bias,
                 .mlp_bias = mlp_key_bias,
                 .norm_bias = NormBias::by_norm_key,
                 .tied_default = true,
                 .windows = Windows::alternating,
                 .rope = Rope::by_window,
                 .rope_keys = {.theta = "global_rope_theta", .theta_default = 160000.0, .window_theta = "local_rope_theta"}},
};

}  // namespace lorry::engine
