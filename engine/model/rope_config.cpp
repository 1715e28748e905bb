// Reads rope_theta + rope_scaling {"type" | "rope_type", …} of older configs and rope_parameters {"rope_type", "rope_theta", …} of newer
// ones, which may have one such object for each type of layers.
#include "engine/model/rope_config.h"

#include <algorithm>
#include <array>

namespace lorry::engine {
namespace {

using schema::Json;

constexpr double theta_max = 1e12;

struct RopeName {
    std::string_view name;
    RopeConfig::Kind kind;
};
constexpr std::array rope_names = {RopeName{"default", RopeConfig::Kind::standard}, RopeName{"linear", RopeConfig::Kind::linear},
                                   RopeName{"dynamic", RopeConfig::Kind::dynamic}, RopeName{"llama3", RopeConfig::Kind::llama3},
                                   RopeName{"yarn", RopeConfig::Kind::yarn}};
// As transformers' Phi-3, where su and yarn were names of longrope.
constexpr std::array long_rope_names = {RopeName{"default", RopeConfig::Kind::standard}, RopeName{"longrope", RopeConfig::Kind::longrope},
                                        RopeName{"su", RopeConfig::Kind::longrope}, RopeName{"yarn", RopeConfig::Kind::longrope}};
// Without kinds whose table of positions differs between requests: layers of both types share the numbers of its rows.
constexpr std::array layer_rope_names = {RopeName{"default", RopeConfig::Kind::standard}, RopeName{"linear", RopeConfig::Kind::linear},
                                         RopeName{"llama3", RopeConfig::Kind::llama3}};
constexpr std::array standard_names = {RopeName{"default", RopeConfig::Kind::standard}};

void refuse_unknown_keys(const Section& parameters) {
    static constexpr std::array<std::string_view, 17> known = {"type",
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
                                                               "finetuned",
                                                               "short_factor",
                                                               "long_factor"};
    for (const auto& [key, value] : parameters.members()) {
        const bool is_known = std::find(known.begin(), known.end(), key) != known.end();
        if (!is_known && !value.is_null()) parameters.refuse(key, "the key is unknown");
    }
}

RopeConfig::Kind kind_of(const Section& parameters, std::span<const RopeName> names) {
    return parameters.one_of(names, parameters.find("rope_type") != nullptr ? "rope_type" : "type", "default").kind;
}

void read_llama3(const Section& parameters, RopeConfig& rope) {
    rope.low_freq_factor = parameters.real("low_freq_factor", std::nullopt, 1e-6, 1e6);
    rope.high_freq_factor = parameters.real("high_freq_factor", std::nullopt, 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) parameters.refuse("high_freq_factor", "it must be larger than low_freq_factor");
}

void read_yarn(const Section& parameters, RopeConfig& rope) {
    const auto beta = [&](const char* key, double absent) {
        const double value = parameters.real(key, absent, 0.0, 1e6);
        if (value != 0.0 && value < 1e-6) parameters.refuse(key, "it must be 0 or a number from 1e-06 on");
        return value == 0.0 ? absent : value;
    };
    rope.beta_fast = beta("beta_fast", rope.beta_fast);
    rope.beta_slow = beta("beta_slow", rope.beta_slow);
    rope.mscale = parameters.optional_real("mscale", 0.0, 1e6);
    rope.mscale_all_dim = parameters.optional_real("mscale_all_dim", 0.0, 1e6);
    rope.truncate = parameters.boolean("truncate", true);
}

// longrope's divisors of frequencies, one for each pair of rotated dimensions.
std::vector<double> read_factors(const Section& parameters, const char* key, std::int64_t pairs) {
    const Json* const list = parameters.find(key);
    const std::string wanted =
        fmt::format("longrope requires a list of {} positive numbers, one for each pair of rotated dimensions", pairs);
    if (list == nullptr || !list->is_array() || std::ssize(*list->as_array()) != pairs) parameters.refuse(key, wanted);
    std::vector<double> out;
    for (const Json& factor : *list->as_array()) {
        const auto number = factor.as_number();
        if (!number || !(*number >= 1e-6 && *number <= 1e6)) parameters.refuse(key, wanted);
        out.push_back(*number);
    }
    return out;
}

constexpr const char* original_key = "original_max_position_embeddings";

// What the scaled kinds have besides theta. max_positions: without the scaling. outer: a top-level original_max_position_embeddings, which
// takes precedence over the one in the object.
void read_scaling(const Section& config, const Section& parameters, std::optional<std::int64_t> outer, std::int64_t max_positions,
                  std::int64_t rotated, RopeConfig& rope) {
    rope.original_max_positions = outer ? *outer : parameters.integer(original_key, max_positions, 1, size_max);
    // Dynamic scaling starts at max_position_embeddings, whatever the original was.
    if (rope.kind == RopeConfig::Kind::dynamic) rope.original_max_positions = max_positions;
    const bool has_ratio = rope.kind == RopeConfig::Kind::yarn || rope.kind == RopeConfig::Kind::longrope;
    const double ratio = static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
    if (rope.kind == RopeConfig::Kind::longrope && !parameters.has("factor")) {
        rope.factor = ratio;  // which may be below 1
    } else {
        rope.factor = parameters.real("factor", has_ratio ? std::optional(ratio) : std::nullopt, 1.0, 1e6);
    }
    rope.attention_factor = parameters.optional_real("attention_factor", 0.0, 1e6);
    switch (rope.kind) {
        case RopeConfig::Kind::none:
        case RopeConfig::Kind::standard:
        case RopeConfig::Kind::linear:
        case RopeConfig::Kind::dynamic: break;
        case RopeConfig::Kind::llama3: read_llama3(parameters, rope); break;
        case RopeConfig::Kind::yarn:
            if (rope.theta <= 1.0)
                (parameters.has("rope_theta") ? parameters : config)
                    .refuse("rope_theta", "yarn divides by its logarithm: it must be above 1");
            read_yarn(parameters, rope);
            break;
        case RopeConfig::Kind::longrope:
            if (rope.original_max_positions <= 1) config.refuse(original_key, "longrope divides by its logarithm: it must be above 1");
            rope.configured_positions = max_positions;
            rope.short_factors = read_factors(parameters, "short_factor", rotated / 2);
            rope.long_factors = read_factors(parameters, "long_factor", rotated / 2);
            break;
    }
}

// The part of a head that is rotated, from a key of its own or from rope_parameters.
void read_partial(const Section& config, const Section* parameters, const RopeKeys& keys, ModelConfig& out) {
    const bool is_inside = parameters != nullptr && parameters->find(partial_key) != nullptr;
    if (keys.partial == nullptr) {
        if (is_inside && !is_equal(*parameters->find(partial_key), "1"))
            parameters->refuse(partial_key, "only models that rotate whole heads are supported");
        return;
    }
    const Section& section = is_inside ? *parameters : config;
    const char* const key = is_inside ? partial_key : keys.partial;
    const double part = section.real(key, keys.partial_default, 0.0, 1.0);
    const auto dims = static_cast<std::int64_t>(static_cast<double>(out.head_dim) * part);
    if (dims == 0 || dims % 2 != 0)
        section.refuse(key, fmt::format("it rotates {} of {} dimensions, not an even number", dims, out.head_dim));
    if (dims != out.head_dim) out.rotary_dims = dims;
}

// One rope for all layers.
RopeConfig read_one(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    const RopeKeys& keys = traits.rope_keys;
    RopeConfig rope{.kind = RopeConfig::Kind::standard, .theta = config.real(keys.theta, keys.theta_default, 1.0, theta_max)};
    const Json* scaling = config.find("rope_scaling");
    const bool old = scaling != nullptr && !(scaling->is_object() && scaling->as_object()->empty());
    const char* path = old ? "rope_scaling" : "rope_parameters";
    const Json* found = config.find(path);
    if (found == nullptr) {
        if (keys.needs_scaling) config.refuse(path, "this family requires it");
        read_partial(config, nullptr, keys, out);
        return rope;
    }
    const Section parameters(*found, config.file(), path);
    rope.kind = kind_of(parameters, keys.has_long ? std::span<const RopeName>(long_rope_names) : rope_names);
    refuse_unknown_keys(parameters);
    read_partial(config, &parameters, keys, out);
    rope.theta = parameters.real("rope_theta", rope.theta, 1.0, theta_max);
    if (rope.kind == RopeConfig::Kind::standard) return rope;
    std::optional<std::int64_t> outer = keys.original_default;
    if (config.find(original_key) != nullptr) outer = config.integer(original_key, std::nullopt, 1, size_max);
    read_scaling(config, parameters, outer, out.max_positions, out.rotated(), rope);
    return rope;
}

// The rope of the layers of one type: rope_parameters {TYPE: {"rope_theta"}}, or a key of its own. Only layers without a window may have a
// scaled one, which older configs have under rope_scaling.
RopeConfig read_of_layers(const Section& config, const ModelConfig& model, const char* type, const char* old_key, double absent) {
    RopeConfig rope{.kind = RopeConfig::Kind::standard, .theta = config.real(old_key, absent, 1.0, theta_max)};
    const bool may_scale = std::string_view(type) == "full_attention" && !model.is_encoder;
    const auto read = [&](const Section& parameters) {
        refuse_unknown_keys(parameters);
        if (const Json* partial = parameters.find(partial_key); partial != nullptr && !is_equal(*partial, "1"))
            parameters.refuse(partial_key, "only models that rotate whole heads are supported");
        rope.kind = kind_of(parameters, may_scale ? std::span<const RopeName>(layer_rope_names) : standard_names);
        rope.theta = parameters.real("rope_theta", rope.theta, 1.0, theta_max);
        // As in transformers, a top-level original_max_position_embeddings has no meaning where each type of layers has an object.
        if (rope.kind != RopeConfig::Kind::standard)
            read_scaling(config, parameters, std::nullopt, model.max_positions, model.rotated(), rope);
    };
    const Json* const scaling = config.find("rope_scaling");
    if (scaling != nullptr && model.is_encoder) config.refuse("rope_scaling", "scaled rope is not supported for this model_type");
    const Json* const all = config.find("rope_parameters");
    if (scaling != nullptr && all != nullptr)
        config.refuse("rope_scaling", "rope_parameters is there, too, and both say how positions are scaled; keep one of them");
    static const Json nothing = Json::object({});
    const Section types(all != nullptr ? *all : nothing, config.file(), "rope_parameters");
    for (const auto& [key, value] : types.members()) {
        if (key != "full_attention" && key != "sliding_attention" && !value.is_null())
            types.refuse(key, "for this model_type, rope_parameters has an object for each type of layers");
    }
    if (const Json* const one = types.find(type); one != nullptr) {
        read(Section(*one, config.file(), std::string("rope_parameters.") + type));
    } else if (scaling != nullptr && may_scale) {
        const Section parameters(*scaling, config.file(), "rope_scaling");
        // transformers has rope_type = default before it adds these keys, so that the older name would not count.
        if (parameters.find("rope_type") == nullptr && parameters.find("type") != nullptr)
            parameters.refuse("type", "for this model_type the key is rope_type");
        read(parameters);
    }
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
        case RopeConfig::Kind::longrope:
        case RopeConfig::Kind::llama3: return max_positions;
        case RopeConfig::Kind::linear:
        case RopeConfig::Kind::dynamic: return scaled(max_positions);
        case RopeConfig::Kind::yarn: return std::max(max_positions, scaled(rope.original_max_positions));
    }
    CHECK(false, "every kind of rope has a context limit");
}

// SmolLM3: no_rope_layers has 1 for each layer with rope; without it, each no_rope_layer_interval-th layer has none.
std::vector<bool> read_unrotated(const Section& config, std::int64_t layers) {
    const std::int64_t interval = config.integer("no_rope_layer_interval", 4, 1, size_max);
    const Json* const list = config.find("no_rope_layers");
    const std::string wanted = fmt::format("it must be a list of {} numbers, 1 for each layer with rope and 0 for one without", layers);
    if (list != nullptr && (!list->is_array() || std::ssize(*list->as_array()) < layers)) config.refuse("no_rope_layers", wanted);
    std::vector<bool> out;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        if (list == nullptr) {
            out.push_back((layer + 1) % interval == 0);
            continue;
        }
        const auto rotates = (*list->as_array())[static_cast<std::size_t>(layer)].as_integer();
        if (!rotates || *rotates < 0 || *rotates > 1) config.refuse("no_rope_layers", wanted);
        out.push_back(*rotates == 0);
    }
    return out;
}

}  // namespace

bool is_equal(const Json& value, std::string_view json) { return are_equal(value, *Json::parse(json)); }
bool are_equal(const Json& one, const Json& other) {
    return one.is_number() ? one.as_number() == other.as_number() : one.dump() == other.dump();
}

void read_rope(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    const RopeKeys& keys = traits.rope_keys;
    switch (traits.rope) {
        case Rope::none: return;
        case Rope::one:
            out.rope = read_one(config, traits, out);
            out.rotates_neighbours = keys.pairs_neighbours;
            if (std::ranges::find(traits.reads, "no_rope_layers") != traits.reads.end()) out.unrotated = read_unrotated(config, out.layers);
            out.max_positions = scaled_positions(config, out.rope, out.max_positions);
            break;
        case Rope::by_window:
            out.rope = read_of_layers(config, out, "full_attention", keys.theta, keys.theta_default);
            // null: as the other layers (ModernBERT).
            out.window_rope = read_of_layers(config, out, "sliding_attention", keys.window_theta,
                                             config.has(keys.window_theta) ? out.rope.theta : keys.window_theta_default);
            break;
    }
}

}  // namespace lorry::engine
