// PEFT names tensors base_model.model.<module>.lora_A.weight and so on; the adapter's own name ("default") may precede the last part.
#include "engine/adapter_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "schema/codec_error.h"

namespace lorry::engine {
namespace {

constexpr std::string_view name_prefix = "base_model.model.";
constexpr const char* weights_file = "adapter_model.safetensors";

// Takes tensors by name, marks them as used, and keeps the first error.
class Matcher {
public:
    Matcher(const AdapterConfig& config, const ModelConfig& model, std::span<const Tensor> tensors)
        : config_(config), model_(model), tensors_(tensors) {}

    // What is wrong. Call at the end.
    std::string error() const {
        if (steps_.are_used_up())
            return "adapter_config.json: its regular expressions take too long to match; make them simpler, or name modules in a list";
        return error_;
    }
    void fail(std::string error) {
        if (error_.empty()) error_ = std::move(error);
    }

    // The tensor with the first of these names (after base_model.model.MODULE.) that exists, or nullptr.
    const Tensor* take(const std::string& path, std::initializer_list<const char*> names, const std::vector<std::int64_t>& shape) {
        for (const char* name : names) {
            const Tensor* tensor = find_tensor(tensors_, fmt::format("{}{}.{}", name_prefix, path, name));
            if (tensor == nullptr) continue;
            used_.insert(tensor);
            if (tensor->shape != shape) {
                fail(fmt::format("{}: tensor {} has shape {}, but this model and adapter_config.json require {}", weights_file,
                                 tensor->name, shape_text(tensor->shape), shape_text(shape)));
            } else if (!tensor->format) {
                fail(
                    fmt::format("{}: tensor {} has dtype {}; supported: F32, F16, BF16", weights_file, tensor->name, tensor->dtype));
            }
            return tensor;
        }
        return nullptr;
    }
    const Tensor* need(const std::string& path, std::initializer_list<const char*> names, const std::vector<std::int64_t>& shape,
                       const char* why) {
        const Tensor* tensor = take(path, names, shape);
        if (tensor == nullptr)
            fail(fmt::format("{}: tensor {}{}.{} is missing, although {}", weights_file, name_prefix, path, *names.begin(), why));
        return tensor;
    }

    void match_linear(const LinearModule& module, AdapterMatch& out) {
        const std::vector<std::int64_t> weight_shape =
            module.transposed ? std::vector{module.in_features, module.out_features} : std::vector{module.out_features, module.in_features};
        const std::vector<std::int64_t> bias_shape = {module.out_features};
        const bool is_head = module.projection == Projection::head;
        const bool targeted = config_.targets_module(module.path, steps_) && !(config_.all_linear && is_head);
        if (targeted) {
            const std::int64_t rank = config_.rank_of(module.path, steps_);
            constexpr const char* why = "adapter_config.json targets this module";
            LoraMatch lora{.module = &module};
            lora.a = need(module.path, {"lora_A.weight", "lora_A.default.weight"}, {rank, module.in_features}, why);
            lora.b = need(module.path, {"lora_B.weight", "lora_B.default.weight"}, {module.out_features, rank}, why);
            if (config_.lora_bias) lora.bias = need(module.path, {"lora_B.bias", "lora_B.default.bias"}, bias_shape, "lora_bias = true");
            lora.scale = config_.scale_of(module.path, rank, steps_);
            lora.base_weight = take(module.path, {"base_layer.weight"}, weight_shape);
            out.loras.push_back(lora);
        } else if (config_.saves_module(module.path)) {
            constexpr const char* why = "modules_to_save names this module";
            SavedLinearMatch saved{.module = &module};
            saved.weight = need(module.path, {"weight"}, weight_shape, why);
            if (module.bias) saved.bias = need(module.path, {"bias"}, bias_shape, why);
            out.linears.push_back(saved);
            return;
        }
        const bool trained =
            config_.biases == AdapterConfig::Biases::all || (config_.biases == AdapterConfig::Biases::lora_only && targeted);
        if (!trained || !module.bias) return;
        // Newer versions of PEFT store the bias of a targeted module under base_layer.
        const Tensor* bias = targeted ? need(module.path, {"base_layer.bias", "bias"}, bias_shape, "biases were trained")
                                      : need(module.path, {"bias"}, bias_shape, "biases were trained");
        out.biases.push_back({&module, bias});
    }

    void match_norm(const NormModule& module, AdapterMatch& out) {
        const std::vector<std::int64_t> shape = {model_.hidden};
        SavedNormMatch saved{.module = &module};
        if (config_.saves_module(module.path)) {
            saved.weight = need(module.path, {"weight"}, shape, "modules_to_save names this module");
            if (module.bias) saved.bias = need(module.path, {"bias"}, shape, "modules_to_save names this module");
        } else if (module.bias && config_.biases == AdapterConfig::Biases::all) {
            saved.bias = need(module.path, {"bias"}, shape, "biases were trained");
        } else {
            return;
        }
        out.norms.push_back(saved);
    }

    void match_copy(const std::string& path, AdapterMatch& out) {
        const Tensor* copy = take(path, {"weight"}, {model_.vocabulary, model_.hidden});
        if (copy != nullptr) out.copies.push_back({.path = path, .copy = copy});
    }

    // Refuses changes to a module that all rows of a batch share.
    void refuse_changes_to(const std::string& path, const char* what) {
        const std::string name = path.substr(path.rfind('.') + 1);
        if (!config_.all_linear && config_.targets_module(path, steps_)) {
            fail(fmt::format("adapter_config.json: target_modules = {} includes {}: {} cannot be adapted; train without it",
                             config_.target_text, name, what));
        }
        if (config_.saves_module(path)) {
            fail(fmt::format("adapter_config.json: modules_to_save includes {}: an adapter cannot replace {}; train without it", path,
                             what));
        }
    }

    void refuse_unused() {
        for (const Tensor& tensor : tensors_) {
            if (used_.contains(&tensor)) continue;
            fail(fmt::format("{}: tensor {} matches no module that adapter_config.json targets or saves in this model",
                             weights_file, tensor.name));
        }
    }

private:
    const AdapterConfig& config_;
    const ModelConfig& model_;
    std::span<const Tensor> tensors_;
    std::set<const Tensor*> used_;
    MatchSteps steps_;
    std::string error_;
};

}  // namespace

Expected<AdapterMatch, std::string> match_adapter(const AdapterConfig& config, const ModelLayout& layout, const ModelConfig& model,
                                                  std::span<const Tensor> tensors) {
    Matcher matcher(config, model, tensors);
    AdapterMatch out;
    matcher.refuse_changes_to(layout.tokens, "embeddings");
    if (!layout.positions.empty()) matcher.refuse_changes_to(layout.positions, "embeddings");
    for (const HeadNormModule& norm : layout.head_norms) matcher.refuse_changes_to(norm.path, "the norms of queries and keys");
    for (const LinearModule& module : layout.linears) matcher.match_linear(module, out);
    for (const NormModule& module : layout.norms) matcher.match_norm(module, out);

    if (out.loras.empty())
        matcher.fail(fmt::format("adapter_config.json: target_modules = {} matches no linear module of this model", config.target_text));
    for (const std::string& name : config.saved) {
        const auto is_it = [&](const auto& module) { return module.path.ends_with(name); };
        if (std::any_of(layout.linears.begin(), layout.linears.end(), is_it) ||
            std::any_of(layout.norms.begin(), layout.norms.end(), is_it))
            continue;
        matcher.fail(
            fmt::format("adapter_config.json: modules_to_save names {}, which is not a module of this model", schema::shortened(name)));
    }
    matcher.match_copy(layout.tokens, out);
    if (const std::string& head = layout.linears.back().path; !config.saves_module(head)) matcher.match_copy(head, out);
    matcher.refuse_unused();
    if (auto error = matcher.error(); !error.empty()) return unexpected(std::move(error));
    return out;
}

}  // namespace lorry::engine
