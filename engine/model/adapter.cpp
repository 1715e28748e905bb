// Reads, checks and packs an adapter's folder. Files are read, not mapped, so that overwriting one fails only the jobs of that adapter.
#include "engine/model/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/adapter_fault.h"
#include "engine/model/adapter_config.h"
#include "engine/model/adapter_embedding.h"
#include "engine/model/adapter_match.h"
#include "engine/model/adapter_parameters.h"
#include "engine/model/merged_weight.h"
#include "engine/model/model.h"
#include "engine/model/model_heads.h"

namespace lorry::engine {
namespace {

constexpr const char* config_name = "adapter_config.json";
constexpr const char* weights_name = "adapter_model.safetensors";
constexpr std::size_t config_bytes_max = std::size_t{1} << 20;

Expected<std::string, std::string> read_config(const std::filesystem::path& folder) {
    auto text = read_text(folder / config_name, {.bytes_max = config_bytes_max});
    if (!text) return unexpected(text.error() + "; an adapter folder is one that PEFT's save_pretrained wrote");
    return text;
}

// Opens the weights; the error for a pickle says how to convert it, the one for a Git LFS pointer how to fetch the file.
Expected<InputFile, std::string> open_weights(const std::filesystem::path& folder) {
    const auto file = folder / weights_name;
    if (!std::filesystem::exists(file) && std::filesystem::exists(folder / "adapter_model.bin")) {
        return unexpected(
            fmt::format("{}: adapter_model.bin is a pickle, and reading it would run code from the file; save the adapter again as {} "
                        "(save_pretrained with safe_serialization=True)",
                        folder.string(), weights_name));
    }
    return InputFile::open(file);
}

std::string in_file(const char* name, const std::string& error) { return fmt::format("{}: {}", name, error); }

std::string truncated() { return in_file(weights_name, "the file was truncated while it was read"); }

std::string not_finite(const Tensor& tensor, std::uint64_t element) {
    return in_file(weights_name, fmt::format("tensor {} contains NaN or infinity, first at {}; check how the adapter was trained",
                                             tensor.name, index_text(tensor.shape, element)));
}

// model_config: as OpenAdapter.
Expected<AdapterInfo, std::string> describe(const AdapterConfig& config, const AdapterMatch& match, const ModelConfig& model,
                                            const ModelLayout& layout, std::string_view model_config) {
    AdapterInfo info;
    if (match.head) {
        const bool is_of_base = model.labels != nullptr && model.head == match.head->task;
        auto labels = read_labels(model_config, match.head->labels, is_of_base ? model.labels.get() : nullptr);
        if (!labels) return unexpected(labels.error());
        info.labels = std::make_shared<const Labels>(std::move(*labels));
        info.head = match.head->task;
    }
    info.base = config.base;
    std::int64_t expert_elements = 0;  // of all experts, of which a row has a few
    std::set<std::string> targets;
    const auto add = [&](const std::string& path) { targets.insert(path.substr(path.rfind('.') + 1)); };
    for (const LoraMatch& lora : match.loras) {
        info.rank_max = std::max(info.rank_max, lora.a->shape.front());
        const std::int64_t elements = lora.a->shape.front() * (lora.module->in_features + lora.module->out_features);
        (lora.module->expert ? expert_elements : info.elements) += elements;
        add(lora.module->path);
    }
    for (const SavedLinearMatch& saved : match.linears) add(saved.module->path);
    for (const SavedNormMatch& saved : match.norms) add(saved.module->path);
    for (const BiasMatch& bias : match.biases) add(bias.module->path);
    if (match.head) add(match.head->module->output);
    if (match.embedding_update) {
        const std::int64_t rank = match.embedding_update->a->shape.front();
        info.rank_max = std::max(info.rank_max, rank);
        info.elements += rank * match.embedding_update->b->shape.front();
    }
    const bool is_larger = match.vocabulary > model.vocabulary;
    if (match.embedding_update || !match.embedding_rows.empty() || match.embedding != nullptr || is_larger) add(layout.tokens);
    if (layout.head() != nullptr && (!match.head_rows.empty() || is_larger)) add(layout.head()->path);
    if (match.vocabulary != model.vocabulary) info.vocabulary = match.vocabulary;
    if (model.experts) info.elements += expert_elements * model.experts->chosen / model.experts->count;
    info.targets.assign(targets.begin(), targets.end());
    return info;
}

class PackedAdapter final : public Adapter {
public:
    PackedAdapter(AdapterInfo info, const Model& model, kernels::Packer& packer)
        : info_(std::move(info)),
          model_(model),
          packer_(packer),
          experts_(model.config().experts ? model.config().experts->count : 0),
          projections_(index_of(model.config().layers, std::nullopt, Projection::qkv)),
          norms_(static_cast<std::size_t>(model.config().layers) * norm_sites),
          vectors_(packer) {}

    const AdapterInfo& info() const override { return info_; }
    const AdapterProjection* at(std::int64_t layer, Projection projection) const override {
        return projections_[index_of(layer, std::nullopt, projection)].get();
    }
    const AdapterProjection* at_expert(std::int64_t layer, std::int64_t expert, Projection projection) const override {
        return projections_[index_of(layer, expert, projection)].get();
    }
    const Norm* norm_at(std::int64_t layer, NormSite site) const override {
        const auto& norm = norms_[static_cast<std::size_t>(layer) * norm_sites + static_cast<std::size_t>(site)];
        return norm ? &*norm : nullptr;
    }

    const AdapterEmbedding* embedding() const override { return embedding_ ? &*embedding_ : nullptr; }
    const Classifier* classifier() const override { return classifier_ ? &*classifier_ : nullptr; }

    void pack(const AdapterMatch& match) {
        for (const SavedLinearMatch& saved : match.linears) replace(*saved.module, *saved.weight, saved.bias);
        for (const LoraMatch& lora : match.loras) {
            if (lora.base_weight != nullptr) replace_weight(*lora.module, *lora.base_weight);
        }
        for (const CopyMatch& trained : match.copies) replace_weight(*model_.layout().head(), *trained.copy);
        if (match.embedding != nullptr || !match.embedding_rows.empty() || match.embedding_update)
            embedding_ = pack_embedding(match, packer_);
        if (match.embedding_update) embedding_->scale = vectors_.add(match.embedding_update->column_scales);
        if (!match.head_rows.empty()) projection_of(*model_.layout().head()).parts = pack_head_rows(match.head_rows, packer_);
        pack_loras(match.loras);
        pack_scales(match);
        pack_biases(match);
        for (const SavedNormMatch& norm : match.norms) add_norm(norm);
        if (match.head) add_head(*match.head);
    }

private:
    // A layer has its projections, then two of each expert.
    std::size_t index_of(std::int64_t layer, std::optional<std::int64_t> expert, Projection projection) const {
        const std::size_t of_layer = static_cast<std::size_t>(layer) * (projections + static_cast<std::size_t>(experts_) * 2);
        if (!expert) return of_layer + static_cast<std::size_t>(projection);
        return of_layer + projections + static_cast<std::size_t>(*expert) * 2 + (projection == Projection::down ? 1 : 0);
    }
    std::size_t index_of(const LinearModule& module) const { return index_of(module.layer, module.expert, module.projection); }
    AdapterProjection& projection_of(const LinearModule& module) {
        auto& slot = projections_[index_of(module)];
        if (slot == nullptr) slot = std::make_unique<AdapterProjection>();
        return *slot;
    }

    void replace(const LinearModule& base, const Tensor& weight, const Tensor* bias) {
        LinearModule module = base;
        if (module.projection == Projection::head) module.out_features = module.projection_out = weight.shape.front();
        std::vector<std::unique_ptr<std::byte[]>> aligned;
        const kernels::WeightPart part = weight_of(model_.config(), module, weight, module.in_features, aligned);
        ReplacedLinear replaced{
            .weight = packer_.pack_weight({&part, 1}, role_of(module.projection)), .bias = {}, .out_begin = module.out_begin};
        if (bias != nullptr) replaced.bias = vectors_.add(bias_of(model_.config(), module, *bias));
        AdapterProjection& projection = projection_of(module);
        if (module.out_features == module.projection_out) {
            projection.whole = std::move(replaced);
        } else {
            projection.parts.push_back(std::move(replaced));
        }
    }

    // PEFT's copy of a weight differs from the base model's: it was trained, too. The bias is the base's.
    void replace_weight(const LinearModule& module, const Tensor& weight) {
        const Tensor* bias = module.bias ? &tensor_of(model_, module.path + ".bias") : nullptr;
        replace(module, weight, bias);
    }

    // B is stored [out, rank], also where the module is transposed.
    kernels::WeightPart weight_of_b(const LoraMatch& lora, std::vector<std::unique_ptr<std::byte[]>>& aligned) const {
        LinearModule module = *lora.module;
        module.transposed = false;
        module.out_features = lora.b->shape.front();
        return weight_of(model_.config(), module, *lora.b, lora.b->shape.back(), aligned);
    }

    void pack_loras(const std::vector<LoraMatch>& loras) {
        std::vector<std::unique_ptr<std::byte[]>> aligned;
        std::vector<kernels::LoraPart> parts;
        for (std::size_t i = 0; i < loras.size(); ++i) {
            const LinearModule& module = *loras[i].module;
            const std::int64_t rank = loras[i].a->shape.front();
            parts.push_back({.a = weight_part(*loras[i].a, rank, module.in_features, false, aligned),
                             .b = weight_of_b(loras[i], aligned),
                             .scale = loras[i].scale,
                             .out_begin = module.out_begin});
            // Modules of one projection are adjacent.
            const LinearModule* next = i + 1 < loras.size() ? loras[i + 1].module : nullptr;
            if (next != nullptr && are_of_one_projection(*next, module)) continue;
            AdapterProjection& projection = projection_of(module);
            projection.lora = packer_.pack_lora(parts);
            parts.clear();
            aligned.clear();
        }
    }

    // Values for some outputs of a module's projection.
    struct Change {
        const LinearModule* module;
        std::vector<float> values;
    };

    // One vector for each whole projection.
    void pack_scales(const AdapterMatch& match) {
        std::map<std::size_t, std::vector<float>> scales;  // by index_of()
        std::set<std::size_t> adding;                      // of these, those that may add to the residual
        for (const LoraMatch& lora : match.loras) {
            if (lora.magnitude == nullptr) continue;
            const LinearModule& module = *lora.module;
            if (module.projection == Projection::output || module.projection == Projection::down) adding.insert(index_of(module));
            auto& scale = scales[index_of(module)];
            scale.resize(static_cast<std::size_t>(module.projection_out), 1.0F);
            const std::vector<float> values = in_projection_order(model_.config(), module, lora.output_scales);
            std::ranges::copy(values, scale.begin() + static_cast<std::ptrdiff_t>(module.out_begin));
        }
        for (auto& [i, scale] : scales) {
            if (adding.contains(i)) {
                std::vector<float> inverse;
                for (float& value : scale) {
                    value = away_from_zero(value);
                    inverse.push_back(1.0F / value);
                }
                projections_[i]->inverse_scale = vectors_.add(inverse);
            }
            projections_[i]->scale = vectors_.add(scale);
        }
    }

    // A smaller scale changes a residual by less than its rounding error, and dividing the residual by it could overflow.
    static float away_from_zero(float scale) {
        constexpr float least = 0x1p-40F;
        return std::abs(scale) < least ? std::copysign(least, scale) : scale;
    }

    // Adds up the differences of trained biases from the base's, the biases of lora_B, and what scales must not multiply: the base's bias.
    void pack_biases(const AdapterMatch& match) {
        std::vector<Change> changes;
        for (const BiasMatch& trained : match.biases) {
            std::vector<float> values = bias_of(model_.config(), *trained.module, *trained.bias);
            const std::vector<float> base = bias_of(model_.config(), *trained.module, tensor_of(model_, trained.module->path + ".bias"));
            std::transform(values.begin(), values.end(), base.begin(), values.begin(), std::minus<>());
            changes.push_back({trained.module, std::move(values)});
        }
        for (const LoraMatch& lora : match.loras) {
            if (lora.bias != nullptr) {
                std::vector<float> values = bias_of(model_.config(), *lora.module, *lora.bias);
                for (float& value : values) value *= lora.scale;
                changes.push_back({lora.module, std::move(values)});
            }
            if (lora.magnitude != nullptr && lora.module->bias) {
                std::vector<float> values = to_float(tensor_of(model_, lora.module->path + ".bias"));
                for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1.0F - lora.output_scales[i];
                changes.push_back({lora.module, in_projection_order(model_.config(), *lora.module, std::move(values))});
            }
        }
        // One vector for each whole projection.
        std::vector<std::vector<float>> sums(projections_.size());
        for (const Change& change : changes) {
            const LinearModule& module = *change.module;
            auto& sum = sums[index_of(module)];
            sum.resize(static_cast<std::size_t>(module.projection_out));
            const auto at = sum.begin() + static_cast<std::ptrdiff_t>(module.out_begin);
            std::transform(change.values.begin(), change.values.end(), at, at, std::plus<>());
            projection_of(module);
        }
        for (std::size_t i = 0; i < sums.size(); ++i) {
            if (!sums[i].empty()) projections_[i]->bias = vectors_.add(sums[i]);
        }
    }

    void add_norm(const SavedNormMatch& match) {
        const NormModule& module = *match.module;
        const Tensor& weight = match.weight != nullptr ? *match.weight : tensor_of(model_, module.path + ".weight");
        Norm norm{.weight = vectors_.add(norm_weight_of(model_.config(), weight)), .bias = {}};
        if (match.bias != nullptr) norm.bias = vectors_.add(to_float(*match.bias));
        norms_[static_cast<std::size_t>(module.layer) * norm_sites + static_cast<std::size_t>(module.site)] = norm;
    }

    void add_head(const HeadMatch& match) {
        const HeadModule& module = *match.module;
        classifier_.emplace();
        classifier_->task = match.task;
        classifier_->labels = info_.labels;
        const FindTensor own = [&](const std::string& name) -> const Tensor* {
            if (name == module.output + ".weight") return match.output_weight;
            return name == module.output + ".bias" ? match.output_bias : nullptr;
        };
        classifier_->output = pack_output(module, own, packer_, vectors_);
        if (match.dense_weight == nullptr && match.norm_weight == nullptr && match.lora_a == nullptr) return;
        // What the adapter does not have of the hidden layer is the base's.
        const auto tensor = [&](const Tensor* saved, const std::string& name) -> const Tensor* {
            return saved != nullptr ? saved : model_.checkpoint().find(name, model_.layout().prefix);
        };
        std::vector<float> merged;
        Tensor changed;
        const FindTensor hidden = [&](const std::string& name) -> const Tensor* {
            if (name == module.dense + ".weight") {
                const Tensor* const weight = tensor(match.dense_weight, name);
                return match.lora_a == nullptr ? weight : merge(match, *weight, merged, changed);
            }
            if (name == module.dense + ".bias") return tensor(match.dense_bias, name);
            return tensor(name.ends_with(".bias") ? match.norm_bias : match.norm_weight, name);
        };
        classifier_->hidden = pack_hidden(module, hidden, packer_, vectors_);
    }

    // The changed weight, in float32.
    static const Tensor* merge(const HeadMatch& match, const Tensor& weight, std::vector<float>& merged, Tensor& out) {
        const MergedWeight sums{.weight = &weight, .a = *match.lora_a, .b = *match.lora_b, .scale = match.scale};
        const std::vector<float> magnitudes = match.magnitude != nullptr ? to_float(*match.magnitude) : std::vector<float>();
        merged.clear();
        for_rows(sums, [&](std::size_t row, std::span<float> values) {
            const float factor = magnitudes.empty() ? 1.0F : magnitudes[row] / norm_of(values);
            for (const float value : values) merged.push_back(value * factor);
        });
        out = weight;
        out.dtype = "F32";
        out.format = kernels::Format::float32;
        out.bytes = std::as_bytes(std::span(merged));
        return &out;
    }

    const AdapterInfo info_;
    const Model& model_;
    kernels::Packer& packer_;
    const std::int64_t experts_;                                   // of a layer
    std::vector<std::unique_ptr<AdapterProjection>> projections_;  // at index_of()
    std::vector<std::optional<Norm>> norms_;                       // [layers · norm_sites]
    std::optional<AdapterEmbedding> embedding_;
    std::optional<Classifier> classifier_;
    VectorStore vectors_;
};

class CheckedFiles final : public AdapterFiles {
public:
    CheckedFiles(std::unique_ptr<std::byte[]> bytes, std::vector<Tensor> tensors, const Model& model)
        : model_(model), bytes_(std::move(bytes)), tensors_(split_parameter_updates(std::move(tensors), model.config(), split_)) {}

    Expected<void, std::string> match(const AdapterConfig& config, std::string_view model_config) {
        auto matched = match_adapter(config, model_.layout(), model_.config(), tensors_);
        if (!matched) return unexpected(matched.error());
        match_ = std::move(*matched);
        auto info = describe(config, match_, model_.config(), model_.layout(), model_config);
        if (!info) return unexpected(info.error());
        info_ = std::move(*info);
        if (const auto kept = keep_trained_copies(match_, model_); !kept) return unexpected(in_file(weights_name, kept.error()));
        if (changes_embedding() && !model_.pools())
            return unexpected(fmt::format("{}: the adapter changes {}, for which a GPU has no kernels yet; use --device cpu", weights_name,
                                          model_.layout().tokens));
        if (match_.head && !model_.pools())
            return unexpected(
                std::string("adapter_config.json: task_type: a GPU has no kernels for classification heads yet; use --device cpu"));
        if (match_.head && needs_base(*match_.head) && !base_has_hidden_layer(match_.head->task)) {
            return unexpected(
                fmt::format("{}: the head needs {}, which neither the adapter nor the base model has; train and save all of it with "
                            "the adapter (modules_to_save)",
                            weights_name, match_.head->module->dense));
        }
        return {};
    }
    bool changes_embedding() const {
        return match_.embedding != nullptr || !match_.embedding_rows.empty() || match_.embedding_update || !match_.head_rows.empty();
    }
    // Whether the adapter leaves a part of its head's hidden layer to the base.
    static bool needs_base(const HeadMatch& head) {
        const HeadModule& module = *head.module;
        return !module.dense.empty() && (head.dense_weight == nullptr || (!module.norm.empty() && head.norm_weight == nullptr));
    }
    // Only the hidden layer of the base's own head was checked and packed, or that of sequence classifiers for a base without a head.
    bool base_has_hidden_layer(PoolingTask task) const {
        const ModelConfig& config = model_.config();
        return (config.labels == nullptr || config.head == task) && has_hidden_layer(model_.layout(), model_.checkpoint());
    }
    // Magnitudes relative to the rows of the base's weights with the update, or to the columns of its embedding. Reads these weights. Call
    // it once the tensors are known to be finite.
    Expected<void, std::string> find_output_scales() {
        for (LoraMatch& lora : match_.loras) {
            if (lora.magnitude == nullptr) continue;
            const Tensor* const weight = lora.base_weight != nullptr ? lora.base_weight : base_weight_of(model_, lora.module->path);
            const auto codes = weight == nullptr ? codes_of(model_, *lora.module) : nullptr;
            const MergedWeight sums{.weight = weight,
                                    .codes = codes == nullptr ? nullptr : &codes->part,
                                    .transposed = lora.module->transposed,
                                    .a = *lora.a,
                                    .b = *lora.b,
                                    .scale = lora.scale};
            lora.output_scales = output_scales(sums, *lora.magnitude);
            if (const auto good = check_scales(lora.output_scales, *lora.magnitude, "row"); !good) return good;
        }
        auto& update = match_.embedding_update;
        if (!update || update->magnitude == nullptr) return {};
        const Tensor& embedding = match_.embedding != nullptr ? *match_.embedding : *base_weight_of(model_, model_.layout().tokens);
        update->column_scales = column_scales(embedding, *update->a, *update->b, update->scale, *update->magnitude);
        return check_scales(update->column_scales, *update->magnitude, "column");
    }
    static Expected<void, std::string> check_scales(std::span<const float> scales, const Tensor& magnitude, std::string_view norm_of) {
        if (std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); })) return {};
        return unexpected(in_file(weights_name, fmt::format("tensor {}: a magnitude divided by the norm of its {} of weights is not "
                                                            "finite; check how the adapter was trained",
                                                            magnitude.name, norm_of)));
    }
    std::span<const Tensor> tensors() const { return tensors_; }
    AdapterInfo& info() { return info_; }

    std::unique_ptr<Adapter> pack(kernels::Packer& packer) const override {
        auto packed = std::make_unique<PackedAdapter>(info_, model_, packer);
        packed->pack(match_);
        return packed;
    }

private:
    const Model& model_;
    const std::unique_ptr<std::byte[]> bytes_;         // of the weights file
    std::vector<std::unique_ptr<std::byte[]>> split_;  // of tensors that were cut
    const std::vector<Tensor> tensors_;                // refer to these bytes
    AdapterMatch match_;                               // refers to tensors_
    AdapterInfo info_;
};

// An adapter's folder with its config read and its weights file open at the start.
struct OpenAdapter {
    std::string text;  // of the config
    AdapterConfig config;
    std::string model_config;  // config.json, where it matters: its labels are those of the adapter's head; empty: there is none
    InputFile weights;

    // All but the weights.
    void add_to(ContentHash& hash, const std::string& text_hash) const {
        hash.add_text(text);
        if (!model_config.empty()) hash.add_text(model_config);
        if (!text_hash.empty()) hash.add_text(text_hash);
    }
};

Expected<OpenAdapter, std::string> open_adapter(const std::filesystem::path& folder) {
    auto text = read_config(folder);
    if (!text) return unexpected(text.error());
    auto config = AdapterConfig::parse(*text);
    if (!config) return unexpected(in_file(config_name, config.error()));
    auto weights = open_weights(folder);
    if (!weights) return unexpected(weights.error());
    std::string model_config;
    if (config->classifies) {
        auto read = read_text_if_there(folder / "config.json");
        if (!read) return unexpected(read.error());
        model_config = std::move(*read);
    }
    return OpenAdapter{std::move(*text), std::move(*config), std::move(model_config), std::move(*weights)};
}

// Reads the tensors' data, which follows the header, into the hash. The error names a tensor that contains NaN or infinity.
Expected<void, std::string> hash_tensors(InputFile& file, std::vector<Tensor> tensors, ContentHash& hash) {
    std::ranges::sort(tensors, {}, &Tensor::begin);  // they cover the data without holes
    std::vector<std::byte> chunk(std::size_t{1} << 20U);
    for (const Tensor& tensor : tensors) {
        for (std::uint64_t at = tensor.begin; at < tensor.end;) {
            const std::span<std::byte> part = std::span(chunk).first(std::min<std::uint64_t>(tensor.end - at, chunk.size()));
            if (file.read(part) != part.size()) return unexpected(truncated());
            if (const auto element = tensor.format ? first_not_finite(part, *tensor.format) : std::nullopt)
                return unexpected(not_finite(tensor, (at - tensor.begin) / kernels::bytes_of(*tensor.format) + *element));
            hash.add(part);
            at += part.size();
        }
    }
    return {};
}

// A folder whose config, names and shapes fit a model. The tensors' values were not read yet: they follow in the weights file.
struct FittingFolder {
    std::vector<std::byte> start;  // of the weights file: the length of the header
    std::string header;
    std::vector<Tensor> tensors;
    AdapterInfo info;  // without hashes
};

Expected<FittingFolder, std::string> fit_folder(OpenAdapter& files, const ModelConfig& model) {
    const auto broken = [](const std::string& error) { return unexpected(in_file(weights_name, error)); };
    const std::size_t weights_bytes = files.weights.bytes();
    FittingFolder folder{.start = std::vector<std::byte>(std::min(safetensors_length_bytes, weights_bytes))};
    if (files.weights.read(folder.start) != folder.start.size()) return unexpected(truncated());
    const auto header_bytes = safetensors_header_bytes(folder.start, weights_bytes);
    if (!header_bytes) return broken(header_bytes.error());
    folder.header.resize(*header_bytes);
    if (files.weights.read(std::as_writable_bytes(std::span(folder.header))) != folder.header.size()) return unexpected(truncated());
    auto tensors = parse_safetensors_header(folder.header, weights_bytes - safetensors_length_bytes - *header_bytes);
    if (!tensors) return broken(tensors.error());
    folder.tensors = std::move(*tensors);
    rename_tensors(folder.tensors, model.names->renamed, name_prefix);

    const ModelLayout layout = layout_of(model);
    std::vector<std::unique_ptr<std::byte[]>> split;
    const std::vector<Tensor> split_tensors = split_parameter_updates(folder.tensors, model, split);
    const auto match = match_adapter(files.config, layout, model, split_tensors);
    if (!match) return unexpected(match.error());
    auto info = describe(files.config, *match, model, layout, files.model_config);
    if (!info) return unexpected(info.error());
    folder.info = std::move(*info);
    folder.info.bytes = files.text.size() + weights_bytes;
    return folder;
}

}  // namespace

Expected<AdapterInfo, std::string> inspect_adapter(const std::filesystem::path& folder, const ModelConfig& model,
                                                   const std::string& text_hash) {
    auto files = open_adapter(folder);
    if (!files) return unexpected(files.error());
    auto fitting = fit_folder(*files, model);
    if (!fitting) return unexpected(fitting.error());
    ContentHash hash;
    files->add_to(hash, text_hash);
    hash.add(fitting->start);
    hash.add(std::as_bytes(std::span(fitting->header)));
    if (const auto added = hash_tensors(files->weights, std::move(fitting->tensors), hash); !added) return unexpected(added.error());
    fitting->info.hash = hash.hex();
    fitting->info.text_hash = text_hash;
    return std::move(fitting->info);
}

std::optional<std::string> find_adapter_fault(const std::filesystem::path& folder, const ModelConfig& config) {
    auto files = open_adapter(folder);
    if (!files) return files.error();
    const auto fitting = fit_folder(*files, config);
    if (fitting) return std::nullopt;
    const std::string& base = files->config.base;
    return fitting.error() + (base.empty() ? "" : fmt::format("; its config names the base model '{}'", schema::shortened(base)));
}

Expected<std::unique_ptr<AdapterFiles>, AdapterError> AdapterFiles::read(const std::filesystem::path& folder,
                                                                         const std::string& expected_hash, const Model& model,
                                                                         const std::string& text_hash) {
    auto files = open_adapter(folder);
    if (!files) return unexpected(AdapterError{files.error(), true});
    const std::size_t weights_bytes = files->weights.bytes();
    auto file = std::make_unique_for_overwrite<std::byte[]>(weights_bytes);
    const std::span<std::byte> bytes(file.get(), weights_bytes);
    if (files->weights.read(bytes) != bytes.size()) return unexpected(AdapterError{truncated(), true});
    ContentHash hash;
    files->add_to(hash, text_hash);
    hash.add(bytes);
    const bool has_changed = !expected_hash.empty() && hash.hex() != expected_hash;

    auto tensors = parse_safetensors(bytes);
    if (!tensors) return unexpected(AdapterError{in_file(weights_name, tensors.error()), has_changed});
    if (has_changed) {
        return unexpected(AdapterError{
            fmt::format("{}: the files changed since the adapter was registered (content {}, registered {}); register it again",
                        folder.string(), hash.hex(), expected_hash),
            true});
    }
    rename_tensors(*tensors, model.config().names->renamed, name_prefix);
    auto checked = std::make_unique<CheckedFiles>(std::move(file), std::move(*tensors), model);
    if (const auto matched = checked->match(files->config, files->model_config); !matched) return unexpected(AdapterError{matched.error()});
    for (const Tensor& tensor : checked->tensors()) {
        if (const auto element = first_not_finite(tensor.bytes, *tensor.format))
            return unexpected(AdapterError{not_finite(tensor, *element)});
    }
    if (const auto found = checked->find_output_scales(); !found) return unexpected(AdapterError{found.error()});
    checked->info().hash = hash.hex();
    checked->info().text_hash = text_hash;
    checked->info().bytes = files->text.size() + weights_bytes;
    return checked;
}

std::size_t AdapterFiles::slot_bytes(kernels::Backend& backend) const {
    const auto measure = backend.make_measuring_slot();
    static_cast<void>(pack(*measure));
    return kernels::slot_aligned(measure->used());
}

}  // namespace lorry::engine
