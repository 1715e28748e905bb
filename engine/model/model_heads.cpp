// Reads architectures, id2label and problem_type, and what a family says about its heads.
#include "engine/model/model_heads.h"
#include "schema/whole_number.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace lorry::engine {
namespace {

using schema::Json;

struct ActivationName {
    std::string_view name;
    kernels::ActivationKind kind;
};
constexpr std::array activations = {
    ActivationName{"silu", kernels::ActivationKind::silu},
    ActivationName{"swish", kernels::ActivationKind::silu},
    ActivationName{"gelu", kernels::ActivationKind::gelu},
    ActivationName{"gelu_python", kernels::ActivationKind::gelu},
    ActivationName{"gelu_new", kernels::ActivationKind::gelu_tanh},
    ActivationName{"gelu_fast", kernels::ActivationKind::gelu_tanh},
    ActivationName{"gelu_accurate", kernels::ActivationKind::gelu_tanh},
    ActivationName{"gelu_pytorch_tanh", kernels::ActivationKind::gelu_tanh},
    ActivationName{"gelu_python_tanh", kernels::ActivationKind::gelu_tanh},
    ActivationName{"relu", kernels::ActivationKind::relu},
    ActivationName{"tanh", kernels::ActivationKind::tanh},
};

// The head in a checkpoint's files.
enum class Head : std::uint8_t { none, causal, sequence, tokens, masked };

// What the architectures of a family end with.
struct Architecture {
    std::string_view suffix;
    Head head;
};
constexpr std::array architectures = {
    Architecture{"Model", Head::none},
    Architecture{"ForCausalLM", Head::causal},
    Architecture{"LMHeadModel", Head::causal},
    Architecture{"ForSequenceClassification", Head::sequence},
    Architecture{"ForTokenClassification", Head::tokens},
    Architecture{"ForMaskedLM", Head::masked},
    Architecture{"ForConditionalGeneration", Head::causal},
};
// BERT's pre-training checkpoint has a masked language model's head, which is used, and one for the next sentence, which is not. ELECTRA's
// has a head that tells replaced tokens, which is not used.
constexpr std::string_view pretraining = "ForPreTraining";

bool has_head(const ModuleNames& names, Head head) {
    switch (head) {
        case Head::none: return true;
        case Head::causal: return names.head != nullptr;
        case Head::sequence: return names.sequence.output != nullptr;
        case Head::tokens: return names.tokens_head.output != nullptr;
        case Head::masked: return names.masked.output != nullptr;
    }
    CHECK(false, "every kind of head has names or none");
}

// GPT-2's causal model is called GPT2LMHeadModel, one with parts for images …ForConditionalGeneration, all others …ForCausalLM.
bool is_named(const FamilyTraits& traits, const Architecture& architecture) {
    if (!has_head(*traits.names, architecture.head)) return false;
    if (architecture.head != Head::causal) return true;
    const std::string_view suffix = traits.nested ? "ForConditionalGeneration" : traits.stem == "GPT2" ? "LMHeadModel" : "ForCausalLM";
    return architecture.suffix == suffix;
}

Head head_of(const Section& config, const FamilyTraits& traits) {
    const Head absent = traits.is_encoder ? Head::none : Head::causal;
    const Json* value = config.find("architectures");
    if (value == nullptr || value->dump() == "[]") return absent;
    const auto* list = value->as_array();
    const std::string* first = list != nullptr ? list->front().as_string() : nullptr;
    std::string known;
    for (const Architecture& architecture : architectures) {
        if (!is_named(traits, architecture)) continue;
        for (const std::string_view stem : {traits.stem, traits.text_stem}) {
            if (stem.empty()) continue;
            const std::string name = std::string(stem) + std::string(architecture.suffix);
            if (first != nullptr && *first == name) return architecture.head;
            known += (known.empty() ? "" : ", ") + name;
        }
    }
    if (first != nullptr && traits.is_encoder && *first == std::string(traits.stem) + std::string(pretraining))
        return traits.stem == "Bert" ? Head::masked : Head::none;
    config.refuse("architectures", "supported for this model_type: " + known);
}

std::vector<std::string> default_names(std::int64_t count) {
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back("LABEL_" + std::to_string(i));
    return out;
}

// id2label, by id. Without it, as transformers: num_labels names "LABEL_0" and so on, two by default.
std::vector<std::string> read_names(const Section& config) {
    constexpr std::int64_t labels_max = 1 << 20;
    const Json* names = config.find("id2label");
    if (names == nullptr) return default_names(config.integer("num_labels", 2, 1, labels_max));
    const auto* members = names->as_object();
    if (members == nullptr || members->empty() || std::ssize(*members) > labels_max)
        config.refuse("id2label", "it must be an object from ids to names");
    std::vector<std::string> out(members->size());
    std::vector<bool> seen(members->size(), false);
    for (const auto& [key, name] : *members) {
        const auto id = schema::parse_whole<std::size_t>(key);
        if (!id || *id >= out.size() || seen[*id] || name.as_string() == nullptr)
            config.refuse("id2label", "it must name the ids from 0 on, each once");
        seen[*id] = true;
        out[*id] = *name.as_string();
    }
    return out;
}

// What sentence-transformers applies to a CrossEncoder's scores, in either generation of its keys.
bool is_identity(const Section& config) {
    const Json* const own = config.find("sentence_transformers");
    const Json* const key = own != nullptr ? own->find("activation_fn") : config.find("sbert_ce_default_activation_function");
    return key != nullptr && key->as_string() != nullptr && key->as_string()->ends_with("Identity");
}

ProblemType read_problem(const Section& config, std::size_t labels) {
    struct ProblemName {
        std::string_view name;
        ProblemType problem;
    };
    static constexpr std::array problems = {ProblemName{"single_label_classification", ProblemType::single_label},
                                            ProblemName{"multi_label_classification", ProblemType::multi_label},
                                            ProblemName{"regression", ProblemType::regression}};
    // As transformers' pipeline: the only label gets a sigmoid.
    const auto& by_count = labels > 1 ? problems[0] : problems[1];
    const ProblemType problem = config.one_of(problems, "problem_type", by_count.name).problem;
    return labels == 1 && problem == ProblemType::single_label ? ProblemType::multi_label : problem;
}

// How texts are pooled for a sequence classifier.
PoolingMode read_classifier_pooling(const Section& config, const FamilyTraits& traits) {
    if (!traits.is_encoder) return PoolingMode::last;
    struct ModeName {
        std::string_view name;
        PoolingMode mode;
    };
    static constexpr std::array modes = {ModeName{"cls", PoolingMode::cls}, ModeName{"mean", PoolingMode::mean}};
    return config.one_of(modes, "classifier_pooling", "cls").mode;
}

kernels::ActivationKind read_head_activation(const Section& config, const FamilyTraits& traits, HeadActivation activation) {
    switch (activation) {
        case HeadActivation::tanh: return kernels::ActivationKind::tanh;
        case HeadActivation::gelu: return kernels::ActivationKind::gelu;
        case HeadActivation::relu: return kernels::ActivationKind::relu;
        case HeadActivation::hidden_activation: return read_activation(config, traits.keys->activation, traits.activation_default);
        case HeadActivation::classifier_activation: return read_activation(config, "classifier_activation", "gelu");
        case HeadActivation::pooler_activation: return read_activation(config, "pooler_hidden_act", "gelu");
    }
    CHECK(false, "every activation of a head is read");
}

}  // namespace

kernels::ActivationKind read_activation(const Section& config, const char* key, const char* absent) {
    return config.one_of(activations, key, absent).kind;
}

Expected<Labels, std::string> read_labels(std::string_view config_json, std::int64_t count, const Labels* base) {
    const auto size = static_cast<std::size_t>(count);
    if (config_json.empty()) {
        if (base != nullptr && base->names.size() == size) return *base;
        return Labels{.names = default_names(count), .problem = size == 1 ? ProblemType::multi_label : ProblemType::single_label};
    }
    const auto root = Json::parse(config_json);
    if (!root) return unexpected("config.json: not JSON: " + root.error());
    try {
        const Section config(*root, "config.json");
        Labels labels{.names = read_names(config), .problem = read_problem(config, size), .scores_are_logits = is_identity(config)};
        if (labels.names.size() == size) return labels;
        return unexpected(fmt::format("config.json: id2label names {} labels, but the head has {} outputs", labels.names.size(), size));
    } catch (const std::runtime_error& error) {
        return unexpected(std::string(error.what()));
    }
}

void read_heads(const Section& config, const FamilyTraits& traits, ModelConfig& out) {
    const Head head = head_of(config, traits);
    const ModuleNames& names = *traits.names;
    out.generates = head == Head::causal;
    out.fills_masks = head == Head::masked;
    out.classifier_pooling = read_classifier_pooling(config, traits);
    const bool has_bias_key = names.sequence.activation == HeadActivation::classifier_activation;
    out.classifier_bias = !has_bias_key || config.boolean("classifier_bias", false);
    out.sequence_activation = read_head_activation(config, traits, names.sequence.activation);
    out.tokens_activation = read_head_activation(config, traits, names.tokens_head.activation);
    out.masked_activation = read_head_activation(config, traits, names.masked.activation);
    if (head == Head::sequence || head == Head::tokens) {
        Labels labels{.names = read_names(config), .problem = ProblemType::single_label};
        if (head == Head::sequence) labels.problem = read_problem(config, labels.names.size());
        labels.scores_are_logits = is_identity(config);
        out.head = head == Head::sequence ? PoolingTask::classify : PoolingTask::token_classify;
        out.labels = std::make_shared<const Labels>(std::move(labels));
    } else if (traits.is_encoder) {
        out.embedder = EmbedderConfig{.pooling = PoolingMode::mean,
                                      .pooling_source = "the default, as the folder has no modules.json",
                                      .normalized = false,
                                      .dimensions = out.hidden};
    }
}

}  // namespace lorry::engine
