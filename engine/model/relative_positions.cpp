// Reads relative_attention and the keys beside it, and puts distances into buckets.
#include "engine/model/relative_positions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/model/model_heads.h"

namespace lorry::engine {
namespace {

using schema::Json;

constexpr std::int64_t positions_max = 1 << 20;
constexpr std::int64_t width_max = 1023;

// pos_att_type: a list of names, or one string with | between them.
std::vector<std::string> read_terms(const Section& config) {
    const Json* value = config.find("pos_att_type");
    std::vector<std::string> terms;
    if (value == nullptr) return terms;
    constexpr const char* advice = "it must be a list of c2p and p2c";
    if (const std::string* text = value->as_string()) {
        for (std::size_t begin = 0; begin <= text->size();) {
            const std::size_t end = std::min(text->find('|', begin), text->size());
            terms.push_back(text->substr(begin, end - begin));
            begin = end + 1;
        }
    } else if (value->is_array()) {
        for (const Json& term : *value->as_array()) {
            if (term.as_string() == nullptr) config.refuse("pos_att_type", advice);
            terms.push_back(*term.as_string());
        }
    } else {
        config.refuse("pos_att_type", advice);
    }
    for (const std::string& term : terms)
        if (term != "c2p" && term != "p2c") config.refuse("pos_att_type", advice);
    return terms;
}

bool has_norm(const Section& config) {
    struct NormName {
        std::string_view name;
        bool has_norm;
    };
    static constexpr std::array norms = {NormName{"none", false}, NormName{"layer_norm", true}};
    return config.one_of(norms, "norm_rel_ebd", "none").has_norm;
}

// position_buckets or max_relative_positions, of which -1 and 0 mean that there is none.
std::int64_t read_count(const Section& config, const char* key) {
    return std::max<std::int64_t>(config.integer(key, -1, -1, positions_max), 0);
}

void read_convolution(const Section& config, ModelConfig& out) {
    const std::int64_t width = config.integer("conv_kernel_size", 0, 0, width_max);
    if (width == 0) return;
    if (width % 2 == 0) config.refuse("conv_kernel_size", "it must be odd");
    if (out.layers < 2) config.refuse("conv_kernel_size", "a convolution needs at least two layers");
    if (config.integer("conv_groups", 1, 1, positions_max) != 1)
        config.refuse("conv_groups", "only convolutions of one group are supported");
    out.convolution = {.width = width, .activation = read_activation(config, "conv_act", "tanh")};
}

}  // namespace

void read_disentangled(const Section& config, ModelConfig& out) {
    out.learned_positions = config.boolean("position_biased_input", true);
    if (config.integer("attention_head_size", out.head_dim, 1, positions_max) != out.head_dim)
        config.refuse("attention_head_size", fmt::format("it must be hidden_size / num_attention_heads = {}", out.head_dim));
    read_convolution(config, out);
    const std::vector<std::string> terms = read_terms(config);
    DisentangledConfig found{.has_keys = std::ranges::find(terms, "c2p") != terms.end(),
                             .has_queries = std::ranges::find(terms, "p2c") != terms.end(),
                             .shares_projections = config.boolean("share_att_key", false),
                             .has_norm = has_norm(config),
                             .buckets = read_count(config, "position_buckets"),
                             .distance_max = read_count(config, "max_relative_positions")};
    if (found.distance_max == 0) found.distance_max = out.max_positions;
    // Scores are scaled by the number of terms even where relative_attention is off.
    out.attention_terms = 1 + (found.has_keys ? 1 : 0) + (found.has_queries ? 1 : 0);
    if (!config.boolean("relative_attention", false) || out.attention_terms == 1) return;
    if (found.buckets > 0 && (found.buckets < 2 || found.distance_max - 1 <= found.buckets / 2))
        config.refuse("position_buckets", "it must be at least 2, and half of it below max_relative_positions - 1");
    out.disentangled = found;
}

std::vector<std::int32_t> positions_of_distances(const DisentangledConfig& config, std::int64_t context) {
    const std::int64_t middle = config.positions() / 2;
    const std::int64_t near = config.buckets / 2;  // nearer distances have a bucket each, farther ones share them by their logarithm
    std::vector<std::int32_t> out;
    for (std::int64_t distance = 1 - context; distance < context; ++distance) {
        std::int64_t bucket = distance;
        if (config.buckets > 0 && std::abs(distance) > near) {
            const auto ratio = [&](std::int64_t far) { return std::log(static_cast<float>(far) / static_cast<float>(near)); };
            const float share = ratio(std::abs(distance)) / ratio(config.distance_max - 1);
            bucket = static_cast<std::int64_t>(std::ceil(share * static_cast<float>(near - 1))) + near;
            if (distance < 0) bucket = -bucket;
        }
        out.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(middle + bucket, 0, config.positions() - 1)));
    }
    return out;
}

}  // namespace lorry::engine
