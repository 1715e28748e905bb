// The table of tasks, and how each reads its results.
#include "consumer/file/table_task.h"

#include <algorithm>

namespace lorry::consumer {
namespace {

using engine::ParquetKind;
using schema::Endpoint;
using schema::Json;

Json member_of(const Json* object, std::string_view name) {
    const Json* value = object == nullptr ? nullptr : object->find(name);
    return value == nullptr ? Json() : *value;
}

Json written_text(const Json& entry) {
    const Json* message = entry.find("message");
    Json text = message != nullptr ? member_of(message, "content") : member_of(&entry, "text");
    return text.is_string() ? text : Json(std::string());
}

// The largest is that of the label.
Json highest_probability(const Json& entry) {
    const Json* probabilities = entry.find("probs");
    CHECK(probabilities != nullptr && probabilities->as_array() != nullptr, "a class comes with its probabilities");
    std::optional<double> highest;
    for (const Json& one : *probabilities->as_array()) highest = std::max(highest.value_or(*one.as_number()), *one.as_number());
    return highest;
}

constexpr ResultColumn text_columns[] = {{"result", written_text}};
constexpr ResultColumn class_columns[] = {{"label", [](const Json& entry) { return member_of(&entry, "label"); }},
                                          {"probability", highest_probability, ParquetKind::number, true}};
constexpr ResultColumn embedding_columns[] = {
    {"embedding", [](const Json& entry) { return member_of(&entry, "embedding"); }, ParquetKind::vector}};
constexpr ResultColumn entity_columns[] = {
    {"entities", [](const Json& entry) { return member_of(&entry, "entities"); }, ParquetKind::entities}};
constexpr ResultColumn score_columns[] = {{"score", [](const Json& entry) { return member_of(&entry, "score"); }, ParquetKind::number}};

constexpr std::string_view answer_flags[] = {"--system", "--endpoint", "--max-tokens", "--temperature", "--schema"};
constexpr std::string_view choose_flags[] = {"--system", "--endpoint", "--choices"};
constexpr std::string_view classify_flags[] = {"--truncate", "--stride"};
constexpr std::string_view zero_shot_flags[] = {"--choices", "--multi-label", "--hypothesis-template", "--truncate"};
constexpr std::string_view embed_flags[] = {"--dimensions", "--prompt-name", "--truncate", "--stride"};
constexpr std::string_view ner_flags[] = {"--aggregation", "--truncate", "--stride"};
constexpr std::string_view score_flags[] = {"--text-2", "--truncate"};

constexpr RowTaskRow rows[] = {
    {RowTask::answer, "", "write texts", Endpoint::completions, Endpoint::chat_completions, text_columns, answer_flags},
    {RowTask::choose, "", "choose among labels", Endpoint::classify, Endpoint::classify, class_columns, choose_flags},
    {RowTask::classify, "classify", "classify texts", Endpoint::classify, std::nullopt, class_columns, classify_flags},
    {RowTask::zero_shot, "zero-shot", "compare texts with labels", Endpoint::classify, std::nullopt, class_columns, zero_shot_flags},
    {RowTask::embed, "embed", "make embeddings", Endpoint::embeddings, std::nullopt, embedding_columns, embed_flags},
    {RowTask::ner, "ner", "find entities", Endpoint::token_classify, std::nullopt, entity_columns, ner_flags},
    {RowTask::score, "score", "score pairs of texts", Endpoint::score, std::nullopt, score_columns, score_flags},
};

}  // namespace

std::span<const RowTaskRow> row_tasks() { return rows; }

const RowTaskRow& row_of(RowTask task) {
    const auto row = std::ranges::find(rows, task, &RowTaskRow::task);
    CHECK(row != std::end(rows), "each task has a row");
    return *row;
}

std::optional<RowTask> task_by_model(const engine::ModelConfig& config, bool has_choices, bool has_second) {
    if (has_second) return RowTask::score;
    if (has_choices) return RowTask::zero_shot;
    if (config.labels != nullptr) {
        // A head with one label is a classifier or a cross-encoder: the user says which.
        if (config.head == engine::PoolingTask::token_classify) return RowTask::ner;
        return config.labels->names.size() > 1 ? std::optional(RowTask::classify) : std::nullopt;
    }
    return config.embedder ? std::optional(RowTask::embed) : std::nullopt;
}

bool is_work_of(RowTask task, Work work) {
    switch (task) {
        case RowTask::answer: return work == Work::draw;
        case RowTask::choose: return work == Work::score_choices;
        case RowTask::classify: return work == Work::classify;
        case RowTask::zero_shot: return work == Work::zero_shot;
        case RowTask::embed: return work == Work::embed;
        case RowTask::ner: return work == Work::token_classify;
        case RowTask::score: return work == Work::score_pairs || work == Work::compare_embeddings;
    }
    CHECK(false, "each task has its work");
}

}  // namespace lorry::consumer
