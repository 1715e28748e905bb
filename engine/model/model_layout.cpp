// Derives the names and shapes of a checkpoint's tensors from its config, and checks the checkpoint against them.
#include "engine/model/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <stdexcept>

namespace lorry::engine {
namespace {

// Buffers that older versions of transformers saved with the weights, and that newer ones recompute.
bool is_ignored_buffer(std::string_view name) {
    return name.ends_with("embeddings.position_ids") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

// Of keys and values, as the programs that quantize the KV cache call them.
bool is_kv_scale(std::string_view name) {
    constexpr std::array<std::string_view, 8> ends = {".k_scale",      ".v_scale",      ".kv_scale",     ".kv_cache_scale",
                                                      ".k_zero_point", ".v_zero_point", ".output_scale", ".output_zero_point"};
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

// Where norms stand after the residual, each is the one before the next projection: the embeddings' comes before the first layer's q|k|v,
// and the last layer's is the final one.
void add_norms(const ModelConfig& config, ModelLayout& layout) {
    const ModuleNames& names = *config.names;
    const bool is_after = names.norm_place == NormPlace::after;
    const auto in_layer = [&](std::int64_t layer, const char* name) { return fmt::format("{}.{}.{}", layout.layer_list, layer, name); };
    const auto outside = [&](const char* name) { return std::string(names.prefix) + name; };
    const auto add = [&](std::string path, std::int64_t layer, NormSite site, bool in_place) {
        const std::int64_t size = site == NormSite::embedding ? config.embedding_width() : config.hidden;
        layout.norms.push_back(
            {.path = std::move(path), .layer = layer, .site = site, .bias = config.norm_bias, .in_place = in_place, .size = size});
    };
    const bool is_projected = config.embedding_width() != config.hidden;
    if (is_projected) {
        if (!names.projects_first) add(outside(names.embedding_norm), 0, NormSite::embedding, false);
        layout.linears.push_back({.path = outside(names.embedding_projection),
                                  .projection = Projection::embedding,
                                  .out_features = config.hidden,
                                  .in_features = config.embedding_width(),
                                  .projection_out = config.hidden,
                                  .bias = !names.projects_first});
    }
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const bool is_embeddings = layer == 0 && names.embedding_norm != nullptr;
        if (is_embeddings) {
            if (!is_projected || names.projects_first) add(outside(names.embedding_norm), 0, NormSite::attention, true);
        } else if (layer == 1 && config.convolution) {
            add(in_layer(0, names.mlp_norm), 0, NormSite::convolution, false);
            add(outside(names.convolution_norm), 1, NormSite::attention, true);
        } else if (is_after) {
            add(in_layer(layer - 1, names.mlp_norm), layer, NormSite::attention, true);
        } else if (names.attention_norm != nullptr) {
            add(in_layer(layer, names.attention_norm), layer, NormSite::attention, false);
        }
        const char* const before_mlp = is_after ? names.attention_norm : names.mlp_norm;
        if (before_mlp != nullptr && !config.shares_norm) add(in_layer(layer, before_mlp), layer, NormSite::mlp, is_after);
        if (names.attention_out_norm != nullptr) add(in_layer(layer, names.attention_out_norm), layer, NormSite::attention_out, false);
        if (names.mlp_out_norm != nullptr) add(in_layer(layer, names.mlp_out_norm), layer, NormSite::mlp_out, false);
    }
    add(is_after ? in_layer(config.layers - 1, names.mlp_norm) : outside(names.final_norm), 0, NormSite::final, is_after);
}

HeadModule head_module(const ModelConfig& config, const HeadNames& names, kernels::ActivationKind activation) {
    HeadModule head{.output = names.output, .output_bias = names.output_bias, .activation = activation};
    if (names.dense == nullptr) return head;
    head.dense = names.dense;
    head.dense_bias = config.classifier_bias;
    head.dense_size = config.hidden;
    if (names.norm == nullptr) return head;
    head.norm = names.norm;
    head.norm_bias = config.norm_bias;
    return head;
}

void add_heads(const ModelConfig& config, ModelLayout& layout) {
    const ModuleNames& names = *config.names;
    if (names.sequence.output != nullptr) layout.sequence = head_module(config, names.sequence, config.sequence_activation);
    if (names.tokens_head.output != nullptr) layout.tokens_head = head_module(config, names.tokens_head, config.tokens_activation);
    if (config.fills_masks) {
        layout.masked = head_module(config, names.masked, config.masked_activation);
        layout.masked->dense_size = config.embedding_width();
        layout.head_bias = names.masked.bias;
    }
    if (!config.has_vocabulary_head()) return;
    layout.linears.push_back({.path = config.generates ? names.head : names.masked.output,
                              .projection = Projection::head,
                              .out_features = config.vocabulary,
                              .in_features = config.fills_masks ? config.embedding_width() : config.hidden,
                              .projection_out = config.vocabulary});
}

// Appends the tensors of modules.
class TensorList {
public:
    TensorList(const ModelConfig& config, std::vector<LayoutTensor>& out) : config_(config), out_(out) {}

    void add(std::string name, std::vector<std::int64_t> shape, TensorRole role) {
        out_.push_back({std::move(name), std::move(shape), role});
    }
    // A module that has outputs, the first size of its weight's shape, unless it is transposed.
    void add_module(const std::string& path, bool bias, std::vector<std::int64_t> shape, TensorRole role, bool transposed = false) {
        const std::int64_t outputs = transposed ? shape.back() : shape.front();
        add(path + ".weight", std::move(shape), role);
        if (bias) add(path + ".bias", {outputs}, TensorRole::vector);
    }
    void add_table(const std::string& path, std::int64_t rows) {
        if (!path.empty()) add(path + ".weight", {rows, config_.embedding_width()}, TensorRole::embedding);
    }
    void add_hidden(const HeadModule& head) {
        if (!head.dense.empty()) add_module(head.dense, head.dense_bias, {head.dense_size, config_.hidden}, TensorRole::projection);
        if (!head.norm.empty()) add_module(head.norm, head.norm_bias, {head.dense_size}, TensorRole::norm);
    }
    void add_output(const HeadModule& head, std::int64_t labels) {
        add_module(head.output, head.output_bias, {labels, head.dense.empty() ? config_.hidden : head.dense_size}, TensorRole::head_output);
    }

private:
    const ModelConfig& config_;
    std::vector<LayoutTensor>& out_;
};

}  // namespace

std::int64_t LayoutTensor::elements() const { return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()); }

std::vector<LayoutTensor> tensors_of(const ModelConfig& config, const ModelLayout& layout) {
    std::vector<LayoutTensor> out;
    TensorList list(config, out);
    list.add_table(layout.tokens, config.vocabulary);
    list.add_table(layout.positions, config.first_position + config.max_positions);
    list.add_table(layout.types, config.token_types);
    if (!layout.distance_bias.empty())
        list.add(layout.distance_bias + ".weight", {config.distance_buckets, config.heads}, TensorRole::vector);
    if (!layout.relative_positions.empty())
        list.add(layout.relative_positions + ".weight", {config.disentangled->positions(), config.hidden}, TensorRole::vector);
    if (!layout.relative_norm.empty()) list.add_module(layout.relative_norm, config.norm_bias, {config.hidden}, TensorRole::norm);
    if (!layout.convolution.empty()) {
        list.add_module(layout.convolution, true, {config.hidden, config.hidden, config.convolution->width}, TensorRole::projection);
    }
    for (const NormModule& norm : layout.norms) list.add_module(norm.path, norm.bias, {norm.size}, TensorRole::norm);
    for (const std::string& sinks : layout.sinks) list.add(sinks, {config.heads}, TensorRole::vector);
    for (const HeadNormModule& norm : layout.head_norms) list.add(norm.path + ".weight", {norm.size}, TensorRole::norm);
    for (const LinearModule& linear : layout.linears) {
        const bool is_head = linear.projection == Projection::head;
        if (is_head && config.tied_head) continue;
        list.add_module(
            linear.path, linear.bias,
            linear.transposed ? std::vector{linear.in_features, linear.out_features} : std::vector{linear.out_features, linear.in_features},
            is_head ? TensorRole::embedding : TensorRole::projection, linear.transposed);
    }
    if (config.labels != nullptr && !config.token_score) {
        const HeadModule& head = *layout.head_for(config.head);
        list.add_hidden(head);
        list.add_output(head, std::ssize(config.labels->names));
    }
    if (layout.masked) list.add_hidden(*layout.masked);
    return out;
}

std::int64_t out_features_of(const ModelConfig& config, Projection projection) {
    switch (projection) {
        case Projection::qkv: return (config.heads + 2 * config.kv_heads) * config.head_dim;
        case Projection::gate_up: return (config.gated ? 2 : 1) * config.intermediate;
        case Projection::output:
        case Projection::down:
        case Projection::embedding: return config.hidden;
        case Projection::head: return config.vocabulary;
        case Projection::router: return config.experts ? config.experts->count : 0;
        case Projection::shared_gate: return 1;
        case Projection::positions: return config.disentangled ? config.heads * config.head_dim * (config.attention_terms - 1) : 0;
    }
    CHECK(false, "every projection has a width");
}

namespace {

// An MLP's names are `base` and one of these.
struct MlpNames {
    std::string base;
    std::array<const char*, 2> gate_up;
    const char* down;
};

// common: the layer and, of an expert's, the expert.
void add_mlp(const ModelConfig& config, const MlpNames& names, const LinearModule& common, ModelLayout& layout) {
    const std::int64_t width = common.expert ? config.experts->intermediate : config.intermediate_of(common.layer);
    const auto add = [&](const char* name, Projection projection, std::int64_t out_begin, std::int64_t out, std::int64_t in) {
        LinearModule& module = layout.linears.emplace_back(common);
        module.path = names.base + name;
        module.projection = projection;
        module.out_begin = out_begin;
        module.out_features = out;
        module.in_features = in;
        module.projection_out = projection == Projection::down ? config.hidden : (config.gated ? 2 : 1) * width;
        module.transposed = config.names->transposed || (common.expert && config.names->experts->alternates);
        module.bias = config.mlp_bias;
        module.reordered = common.expert && config.names->experts->alternates && projection == Projection::gate_up;
    };
    const bool is_fused = config.gated && names.gate_up[1] == nullptr;
    add(names.gate_up[0], Projection::gate_up, 0, (is_fused ? 2 : 1) * width, config.hidden);
    if (names.gate_up[1] != nullptr) add(names.gate_up[1], Projection::gate_up, width, width, config.hidden);
    add(names.down, Projection::down, 0, config.hidden, width);
}

void add_experts(const ModelConfig& config, const std::string& base, std::int64_t layer, ModelLayout& layout) {
    const ExpertNames& names = *config.names->experts;
    const auto add_scores = [&](const char* name, Projection projection) {
        const std::int64_t out = out_features_of(config, projection);
        layout.linears.push_back({.path = base + name,
                                  .layer = layer,
                                  .projection = projection,
                                  .out_features = out,
                                  .in_features = config.hidden,
                                  .projection_out = out,
                                  .bias = projection == Projection::router && names.router_bias});
    };
    add_scores(names.router, Projection::router);
    for (std::int64_t expert = 0; expert < config.experts->count; ++expert) {
        add_mlp(config, {.base = fmt::format("{}{}.{}.", base, names.list, expert), .gate_up = names.gate_up, .down = names.down},
                {.layer = layer, .expert = expert}, layout);
    }
    if (config.experts->shared_intermediate == 0) return;
    add_scores(names.shared_gate, Projection::shared_gate);
    add_mlp(config, {.base = fmt::format("{}{}.", base, names.shared), .gate_up = names.gate_up, .down = names.down}, {.layer = layer},
            layout);
}

}  // namespace

bool are_of_one_projection(const LinearModule& a, const LinearModule& b) {
    return a.layer == b.layer && a.projection == b.projection && a.expert == b.expert;
}

ModelLayout layout_of(const ModelConfig& config) {
    CHECK(config.names != nullptr, "parse() sets the names of the modules");
    const ModuleNames& names = *config.names;
    ModelLayout layout;
    layout.prefix = names.prefix;
    layout.layer_list = std::string(names.prefix) + names.layers;
    layout.tokens = std::string(names.prefix) + names.tokens;
    if (config.learned_positions) layout.positions = std::string(names.prefix) + names.positions;
    if (config.token_types > 0) layout.types = std::string(names.prefix) + names.types;
    if (config.distance_buckets > 0) layout.distance_bias = std::string(names.prefix) + names.distance_bias;
    if (config.disentangled) layout.relative_positions = std::string(names.prefix) + names.relative_positions;
    if (config.disentangled && config.disentangled->has_norm) layout.relative_norm = std::string(names.prefix) + names.relative_norm;
    if (config.convolution) layout.convolution = std::string(names.prefix) + names.convolution;
    const std::int64_t q_width = config.heads * config.head_dim;
    const std::int64_t kv_width = config.kv_heads * config.head_dim;

    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const std::string base = fmt::format("{}.{}.", layout.layer_list, layer);
        const auto add = [&](const char* name, Projection projection, std::int64_t out_begin, std::int64_t out, std::int64_t in,
                             bool bias) {
            layout.linears.push_back({.path = base + name,
                                      .layer = layer,
                                      .projection = projection,
                                      .out_begin = out_begin,
                                      .out_features = out,
                                      .in_features = in,
                                      .projection_out = out_features_of(config, projection),
                                      .transposed = names.transposed,
                                      .bias = bias,
                                      .reordered = projection == Projection::qkv && out_begin < q_width + kv_width &&
                                                   (config.reorders_heads() || names.qkv_by_heads)});
        };
        if (names.qkv[1] == nullptr) {
            add(names.qkv[0], Projection::qkv, 0, q_width + 2 * kv_width, config.hidden, config.attention_bias);
        } else {
            add(names.qkv[0], Projection::qkv, 0, q_width, config.hidden, config.attention_bias);
            add(names.qkv[1], Projection::qkv, q_width, kv_width, config.hidden, config.attention_bias);
            add(names.qkv[2], Projection::qkv, q_width + kv_width, kv_width, config.hidden, config.attention_bias);
        }
        if (config.qk_norm != QkNorm::none) {
            CHECK(!config.reorders_heads(), "the weights of these norms are in the checkpoint's order");
            const bool is_whole = config.qk_norm == QkNorm::whole;
            layout.head_norms.push_back({base + names.q_norm, layer, false, is_whole ? q_width : config.head_dim});
            layout.head_norms.push_back({base + names.k_norm, layer, true, is_whole ? kv_width : config.head_dim});
        }
        add(names.output, Projection::output, 0, config.hidden, q_width, config.output_bias);
        if (names.sinks != nullptr) layout.sinks.push_back(base + names.sinks);
        if (config.has_experts(layer)) {
            add_experts(config, base, layer, layout);
        } else {
            add_mlp(config, {.base = base, .gate_up = names.gate_up, .down = names.down}, {.layer = layer}, layout);
        }
        if (config.disentangled && !config.disentangled->shares_projections) {
            if (config.disentangled->has_queries) add(names.position_query, Projection::positions, 0, q_width, config.hidden, true);
            const std::int64_t key_begin = config.disentangled->has_queries ? q_width : 0;
            if (config.disentangled->has_keys) add(names.position_key, Projection::positions, key_begin, q_width, config.hidden, true);
        }
    }
    add_norms(config, layout);
    add_heads(config, layout);
    return layout;
}

namespace {

// For each dimension of a head of queries or keys, which it is in the checkpoint. Those that turn together become i and i + head_dim / 2;
// those that do not turn share what is left of both halves.
std::vector<std::int64_t> stored_dims(const ModelConfig& config) {
    const std::int64_t half = config.head_dim / 2;
    const std::int64_t pairs = config.rotated() / 2;
    std::vector<std::int64_t> out(static_cast<std::size_t>(config.head_dim));
    for (std::int64_t i = 0; i < half; ++i) {
        const bool turns = i < pairs;
        const std::int64_t first = turns && config.rotates_neighbours ? 2 * i : turns ? i : pairs + i;
        const std::int64_t second = turns && config.rotates_neighbours ? 2 * i + 1 : turns ? i + pairs : half + i;
        out[static_cast<std::size_t>(i)] = first;
        out[static_cast<std::size_t>(half + i)] = second;
    }
    return out;
}

}  // namespace

std::vector<std::int64_t> stored_outputs(const ModelConfig& config, const LinearModule& module) {
    if (module.projection == Projection::gate_up) {  // gate and up alternate
        std::vector<std::int64_t> alternate;
        for (std::int64_t first = 0; first < 2; ++first) {
            for (std::int64_t i = first; i < module.out_features; i += 2) alternate.push_back(i);
        }
        return alternate;
    }
    const std::vector<std::int64_t> dims = stored_dims(config);
    const bool by_heads = config.names->qkv_by_heads;
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < module.out_features; ++i) {
        const std::int64_t head = (module.out_begin + i) / config.head_dim;  // of q, then k, then v
        const std::int64_t dim = i % config.head_dim;
        const std::int64_t stored_dim = head < config.heads + config.kv_heads ? dims[static_cast<std::size_t>(dim)] : dim;
        const std::int64_t stored_head = by_heads ? head % config.heads * 3 + head / config.heads : i / config.head_dim;
        out.push_back(stored_head * config.head_dim + stored_dim);
    }
    return out;
}

const LinearModule* ModelLayout::head() const {
    const auto found = std::ranges::find(linears, Projection::head, &LinearModule::projection);
    return found == linears.end() ? nullptr : &*found;
}

const HeadModule* ModelLayout::head_for(PoolingTask task) const {
    const auto& head = task == PoolingTask::token_classify ? tokens_head : sequence;
    return head ? &*head : nullptr;
}

void untie_own_head(ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
    if (!config.tied_head || layout.head() == nullptr) return;
    const Tensor* head = checkpoint.find(layout.head()->path + ".weight", layout.prefix);
    const Tensor* tokens = checkpoint.find(layout.tokens + ".weight", layout.prefix);
    if (head == nullptr || tokens == nullptr || equal_values(*head, *tokens)) return;
    config.tied_head = false;
    config.head_untied = true;
}

std::string head_bias_of(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
    if (layout.head_bias.empty() || config.tied_head) return layout.head_bias;
    const std::string own = layout.head()->path + ".bias";
    return checkpoint.find(own, layout.prefix) != nullptr ? own : layout.head_bias;
}

bool has_hidden_layer(const ModelLayout& layout, const Checkpoint& checkpoint) {
    return layout.sequence && !layout.sequence->dense.empty() &&
           checkpoint.find(layout.sequence->dense + ".weight", layout.prefix) != nullptr;
}

namespace {

// Inputs become int8 for all modules that share them or for none, and have room for a scale after their elements.
void check_rounded_inputs(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint,
                          const std::set<std::string>& coded) {
    constexpr std::int64_t inputs_least = 4;
    const LinearModule* before = nullptr;
    for (const LinearModule& linear : layout.linears) {
        const bool is_coded = coded.contains(linear.path + ".weight");
        const auto refuse = [&](const std::string& what) {
            const Tensor* const weight = checkpoint.find(linear.path + ".weight", layout.prefix);
            throw std::runtime_error(fmt::format("{}: the weight of {} {} ({}); use the full-precision checkpoint with --quantize int8",
                                                 checkpoint.file_of(*weight), linear.path, what, config.quantized->name));
        };
        if (is_coded && linear.in_features < inputs_least)
            refuse(fmt::format("has {} inputs, too few for inputs that become int8", linear.in_features));
        if (before != nullptr && are_of_one_projection(*before, linear) && coded.contains(before->path + ".weight") != is_coded) {
            refuse(fmt::format("is {}quantized and that of {} is {}, but they share inputs, which become int8 for both or for none",
                               is_coded ? "" : "not ", before->path, is_coded ? "not" : "quantized"));
        }
        before = &linear;
    }
}

// Finds the modules whose weight is in codes.
void check_codes(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint, CheckedTensors& checked) {
    const CodedSource source{.config = *config.quantized, .checkpoint = checkpoint, .prefix = layout.prefix};
    std::set<std::string> coded;  // names of weights
    for (const LinearModule& linear : layout.linears) {
        const bool is_head = linear.projection == Projection::head;
        if (is_head && config.tied_head) continue;
        auto module = source.find(linear.path, linear.out_features, linear.in_features);
        if (!module) continue;
        const auto refuse = [&](const char* what) {
            throw std::runtime_error(
                fmt::format("{}: the weight of {} is quantized ({}), which is not supported for {}; use a checkpoint "
                            "that leaves it unquantized",
                            checkpoint.file_of(*module->tensors.front()), linear.path, config.quantized->name, what));
        };
        if (config.names->transposed) refuse("Conv1D modules");
        if (is_head && config.token_score) refuse("rerankers, which score with two rows of it");
        coded.insert(linear.path + ".weight");
        checked.coded.push_back(std::move(*module));
    }
    if (config.quantized->rounds_inputs) check_rounded_inputs(config, layout, checkpoint, coded);
    std::erase_if(checked.used, [&](const LayoutTensor& tensor) { return coded.contains(tensor.name); });
}

[[noreturn]] void fail_missing(const std::string& name, const std::vector<std::int64_t>& shape, const ModelLayout& layout,
                               const Checkpoint& checkpoint) {
    const std::string path = name.substr(0, name.rfind('.'));
    for (const char* codes : {"qweight", "weight_packed", "weight_blocks"}) {
        const Tensor* const tensor = checkpoint.find(path + "." + codes, layout.prefix);
        if (tensor == nullptr) continue;
        throw std::runtime_error(
            fmt::format("{}: tensor {} holds codes, but config.json has no quantization_config that says what they mean; take config.json "
                        "from where the weights are from",
                        checkpoint.file_of(*tensor), tensor->name));
    }
    throw std::runtime_error(
        fmt::format("tensor {} {} is missing in the checkpoint; the weights must match config.json", name, shape_text(shape)));
}

}  // namespace

CheckedTensors check_checkpoint(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint) {
    CheckedTensors checked{.used = tensors_of(config, layout), .unused = {}};
    if (std::string bias = head_bias_of(config, layout, checkpoint); !bias.empty()) checked.used.push_back({bias, {config.vocabulary}});
    // Adapters that classify may need a hidden layer which only the base has; ModernBERT's is that of its masked language model, too.
    const bool is_for_adapters = config.labels == nullptr && has_hidden_layer(layout, checkpoint);
    if (is_for_adapters && (!layout.masked || layout.masked->dense != layout.sequence->dense))
        TensorList(config, checked.used).add_hidden(*layout.sequence);

    std::set<const Tensor*> asked;
    if (config.quantized) check_codes(config, layout, checkpoint, checked);
    for (const CodedModule& module : checked.coded) asked.insert(module.tensors.begin(), module.tensors.end());
    for (const auto& [name, shape, role] : checked.used) {
        const Tensor* tensor = checkpoint.find(name, layout.prefix);
        if (tensor == nullptr) fail_missing(name, shape, layout, checkpoint);
        if (tensor->shape != shape) {
            throw std::runtime_error(fmt::format("{}: tensor {} has shape {}, but config.json requires {}", checkpoint.file_of(*tensor),
                                                 tensor->name, shape_text(tensor->shape), shape_text(shape)));
        }
        if (!tensor->format) {
            throw std::runtime_error(fmt::format("{}: tensor {} has dtype {}; supported: F32, F16, BF16", checkpoint.file_of(*tensor),
                                                 tensor->name, tensor->dtype));
        }
        asked.insert(tensor);
    }
    const std::string head = layout.head() != nullptr ? layout.head()->path + ".weight" : std::string();
    for (const Tensor& tensor : checkpoint.tensors()) {
        const bool tied_copy = config.tied_head && tensor.name == head;
        if (asked.contains(&tensor) || tied_copy || is_ignored_buffer(tensor.name)) continue;
        if (is_kv_scale(tensor.name)) {
            throw std::runtime_error(
                fmt::format("{}: tensor {} is a scale of keys and values, which are not used; use a checkpoint whose KV cache is not "
                            "quantized, with --kv-dtype int8 to store keys and values in 8 bits",
                            checkpoint.file_of(tensor), tensor.name));
        }
        checked.unused.push_back(tensor.name);
    }
    return checked;
}

}  // namespace lorry::engine
