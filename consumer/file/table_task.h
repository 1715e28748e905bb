// What the rows of a table can ask of a model: one row of row_tasks() per task, with the url of its jobs, the columns that its results
// fill and the flags of `lorry run` that belong to it. Used by table_rows.h and by the flags of `lorry run`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "consumer/work.h"
#include "engine/text/parquet.h"
#include "schema/endpoint.h"
#include "schema/json.h"

namespace lorry::consumer {

enum class RowTask : std::uint8_t {
    answer,  // the model writes a text
    choose,  // the model that generates text scores choices
    classify,
    zero_shot,
    embed,
    ner,
    score,
};

struct ResultColumn {
    std::string_view name;
    schema::Json (*read)(const schema::Json& entry);  // of the completion's list
    engine::ParquetKind kind = engine::ParquetKind::text;
    bool rounded = false;  // to six decimals in CSV
};

struct RowTaskRow {
    RowTask task;
    std::string_view name;  // of --task; empty: the task of a model that generates text
    std::string_view what;  // it does, for messages: "classify texts"
    schema::Endpoint endpoint;
    std::optional<schema::Endpoint> chat_endpoint;  // for prompts that are a user's message; nullopt: there are none
    std::span<const ResultColumn> columns;
    std::span<const std::string_view> flags;
};

std::span<const RowTaskRow> row_tasks();
const RowTaskRow& row_of(RowTask task);

// The task of rows for a model that generates no text, if they name none: the one that the model can do. has_choices, has_second: the rows
// have choices, or a second text. nullopt: there is none, or more than one.
std::optional<RowTask> task_by_model(const engine::ModelConfig& config, bool has_choices, bool has_second);

// Whether the work of a job is what the task promises. A model that generates text, for example, has other work for jobs with choices.
bool is_work_of(RowTask task, Work work);

}  // namespace lorry::consumer
