// Loads a model folder: reads the config, checks every tensor, packs the weights. Called once at start.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "engine/model/config_section.h"
#include "engine/model/model_weights.h"
#include "engine/model/rope.h"
#include "engine/model/sentence_config.h"

namespace lorry::engine {
namespace {

// Output i of the result is output rows[i] of `from`.
std::unique_ptr<CodedWeight> choose_rows(const kernels::CodedPart& from, std::int64_t in_features, std::span<const std::int64_t> rows) {
    auto out = std::make_unique<CodedWeight>();
    out->part = from;
    out->group_of.assign(from.group_of, from.group_of + in_features);
    for (const std::int64_t row : rows) {
        out->codes.insert(out->codes.end(), from.codes + row * in_features, from.codes + (row + 1) * in_features);
        out->scales.insert(out->scales.end(), from.scales + row * from.groups, from.scales + (row + 1) * from.groups);
        if (from.zeros != nullptr)
            out->zeros.insert(out->zeros.end(), from.zeros + row * from.groups, from.zeros + (row + 1) * from.groups);
    }
    out->part.codes = out->codes.data();
    out->part.scales = out->scales.data();
    out->part.zeros = from.zeros == nullptr ? nullptr : out->zeros.data();
    out->part.group_of = out->group_of.data();
    return out;
}

// Adds up what it packs.
class WeighingPacker final : public kernels::Packer {
public:
    explicit WeighingPacker(kernels::Packer& packer) : packer_(packer) {}

    std::unique_ptr<kernels::Buffer> allocate(std::size_t bytes) override { return packer_.allocate(bytes); }
    void upload(void* to, std::span<const std::byte> from) override { packer_.upload(to, from); }
    std::size_t matrix_bytes() const { return matrix_bytes_; }

protected:
    std::unique_ptr<kernels::PackedWeight> do_pack_weight(std::span<const kernels::WeightPart> parts, kernels::WeightRole role) override {
        auto packed = packer_.pack_weight(parts, role);
        matrix_bytes_ += packed->bytes();
        return packed;
    }
    std::unique_ptr<kernels::PackedLora> do_pack_lora(std::span<const kernels::LoraPart>) override {
        CHECK(false, "only adapters have low-rank updates");
    }

private:
    kernels::Packer& packer_;
    std::size_t matrix_bytes_ = 0;
};

// Packs the tensors of a checkpoint that was checked against the layout.
class ModelLoader {
public:
    ModelLoader(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint, kernels::Backend& backend)
        : config_(config), layout_(layout), checkpoint_(checkpoint), backend_(backend), packer_(backend) {}

    ModelWeights load() {
        ModelWeights out(backend_);
        const std::int64_t width = config_.embedding_width();
        out.tokens = table(layout_.tokens, 0, config_.vocabulary, width);
        if (!layout_.positions.empty()) out.positions = table(layout_.positions, config_.first_position, config_.max_positions, width);
        if (!layout_.types.empty()) out.types = table(layout_.types, 0, config_.token_types, width);
        out.layers.resize(static_cast<std::size_t>(config_.layers));
        for (std::size_t layer = 0; layer < out.layers.size(); ++layer) {
            out.layers[layer].window = config_.windows[layer];
            out.layers[layer].rotates = config_.rotates(static_cast<std::int64_t>(layer));
            out.layers[layer].attention_scale = attention_scale(layer);
            if (config_.has_experts(static_cast<std::int64_t>(layer)))
                out.layers[layer].experts.resize(static_cast<std::size_t>(config_.experts->count));
        }
        for (const NormModule& module : layout_.norms) {
            norm_at(out, module) = {.weight = out.vectors.add(norm_weight_of(config_, tensor(module.path + ".weight"))),
                                    .bias = module.bias ? out.vectors.add(values(module.path + ".bias")) : kernels::Vector{},
                                    .in_place = module.in_place};
        }
        for (const HeadNormModule& module : layout_.head_norms) {
            Layer& layer = out.layers[static_cast<std::size_t>(module.layer)];
            (module.of_keys ? layer.k_norm : layer.q_norm) = out.vectors.add(norm_weight_of(config_, tensor(module.path + ".weight")));
        }
        for (std::size_t layer = 0; layer < layout_.sinks.size(); ++layer)
            out.layers[layer].sinks = out.vectors.add(values(layout_.sinks[layer]));
        std::span<const LinearModule> modules(layout_.linears);
        // The head is the largest: read last, its pages of the file would be in memory beside all weights.
        if (layout_.head() != nullptr) {
            CHECK(layout_.head() == &modules.back(), "a layout has the head last");
            load_projection(modules.last(1), out);
            modules = modules.first(modules.size() - 1);
        }
        // Modules of one projection are adjacent.
        for (std::size_t begin = 0; begin < modules.size();) {
            std::size_t end = begin + 1;
            while (end < modules.size() && are_of_one_projection(modules[end], modules[begin])) ++end;
            load_projection(modules.subspan(begin, end - begin), out);
            begin = end;
        }
        if (!layout_.relative_positions.empty()) out.relative_positions = out.vectors.add(values(layout_.relative_positions + ".weight"));
        if (!layout_.relative_norm.empty()) {
            out.relative_norm = {.weight = out.vectors.add(values(layout_.relative_norm + ".weight")),
                                 .bias = out.vectors.add(values(layout_.relative_norm + ".bias"))};
        }
        if (!layout_.convolution.empty()) load_convolution(out);
        load_heads(out);
        out.matrix_bytes = packer_.matrix_bytes();
        return out;
    }

private:
    const Tensor& tensor(const std::string& name) const {
        const Tensor* found = checkpoint_.find(name, layout_.prefix);
        CHECK(found != nullptr, "the checkpoint was checked against this layout");
        checkpoint_.require_finite(*found);
        return *found;
    }
    // A finder of tensors, whose numbers are finite. The checkpoint must outlive it.
    static FindTensor finite_tensors(const Checkpoint& checkpoint, std::string prefix) {
        return [&checkpoint, prefix = std::move(prefix)](const std::string& name) {
            const Tensor* const found = checkpoint.find(name, prefix);
            if (found != nullptr) checkpoint.require_finite(*found);
            return found;
        };
    }
    float attention_scale(std::size_t layer) const {
        const float scale = config_.attention_scale ? static_cast<float>(*config_.attention_scale)
                                                    : 1.0F / std::sqrt(static_cast<float>(config_.head_dim * config_.attention_terms));
        return config_.attention_scaled_by_layer ? scale / static_cast<float>(layer + 1) : scale;
    }
    std::vector<float> values(const std::string& name) const { return to_float(tensor(name)); }

    // Rows [first, first + rows) of an embedding.
    std::unique_ptr<kernels::PackedWeight> table(const std::string& path, std::int64_t first, std::int64_t rows, std::int64_t width) {
        const kernels::WeightPart part = weight_part(tensor(path + ".weight"), first + rows, width, false, aligned_);
        const kernels::WeightPart used = rows_of(part, first, rows);
        return pack({&used, 1}, kernels::WeightRole::embedding);
    }

    void load_heads(ModelWeights& out) {
        const FindTensor find = finite_tensors(checkpoint_, layout_.prefix);
        if (layout_.masked) out.before_head = pack_hidden(*layout_.masked, find, packer_, out.vectors);
        if (const std::string bias = head_bias_of(config_, layout_, checkpoint_); !bias.empty())
            out.head_bias = out.vectors.add(values(bias));
        const PoolingTask task = config_.labels != nullptr ? config_.head : PoolingTask::classify;
        const HeadModule* const head = layout_.head_for(task);
        if (head != nullptr && can_pool(backend_)) {
            out.classifier.task = task;
            out.classifier.hidden = pack_hidden(*head, find, packer_, out.vectors);
            if (config_.token_score) {
                out.classifier.output.weight = pack_token_score(*config_.token_score);
            } else if (config_.labels != nullptr) {
                out.classifier.output = pack_output(*head, find, packer_, out.vectors);
            }
            out.classifier.labels = config_.labels;
        }
        if (!layout_.distance_bias.empty()) load_distance_bias(out);
        if (!config_.embedder) return;
        for (const DenseConfig& dense : config_.embedder->dense) out.dense.push_back(load_dense(dense, out.vectors));
    }

    // [1, hidden]: the difference of two rows of the vocabulary's head gives the difference of their logits.
    std::unique_ptr<kernels::PackedWeight> pack_token_score(const TokenScore& score) {
        const Tensor& head = tensor((config_.tied_head ? layout_.tokens : layout_.head()->path) + ".weight");
        std::vector<float> row = row_of(head, score.positive);
        if (score.negative) std::ranges::transform(row, row_of(head, *score.negative), row.begin(), std::minus());
        for (float& x : row) x *= static_cast<float>(config_.logit_scale);
        const kernels::WeightPart part{.data = row.data(), .out_features = 1, .in_features = config_.hidden};
        return pack({&part, 1}, kernels::WeightRole::exact);
    }

    HiddenLayer load_dense(const DenseConfig& config, VectorStore& vectors) {
        const Checkpoint own(config.folder);
        const HeadModule module{.dense = "linear", .dense_bias = config.bias, .dense_size = config.out_features};
        const auto need = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
            const Tensor* const tensor = own.find(name, "");
            if (tensor != nullptr && tensor->shape == shape && tensor->format) return;
            throw std::runtime_error(fmt::format("{}: tensor {} {} in float is missing", config.folder.string(), name, shape_text(shape)));
        };
        need("linear.weight", {config.out_features, config.in_features});
        if (config.bias) need("linear.bias", {config.out_features});
        HiddenLayer layer = pack_hidden(module, finite_tensors(own, ""), packer_, vectors);
        layer.activation = config.activation;
        return layer;
    }

    // Spells the buckets of distances out, as transformers' MPNet does: near distances have one each, farther ones share them by their
    // logarithm, and those of tokens after the row's own come last.
    void load_distance_bias(ModelWeights& out) const {
        constexpr float farthest = 128.0F;
        constexpr std::int64_t half = 16;                                            // buckets of one direction, whatever the config says
        const std::vector<float> table = values(layout_.distance_bias + ".weight");  // [buckets, heads]
        const std::int64_t near = half / 2;
        const std::int64_t context = config_.max_positions;
        out.distance_stride = 2 * context - 1 + backend_.block_size();
        std::vector<float> bias(static_cast<std::size_t>(config_.heads * out.distance_stride), 0.0F);
        for (std::int64_t distance = 1 - context; distance < context; ++distance) {
            const std::int64_t n = std::abs(distance);
            std::int64_t bucket = n;
            if (n >= near) {
                const float share =
                    std::log(static_cast<float>(n) / static_cast<float>(near)) / std::log(farthest / static_cast<float>(near));
                bucket = std::min(near + static_cast<std::int64_t>(share * static_cast<float>(half - near)), half - 1);
            }
            if (distance > 0) bucket += half;
            for (std::int64_t head = 0; head < config_.heads; ++head) {
                bias[static_cast<std::size_t>(head * out.distance_stride + distance + context - 1)] =
                    table[static_cast<std::size_t>(bucket * config_.heads + head)];
            }
        }
        out.distance_bias = out.vectors.add(bias);
    }

    // From [out, in, width] to the inputs in the order of unfold: neighbour by neighbour.
    void load_convolution(ModelWeights& out) {
        const std::vector<float> from = values(layout_.convolution + ".weight");
        const auto width = static_cast<std::size_t>(config_.convolution->width);
        const auto hidden = static_cast<std::size_t>(config_.hidden);
        std::vector<float> weight(from.size());
        for (std::size_t row = 0; row < hidden; ++row) {
            for (std::size_t column = 0; column < hidden; ++column) {
                for (std::size_t i = 0; i < width; ++i)
                    weight[(row * width + i) * hidden + column] = from[(row * hidden + column) * width + i];
            }
        }
        const kernels::WeightPart part{
            .data = weight.data(), .out_features = config_.hidden, .in_features = config_.convolution->width * config_.hidden};
        out.convolution = {.weight = pack({&part, 1}, kernels::WeightRole::projection),
                           .bias = out.vectors.add(values(layout_.convolution + ".bias"))};
    }

    // What was read to pack it is freed, and the file's pages are given back: no more than one projection is in memory twice.
    std::unique_ptr<kernels::PackedWeight> pack(std::span<const kernels::WeightPart> parts, kernels::WeightRole role) {
        auto packed = packer_.pack_weight(parts, role);
        aligned_.clear();
        coded_.clear();
        checkpoint_.release_pages();
        return packed;
    }

    kernels::WeightPart keep(std::unique_ptr<CodedWeight> weight, std::int64_t out_features, std::int64_t in_features) {
        coded_.push_back(std::move(weight));
        return {.out_features = out_features, .in_features = in_features, .coded = &coded_.back()->part};
    }

    // A module's weight with outputs in the order of its projection.
    kernels::WeightPart part_of(const LinearModule& module) {
        if (config_.quantized) {
            const CodedSource source{.config = *config_.quantized, .checkpoint = checkpoint_, .prefix = layout_.prefix};
            if (const auto coded = source.find(module.path, module.out_features, module.in_features)) {
                auto weight = read_codes(source, *coded);
                if (module.reordered) weight = choose_rows(weight->part, module.in_features, stored_outputs(config_, module));
                return keep(std::move(weight), module.out_features, module.in_features);
            }
        }
        return weight_of(config_, module, tensor(module.path + ".weight"), module.in_features, aligned_);
    }

    // Rows [first, first + rows) of a part that is not transposed.
    kernels::WeightPart slice(const kernels::WeightPart& part, std::int64_t first, std::int64_t rows) {
        if (part.coded == nullptr) return rows_of(part, first, rows);
        std::vector<std::int64_t> chosen(static_cast<std::size_t>(rows));
        std::iota(chosen.begin(), chosen.end(), first);
        return keep(choose_rows(*part.coded, part.in_features, chosen), rows, part.in_features);
    }

    void load_projection(std::span<const LinearModule> modules, ModelWeights& out) {
        const LinearModule& first = modules.front();
        if (first.projection == Projection::head && config_.tied_head) return;
        std::vector<kernels::WeightPart> parts;
        std::vector<float> bias;
        for (const LinearModule& module : modules) {
            const kernels::WeightPart part = part_of(module);
            const bool is_fused = config_.gated && module.projection == Projection::gate_up && modules.size() == 1;
            if (is_fused) {
                const std::int64_t half = module.out_features / 2;
                parts.push_back(slice(part, 0, half));
                parts.push_back(slice(part, half, half));
            } else {
                parts.push_back(part);
            }
            if (module.bias) {
                const auto values_of_bias = bias_of(config_, module, tensor(module.path + ".bias"));
                bias.insert(bias.end(), values_of_bias.begin(), values_of_bias.end());
            }
        }
        const bool is_gate_up = first.projection == Projection::gate_up && config_.gated;
        const kernels::WeightRole role = is_gate_up ? kernels::WeightRole::gate_up : role_of(first.projection);
        Linear linear{.weight = pack(parts, role), .bias = out.vectors.add(bias)};
        Layer& layer = out.layers[static_cast<std::size_t>(first.layer)];
        Mlp& mlp = first.expert ? layer.experts[static_cast<std::size_t>(*first.expert)] : layer.mlp;
        switch (first.projection) {
            case Projection::qkv: layer.qkv = std::move(linear); break;
            case Projection::output: layer.output = std::move(linear); break;
            case Projection::gate_up: mlp.gate_up = std::move(linear); break;
            case Projection::down: mlp.down = std::move(linear); break;
            case Projection::router: layer.router = std::move(linear); break;
            case Projection::shared_gate: layer.shared_gate = std::move(linear); break;
            case Projection::head: out.head = std::move(linear.weight); break;
            case Projection::embedding: out.embedding_projection = std::move(linear); break;
            case Projection::positions: layer.positions = std::move(linear); break;
        }
    }

    static Norm& norm_at(ModelWeights& out, const NormModule& module) {
        Layer& layer = out.layers[static_cast<std::size_t>(module.layer)];
        switch (module.site) {
            case NormSite::attention: return layer.attention_norm;
            case NormSite::mlp: return layer.mlp_norm;
            case NormSite::final: return out.final_norm;
            case NormSite::embedding: return out.embedding_norm;
            case NormSite::convolution: return out.convolution_norm;
            case NormSite::attention_out: return layer.attention_out_norm;
            case NormSite::mlp_out: return layer.mlp_out_norm;
        }
        CHECK(false, "every norm has a place");
    }

    const ModelConfig& config_;
    const ModelLayout& layout_;
    const Checkpoint& checkpoint_;
    kernels::Backend& backend_;
    WeighingPacker packer_;
    std::vector<std::unique_ptr<std::byte[]>> aligned_;
    std::vector<std::unique_ptr<CodedWeight>> coded_;
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

kernels::WeightPart rows_of(const kernels::WeightPart& part, std::int64_t first, std::int64_t rows) {
    CHECK(!part.transposed && first + rows <= part.out_features, "a part is a range of whole rows");
    kernels::WeightPart out = part;
    out.data =
        static_cast<const std::byte*>(part.data) + static_cast<std::size_t>(first * part.in_features) * kernels::bytes_of(part.format);
    out.out_features = rows;
    return out;
}

namespace {

// Rows of the result are the stored outputs of `from` [inputs, outputs], in this order. A few inputs at a time, whose lines stay in the
// cache while all outputs are copied.
template <class Element>
void copy_columns(const std::byte* from, std::span<const std::int64_t> stored, std::int64_t inputs, std::byte* to) {
    constexpr std::int64_t together = 32;
    const auto* const elements = reinterpret_cast<const Element*>(from);
    auto* const rows = reinterpret_cast<Element*>(to);
    const std::int64_t outputs = std::ssize(stored);
    for (std::int64_t begin = 0; begin < inputs; begin += together) {
        const std::int64_t end = std::min(begin + together, inputs);
        for (std::int64_t row = 0; row < outputs; ++row) {
            for (std::int64_t i = begin; i < end; ++i)
                rows[row * inputs + i] = elements[i * outputs + stored[static_cast<std::size_t>(row)]];
        }
    }
}

}  // namespace

kernels::WeightPart weight_of(const ModelConfig& config, const LinearModule& module, const Tensor& weight, std::int64_t columns,
                              std::vector<std::unique_ptr<std::byte[]>>& aligned) {
    kernels::WeightPart part = weight_part(weight, module.out_features, columns, module.transposed, aligned);
    if (!module.reordered) return part;
    const std::size_t element = kernels::bytes_of(part.format);
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * element;
    auto rows = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(module.out_features) * row_bytes);
    const auto* const from = static_cast<const std::byte*>(part.data);
    const std::vector<std::int64_t> stored = stored_outputs(config, module);
    if (part.transposed) {
        if (element == sizeof(float)) {
            copy_columns<float>(from, stored, columns, rows.get());
        } else {
            copy_columns<std::uint16_t>(from, stored, columns, rows.get());
        }
    } else {
        for (std::size_t i = 0; i < stored.size(); ++i)
            std::memcpy(rows.get() + i * row_bytes, from + static_cast<std::size_t>(stored[i]) * row_bytes, row_bytes);
    }
    part.data = rows.get();
    part.transposed = false;
    aligned.push_back(std::move(rows));
    return part;
}

std::vector<float> bias_of(const ModelConfig& config, const LinearModule& module, const Tensor& bias) {
    return in_projection_order(config, module, to_float(bias));
}

std::vector<float> in_projection_order(const ModelConfig& config, const LinearModule& module, std::vector<float> values) {
    if (!module.reordered) return values;
    std::vector<float> out;
    for (const std::int64_t stored : stored_outputs(config, module)) out.push_back(values[static_cast<std::size_t>(stored)]);
    return out;
}

std::vector<float> norm_weight_of(const ModelConfig& config, const Tensor& weight) {
    std::vector<float> values = to_float(weight);
    if (config.norm_offset) {
        for (float& x : values) x += 1.0F;
    }
    return values;
}

namespace {

// Without a weight if the tensor is missing.
Linear pack_exactly(const std::string& path, bool bias, const FindTensor& tensor, kernels::Packer& packer, VectorStore& vectors) {
    const Tensor* const weight = tensor(path + ".weight");
    if (weight == nullptr) return {};
    std::vector<std::unique_ptr<std::byte[]>> aligned;
    const kernels::WeightPart part = weight_part(*weight, weight->shape[0], weight->shape[1], false, aligned);
    Linear linear{.weight = packer.pack_weight({&part, 1}, kernels::WeightRole::exact), .bias = {}};
    if (bias) linear.bias = vectors.add(to_float(*tensor(path + ".bias")));
    return linear;
}

}  // namespace

HiddenLayer pack_hidden(const HeadModule& head, const FindTensor& tensor, kernels::Packer& packer, VectorStore& vectors) {
    if (head.dense.empty()) return {};
    HiddenLayer layer{
        .linear = pack_exactly(head.dense, head.dense_bias, tensor, packer, vectors), .activation = head.activation, .norm = {}};
    if (layer.linear.weight == nullptr || head.norm.empty()) return layer;
    layer.norm.weight = vectors.add(to_float(*tensor(head.norm + ".weight")));
    if (head.norm_bias) layer.norm.bias = vectors.add(to_float(*tensor(head.norm + ".bias")));
    return layer;
}

Linear pack_output(const HeadModule& head, const FindTensor& tensor, kernels::Packer& packer, VectorStore& vectors) {
    return pack_exactly(head.output, head.output_bias, tensor, packer, vectors);
}

bool can_pool(const kernels::Backend& backend) { return !backend.info().has_own_memory; }

namespace {

// All that decides about embeddings besides the model itself.
void add_to(ContentHash& hash, const EmbedderConfig& embedder, std::optional<std::int64_t> max_sequence) {
    hash.add_text(
        fmt::format("{} {} {} {}", name_of(embedder.pooling), embedder.normalized, embedder.dimensions, max_sequence.value_or(0)));
    for (const auto& [name, text] : embedder.prompts) {
        hash.add_text(name);
        hash.add_text(text);
    }
    hash.add_text(embedder.default_prompt);
    for (const DenseConfig& dense : embedder.dense) {
        hash.add_text(fmt::format("{} {}", dense.bias, dense.activation ? static_cast<int>(*dense.activation) : -1));
        Checkpoint(dense.folder).add_to(hash);
    }
}

// All that decides about scores besides the model itself.
void add_to(ContentHash& hash, const TokenScore& score, std::optional<std::int64_t> max_sequence) {
    hash.add_text(
        fmt::format("{} {} {} {}", score.positive, score.negative.value_or(-1), score.adds_generation_prompt, max_sequence.value_or(0)));
    hash.add_text(score.instruction);
}

}  // namespace

std::unique_ptr<Model> Model::load(const std::filesystem::path& folder, kernels::Backend& backend, std::int64_t rows_max,
                                   std::int64_t sample_rows_max, std::int64_t context_max, std::optional<PoolingMode> pooling) {
    ModelParts parts{.config = ModelConfig::load(folder, pooling),
                     .layout = {},
                     .checkpoint = nullptr,
                     .weights = ModelWeights(backend),
                     .fingerprint = {},
                     .unused_tensors = {}};
    if (!can_pool(backend) && (!parts.config.generates || parts.config.embedder || parts.config.token_score)) {
        throw std::runtime_error(fmt::format(
            "{}: a GPU runs no encoders, no classification heads and no embedding models yet; use --device cpu", folder.string()));
    }
    if (parts.config.quantized && backend.info().has_own_memory) {
        throw std::runtime_error(fmt::format("{}: a GPU has no kernels for quantized checkpoints ({}) yet; use --device cpu",
                                             folder.string(), parts.config.quantized->name));
    }
    if (backend.info().has_own_memory && parts.config.experts) {
        throw std::runtime_error(fmt::format("{}: a GPU runs no mixtures of experts (model_type = {}) yet; use --device cpu",
                                             folder.string(), parts.config.family));
    }
    parts.checkpoint = std::make_unique<Checkpoint>(folder, *parts.config.names);
    parts.layout = layout_of(parts.config);
    untie_own_head(parts.config, parts.layout, *parts.checkpoint);
    parts.unused_tensors = check_checkpoint(parts.config, parts.layout, *parts.checkpoint).unused;
    limit_context(parts.config, context_max);

    ContentHash hash;
    const auto config_text = read_text(folder / "config.json");
    if (!config_text) throw std::runtime_error(config_text.error());
    hash.add_text(*config_text);
    // Its defaults apply to jobs that do not set them, so they affect results.
    const auto generation_text = read_text_if_there(folder / "generation_config.json");
    if (!generation_text) throw std::runtime_error(generation_text.error());
    hash.add_text(*generation_text);
    if (parts.config.quantized) {
        for (const QuantizedFile& older : quantized_files) {
            if (const auto text = read_text_if_there(folder / older.name); text && !text->empty()) hash.add_text(*text);
        }
    }
    parts.checkpoint->add_to(hash);
    if (parts.config.labels && parts.config.labels->scores_are_logits) hash.add_text("logits");
    if (parts.config.token_score) add_to(hash, *parts.config.token_score, parts.config.max_sequence);
    if (parts.config.embedder) add_to(hash, *parts.config.embedder, parts.config.max_sequence);
    parts.fingerprint = hash.hex();

    parts.weights = ModelLoader(parts.config, parts.layout, *parts.checkpoint, backend).load();
    // Only adapters read the checkpoint from now on, and only single tensors.
    parts.checkpoint->release_pages();
    return make_model(std::move(parts), backend, rows_max, sample_rows_max);
}

const ModelLayout& Model::layout() const { CHECK(false, "only a loaded model has a layout"); }
const Checkpoint& Model::checkpoint() const { CHECK(false, "only a loaded model has a checkpoint"); }
std::span<const std::string> Model::unused_tensors() const { return {}; }

ModelReport inspect_model(const std::filesystem::path& folder, std::optional<PoolingMode> pooling) {
    ModelReport report;
    report.config = ModelConfig::load(folder, pooling);
    const ModelLayout layout = layout_of(report.config);
    const Checkpoint checkpoint(folder, *report.config.names);
    untie_own_head(report.config, layout, checkpoint);
    CheckedTensors checked = check_checkpoint(report.config, layout, checkpoint);
    report.unused_tensors = std::move(checked.unused);
    for (const LayoutTensor& tensor : checked.used) {
        report.parameters += tensor.elements();
        if (tensor.role == TensorRole::embedding) report.embedding_parameters += tensor.elements();
    }
    for (const CodedModule& module : checked.coded) {
        report.coded_parameters += module.out_features * module.in_features;
        report.coded_bytes += coded_bytes(*report.config.quantized, module);
    }
    report.parameters += report.coded_parameters;
    return report;
}

kernels::KvShape kv_shape_of(const ModelConfig& config) {
    // An encoder's layers use the cache one after the other, each for its own step alone.
    return {.layers = config.is_encoder ? 1 : config.layers, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
}

}  // namespace lorry::engine
