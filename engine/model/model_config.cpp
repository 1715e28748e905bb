// Reads config.json and generation_config.json into a ModelConfig. Each model family is one row of `families`; its keys and defaults are
// those of transformers' configuration classes. Called by model loading, adapter inspection and `lorry check-model`.
#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "engine/files.h"
#include "engine/model/config_section.h"
#include "engine/model/model_families.h"
#include "engine/model/model_heads.h"
#include "engine/model/relative_positions.h"
#include "engine/model/rope_config.h"
#include "engine/model/sentence_config.h"

namespace lorry::engine {
namespace {

using schema::Json;

struct FormatName {
    std::string_view name;
    kernels::Format format;
};
constexpr std::array formats = {FormatName{"float32", kernels::Format::float32}, FormatName{"float16", kernels::Format::float16},
                                FormatName{"bfloat16", kernels::Format::bfloat16}};

// Keys that change what the model computes in ways that Lorry does not support, except for families that read them. null and the harmless
// value are accepted.
struct Refusal {
    const char* key;
    const char* harmless;  // as JSON text
    const char* advice;
};
constexpr std::array refusals = {
    Refusal{"partial_rotary_factor", "1", "only models that rotate whole heads are supported"},
    Refusal{"add_cross_attention", "false", "cross attention is not supported"},
    Refusal{"is_encoder_decoder", "false", "models of encoder and decoder are not supported"},
    Refusal{"alibi", "false", "ALiBi positions are not supported"},
    Refusal{"position_embedding_type", "\"absolute\"", "relative positions are not supported"},
    Refusal{"attention_multiplier", "null", "only scores scaled by 1/sqrt(head_dim) are supported"},
    Refusal{"attn_logit_softcapping", "null", "soft caps on attention scores are not supported"},
    Refusal{"final_logit_softcapping", "null", "soft caps on logits are not supported"},
    Refusal{"logits_scaling", "1", "scaled logits are not supported"},
    Refusal{"logit_scale", "1", "scaled logits are not supported"},
    Refusal{"embedding_multiplier", "1", "scaled embeddings are not supported"},
    Refusal{"residual_multiplier", "1", "scaled residuals are not supported"},
    Refusal{"num_experts", "null", "this family is not supported with a mixture of experts"},
    Refusal{"num_local_experts", "null", "this family is not supported with a mixture of experts"},
    Refusal{"n_routed_experts", "null", "this family is not supported with a mixture of experts"},
    Refusal{"num_experts_per_tok", "null", "this family is not supported with a mixture of experts"},
    Refusal{"attention_chunk_size", "null", "chunked attention is not supported"},
    Refusal{"vision_config", "null", "only text models are supported"},
    Refusal{"query_pre_attn_scalar", "null", "only scores scaled by 1/sqrt(head_dim) are supported"},
    Refusal{"no_rope_layers", "null", "layers without rope are not supported"},
    Refusal{"no_rope_layer_interval", "null", "layers without rope are not supported"},
    Refusal{"use_bidirectional_attention", "false", "only causal attention is supported"},
    Refusal{"use_qk_norm", "false", "norms of queries and keys are not supported"},
    Refusal{"qk_layernorm", "false", "norms of queries and keys are not supported"},
    Refusal{"clip_qkv", "null", "clipped queries, keys and values are not supported"},
};

constexpr std::int64_t layers_max = 4096;
constexpr std::int64_t all_experts_max = 65536;

const FamilyTraits& family_of(const Section& config) {
    const Json* type = config.find("model_type");
    for (const FamilyTraits& traits : families) {
        if (type != nullptr && type->as_string() != nullptr && *type->as_string() == traits.model_type) return traits;
    }
    std::string known;
    for (const FamilyTraits& traits : families) known += (known.empty() ? "" : ", ") + std::string(traits.model_type);
    config.refuse("model_type", "supported: " + known);
}

// The keys of a config with parts that describe those which are not the text's.
std::vector<std::string> other_parts_of(const Json& root) {
    std::vector<std::string> out;
    for (const char* key : {"vision_config", "audio_config"}) {
        if (root.find(key) != nullptr) out.emplace_back(key);
    }
    return out;
}

// A key beside text_config that describes the whole checkpoint, and its older name.
struct WholeKey {
    std::string_view name;
    std::string_view older = name;
    bool also_inside = false;  // the one under text_config counts where the top level has none
    bool is(std::string_view key) const { return key == name || key == older; }
};
constexpr std::array whole_keys = {
    WholeKey{.name = "architectures"},
    WholeKey{.name = "tie_word_embeddings"},
    WholeKey{.name = "id2label"},
    WholeKey{.name = "num_labels"},
    WholeKey{.name = "problem_type"},
    WholeKey{.name = "sentence_transformers", .older = "sbert_ce_default_activation_function"},
    WholeKey{.name = "dtype", .older = "torch_dtype", .also_inside = true},
    WholeKey{.name = "eos_token_id", .also_inside = true},
    WholeKey{.name = "bos_token_id", .also_inside = true},
    WholeKey{.name = "quantization_config", .also_inside = true},
};

// The keys under text_config, with those of whole_keys as transformers takes them. Other keys at the top level do not count: what
// text_config lacks has its default.
Json text_part_of(const Json& root, const FamilyTraits& traits, const std::string& file) {
    const Section whole(root, file);
    const Json* const text = whole.find("text_config");
    if (text == nullptr || !text->is_object()) whole.refuse("text_config", "it must be an object with the keys of the text model");
    const std::string own = std::string(traits.model_type) + "_text";
    const Section part(*text, file, "text_config");
    const Json* const type = part.find("model_type");
    if (type != nullptr && type->dump() != '"' + own + '"') part.refuse("model_type", "supported: " + own);
    const auto is_of_whole = [&](std::string_view key) {
        const auto* const found = std::ranges::find_if(whole_keys, [&](const WholeKey& row) { return row.is(key); });
        if (found == whole_keys.end()) return false;
        return !found->also_inside || whole.find(found->name) != nullptr || whole.find(found->older) != nullptr;
    };
    Json out = Json::object({});
    for (const auto& [key, value] : part.members())
        if (!is_of_whole(key)) out.set(key, value);
    for (const auto& [key, value] : whole.members())
        if (is_of_whole(key)) out.set(key, value);
    return out;
}

void refuse_what_we_do_not_compute(const Section& config, const FamilyTraits& traits) {
    for (const Refusal& refusal : refusals) {
        if (std::ranges::find(traits.reads, refusal.key) != traits.reads.end()) continue;
        const Json* value = config.find(refusal.key);
        if (value != nullptr && !is_equal(*value, refusal.harmless)) config.refuse(refusal.key, refusal.advice);
    }
}

// The names in layer_types, one for each layer; none if the key is absent.
std::vector<std::string> read_layer_types(const Section& config, std::int64_t layers) {
    const Json* types = config.find("layer_types");
    if (types == nullptr) return {};
    if (!types->is_array() || std::ssize(*types->as_array()) != layers)
        config.refuse("layer_types", fmt::format("it must be a list of {} names, one per layer", layers));
    std::vector<std::string> out;
    for (const Json& type : *types->as_array()) {
        const std::string* name = type.as_string();
        if (name == nullptr || (*name != "full_attention" && *name != "sliding_attention"))
            config.refuse("layer_types", "supported: full_attention, sliding_attention");
        out.push_back(*name);
    }
    return out;
}

std::vector<std::optional<std::int64_t>> read_windows(const Section& config, const FamilyTraits& traits, const ModelConfig& model) {
    const std::int64_t layers = model.layers;
    const Windows windows = traits.windows;
    std::vector<std::optional<std::int64_t>> out(static_cast<std::size_t>(layers));
    const std::vector<std::string> types = read_layer_types(config, layers);
    // There is no window if the key is null (Mistral).
    std::optional<std::int64_t> window;
    const bool has_switch = windows == Windows::from_layer || windows == Windows::without_rope || windows == Windows::all_by_key ||
                            windows == Windows::even_below;
    const bool on = has_switch ? config.boolean("use_sliding_window", false) : windows != Windows::none;
    const bool is_null = config.has("sliding_window") && config.find("sliding_window") == nullptr;
    if (on && !is_null && (traits.window_default || config.has("sliding_window")))
        window = config.integer("sliding_window", traits.window_default, 1, size_max);
    const std::int64_t first = windows == Windows::from_layer ? config.integer("max_window_layers", 28, 0, size_max) : 0;
    const std::int64_t end = windows == Windows::even_below ? config.integer("max_window_layers", 28, 0, size_max) : layers;
    std::optional<std::int64_t> every;  // of so many layers the last has no window
    if (windows == Windows::by_pattern)
        every = traits.window_pattern_key == nullptr ? traits.window_pattern
                                                     : config.integer(traits.window_pattern_key, traits.window_pattern, 1, size_max);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        bool sliding = layer >= first && (!every || (layer + 1) % *every != 0);
        if (windows == Windows::without_rope) sliding = !model.rotates(layer);
        if (windows == Windows::even_below) sliding = layer % 2 == 0 && layer < end;
        if (!types.empty()) {
            const bool asked = types[static_cast<std::size_t>(layer)] == "sliding_attention";
            if (asked && !window)
                config.refuse("layer_types",
                              "sliding_attention requires sliding_window, and use_sliding_window = true if the family has that key");
            const bool is_uniform = windows == Windows::all || windows == Windows::none || windows == Windows::all_by_key;
            if (is_uniform && asked != window.has_value()) {
                config.refuse("layer_types", "this family requires the same window in all layers");
            }
            sliding = asked;
        }
        if (sliding) out[static_cast<std::size_t>(layer)] = window;
    }
    return out;
}

// ModernBERT: a token of a layer with a window sees half of local_attention to each side.
std::vector<std::optional<std::int64_t>> read_alternating_windows(const Section& config, std::int64_t layers) {
    const std::int64_t window = config.integer("local_attention", 128, 0, size_max) / 2 + 1;
    const std::int64_t every = config.integer("global_attn_every_n_layers", 3, 1, size_max);
    const std::vector<std::string> types = read_layer_types(config, layers);
    std::vector<std::optional<std::int64_t>> out(static_cast<std::size_t>(layers));
    for (std::size_t layer = 0; layer < out.size(); ++layer) {
        const bool slides = types.empty() ? layer % static_cast<std::size_t>(every) != 0 : types[layer] == "sliding_attention";
        if (slides) out[layer] = window;
    }
    return out;
}

// What only encoders have.
void read_encoder(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    if (config.boolean("is_decoder", false)) config.refuse("is_decoder", "this family is supported as an encoder only");
    out.is_encoder = true;
    out.embedding_size = out.hidden;
    if (traits.names->embedding_projection != nullptr)
        out.embedding_size = config.integer("embedding_size", traits.names->projects_first ? out.hidden : 128, 1, size_max);
    if (traits.names->types != nullptr) out.token_types = config.integer("type_vocab_size", traits.token_types_default, 0, size_max);
    if (traits.names->distance_bias != nullptr) out.distance_buckets = config.integer("relative_attention_num_buckets", 32, 32, size_max);
    if (traits.names->relative_positions != nullptr) read_disentangled(config, out);
    if (traits.first_position == FirstPosition::zero) return;
    // MPNet's padding token is always 1.
    out.padding_id = static_cast<std::int32_t>(
        traits.names->distance_bias != nullptr ? 1 : config.integer("pad_token_id", traits.padding_default, 0, size_max));
    out.first_position = *out.padding_id + 1;
    if (out.max_positions <= out.first_position)
        config.refuse(traits.keys->max_positions, fmt::format("positions begin at {}, after pad_token_id", out.first_position));
    out.max_positions -= out.first_position;
}

// One id, a list of ids, or none.
std::vector<std::int32_t> read_ids(const Section& config, std::string_view key) {
    const Json* value = config.find(key);
    std::vector<std::int32_t> out;
    if (value == nullptr) return out;
    const auto add = [&](const Json& id) {
        const auto number = id.as_integer();
        if (!number || *number < 0 || *number > size_max) config.refuse(key, "it must be a token id or a list of token ids");
        out.push_back(static_cast<std::int32_t>(*number));
    };
    if (const auto* list = value->as_array()) {
        for (const Json& id : *list) add(id);
    } else {
        add(*value);
    }
    return out;
}

bool has_bias(const Bias& bias, const Section& config) { return bias.key == nullptr ? bias.value : config.boolean(bias.key, bias.value); }

bool has_norm_bias(const FamilyTraits& traits, const Section& config) {
    switch (traits.norm_bias) {
        case NormBias::by_kind: return traits.norm == kernels::NormKind::layer;
        case NormBias::never: return false;
        case NormBias::by_norm_key: return config.boolean("norm_bias", false);
    }
    CHECK(false, "every kind of bias is read");
}

bool reads_one_residual(Residual residual, const Section& config) {
    switch (residual) {
        case Residual::sequential: return false;
        case Residual::parallel: return true;
        case Residual::sequential_by_key: return config.boolean("use_parallel_residual", false);
        case Residual::parallel_by_key: return config.boolean("use_parallel_residual", true);
    }
    CHECK(false, "every kind of residual is read");
}

// As a number of the checkpoint's dtype: rounded to its bits, ties to even.
double rounded(double value, kernels::Format format) {
    const int bits = format == kernels::Format::bfloat16 ? 8 : format == kernels::Format::float16 ? 11 : 24;
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

// What embeddings, scores, residuals and logits are multiplied by and capped at. The sizes and the storage must have been read.
void read_scales(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    constexpr double least = 1e-9;
    constexpr double most = 1e9;
    switch (traits.attention_scale) {
        case AttentionScale::by_head_dim: break;
        case AttentionScale::by_scale_attn_keys:
            if (!config.boolean("scale_attn_weights", true)) out.attention_scale = 1.0;
            out.attention_scaled_by_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
            break;
        case AttentionScale::by_query_scalar:
            out.attention_scale = 1.0 / std::sqrt(config.real("query_pre_attn_scalar", 256.0, least, most));
            break;
        case AttentionScale::by_multiplier: out.attention_scale = config.real("attention_multiplier", 1.0, least, most); break;
    }
    switch (traits.embedding_scale) {
        case EmbeddingScale::one: break;
        case EmbeddingScale::root_of_hidden: out.embedding_scale = rounded(std::sqrt(static_cast<double>(out.hidden)), out.storage); break;
        case EmbeddingScale::by_multiplier: out.embedding_scale = config.real("embedding_multiplier", 1.0, -most, most); break;
    }
    switch (traits.logit_scale) {
        case LogitScale::one: break;
        case LogitScale::by_scale: out.logit_scale = config.real("logit_scale", 0.0625, -most, most); break;
        case LogitScale::by_divisor: out.logit_scale = 1.0 / config.real("logits_scaling", 1.0, least, most); break;
    }
    if (traits.residual_multiplier) out.residual_scale = config.real("residual_multiplier", 1.0, -most, most);
    const auto cap = [&](const char* key, const std::optional<double>& absent) {
        return config.has(key) ? config.optional_real(key, least, most) : absent;
    };
    if (traits.caps_scores) out.attention_cap = cap("attn_logit_softcapping", traits.attention_cap_default);
    if (traits.caps_logits) out.logit_cap = cap("final_logit_softcapping", traits.logit_cap_default);
}

// The layers that have an MLP instead of experts.
std::vector<std::int64_t> read_dense_layers(const Section& config) {
    const Json* const list = config.find("mlp_only_layers");
    std::vector<std::int64_t> out;
    if (list == nullptr) return out;
    constexpr const char* wanted = "it must be a list of layer numbers";
    if (!list->is_array()) config.refuse("mlp_only_layers", wanted);
    for (const Json& layer : *list->as_array()) {
        const auto number = layer.as_integer();
        if (!number || *number < 0) config.refuse("mlp_only_layers", wanted);
        out.push_back(*number);
    }
    return out;
}

// The one of two names for the same that the config has. Refused if their values contradict each other.
const char* key_of(const Section& config, const char* own, const char* other) {
    const Json* const of_own = config.find(own);
    const Json* const of_other = config.find(other);
    if (of_own != nullptr && of_other != nullptr && !are_equal(*of_own, *of_other))
        config.refuse(other, fmt::format("{} = {} means the same; keep one of them", own, schema::shortened(of_own->dump())));
    return of_own == nullptr && of_other != nullptr ? other : own;
}

ExpertsConfig read_experts(const Section& config, const ExpertKeys& keys, const ModelConfig& model) {
    // Both are names of the same in transformers 5.
    const char* const count_key = key_of(config, "num_experts", "num_local_experts");
    ExpertsConfig out;
    out.count = config.integer(count_key, keys.count_default, 1, experts_max);
    if (out.count * model.layers > all_experts_max)
        config.refuse(count_key, fmt::format("at most {} experts in all layers together are supported", all_experts_max));
    out.chosen = config.integer("num_experts_per_tok", keys.chosen_default, 1, out.count);
    out.intermediate =
        keys.intermediate == nullptr ? model.intermediate : config.integer(keys.intermediate, keys.intermediate_default, 1, size_max);
    if (keys.shared_intermediate != nullptr)
        out.shared_intermediate = config.integer(keys.shared_intermediate, keys.shared_intermediate_default, 1, size_max);
    out.normalized = keys.normalized == nullptr || config.boolean(keys.normalized, false);
    const std::int64_t step = keys.has_dense_layers ? config.integer("decoder_sparse_step", 1, 1, size_max) : 1;
    const std::vector<std::int64_t> dense = keys.has_dense_layers ? read_dense_layers(config) : std::vector<std::int64_t>();
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
        out.sparse.push_back((layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end());
    return out;
}

void read_sizes(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    const Keys& keys = *traits.keys;
    // transformers accepts the common names for GPT-2's sizes, too.
    const char* const hidden_key = key_of(config, keys.hidden, common_keys.hidden);
    const char* const heads_key = key_of(config, keys.heads, common_keys.heads);
    out.hidden = config.integer(hidden_key, std::nullopt, 1, size_max);
    out.heads = config.integer(heads_key, traits.heads_default, 1, size_max);
    out.layers = config.integer(key_of(config, keys.layers, common_keys.layers), std::nullopt, 1, layers_max);
    out.vocabulary = config.integer("vocab_size", traits.vocabulary_default, 1, size_max);
    out.max_positions =
        config.integer(key_of(config, keys.max_positions, common_keys.max_positions), traits.max_positions_default, 1, size_max);
    const auto factor = traits.intermediate_default;
    out.intermediate = config.integer(keys.intermediate, factor ? std::optional(*factor * out.hidden) : std::nullopt, 1, size_max);
    out.norm_epsilon = config.real(keys.epsilon, traits.epsilon_default, 0.0, 1.0);

    out.kv_heads = out.heads;
    out.head_dim = out.hidden / out.heads;
    bool head_dim_given = false;
    if (traits.heads_have_keys) {
        const bool kv_heads_null = config.has("num_key_value_heads") && config.find("num_key_value_heads") == nullptr;
        out.kv_heads =
            config.integer("num_key_value_heads", kv_heads_null ? out.heads : traits.kv_heads_default.value_or(out.heads), 1, size_max);
        const bool head_dim_null = config.has("head_dim") && config.find("head_dim") == nullptr;
        head_dim_given = config.find("head_dim") != nullptr || (traits.head_dim_default && !head_dim_null);
        out.head_dim =
            config.integer("head_dim", head_dim_null ? out.head_dim : traits.head_dim_default.value_or(out.head_dim), 1, size_max);
    }
    if (!head_dim_given && out.hidden % out.heads != 0)
        config.refuse(heads_key, fmt::format("it must divide {} = {}", hidden_key, out.hidden));
    if (out.heads % out.kv_heads != 0) config.refuse("num_key_value_heads", fmt::format("it must divide {} = {}", heads_key, out.heads));
    if (traits.rope != Rope::none && out.head_dim % 2 != 0)
        config.refuse(head_dim_given ? "head_dim" : heads_key, "rotary positions require an even head_dim");
    if (out.heads * out.head_dim > size_max) config.refuse(heads_key, "heads times head_dim is too large");
}

void read_generation_defaults(const Section& generation, ModelConfig& out) {
    const auto eos = read_ids(generation, "eos_token_id");
    if (!eos.empty()) out.eos_ids = eos;
    constexpr double above_zero = 1e-6;
    schema::Sampling& defaults = out.sampling_defaults;
    defaults.temperature = generation.optional_real("temperature", 0.0, 100.0);
    defaults.top_p = generation.optional_real("top_p", above_zero, 1.0);
    defaults.min_p = generation.optional_real("min_p", 0.0, 1.0);
    defaults.repetition_penalty = generation.optional_real("repetition_penalty", above_zero, 100.0);
    if (generation.find("top_k") != nullptr) {
        defaults.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(0, generation.integer("top_k", std::nullopt, -1, size_max)));
    }
    if (generation.find("max_new_tokens") != nullptr) {
        out.max_new_tokens = generation.integer("max_new_tokens", std::nullopt, 1, size_max);
    }
}

// A GGUF file has a model's config, tokenizer and quantized weights in one.
void refuse_gguf(const std::filesystem::path& folder) {
    const auto is_gguf = [](const std::filesystem::path& path) { return path.extension() == ".gguf"; };
    std::filesystem::path found = is_gguf(folder) ? folder : std::filesystem::path();
    bool has_weights = false;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        if (is_gguf(entry.path())) found = entry.path();
        if (entry.path().extension() == ".safetensors") has_weights = true;
    }
    if (found.empty() || has_weights) return;
    throw std::runtime_error(fmt::format(
        "{}: GGUF files are not supported; fetch the folder with config.json and safetensors files that this one was made from, and use "
        "--quantize to store its weights in less memory",
        found.string()));
}

// What to do where config.json cannot be read.
const char* advice_without_config(const std::filesystem::path& folder) {
    if (!std::filesystem::exists(folder / "adapter_config.json")) return "a model folder is one that transformers' save_pretrained wrote";
    return "the folder holds an adapter: --model takes the model that it was trained on, --adapters the folder that this one is in";
}

// Why codes of this format are not read for this family; nullptr: they are.
const char* codes_obstacle(const ModelConfig& config) {
    const bool is_mxfp4 = config.quantized && config.quantized->format == CodeFormat::mxfp4;
    const bool experts_alternate = config.experts && config.names->experts->alternates;
    if (!config.quantized || is_mxfp4 == experts_alternate) return nullptr;
    return is_mxfp4 ? "MXFP4 is supported for GPT-OSS only; use a checkpoint in another format"
                    : "experts of GPT-OSS are supported in MXFP4 and in full precision only";
}

void read_quantized_files(const std::filesystem::path& folder, ModelConfig& out) {
    for (const QuantizedFile& older : quantized_files) {
        const std::string file = (folder / older.name).string();
        const auto text = read_text_if_there(file);
        if (!text) throw std::runtime_error(text.error());
        if (text->empty()) continue;
        auto root = Json::parse(*text);
        if (!root) throw std::runtime_error(fmt::format("{}: not JSON: {}", file, root.error()));
        if (root->is_object() && root->find("quant_method") == nullptr) root->set("quant_method", older.method);
        const Json wrapped = Json::object({{"quantization_config", *std::move(root)}});
        const Section section(wrapped, file);
        out.quantized = read_quantized_config(section);
        if (const char* const obstacle = codes_obstacle(out)) section.refuse("quantization_config", obstacle);
        return;
    }
}

}  // namespace

ModelConfig ModelConfig::parse(std::string_view config_json, std::string_view generation_config_json, const std::string& file) {
    const auto root = Json::parse(config_json);
    if (!root) throw std::runtime_error(fmt::format("{}: not JSON: {}", file, root.error()));
    const FamilyTraits& traits = family_of(Section(*root, file));
    const Json keys = traits.nested ? text_part_of(*root, traits, file) : *root;
    const Section config(keys, file);
    refuse_what_we_do_not_compute(config, traits);

    ModelConfig out;
    out.family = traits.model_type;
    if (traits.nested) out.skipped_parts = other_parts_of(*root);
    const bool is_legacy = traits.names_unless_legacy == nullptr || config.boolean("legacy", true);
    out.names = is_legacy ? traits.names : traits.names_unless_legacy;
    read_sizes(config, traits, out);
    out.norm = traits.norm;
    out.norm_bias = has_norm_bias(traits, config);
    out.norm_offset = traits.norm_offset;
    out.gated = traits.names->gated;
    out.learned_positions = traits.names->positions != nullptr;
    out.qk_norm = traits.qk_norm;
    const char* const activation_key = traits.keys->activation;
    out.activation = read_activation(config, activation_key, traits.activation_default);
    if (traits.gelu_is_tanh && config.find(activation_key) != nullptr && is_equal(*config.find(activation_key), "\"gelu\""))
        out.activation = kernels::ActivationKind::gelu_tanh;
    out.is_parallel = reads_one_residual(traits.residual, config);
    out.shares_norm = out.is_parallel && traits.parallel_shares_norm;
    if (traits.is_encoder) read_encoder(config, traits, out);
    read_heads(config, traits, out);
    out.attention_bias = has_bias(traits.attention_bias, config);
    out.output_bias = has_bias(traits.output_bias, config);
    out.mlp_bias = has_bias(traits.mlp_bias, config);
    if (traits.clamped_gate)
        out.clamped_gate = {config.real("swiglu_alpha", 1.702, 1e-3, 1e3), config.real("swiglu_limit", 7.0, 1e-3, 1e6)};
    if (traits.experts != nullptr) out.experts = read_experts(config, *traits.experts, out);
    out.tied_head = !is_legacy || config.boolean("tie_word_embeddings", traits.tied_default);
    read_rope(config, traits, out);
    out.windows = traits.windows == Windows::alternating ? read_alternating_windows(config, out.layers) : read_windows(config, traits, out);
    if (traits.rope_keys.needs_window) {
        for (const auto& window : out.windows) out.unrotated.push_back(!window);
    }
    out.storage = config.one_of(formats, config.find("dtype") != nullptr ? "dtype" : "torch_dtype", "float32").format;
    read_scales(config, traits, out);
    out.quantized = read_quantized_config(config);
    if (const char* const obstacle = codes_obstacle(out)) config.refuse("quantization_config", obstacle);

    const auto bos = read_ids(config, "bos_token_id");
    if (!bos.empty()) out.bos_id = bos.front();
    out.eos_ids = read_ids(config, "eos_token_id");
    if (!generation_config_json.empty()) {
        const std::string generation_file = (std::filesystem::path(file).parent_path() / "generation_config.json").string();
        const auto generation = Json::parse(generation_config_json);
        if (!generation) throw std::runtime_error(fmt::format("{}: not JSON: {}", generation_file, generation.error()));
        read_generation_defaults(Section(*generation, generation_file), out);
    }
    // Some reduced checkpoints have ids beyond the vocabulary. These are never drawn.
    std::erase_if(out.eos_ids, [&](std::int32_t id) { return id >= out.vocabulary; });
    return out;
}

ModelConfig ModelConfig::load(const std::filesystem::path& folder, std::optional<PoolingMode> pooling) {
    refuse_gguf(folder);
    const auto file = folder / "config.json";
    const auto config = read_text(file);
    if (!config) throw std::runtime_error(config.error() + "; " + advice_without_config(folder));
    const auto generation = read_text_if_there(folder / "generation_config.json");
    if (!generation) throw std::runtime_error(generation.error());
    ModelConfig out = parse(*config, *generation, file.string());
    if (!out.quantized) read_quantized_files(folder, out);
    read_sentence_transformers(folder, pooling, out);
    return out;
}

}  // namespace lorry::engine
