// Reads the configs of sentence-transformers' modules: Transformer, Pooling, Dense and Normalize, or Transformer and LogitScore.
#include "engine/model/sentence_config.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "engine/files.h"
#include "engine/model/config_section.h"

namespace lorry::engine {
namespace {

using schema::Json;

struct Mode {
    std::string_view name;  // as sentence-transformers writes it since version 5
    const char* key;        // the older form: true for the mode that is used
    PoolingMode mode;
};
constexpr std::array modes = {
    Mode{"cls", "pooling_mode_cls_token", PoolingMode::cls},
    Mode{"lasttoken", "pooling_mode_lasttoken", PoolingMode::last},
    Mode{"mean", "pooling_mode_mean_tokens", PoolingMode::mean},
    Mode{"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", PoolingMode::mean_sqrt_len},
    Mode{"max", "pooling_mode_max_tokens", PoolingMode::max},
    Mode{"weightedmean", "pooling_mode_weightedmean_tokens", PoolingMode::weighted_mean},
};


// The parsed file; nullopt if it does not exist.
std::optional<Json> read_json(const std::filesystem::path& file) {
    auto text = read_text_if_there(file);
    if (!text) throw std::runtime_error(text.error());
    if (text->empty()) return std::nullopt;
    auto json = Json::parse(*text);
    if (!json) throw std::runtime_error(fmt::format("{}: not JSON: {}", file.string(), json.error()));
    return std::move(*json);
}
Json need_json(const std::filesystem::path& file) {
    auto json = read_json(file);
    if (!json) throw std::runtime_error(file.string() + " is missing, although modules.json names its folder");
    return std::move(*json);
}

void read_pooling(const std::filesystem::path& file, EmbedderConfig& out) {
    const Json json = need_json(file);
    const Section config(json, file.string());
    if (!config.boolean("include_prompt", true)) config.refuse("include_prompt", "prompts are pooled with the text");
    std::vector<const Mode*> chosen;
    if (config.find("pooling_mode") != nullptr) {
        chosen.push_back(&config.one_of(modes, "pooling_mode", "mean"));
    } else {
        for (const Mode& mode : modes) {
            if (config.boolean(mode.key, false)) chosen.push_back(&mode);
        }
    }
    if (chosen.size() != 1)
        throw std::runtime_error(fmt::format("{}: {} pooling modes are on; one is supported", file.string(), chosen.size()));
    out.pooling = chosen.front()->mode;
    out.pooling_source = file.parent_path().filename().string() + "/config.json";
}

void read_dense(const std::filesystem::path& folder, EmbedderConfig& out) {
    const auto file = folder / "config.json";
    const Json json = need_json(file);
    const Section config(json, file.string());
    struct Name {
        std::string_view name;
        std::optional<kernels::ActivationKind> kind;
    };
    static constexpr std::array activations = {Name{"torch.nn.modules.activation.Tanh", kernels::ActivationKind::tanh},
                                               Name{"torch.nn.modules.activation.GELU", kernels::ActivationKind::gelu},
                                               Name{"torch.nn.modules.activation.ReLU", kernels::ActivationKind::relu},
                                               Name{"torch.nn.modules.linear.Identity", std::nullopt}};
    DenseConfig dense{.folder = folder,
                      .in_features = config.integer("in_features", std::nullopt, 1, size_max),
                      .out_features = config.integer("out_features", std::nullopt, 1, size_max),
                      .bias = config.boolean("bias", true),
                      .activation = config.one_of(activations, "activation_function", "torch.nn.modules.activation.Tanh").kind};
    if (dense.in_features != out.dimensions)
        config.refuse("in_features", fmt::format("the module before it has {} outputs", out.dimensions));
    out.dimensions = dense.out_features;
    out.dense.push_back(std::move(dense));
}

constexpr const char* sentence_file = "config_sentence_transformers.json";

void read_prompts(const std::filesystem::path& folder, EmbedderConfig& out) {
    const auto file = folder / sentence_file;
    const auto json = read_json(file);
    if (!json) return;
    const Section config(*json, file.string());
    if (const Json* prompts = config.find("prompts"); prompts != nullptr) {
        const Section section(*prompts, file.string(), "prompts");
        for (const auto& [name, text] : section.members()) {
            if (text.as_string() == nullptr) section.refuse(name, "a prompt is a string");
            out.prompts.emplace_back(name, *text.as_string());
        }
    }
    const Json* const chosen = config.find("default_prompt_name");
    if (chosen == nullptr) return;
    const bool is_known = chosen->as_string() != nullptr &&
                          std::ranges::any_of(out.prompts, [&](const auto& prompt) { return prompt.first == *chosen->as_string(); });
    if (!is_known) config.refuse("default_prompt_name", "it must be one of the prompts");
    out.default_prompt = *chosen->as_string();
}

void read_text_limits(const std::filesystem::path& folder, ModelConfig& config) {
    const auto file = folder / "sentence_bert_config.json";
    const auto json = read_json(file);
    if (!json) return;
    const Section section(*json, file.string());
    if (section.boolean("do_lower_case", false))
        section.refuse("do_lower_case", "texts reach the tokenizer as they are; set it to false and let the tokenizer lowercase them");
    if (section.find("max_seq_length") != nullptr) config.max_sequence = section.integer("max_seq_length", std::nullopt, 1, size_max);
}

struct Module {
    std::string name;  // of its class: "Pooling"
    std::string path;  // its folder's
};
std::vector<Module> modules_of(const Json& modules, const std::string& file) {
    const auto refuse = [&](const char* what) { throw std::runtime_error(file + ": " + what); };
    if (!modules.is_array() || modules.as_array()->empty()) refuse("it must be a list of modules");
    std::vector<Module> out;
    for (const Json& module : *modules.as_array()) {
        const Json* const type = module.find("type");
        const Json* const path = module.find("path");
        if (type == nullptr || type->as_string() == nullptr || path == nullptr || path->as_string() == nullptr)
            refuse("each module needs a type and a path");
        out.push_back({.name = type->as_string()->substr(type->as_string()->rfind('.') + 1), .path = *path->as_string()});
    }
    return out;
}

// What is applied to the scores of pairs, if the folder says so; it precedes what config.json says.
void read_score_activation(const std::filesystem::path& folder, ModelConfig& config) {
    if (config.labels->names.size() != 1 || config.head != PoolingTask::classify) return;
    const auto json = read_json(folder / sentence_file);
    if (!json) return;
    const Section section(*json, (folder / sentence_file).string());
    const Json* const name = section.find("activation_fn");
    if (name == nullptr) return;
    const bool is_identity = name->as_string() != nullptr && name->as_string()->ends_with(".Identity");
    if (!is_identity && (name->as_string() == nullptr || !name->as_string()->ends_with(".Sigmoid")))
        section.refuse("activation_fn", "supported for scores: torch.nn.modules.activation.Sigmoid, torch.nn.modules.linear.Identity");
    Labels labels = *config.labels;
    labels.scores_are_logits = is_identity;
    config.labels = std::make_shared<const Labels>(std::move(labels));
}

// How the chat template is called, in sentence_bert_config.json.
void read_template_options(const std::filesystem::path& folder, TokenScore& out) {
    const auto file = folder / "sentence_bert_config.json";
    const auto json = read_json(file);
    if (!json) return;
    const Json* const all = Section(*json, file.string()).find("processing_kwargs");
    if (all == nullptr) return;
    const Json* const options = Section(*all, file.string(), "processing_kwargs").find("chat_template");
    if (options == nullptr) return;
    const Section section(*options, file.string(), "processing_kwargs.chat_template");
    for (const auto& [key, value] : section.members()) {
        // restore_suffix is about prompts that are cut, which these are not.
        if (key != "add_generation_prompt" && key != "restore_suffix") section.refuse(key, "the key is unknown");
    }
    out.adds_generation_prompt = section.boolean("add_generation_prompt", false);
}

// A language model whose logits score pairs.
void read_token_score(const std::vector<Module>& modules, const std::filesystem::path& folder, ModelConfig& config) {
    const std::string file = (folder / "modules.json").string();
    if (modules.size() != 2 || modules.front().name != "Transformer" || !modules.front().path.empty())
        throw std::runtime_error(file + ": LogitScore is supported after a Transformer in the folder itself, and with no other modules");
    if (!config.generates) throw std::runtime_error(file + ": LogitScore needs a model whose architectures name a …ForCausalLM");
    if (config.logit_cap) throw std::runtime_error(file + ": LogitScore is not supported for models that cap their logits");
    const auto own = folder / modules.back().path / "config.json";
    const Json json = need_json(own);
    const Section section(json, own.string());
    const auto token = [&](const char* key) {
        return static_cast<std::int32_t>(section.integer(key, std::nullopt, 0, config.vocabulary - 1));
    };
    TokenScore out{.positive = token("true_token_id"), .negative = std::nullopt};
    if (section.find("false_token_id") != nullptr) out.negative = token("false_token_id");
    if (out.negative == out.positive) section.refuse("false_token_id", "it equals true_token_id, so that every score would be 0.5");
    const Json* const input = section.find("module_input_name");
    if (input != nullptr && input->dump() != "\"causal_logits\"") section.refuse("module_input_name", "only causal_logits is supported");
    EmbedderConfig prompts;
    read_prompts(folder, prompts);
    for (const auto& [name, text] : prompts.prompts) {
        if (name == prompts.default_prompt) out.instruction = text;
    }
    read_template_options(folder, out);
    read_text_limits(folder, config);
    config.token_score = std::move(out);
    config.head = PoolingTask::classify;
    config.labels =
        std::make_shared<const Labels>(Labels{.names = {"LABEL_0"}, .problem = ProblemType::multi_label, .answers_yes_or_no = true});
}

void read_modules(const std::vector<Module>& modules, const std::filesystem::path& folder, ModelConfig& config) {
    const std::string file = (folder / "modules.json").string();
    const auto refuse = [&](const std::string& what) { throw std::runtime_error(file + ": " + what); };
    EmbedderConfig out{.pooling = PoolingMode::mean, .pooling_source = {}, .normalized = false, .dimensions = config.hidden};
    for (const auto& [name, path] : modules) {
        const auto own = folder / path;
        // Pooled once, then Dense modules, then scaled: other orders are other vectors.
        const bool comes_later = name == "Dense" || name == "Normalize";
        if (out.normalized || comes_later == out.pooling_source.empty())
            refuse(name + " stands where it is not supported; the order is Transformer, Pooling, Dense, Normalize");
        if (name == "Transformer") {
            if (!path.empty()) refuse("the transformer is in " + path + "; only those in the folder itself are read");
        } else if (name == "Pooling") {
            read_pooling(own / "config.json", out);
        } else if (name == "Dense") {
            read_dense(own, out);
        } else if (name == "Normalize") {
            out.normalized = true;
        } else {
            refuse(name + " is not supported; supported: Transformer, Pooling, Dense, Normalize, or Transformer, LogitScore");
        }
    }
    if (out.pooling_source.empty()) refuse("it has no Pooling, which says how tokens become one vector");
    config.embedder = std::move(out);
}

}  // namespace

std::optional<PoolingMode> pooling_mode_named(std::string_view name) {
    const auto* const found = std::ranges::find(modes, name, &Mode::name);
    return found == modes.end() ? std::nullopt : std::optional(found->mode);
}

const char* name_of(PoolingMode mode) { return std::ranges::find(modes, mode, &Mode::mode)->name.data(); }

void read_sentence_transformers(const std::filesystem::path& folder, std::optional<PoolingMode> pooling, ModelConfig& config) {
    // A classifier has no embeddings; CrossEncoder folders have no modules.json, or one that names other modules.
    if (config.labels != nullptr) return read_score_activation(folder, config);
    if (const auto json = read_json(folder / "modules.json")) {
        const std::vector<Module> modules = modules_of(*json, (folder / "modules.json").string());
        if (modules.back().name == "LogitScore") {
            read_token_score(modules, folder, config);
            return read_score_activation(folder, config);
        }
        read_modules(modules, folder, config);
        read_prompts(folder, *config.embedder);
        read_text_limits(folder, config);
    }
    if (!pooling) return;
    if (!config.embedder) config.embedder = EmbedderConfig{.dimensions = config.hidden};
    config.embedder->pooling = *pooling;
    config.embedder->pooling_source = "--pooling";
}

}  // namespace lorry::engine
