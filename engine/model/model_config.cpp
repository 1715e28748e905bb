// Reads config.json and generation_config.json into a ModelConfig. Each model family is one row of `families`; its keys and defaults are
// those of transformers' configuration classes. Called by model loading, adapter inspection and `lorry check-model`.
#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "engine/files.h"
#include "engine/model/config_section.h"
#include "engine/model/model_families.h"
#include "engine/model/model_heads.h"
#include "engine/model/relative_positions.h"
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

struct RopeName {
    std::string_view name;
    RopeConfig::Kind kind;
};
constexpr std::array rope_names = {RopeName{"default", RopeConfig::Kind::standard}, RopeName{"linear", RopeConfig::Kind::linear},
                                   RopeName{"dynamic", RopeConfig::Kind::dynamic}, RopeName{"llama3", RopeConfig::Kind::llama3},
                                   RopeName{"yarn", RopeConfig::Kind::yarn}};

// Keys that change what the model computes in ways that Lorry does not support. null and the harmless value are accepted.
struct Refusal {
    const char* key;
    const char* harmless;  // as JSON text
    const char* advice;
};
constexpr std::array refusals = {
    Refusal{"quantization_config", "null", "use the unquantized checkpoint"},
    Refusal{"compression_config", "null", "use the unquantized checkpoint"},
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
    Refusal{"num_experts", "null", "mixtures of experts are not supported"},
    Refusal{"num_local_experts", "null", "mixtures of experts are not supported"},
    Refusal{"n_routed_experts", "null", "mixtures of experts are not supported"},
    Refusal{"num_experts_per_tok", "null", "mixtures of experts are not supported"},
    Refusal{"attention_chunk_size", "null", "chunked attention is not supported"},
    Refusal{"vision_config", "null", "only text models are supported"},
};

// Larger sizes mean a broken file. The product of two of them fits into 64 bits.
constexpr std::int64_t size_max = std::int64_t{1} << 28;
constexpr std::int64_t layers_max = 4096;

const FamilyTraits& family_of(const Section& config) {
    const Json* type = config.find("model_type");
    for (const FamilyTraits& traits : families) {
        if (type != nullptr && type->as_string() != nullptr && *type->as_string() == traits.model_type) return traits;
    }
    std::string known;
    for (const FamilyTraits& traits : families) known += (known.empty() ? "" : ", ") + std::string(traits.model_type);
    config.refuse("model_type", "supported: " + known);
}

// json: a value without members. Numbers are compared by value: 1 equals 1.0.
bool is_equal(const Json& value, std::string_view json) {
    const Json other = *Json::parse(json);
    return value.is_number() ? value.as_number() == other.as_number() : value.dump() == json;
}

void refuse_what_we_do_not_compute(const Section& config) {
    for (const Refusal& refusal : refusals) {
        const Json* value = config.find(refusal.key);
        if (value != nullptr && !is_equal(*value, refusal.harmless)) config.refuse(refusal.key, refusal.advice);
    }
}

// Reads both generations of keys: rope_theta + rope_scaling {"type" | "rope_type", …}, and rope_parameters {"rope_type", "rope_theta", …}.
RopeConfig read_rope(const Section& config, const std::string& file, std::int64_t max_positions) {
    RopeConfig rope;
    constexpr double theta_max = 1e12;
    rope.theta = config.real("rope_theta", 10000.0, 1.0, theta_max);
    const Json* scaling = config.find("rope_scaling");
    const bool old = scaling != nullptr && !(scaling->is_object() && scaling->as_object()->empty());
    const char* path = old ? "rope_scaling" : "rope_parameters";
    const Json* found = config.find(path);
    rope.kind = RopeConfig::Kind::standard;
    if (found == nullptr) return rope;

    const Section parameters(*found, file, path);
    rope.kind = parameters.one_of(rope_names, parameters.find("rope_type") != nullptr ? "rope_type" : "type", "default").kind;
    static constexpr std::array<std::string_view, 15> known = {"type",
                                                               "rope_type",
                                                               "rope_theta",
                                                               "factor",
                                                               "original_max_position_embeddings",
                                                               "low_freq_factor",
                                                               "high_freq_factor",
                                                               "beta_fast",
                                                               "beta_slow",
                                                               "attention_factor",
                                                               "mscale",
                                                               "mscale_all_dim",
                                                               "truncate",
                                                               "partial_rotary_factor",
                                                               "finetuned"};
    for (const auto& [key, value] : parameters.members()) {
        const bool is_known = std::find(known.begin(), known.end(), key) != known.end();
        if (!is_known && !value.is_null()) parameters.refuse(key, "the key is unknown");
    }
    if (const Json* partial = parameters.find("partial_rotary_factor"); partial != nullptr && !is_equal(*partial, "1")) {
        parameters.refuse("partial_rotary_factor", "only models that rotate whole heads are supported");
    }
    rope.theta = parameters.real("rope_theta", rope.theta, 1.0, theta_max);
    if (rope.kind == RopeConfig::Kind::standard) return rope;

    // A top-level original_max_position_embeddings takes precedence over the one in the object.
    rope.original_max_positions =
        config.integer("original_max_position_embeddings",
                       parameters.integer("original_max_position_embeddings", max_positions, 1, size_max), 1, size_max);
    // Dynamic scaling starts at max_position_embeddings, whatever the original was.
    if (rope.kind == RopeConfig::Kind::dynamic) rope.original_max_positions = max_positions;
    std::optional<double> factor_default;
    if (rope.kind == RopeConfig::Kind::yarn)
        factor_default = static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
    rope.factor = parameters.real("factor", factor_default, 1.0, 1e6);
    if (rope.kind == RopeConfig::Kind::yarn && rope.theta <= 1.0)
        (parameters.has("rope_theta") ? parameters : config).refuse("rope_theta", "yarn divides by its logarithm: it must be above 1");
    const bool llama3 = rope.kind == RopeConfig::Kind::llama3;
    rope.low_freq_factor = parameters.real("low_freq_factor", llama3 ? std::nullopt : std::optional(1.0), 1e-6, 1e6);
    rope.high_freq_factor = parameters.real("high_freq_factor", llama3 ? std::nullopt : std::optional(4.0), 1e-6, 1e6);
    if (llama3 && rope.high_freq_factor <= rope.low_freq_factor)
        parameters.refuse("high_freq_factor", "it must be larger than low_freq_factor");
    const auto beta = [&](const char* key, double absent) {
        const double value = parameters.real(key, absent, 0.0, 1e6);
        if (value != 0.0 && value < 1e-6) parameters.refuse(key, "it must be 0 or a number from 1e-06 on");
        return value == 0.0 ? absent : value;
    };
    rope.beta_fast = beta("beta_fast", rope.beta_fast);
    rope.beta_slow = beta("beta_slow", rope.beta_slow);
    rope.attention_factor = parameters.optional_real("attention_factor", 0.0, 1e6);
    rope.mscale = parameters.optional_real("mscale", 0.0, 1e6);
    rope.mscale_all_dim = parameters.optional_real("mscale_all_dim", 0.0, 1e6);
    rope.truncate = parameters.boolean("truncate", true);
    return rope;
}

// The longest sequence in tokens. The scaled kinds go beyond the context that the base model was trained with.
std::int64_t scaled_positions(const Section& config, const RopeConfig& rope, std::int64_t max_positions) {
    const auto scaled = [&](std::int64_t positions) {
        const double tokens = static_cast<double>(positions) * rope.factor;
        if (tokens <= static_cast<double>(size_max)) return static_cast<std::int64_t>(tokens);
        config.refuse(config.find("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters",
                      fmt::format("its factor gives a context of more than {} tokens", size_max));
    };
    switch (rope.kind) {
        case RopeConfig::Kind::none:
        case RopeConfig::Kind::standard:
        case RopeConfig::Kind::llama3: return max_positions;
        case RopeConfig::Kind::linear:
        case RopeConfig::Kind::dynamic: return scaled(max_positions);
        case RopeConfig::Kind::yarn: return std::max(max_positions, scaled(rope.original_max_positions));
    }
    CHECK(false, "every kind of rope has a context limit");
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

std::vector<std::optional<std::int64_t>> read_windows(const Section& config, Windows windows, std::int64_t layers) {
    std::vector<std::optional<std::int64_t>> out(static_cast<std::size_t>(layers));
    const std::vector<std::string> types = read_layer_types(config, layers);
    // The window is 4,096 if the key is absent, and there is none if it is null (Mistral).
    std::optional<std::int64_t> window;
    const bool on = windows == Windows::all || (windows == Windows::from_layer && config.boolean("use_sliding_window", false));
    if (on && !(config.has("sliding_window") && config.find("sliding_window") == nullptr)) {
        window = config.integer("sliding_window", 4096, 1, size_max);
    }
    const std::int64_t first = windows == Windows::from_layer ? config.integer("max_window_layers", 28, 0, size_max) : 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        bool sliding = layer >= first;
        if (!types.empty()) {
            const bool asked = types[static_cast<std::size_t>(layer)] == "sliding_attention";
            if (asked && !window)
                config.refuse("layer_types",
                              "sliding_attention requires sliding_window, and use_sliding_window = true if the family has that key");
            if (windows != Windows::from_layer && asked != window.has_value()) {
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

// The theta of the layers of one type, from either generation of keys: rope_parameters {TYPE: {"rope_theta"}}, or a key of its own.
double read_theta(const Section& config, const std::string& file, const char* type, const char* old_key, double absent) {
    constexpr double theta_max = 1e12;
    if (config.find("rope_scaling") != nullptr) config.refuse("rope_scaling", "scaled rope is not supported for this model_type");
    const double theta = config.real(old_key, absent, 1.0, theta_max);
    const Json* all = config.find("rope_parameters");
    if (all == nullptr) return theta;
    const Json* one = Section(*all, file, "rope_parameters").find(type);
    if (one == nullptr) return theta;
    const Section parameters(*one, file, std::string("rope_parameters.") + type);
    for (const auto& [key, value] : parameters.members()) {
        if (key != "rope_type" && key != "rope_theta" && !value.is_null()) parameters.refuse(key, "the key is unknown");
    }
    static constexpr std::array standard = {RopeName{"default", RopeConfig::Kind::standard}};
    parameters.one_of(standard, "rope_type", "default");
    return parameters.real("rope_theta", theta, 1.0, theta_max);
}

// What only encoders have.
void read_encoder(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    if (config.boolean("is_decoder", false)) config.refuse("is_decoder", "this family is supported as an encoder only");
    out.is_encoder = true;
    out.embedding_size = out.hidden;
    if (traits.names.embedding_projection != nullptr)
        out.embedding_size = config.integer("embedding_size", traits.names.projects_first ? out.hidden : 128, 1, size_max);
    if (traits.names.types != nullptr) out.token_types = config.integer("type_vocab_size", traits.token_types_default, 0, size_max);
    if (traits.names.distance_bias != nullptr) out.distance_buckets = config.integer("relative_attention_num_buckets", 32, 32, size_max);
    if (traits.names.relative_positions != nullptr) read_disentangled(config, out);
    if (traits.first_position == FirstPosition::zero) return;
    // MPNet's padding token is always 1.
    out.padding_id = static_cast<std::int32_t>(
        traits.names.distance_bias != nullptr ? 1 : config.integer("pad_token_id", traits.padding_default, 0, size_max));
    out.first_position = *out.padding_id + 1;
    if (out.max_positions <= out.first_position)
        config.refuse(traits.keys.max_positions, fmt::format("positions begin at {}, after pad_token_id", out.first_position));
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

bool has_bias(Bias bias, const Section& config) {
    switch (bias) {
        case Bias::never: return false;
        case Bias::always: return true;
        case Bias::by_attention_key: return config.boolean("attention_bias", false);
        case Bias::by_mlp_key: return config.boolean("mlp_bias", false);
    }
    CHECK(false, "every kind of bias is read");
}

void read_sizes(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    const Keys& keys = traits.keys;
    // transformers accepts the common names for GPT-2's sizes, too.
    const auto key_of = [&](const char* own, const char* common) {
        return config.find(own) == nullptr && config.find(common) != nullptr ? common : own;
    };
    const auto hidden_key = key_of(keys.hidden, common_keys.hidden);
    const auto heads_key = key_of(keys.heads, common_keys.heads);
    out.hidden = config.integer(hidden_key, std::nullopt, 1, size_max);
    out.heads = config.integer(heads_key, std::nullopt, 1, size_max);
    out.layers = config.integer(key_of(keys.layers, common_keys.layers), std::nullopt, 1, layers_max);
    out.vocabulary = config.integer("vocab_size", std::nullopt, 1, size_max);
    out.max_positions = config.integer(key_of(keys.max_positions, common_keys.max_positions), traits.max_positions_default, 1, size_max);
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

}  // namespace

ModelConfig ModelConfig::parse(std::string_view config_json, std::string_view generation_config_json, const std::string& file) {
    const auto root = Json::parse(config_json);
    if (!root) throw std::runtime_error(fmt::format("{}: not JSON: {}", file, root.error()));
    const Section config(*root, file);
    const FamilyTraits& traits = family_of(config);
    refuse_what_we_do_not_compute(config);

    ModelConfig out;
    out.family = traits.model_type;
    const bool is_legacy = traits.names_unless_legacy == nullptr || config.boolean("legacy", true);
    out.names = is_legacy ? &traits.names : traits.names_unless_legacy;
    read_sizes(config, traits, out);
    out.norm = traits.norm;
    out.norm_bias = traits.norm_bias == NormBias::by_norm_key ? config.boolean("norm_bias", false) : out.norm == kernels::NormKind::layer;
    out.gated = traits.names.gated;
    out.learned_positions = traits.names.positions != nullptr;
    out.qk_norm = traits.qk_norm;
    out.activation = read_activation(config, traits.keys.activation, traits.activation_default);
    if (traits.is_encoder) read_encoder(config, traits, out);
    read_heads(config, traits, out);
    if (traits.attention_scale == AttentionScale::by_scale_attn_keys) {
        out.attention_scaled = config.boolean("scale_attn_weights", true);
        out.attention_scaled_by_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
    }
    out.attention_bias = has_bias(traits.attention_bias, config);
    out.output_bias = has_bias(traits.output_bias, config);
    out.mlp_bias = has_bias(traits.mlp_bias, config);
    out.tied_head = !is_legacy || config.boolean("tie_word_embeddings", traits.tied_default);
    out.windows = traits.windows == Windows::alternating ? read_alternating_windows(config, out.layers)
                                                         : read_windows(config, traits.windows, out.layers);
    switch (traits.rope) {
        case Rope::none: break;
        case Rope::one:
            out.rope = read_rope(config, file, out.max_positions);
            out.max_positions = scaled_positions(config, out.rope, out.max_positions);
            break;
        case Rope::by_window:
            out.rope = {.kind = RopeConfig::Kind::standard,
                        .theta = read_theta(config, file, "full_attention", "global_rope_theta", 160000.0)};
            // null: as the other layers.
            out.window_rope_theta = read_theta(config, file, "sliding_attention", "local_rope_theta",
                                               config.has("local_rope_theta") ? out.rope.theta : 10000.0);
            break;
    }
    out.storage = config.one_of(formats, config.find("dtype") != nullptr ? "dtype" : "torch_dtype", "float32").format;

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
    const auto file = folder / "config.json";
    const auto config = read_text(file);
    if (!config) throw std::runtime_error(config.error() + "; a model folder is one that transformers' save_pretrained wrote");
    const auto generation = read_text_if_there(folder / "generation_config.json");
    if (!generation) throw std::runtime_error(generation.error());
    ModelConfig out = parse(*config, *generation, file.string());
    read_sentence_transformers(folder, pooling, out);
    return out;
}

}  // namespace lorry::engine
