// Loads a model folder: reads the config, checks every tensor, packs the weights. Called once at start.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/model_weights.h"
#include "engine/rope.h"

namespace lorry::engine {
namespace {

// Packs the tensors of a checkpoint that was checked against the layout.
class ModelLoader {
public:
    ModelLoader(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint, kernels::Backend& backend)
        : config_(config), layout_(layout), checkpoint_(checkpoint), backend_(backend) {}

    ModelWeights load() {
        ModelWeights out(backend_);
        out.tokens = matrix(layout_.tokens, config_.vocabulary, config_.hidden);
        if (!layout_.positions.empty()) out.positions = matrix(layout_.positions, config_.max_positions, config_.hidden);
        out.layers.resize(static_cast<std::size_t>(config_.layers));
        for (std::size_t layer = 0; layer < out.layers.size(); ++layer) {
            out.layers[layer].window = config_.windows[layer];
            out.layers[layer].attention_scale = attention_scale(layer);
        }
        for (const NormModule& module : layout_.norms) {
            norm_at(out, module) = {.weight = out.vectors.add(values(module.path + ".weight")),
                                    .bias = module.bias ? out.vectors.add(values(module.path + ".bias")) : kernels::Vector{}};
        }
        for (const HeadNormModule& module : layout_.head_norms) {
            Layer& layer = out.layers[static_cast<std::size_t>(module.layer)];
            (module.of_keys ? layer.k_norm : layer.q_norm) = out.vectors.add(values(module.path + ".weight"));
        }
        // Modules of one projection are adjacent.
        const std::span<const LinearModule> modules(layout_.linears);
        for (std::size_t begin = 0; begin < modules.size();) {
            std::size_t end = begin + 1;
            while (end < modules.size() && modules[end].layer == modules[begin].layer &&
                   modules[end].projection == modules[begin].projection)
                ++end;
            load_projection(modules.subspan(begin, end - begin), out);
            begin = end;
        }
        return out;
    }

private:
    const Tensor& tensor(const std::string& name) const {
        const Tensor* found = checkpoint_.find(name, layout_.prefix);
        CHECK(found != nullptr, "the checkpoint was checked against this layout");
        return *found;
    }
    float attention_scale(std::size_t layer) const {
        const float scale = config_.attention_scaled ? 1.0F / std::sqrt(static_cast<float>(config_.head_dim)) : 1.0F;
        return config_.attention_scaled_by_layer ? scale / static_cast<float>(layer + 1) : scale;
    }
    std::vector<float> values(const std::string& name) const { return to_float(tensor(name)); }

    std::unique_ptr<kernels::PackedWeight> matrix(const std::string& path, std::int64_t out_features, std::int64_t in_features) {
        const kernels::WeightPart part = weight_part(tensor(path + ".weight"), out_features, in_features, false, aligned_);
        return pack({&part, 1}, kernels::WeightRole::embedding);
    }

    std::unique_ptr<kernels::PackedWeight> pack(std::span<const kernels::WeightPart> parts, kernels::WeightRole role) {
        auto packed = backend_.pack_weight(parts, role);
        aligned_.clear();
        return packed;
    }

    void load_projection(std::span<const LinearModule> modules, ModelWeights& out) {
        const LinearModule& first = modules.front();
        if (first.projection == Projection::head && config_.tied_head) return;
        std::vector<kernels::WeightPart> parts;
        std::vector<float> bias;
        for (const LinearModule& module : modules) {
            parts.push_back(
                weight_part(tensor(module.path + ".weight"), module.out_features, module.in_features, module.transposed, aligned_));
            if (module.bias) {
                const auto part = values(module.path + ".bias");
                bias.insert(bias.end(), part.begin(), part.end());
            }
        }
        const bool is_gate_up = first.projection == Projection::gate_up && config_.gated;
        const kernels::WeightRole role = is_gate_up ? kernels::WeightRole::gate_up : role_of(first.projection);
        Linear linear{.weight = pack(parts, role), .bias = out.vectors.add(bias)};
        Layer& layer = out.layers[static_cast<std::size_t>(first.layer)];
        switch (first.projection) {
            case Projection::qkv: layer.qkv = std::move(linear); break;
            case Projection::output: layer.output = std::move(linear); break;
            case Projection::gate_up: layer.gate_up = std::move(linear); break;
            case Projection::down: layer.down = std::move(linear); break;
            case Projection::head: out.head = std::move(linear.weight); break;
        }
    }

    static Norm& norm_at(ModelWeights& out, const NormModule& module) {
        Layer& layer = out.layers[static_cast<std::size_t>(module.layer)];
        switch (module.site) {
            case NormSite::attention: return layer.attention_norm;
            case NormSite::mlp: return layer.mlp_norm;
            case NormSite::final: return out.final_norm;
        }
        CHECK(false, "every norm has a place");
    }

    const ModelConfig& config_;
    const ModelLayout& layout_;
    const Checkpoint& checkpoint_;
    kernels::Backend& backend_;
    std::vector<std::unique_ptr<std::byte[]>> aligned_;
};

}  // namespace

kernels::Vector VectorStore::add(std::span<const float> values) {
    if (values.empty()) return {};
    buffers_.push_back(packer_->allocate(values.size_bytes()));
    packer_->upload(buffers_.back()->data(), std::as_bytes(values));
    return {.data = static_cast<const float*>(buffers_.back()->data()), .size = static_cast<std::int64_t>(values.size())};
}

std::size_t VectorStore::bytes() const {
    std::size_t total = 0;
    for (const auto& buffer : buffers_) total += buffer->bytes();
    return total;
}

kernels::WeightPart weight_part(const Tensor& tensor, std::int64_t out_features, std::int64_t in_features, bool transposed,
                                std::vector<std::unique_ptr<std::byte[]>>& aligned) {
    CHECK(tensor.format.has_value(), "the tensor's dtype was checked");
    const std::byte* data = tensor.bytes.data();
    if (reinterpret_cast<std::uintptr_t>(data) % kernels::bytes_of(*tensor.format) != 0) {
        aligned.push_back(std::make_unique_for_overwrite<std::byte[]>(tensor.bytes.size()));
        std::memcpy(aligned.back().get(), data, tensor.bytes.size());
        data = aligned.back().get();
    }
    return {.data = data, .format = *tensor.format, .out_features = out_features, .in_features = in_features, .transposed = transposed};
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& folder, kernels::Backend& backend, std::int64_t rows_max,
                                   std::int64_t sample_rows_max, std::int64_t context_max) {
    ModelParts parts{.config = ModelConfig::load(folder),
                     .layout = {},
                     .checkpoint = std::make_unique<Checkpoint>(folder),
                     .weights = ModelWeights(backend),
                     .fingerprint = {}};
    parts.layout = layout_of(parts.config);
    untie_own_head(parts.config, parts.layout, *parts.checkpoint);
    check_checkpoint(parts.config, parts.layout, *parts.checkpoint);
    limit_context(parts.config, context_max);

    ContentHash hash;
    const auto config_text = read_text(folder / "config.json");
    if (!config_text) throw std::runtime_error(config_text.error());
    hash.add_text(*config_text);
    // Its defaults apply to jobs that do not set them, so they affect results.
    const auto generation_text = read_text_if_there(folder / "generation_config.json");
    if (!generation_text) throw std::runtime_error(generation_text.error());
    hash.add_text(*generation_text);
    parts.checkpoint->add_to(hash);
    parts.fingerprint = hash.hex();

    parts.weights = ModelLoader(parts.config, parts.layout, *parts.checkpoint, backend).load();
    // Only adapters read the checkpoint from now on, and only single tensors.
    parts.checkpoint->release_pages();
    return make_model(std::move(parts), backend, rows_max, sample_rows_max);
}

const ModelLayout& Model::layout() const { CHECK(false, "only a loaded model has a layout"); }
const Checkpoint& Model::checkpoint() const { CHECK(false, "only a loaded model has a checkpoint"); }

ModelReport inspect_model(const std::filesystem::path& folder) {
    ModelReport report;
    report.config = ModelConfig::load(folder);
    const ModelLayout layout = layout_of(report.config);
    const Checkpoint checkpoint(folder);
    untie_own_head(report.config, layout, checkpoint);
    report.unused_tensors = check_checkpoint(report.config, layout, checkpoint);
    const ModelConfig& config = report.config;
    report.embedding_parameters = config.vocabulary * config.hidden + (layout.positions.empty() ? 0 : config.max_positions * config.hidden);
    report.parameters = report.embedding_parameters;
    for (const NormModule& norm : layout.norms) report.parameters += (norm.bias ? 2 : 1) * config.hidden;
    report.parameters += static_cast<std::int64_t>(layout.head_norms.size()) * config.head_dim;
    for (const LinearModule& linear : layout.linears) {
        if (linear.projection == Projection::head && config.tied_head) continue;
        const std::int64_t weights = linear.out_features * linear.in_features;
        report.parameters += weights + (linear.bias ? linear.out_features : 0);
        if (role_of(linear.projection) == kernels::WeightRole::embedding) report.embedding_parameters += weights;
    }
    return report;
}

kernels::KvShape kv_shape_of(const ModelConfig& config) {
    return {.layers = config.layers, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
}

}  // namespace lorry::engine
