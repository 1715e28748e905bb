// Derives the names and shapes of a checkpoint's tensors from its config, and checks the checkpoint against them.
#include "engine/model_layout.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

namespace lorry::engine {
namespace {

// Buffers that older versions of transformers saved with the weights, and that newer ones recompute.
bool is_ignored_buffer(std::string_view name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

std::int64_t out_features_of(const ModelConfig& config, Projection projection) {
    switch (projection) {
        case Projection::qkv: return (config.heads + 2 * config.kv_heads) * config.head_dim;
        case Projection::gate_up: return (config.gated ? 2 : 1) * config.intermediate;
        case Projection::output:
        case Projection::down: return config.hidden;
        case Projection::head: return config.vocabulary;
    }
    CHECK(false, "every projection has a width");
}

ModelLayout layout_of(const ModelConfig& config) {
    CHECK(config.names != nullptr, "parse() sets the names of the modules");
    const ModuleNames& names = *config.names;
    ModelLayout layout;
    layout.prefix = names.prefix;
    layout.layer_list = std::string(names.prefix) + names.layers;
    layout.tokens = std::string(names.prefix) + names.tokens;
    if (config.learned_positions) layout.positions = std::string(names.prefix) + names.positions;
    const bool norm_bias = config.norm == kernels::NormKind::layer;
    const std::int64_t q_width = config.heads * config.head_dim;
    const std::int64_t kv_width = config.kv_heads * config.head_dim;

    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const std::string base = fmt::format("{}.{}.", layout.layer_list, layer);
        const auto add = [&](const char* name, Projection projection, std::int64_t out_begin, std::int64_t out, std::int64_t in,
                             bool bias) {
            layout.linears.push_back({base + name, layer, projection, out_begin, out, in, names.transposed, bias});
        };
        layout.norms.push_back({base + names.attention_norm, layer, NormSite::attention, norm_bias});
        layout.norms.push_back({base + names.mlp_norm, layer, NormSite::mlp, norm_bias});
        if (names.qkv[1] == nullptr) {
            add(names.qkv[0], Projection::qkv, 0, q_width + 2 * kv_width, config.hidden, config.attention_bias);
        } else {
            add(names.qkv[0], Projection::qkv, 0, q_width, config.hidden, config.attention_bias);
            add(names.qkv[1], Projection::qkv, q_width, kv_width, config.hidden, config.attention_bias);
            add(names.qkv[2], Projection::qkv, q_width + kv_width, kv_width, config.hidden, config.attention_bias);
        }
        if (config.qk_norm) {
            layout.head_norms.push_back({base + names.q_norm, layer, false});
            layout.head_norms.push_back({base + names.k_norm, layer, true});
        }
        add(names.output, Projection::output, 0, config.hidden, q_width, config.output_bias);
        add(names.gate_up[0], Projection::gate_up, 0, config.intermediate, config.hidden, config.mlp_bias);
        if (config.gated)
            add(names.gate_up[1], Projection::gate_up, config.intermediate, config.intermediate, config.hidden, config.mlp_bias);
        add(names.down, Projection::down, 0, config.hidden, config.intermediate, config.mlp_bias);
    }
    layout.norms.push_back({std::string(names.prefix) + names.final_norm, 0, NormSite::final, norm_bias});
    layout.linears.push_back(
        {.path = names.head, .projection = Projection::head, .out_features = config.vocabulary, .in_features = config.hidden});
    return layout;
}

void untie_own_head(ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
    if (!config.tied_head) return;
    const Tensor* head = checkpoint.find(layout.linears.back().path + ".weight", layout.prefix);
    const Tensor* tokens = checkpoint.find(layout.tokens + ".weight", layout.prefix);
    if (head == nullptr || tokens == nullptr || equal_values(*head, *tokens)) return;
    config.tied_head = false;
    config.head_untied = true;
}

std::vector<std::string> check_checkpoint(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
    std::set<const Tensor*> asked;
    const auto need = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        const Tensor* tensor = checkpoint.find(name, layout.prefix);
        if (tensor == nullptr)
            throw std::runtime_error(
                fmt::format("tensor {} {} is missing in the checkpoint; the weights must match config.json", name, shape_text(shape)));
        if (tensor->shape != shape) {
            throw std::runtime_error(fmt::format("{}: tensor {} has shape {}, but config.json requires {}", checkpoint.file_of(*tensor),
                                                 tensor->name, shape_text(tensor->shape), shape_text(shape)));
        }
        if (!tensor->format) {
            throw std::runtime_error(fmt::format("{}: tensor {} has dtype {}; supported: F32, F16, BF16",
                                                 checkpoint.file_of(*tensor), tensor->name, tensor->dtype));
        }
        asked.insert(tensor);
    };
    need(layout.tokens + ".weight", {config.vocabulary, config.hidden});
    if (!layout.positions.empty()) need(layout.positions + ".weight", {config.max_positions, config.hidden});
    for (const NormModule& norm : layout.norms) {
        need(norm.path + ".weight", {config.hidden});
        if (norm.bias) need(norm.path + ".bias", {config.hidden});
    }
    for (const HeadNormModule& norm : layout.head_norms) need(norm.path + ".weight", {config.head_dim});
    for (const LinearModule& linear : layout.linears) {
        if (linear.projection == Projection::head && config.tied_head) continue;
        need(linear.path + ".weight", linear.transposed ? std::vector{linear.in_features, linear.out_features}
                                                        : std::vector{linear.out_features, linear.in_features});
        if (linear.bias) need(linear.path + ".bias", {linear.out_features});
    }

    const std::string head = layout.linears.back().path + ".weight";
    std::vector<std::string> unused;
    for (const Tensor& tensor : checkpoint.tensors()) {
        const bool tied_copy = config.tied_head && tensor.name == head;
        if (!asked.contains(&tensor) && !tied_copy && !is_ignored_buffer(tensor.name)) unused.push_back(tensor.name);
    }
    return unused;
}

}  // namespace lorry::engine
