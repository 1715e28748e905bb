// Decides by a table of what models can do.
#include "consumer/work.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schema/ascii.h"

namespace lorry::consumer {
namespace {

using engine::ModelConfig;
using engine::PoolingTask;
using schema::Endpoint;
using schema::ErrorCode;
using schema::JobError;

bool has_head(const ModelConfig& config, PoolingTask head) { return config.labels != nullptr && config.head == head; }

// A reranker's answer to no question is not a class.
bool has_classes(const ModelConfig& config) { return has_head(config, PoolingTask::classify) && !config.token_score; }

auto cannot(std::string_view what, const ModelConfig& config) {
    return unexpected(JobError{.code = ErrorCode::unsupported_by_model,
                               .param = "model",
                               .message = fmt::format("this model cannot {}; it {}", what, abilities_of(config))});
}

// A field that the job has and that this work does not read.
std::optional<JobError> error_of_fields(const schema::Job& job, Work work, const ModelName& model, const ModelConfig& config) {
    const auto refuse = [](std::string_view field, std::string_view where) {
        return JobError{.code = ErrorCode::unsupported_field,
                        .param = std::string(field),
                        .message = fmt::format("field '{}' is not supported where {}; leave it out", field, where)};
    };
    if (work == Work::score_choices) {
        constexpr std::string_view where = "a model that generates text scores 'choices'";
        if (job.pooling.hypothesis_template) return refuse("hypothesis_template", where);
        if (job.pooling.multi_label) return refuse("multi_label", where);
        if (job.pooling.truncation) return refuse("truncate_prompt_tokens", where);
    }
    const bool is_rendered = renders_pairs(work, model, config);
    if (job.pooling.instruction && !is_rendered) return refuse("instruction", "a model compares texts without a chat template");
    if (job.pooling.truncation && is_rendered) {
        return refuse("truncate_prompt_tokens", "a model reads pairs through its chat template, whose end must not be cut off");
    }
    return std::nullopt;
}

Expected<Work, JobError> classification_of(const schema::Job& job, bool is_adapter, const ModelConfig& config) {
    const bool classifies = is_adapter || has_classes(config);
    if (job.choices.empty()) {
        if (classifies) return Work::classify;
        if (!config.generates) return cannot("classify texts", config);
        return unexpected(JobError{.code = ErrorCode::missing_field,
                                   .param = "choices",
                                   .message = "field 'choices' is missing; list the labels to choose from, or name a model or an adapter "
                                              "with a classification head"});
    }
    if (config.generates) return Work::score_choices;
    if (!classifies) return cannot("classify texts", config);
    if (!std::holds_alternative<schema::ChatPrompt>(job.prompt)) return Work::zero_shot;
    return unexpected(JobError{.code = ErrorCode::unsupported_field,
                               .param = "messages",
                               .message = "this model compares a text with each of 'choices'; give 'input' in place of 'messages'"});
}

Expected<Work, JobError> work_of_endpoint(const schema::Job& job, const ModelName& model, const ModelConfig& config) {
    const bool is_adapter = model.kind == ModelName::Kind::adapter;
    switch (job.endpoint) {
        case Endpoint::chat_completions:
        case Endpoint::completions:
            if (!config.generates) return cannot("generate text", config);
            return Work::draw;
        case Endpoint::classify: return classification_of(job, is_adapter, config);
        case Endpoint::embeddings:
            if (!config.embedder) return cannot("make embeddings", config);
            return Work::embed;
        case Endpoint::token_classify:
            if (!is_adapter && !has_head(config, PoolingTask::token_classify)) return cannot("classify tokens", config);
            return Work::token_classify;
        case Endpoint::score:
        case Endpoint::rerank:
            if (model.head && model.head->task == PoolingTask::classify && model.head->labels == 1) return Work::score_pairs;
            if (has_head(config, PoolingTask::classify) && config.labels->names.size() == 1) return Work::score_pairs;
            if (config.embedder) return Work::compare_embeddings;
            if (!is_adapter) return cannot("score pairs of texts", config);
            return Work::score_pairs;
        case Endpoint::fill_mask:
            if (!config.fills_masks) return cannot("fill masks", config);
            return Work::fill_mask;
    }
    CHECK(false, "each endpoint has its work");
}

}  // namespace

std::string abilities_of(const ModelConfig& config) {
    std::vector<std::string_view> abilities;
    if (config.generates) abilities.emplace_back("generates text (/v1/chat/completions, /v1/completions, /classify with 'choices')");
    if (config.embedder) abilities.emplace_back("makes embeddings (/v1/embeddings, /score, /rerank)");
    if (config.token_score) abilities.emplace_back("scores pairs of texts (/score, /rerank)");
    if (has_classes(config)) {
        abilities.emplace_back(config.labels->names.size() == 1 ? "classifies and scores pairs of texts (/classify, /score, /rerank)"
                                                                : "classifies texts (/classify)");
    }
    if (has_head(config, PoolingTask::token_classify)) abilities.emplace_back("classifies tokens (/token_classify)");
    if (config.fills_masks) abilities.emplace_back("fills masks (/fill_mask)");
    return abilities.empty() ? "has no head that Lorry knows" : fmt::format("{}", fmt::join(abilities, " and "));
}

Expected<Work, JobError> work_of(const schema::Job& job, const ModelName& model, const ModelConfig& config) {
    const bool is_adapter = model.kind == ModelName::Kind::adapter;
    const auto work = work_of_endpoint(job, model, config);
    if (!work) return work;
    if (auto error = error_of_fields(job, *work, model, config)) return unexpected(*std::move(error));
    if (!is_adapter && config.labels != nullptr) {
        if (auto error = error_of_head(*work, *config.labels)) return unexpected(*std::move(error));
    }
    return work;
}

bool renders_pairs(Work work, const ModelName& model, const ModelConfig& config) {
    return work == Work::score_pairs && config.token_score && !model.head;
}

std::optional<std::size_t> entailment_label(const engine::Labels& labels) {
    const auto found =
        std::ranges::find_if(labels.names, [](const std::string& name) { return schema::lower_case(name).starts_with("entail"); });
    if (found == labels.names.end()) return std::nullopt;
    return static_cast<std::size_t>(found - labels.names.begin());
}

std::optional<JobError> error_of_head(Work work, const engine::Labels& labels) {
    constexpr std::size_t names_shown = 8;
    const auto refuse = [&](std::string_view param, std::string_view needed) {
        const std::size_t shown = std::min(names_shown, labels.names.size());
        return JobError{
            .code = ErrorCode::unsupported_by_model,
            .param = std::string(param),
            .message = fmt::format("{}; this model's head has {}: {}{}", needed, labels.names.size(),
                                   fmt::join(labels.names.begin(), labels.names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                                   shown < labels.names.size() ? ", …" : "")};
    };
    switch (work) {
        case Work::zero_shot:
            if (!entailment_label(labels)) return refuse("choices", "'choices' need a head with a label that starts with \"entail\"");
            if (labels.names.size() == 1) return refuse("choices", "'choices' need a head with more than one label");
            return std::nullopt;
        case Work::score_pairs:
            if (labels.names.size() != 1) return refuse("model", "scores need a head with one label, or an embedding model");
            return std::nullopt;
        case Work::draw:
        case Work::score_choices:
        case Work::embed:
        case Work::classify:
        case Work::token_classify:
        case Work::compare_embeddings:
        case Work::fill_mask: return std::nullopt;
    }
    CHECK(false, "each work has its needs");
}

}  // namespace lorry::consumer
