// PEFT names tensors base_model.model.<module>.lora_A.weight and so on; the adapter's own name ("default") may precede the last part.
#include "engine/model/adapter_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

#include "engine/model/adapter.h"
#include "schema/codec_error.h"

namespace lorry::engine {
namespace {

constexpr const char* weights_file = "adapter_model.safetensors";
constexpr const char* resizing_advice =
    "; if tokens were added, save the embedding and the head with the adapter (save_pretrained with save_embedding_layers=True), or merge "
    "it into the base model (merge_and_unload)";

// Takes tensors by name, marks them as used, and keeps the first error.
class Matcher {
public:
    Matcher(const AdapterConfig& config, const ModelLayout& layout, const ModelConfig& model, std::span<const Tensor> tensors)
        : config_(config), model_(model), tensors_(tensors), vocabulary_(model.vocabulary) {
        // An adapter of a model without a head (FEATURE_EXTRACTION) names modules without the prefix of models with one.
        const auto is_in = [&](const std::string& start) {
            return std::ranges::any_of(tensors, [&](const Tensor& tensor) { return tensor.name.starts_with(start); });
        };
        const std::string bare_list = layout.layer_list.substr(layout.prefix.size());
        if (is_in(std::string(name_prefix) + bare_list) && !is_in(std::string(name_prefix) + layout.layer_list))
            bare_prefix_ = layout.prefix;
        find_vocabulary(layout);
    }

    // What the adapter calls a module of the layout.
    std::string name_of(const std::string& path) const {
        return !bare_prefix_.empty() && path.starts_with(bare_prefix_) ? path.substr(bare_prefix_.size()) : path;
    }

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
            const Tensor* tensor = find_tensor(tensors_, fmt::format("{}{}.{}", name_prefix, name_of(path), name));
            if (tensor == nullptr) continue;
            used_.insert(tensor);
            if (tensor->shape != shape) {
                fail(fmt::format("{}: tensor {} has shape {}, but this model and adapter_config.json require {}{}", weights_file,
                                 tensor->name, shape_text(tensor->shape), shape_text(shape), advice_for(*tensor, shape)));
            } else if (!tensor->format) {
                fail(fmt::format("{}: tensor {} has dtype {}; supported: F32, F16, BF16", weights_file, tensor->name, tensor->dtype));
            }
            return tensor;
        }
        return nullptr;
    }
    // Why tensors of one adapter have different vocabularies.
    std::string advice_for(const Tensor& tensor, const std::vector<std::int64_t>& shape) const {
        const bool is_vocabulary = shape.size() == 2 && shape[0] == vocabulary_ && tensor.shape.size() == 2;
        if (!is_vocabulary || tensor.shape[0] == shape[0] || tensor.shape[1] != shape[1]) return "";
        return fmt::format(", as another tensor has {} tokens", vocabulary_);
    }
    const Tensor* need(const std::string& path, std::initializer_list<const char*> names, const std::vector<std::int64_t>& shape,
                       const char* why) {
        const Tensor* tensor = take(path, names, shape);
        if (tensor == nullptr)
            fail(fmt::format("{}: tensor {}{}.{} is missing, although {}", weights_file, name_prefix, name_of(path), *names.begin(), why));
        return tensor;
    }

    // The head that modules_to_save gives an adapter that classifies.
    void match_head(const ModelLayout& layout, AdapterMatch& out) {
        if (!config_.classifies) return;
        const HeadModule* const module = layout.head_for(*config_.classifies);
        if (module == nullptr) return fail("adapter_config.json: task_type: this model's family has no head for it");
        // The logits of a text's tokens are held until its job ends.
        constexpr std::int64_t token_labels_max = 1024;
        constexpr std::int64_t labels_max = 1 << 16;
        HeadMatch head{.task = *config_.classifies, .module = module};
        const Tensor* const output = find_tensor(tensors_, fmt::format("{}{}.weight", name_prefix, name_of(module->output)));
        if (output == nullptr || output->shape.size() != 2 || output->shape[0] <= 0) {
            return fail(fmt::format("{}: tensor {}{}.weight [labels, {}] is missing, although task_type = {}", weights_file, name_prefix,
                                    module->output, model_.hidden, *config_.classifies == PoolingTask::classify ? "SEQ_CLS" : "TOKEN_CLS"));
        }
        head.labels = output->shape[0];
        const std::int64_t most = head.task == PoolingTask::classify ? labels_max : token_labels_max;
        if (head.labels > most) fail(fmt::format("{}: the head has {} labels; allowed are up to {}", weights_file, head.labels, most));
        const bool has_dense = !module->dense.empty();
        const std::vector<std::int64_t> dense_shape = {module->dense_size, model_.hidden};
        head.output_weight = take(module->output, {"weight"}, {head.labels, has_dense ? module->dense_size : model_.hidden});
        constexpr const char* why = "the head has its weight";
        if (module->output_bias) head.output_bias = need(module->output, {"bias"}, {head.labels}, why);
        if (has_dense) match_dense(*module, dense_shape, head);
        out.head = head;
    }
    void match_dense(const HeadModule& module, const std::vector<std::int64_t>& shape, HeadMatch& head) {
        constexpr const char* why = "the head's hidden layer has its weight";
        head.dense_weight = take(module.dense, {"weight"}, shape);
        if (head.dense_weight != nullptr && module.dense_bias) head.dense_bias = need(module.dense, {"bias"}, {shape[0]}, why);
        if (!module.norm.empty()) head.norm_weight = take(module.norm, {"weight"}, {shape[0]});
        if (head.norm_weight != nullptr && module.norm_bias) head.norm_bias = need(module.norm, {"bias"}, {shape[0]}, why);
        const std::string path = name_of(module.dense);
        if (head.dense_weight != nullptr || !config_.targets_module(path, steps_)) return;
        const std::int64_t rank = config_.rank_of(path, steps_);
        head.lora_a = take(module.dense, {"lora_A.weight", "lora_A.default.weight"}, {rank, shape[1]});
        if (head.lora_a == nullptr) return;
        head.lora_b = need(module.dense, {"lora_B.weight", "lora_B.default.weight"}, {shape[0], rank}, "it has lora_A.weight");
        head.magnitude = need_magnitude(module.dense, shape[0]);
        head.scale = config_.scale_of(path, rank, steps_);
    }

    // Of a targeted module; nullptr: the adapter has no magnitudes.
    const Tensor* need_magnitude(const std::string& path, std::int64_t outputs) {
        if (!config_.has_magnitudes) return nullptr;
        return need(path, {"lora_magnitude_vector", "lora_magnitude_vector.weight", "lora_magnitude_vector.default.weight"}, {outputs},
                    "use_dora = true");
    }

    void match_linear(const LinearModule& module, AdapterMatch& out) {
        const bool is_head = module.projection == Projection::head;
        const std::int64_t outputs = is_head ? vocabulary_ : module.out_features;
        const std::vector<std::int64_t> weight_shape =
            module.transposed ? std::vector{module.in_features, outputs} : std::vector{outputs, module.in_features};
        const std::vector<std::int64_t> bias_shape = {outputs};
        const std::string parameter = module.expert ? parameter_of(module) : "";
        const bool is_of_parameter = module.expert && config_.targets_parameter(parameter);
        const std::string path = is_of_parameter ? parameter : name_of(module.path);
        const bool targeted =
            is_trained(module) && (is_of_parameter || config_.targets_module(path, steps_)) && !(config_.all_linear && is_head);
        if (targeted) {
            const std::int64_t rank = config_.rank_of(path, steps_);
            constexpr const char* why = "adapter_config.json targets this module";
            LoraMatch lora{.module = &module};
            lora.a = need(module.path, {"lora_A.weight", "lora_A.default.weight"}, {rank, module.in_features}, why);
            lora.b = need(module.path, {"lora_B.weight", "lora_B.default.weight"}, {outputs, rank}, why);
            if (config_.lora_bias) lora.bias = need(module.path, {"lora_B.bias", "lora_B.default.bias"}, bias_shape, "lora_bias = true");
            lora.magnitude = need_magnitude(module.path, outputs);
            lora.scale = config_.scale_of(path, rank, steps_);
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
        // PEFT stores no biases of fused experts: these stay the base's.
        if (!trained || !module.bias || module.expert) return;
        // Newer versions of PEFT store the bias of a targeted module under base_layer.
        const Tensor* bias = targeted ? need(module.path, {"base_layer.bias", "bias"}, bias_shape, "biases were trained")
                                      : need(module.path, {"bias"}, bias_shape, "biases were trained");
        out.biases.push_back({&module, bias});
    }

    // In transformers 5, routers and experts are not linear modules: names of targets that include theirs mean them only in adapters of
    // older versions, whose files have their tensors. Those of target_parameters are always meant.
    bool is_trained(const LinearModule& module) {
        const bool is_router = module.projection == Projection::router;
        if ((!module.expert && !is_router) || (module.expert && config_.targets_parameter(parameter_of(module)))) return true;
        std::optional<bool>& known = is_router ? trains_router_ : trains_experts_;
        if (!known) {
            const std::string list = fmt::format(".{}.", is_router ? model_.names->experts->router : model_.names->experts->list);
            known = std::ranges::any_of(tensors_, [&](const Tensor& tensor) {
                return tensor.name.find(list) != std::string::npos &&
                       (is_router || !config_.targets_parameter(parameter_of(tensor.name, is_of_down(tensor.name))));
            });
        }
        return *known;
    }
    bool is_of_down(const std::string& name) const { return name.find(fmt::format(".{}.", model_.names->experts->down)) != name.npos; }
    // The tensor of transformers 5 that has the weight of an expert's module, or of what is stored under its path.
    std::string parameter_of(const std::string& path, bool is_down) const {
        const ExpertNames& names = *model_.names->experts;
        return fmt::format("{}{}.experts.{}", path.substr(0, path.find(names.list)), names.newer, is_down ? "down_proj" : "gate_up_proj");
    }
    std::string parameter_of(const LinearModule& module) const { return parameter_of(module.path, module.projection == Projection::down); }
    // The same of a router.
    std::string router_parameter_of(const LinearModule& module) const {
        const ExpertNames& names = *model_.names->experts;
        const std::string_view name = std::string_view(names.router).substr(std::string_view(names.router).rfind('.') + 1);
        return fmt::format("{}{}.{}.weight", module.path.substr(0, module.path.find(names.router)), names.newer, name);
    }

    void refuse_other_parameters(const ModelLayout& layout) {
        for (const std::string& name : config_.parameters) {
            const auto names_it = [&](const std::string& parameter) { return parameter == name || parameter.ends_with("." + name); };
            const auto is_it = [&](const LinearModule& module) { return module.expert && names_it(parameter_of(module)); };
            const auto is_router = [&](const LinearModule& module) {
                return module.projection == Projection::router && names_it(router_parameter_of(module));
            };
            if (std::ranges::any_of(layout.linears, is_it)) continue;
            if (std::ranges::any_of(layout.linears, is_router))
                return fail(
                    fmt::format("adapter_config.json: target_parameters names {}, the router that chooses experts: LoRA on it is not "
                                "supported; train with lists of target_modules and target_parameters that leave it out, as all-linear "
                                "includes it",
                                schema::shortened(name)));
            fail(fmt::format(
                "adapter_config.json: target_parameters names {}: only the weights of experts that this model has can be targets, "
                "such as mlp.experts.down_proj; target other modules with target_modules",
                schema::shortened(name)));
        }
    }

    void match_norm(const NormModule& module, AdapterMatch& out) {
        const std::vector<std::int64_t> shape = {module.size};
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

    void match_copy(const std::string& path, std::initializer_list<const char*> names, AdapterMatch& out) {
        const Tensor* copy = take(path, names, {vocabulary_, model_.embedding_width()});
        if (copy != nullptr) out.copies.push_back({.path = path, .copy = copy});
    }

    void match_embedding(const ModelLayout& layout, AdapterMatch& out) {
        const std::string path = name_of(layout.tokens);
        const std::int64_t width = model_.embedding_width();
        if (config_.saves_module(layout.tokens))
            out.embedding = need(layout.tokens, {"weight"}, {vocabulary_, width}, "modules_to_save names this module");
        for (const TrainedTokens& trained : config_.tokens) match_tokens(trained, layout, out);
        if (config_.all_linear || !config_.targets_module(path, steps_)) return;
        const std::int64_t rank = config_.rank_of(path, steps_);
        constexpr const char* why = "adapter_config.json targets this module";
        if (rank > width)
            fail(fmt::format("adapter_config.json: the rank of {} is {}; supported are up to its width, {}", path, rank, width));
        // Magnitudes multiply sums, to which positions and types are added in the same op.
        if (config_.has_magnitudes && !(layout.positions.empty() && layout.types.empty()))
            fail(
                fmt::format("adapter_config.json: use_dora = true with {} in target_modules is not supported for models with embeddings "
                            "of positions; train without one of them",
                            path));
        out.embedding_update = {.a = need(layout.tokens, {"lora_embedding_A", "lora_embedding_A.default"}, {rank, vocabulary_}, why),
                                .b = need(layout.tokens, {"lora_embedding_B", "lora_embedding_B.default"}, {width, rank}, why),
                                .scale = config_.scale_of(path, rank, steps_),
                                .magnitude = need_magnitude(layout.tokens, width),
                                .column_scales = {}};
    }
    void refuse_other_changes_of(const std::string& path) {
        const bool is_targeted = !config_.all_linear && config_.targets_module(name_of(path), steps_);
        if (!is_targeted && !config_.saves_module(path)) return;
        fail(
            fmt::format("adapter_config.json: trainable_token_indices changes {}, which target_modules or modules_to_save changes, too; "
                        "train with one of them",
                        path));
    }
    // A tied head follows the embedding.
    void match_tokens(const TrainedTokens& trained, const ModelLayout& layout, AdapterMatch& out) {
        const LinearModule* const head = layout.head();
        const bool is_of_tokens = !trained.module || layout.tokens.ends_with(*trained.module);
        if (!is_of_tokens && (head == nullptr || !head->path.ends_with(*trained.module)))
            return fail(
                fmt::format("adapter_config.json: trainable_token_indices names {}, which is neither the embedding of tokens nor "
                            "the head of this model",
                            schema::shortened(*trained.module)));
        const auto beyond = std::ranges::find_if(trained.tokens, [&](std::int64_t token) { return token >= vocabulary_; });
        if (beyond != trained.tokens.end())
            return fail(fmt::format("adapter_config.json: trainable_token_indices has {}, but this adapter's vocabulary has {} tokens{}",
                                    *beyond, vocabulary_, resizing_advice));
        const std::string& path = is_of_tokens ? layout.tokens : head->path;
        refuse_other_changes_of(path);
        const auto names = {"token_adapter.trainable_tokens_delta", "token_adapter.trainable_tokens_delta.default"};
        const std::vector<std::int64_t> shape = {std::ssize(trained.tokens), model_.embedding_width()};
        const Tensor* const rows = need(path, names, shape, "trainable_token_indices names tokens of this module");
        if (rows == nullptr) return;
        if (is_of_tokens) out.embedding_rows.push_back({.tokens = trained.tokens, .rows = *rows});
        const bool is_of_head = head != nullptr && (model_.tied_head || !is_of_tokens);
        if (!is_of_head) return;
        if (!layout.head_bias.empty())
            fail("adapter_config.json: trainable_token_indices changes the head of a masked language model, which is not supported");
        refuse_other_changes_of(head->path);
        out.head_rows.push_back({.tokens = trained.tokens, .rows = *rows});
        if (head->path == path) return;
        if (const Tensor* twin = take(head->path, names, shape)) out.twins.push_back({.one = rows, .other = twin});
    }

    // Where save_embedding_layers stores modules that modules_to_save names: a second time, and as they were before the training.
    void match_saved_twins(const std::string& path, const Tensor* saved, bool uses_original, AdapterMatch& out) {
        const std::vector<std::int64_t> shape = {vocabulary_, model_.embedding_width()};
        if (saved == nullptr) return;
        if (const Tensor* twin = take(path, {"modules_to_save.weight"}, shape)) out.twins.push_back({.one = saved, .other = twin});
        if (!uses_original) take(path, {"original_module.weight"}, shape);
    }

    // Once all is matched: copies of the embedding and the head, and whether these have rows for all tokens.
    void match_copies(const ModelLayout& layout, AdapterMatch& out) {
        const LinearModule* const head = layout.head();
        if (out.embedding == nullptr) match_copy(layout.tokens, {"weight", "base_layer.weight", "token_adapter.base_layer.weight"}, out);
        if (head != nullptr && !config_.saves_module(head->path))
            match_copy(head->path, {"weight", "token_adapter.base_layer.weight"}, out);
        const auto saved = std::ranges::find(out.linears, head, &SavedLinearMatch::module);
        const auto updated = std::ranges::find(out.loras, head, &LoraMatch::module);
        const bool saves_head = head != nullptr && saved != out.linears.end();
        const bool updates_head = head != nullptr && updated != out.loras.end();
        const auto has_copy = [&](const std::string& path) {
            return std::ranges::find(out.copies, path, &CopyMatch::path) != out.copies.end();
        };
        const bool has_head = head == nullptr || saves_head || has_copy(head->path) || (updates_head && updated->base_weight != nullptr);
        // An untrained head that is tied to the embedding is what that was before the training.
        match_saved_twins(layout.tokens, out.embedding, model_.tied_head && !has_head, out);
        if (saves_head) match_saved_twins(head->path, saved->weight, false, out);
        out.vocabulary = vocabulary_;
        if (vocabulary_ == model_.vocabulary) return;
        const bool has_embedding = out.embedding != nullptr || has_copy(layout.tokens);
        const bool is_tied = model_.tied_head && head != nullptr;
        const bool has_tied_head = is_tied && out.embedding == nullptr && has_embedding;
        if (!has_embedding && !(is_tied && has_head && !saves_head)) need_rows(layout.tokens);
        if (!has_head && !has_tied_head) need_rows(head->path);
        if (!layout.head_bias.empty() || (head != nullptr && head->bias)) refuse_resized("models whose head has a bias");
        const bool has_magnitude =
            (updates_head && updated->magnitude != nullptr) || (out.embedding_update && out.embedding_update->magnitude != nullptr);
        if (has_magnitude) refuse_resized("use_dora of the embedding or the head");
        if (updates_head && updated->bias != nullptr) refuse_resized("lora_bias of the head");
    }

    // Refuses changes to a module that all rows of a batch share.
    void refuse_changes_to(const std::string& path, const char* what) {
        const std::string name = path.substr(path.rfind('.') + 1);
        if (!config_.all_linear && config_.targets_module(name_of(path), steps_)) {
            fail(
                fmt::format("adapter_config.json: target_modules = {} includes {}: {} cannot be adapted; merge it into the base model "
                            "(merge_and_unload), or train without it",
                            config_.target_text, name, what));
        }
        if (config_.saves_module(path)) {
            fail(
                fmt::format("adapter_config.json: modules_to_save includes {}: an adapter cannot replace {}; merge it into the base model "
                            "(merge_and_unload), or train without it",
                            path, what));
        }
    }

    // With bias = "all", PEFT stores the biases of saved modules three times: under the module's name, from where it loads them, under
    // modules_to_save, and as they were before the training.
    void match_copies_of_biases(AdapterMatch& out) {
        if (config_.biases != AdapterConfig::Biases::all) return;
        for (const Tensor& tensor : tensors_) {
            if (used_.contains(&tensor) || !tensor.name.ends_with("bias")) continue;
            for (const std::string_view part : {".modules_to_save.", ".original_module."}) {
                const std::size_t at = tensor.name.find(part);
                if (at == std::string::npos) continue;
                const std::string own = tensor.name.substr(0, at + 1) + tensor.name.substr(at + part.size());
                const Tensor* const bias = find_tensor(tensors_, own);
                if (bias == nullptr || !used_.contains(bias) || bias->shape != tensor.shape || !tensor.format) continue;
                used_.insert(&tensor);
                if (part == ".modules_to_save.") out.twins.push_back({.one = bias, .other = &tensor});
            }
        }
    }

    void refuse_unused(const ModelLayout& layout) {
        for (const Tensor& tensor : tensors_) {
            if (used_.contains(&tensor)) continue;
            if (!model_.skipped_parts.empty() && bare_prefix_.empty() && !is_of_text_part(tensor, layout))
                return fail(fmt::format(
                    "{}: tensor {} changes a part of the model that Lorry does not run; train the text part alone, such as with "
                    "target_modules = \"{}.*\\.(q_proj|v_proj)\"",
                    weights_file, tensor.name, layout.prefix));
            fail(fmt::format("{}: tensor {} matches no module that adapter_config.json targets or saves in this model", weights_file,
                             tensor.name));
        }
    }

private:
    static bool is_of_text_part(const Tensor& tensor, const ModelLayout& layout) {
        const LinearModule* const head = layout.head();
        const std::string_view path = std::string_view(tensor.name).substr(std::min(name_prefix.size(), tensor.name.size()));
        return path.starts_with(layout.prefix) || (head != nullptr && path.starts_with(head->path + "."));
    }
    // From the first tensor of the embedding or the head.
    void find_vocabulary(const ModelLayout& layout) {
        const LinearModule* const head = layout.head();
        const auto look = [&](const std::string& path, const char* name, std::size_t of_tokens, std::int64_t others) {
            const Tensor* tensor = find_tensor(tensors_, fmt::format("{}{}.{}", name_prefix, name_of(path), name));
            if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[1 - of_tokens] != others) return false;
            vocabulary_ = tensor->shape[of_tokens];
            return true;
        };
        const auto look_at = [&](const std::string& path) {
            const auto has = [&](const char* name) { return look(path, name, 0, model_.embedding_width()); };
            return has("weight") || has("base_layer.weight") || has("token_adapter.base_layer.weight");
        };
        const auto rank = [&](const std::string& path) { return config_.rank_of(name_of(path), steps_); };
        static_cast<void>(look_at(layout.tokens) || (head != nullptr && look_at(head->path)) ||
                          look(layout.tokens, "lora_embedding_A", 1, rank(layout.tokens)) ||
                          (head != nullptr && look(head->path, "lora_B.weight", 0, rank(head->path))));
        const std::int64_t most = model_.vocabulary + added_tokens_max;
        if (vocabulary_ >= 1 && vocabulary_ <= most) return;
        fail(fmt::format("{}: the adapter has {} tokens and this model {}; supported are 1 to {}", weights_file, vocabulary_,
                         model_.vocabulary, most));
        vocabulary_ = model_.vocabulary;
    }
    // Of tokens that were added only the adapter can have rows.
    void need_rows(const std::string& path) {
        if (vocabulary_ < model_.vocabulary) return;
        fail(fmt::format("{}: the adapter has {} tokens and this model {}, but there is no tensor of {} with rows for all of them{}",
                         weights_file, vocabulary_, model_.vocabulary, name_of(path), resizing_advice));
    }
    void refuse_resized(const char* what) {
        fail(
            fmt::format("{}: the adapter has {} tokens and this model {}, which is not supported for {}: merge it into the base model "
                        "(merge_and_unload), and save the tokenizer with it",
                        weights_file, vocabulary_, model_.vocabulary, what));
    }

    const AdapterConfig& config_;
    const ModelConfig& model_;
    std::span<const Tensor> tensors_;
    std::int64_t vocabulary_;  // of the adapter
    std::string bare_prefix_;  // of the layout's paths, if the adapter's lack it
    std::set<const Tensor*> used_;
    std::optional<bool> trains_experts_;  // one by one, or by target_parameters
    std::optional<bool> trains_router_;
    MatchSteps steps_;
    std::string error_;
};

// PEFT names both "classifier" and "score" for every model that classifies.
bool is_part_of_head(const std::string& name, const ModelLayout& layout, const AdapterConfig& config) {
    if (name == "classifier" || name == "score") return true;
    const HeadModule* const head = layout.head_for(*config.classifies);
    if (head == nullptr) return false;
    return std::ranges::any_of(std::array{head->output, head->dense, head->norm}, [&](const std::string& path) {
        return path == name || path.ends_with("." + name) || ("." + path).find("." + name + ".") != std::string::npos;
    });
}

}  // namespace

Expected<AdapterMatch, std::string> match_adapter(const AdapterConfig& config, const ModelLayout& layout, const ModelConfig& model,
                                                  std::span<const Tensor> tensors) {
    Matcher matcher(config, layout, model, tensors);
    AdapterMatch out;
    for (const std::string& table : {layout.positions, layout.types, layout.distance_bias, layout.relative_positions})
        if (!table.empty()) matcher.refuse_changes_to(table, "embeddings");
    if (!layout.relative_norm.empty()) matcher.refuse_changes_to(layout.relative_norm, "the norm of relative positions");
    if (!layout.convolution.empty()) matcher.refuse_changes_to(layout.convolution, "a convolution");
    for (const HeadNormModule& norm : layout.head_norms) matcher.refuse_changes_to(norm.path, "the norms of queries and keys");
    matcher.refuse_other_parameters(layout);
    for (const LinearModule& module : layout.linears) matcher.match_linear(module, out);
    for (const NormModule& module : layout.norms) matcher.match_norm(module, out);
    matcher.match_head(layout, out);
    matcher.match_embedding(layout, out);

    if (out.loras.empty() && !out.embedding_update)
        matcher.fail(fmt::format("adapter_config.json: target_modules = {} matches no linear module of this model", config.target_text));
    for (const std::string& name : config.saved) {
        const auto is_it = [&](const auto& module) { return module.path.ends_with(name); };
        if (layout.tokens.ends_with(name) || std::any_of(layout.linears.begin(), layout.linears.end(), is_it) ||
            std::any_of(layout.norms.begin(), layout.norms.end(), is_it) || (config.classifies && is_part_of_head(name, layout, config)))
            continue;
        matcher.fail(
            fmt::format("adapter_config.json: modules_to_save names {}, which is not a module of this model", schema::shortened(name)));
    }
    matcher.match_copies(layout, out);
    matcher.match_copies_of_biases(out);
    matcher.refuse_unused(layout);
    if (auto error = matcher.error(); !error.empty()) return unexpected(std::move(error));
    return out;
}

}  // namespace lorry::engine
