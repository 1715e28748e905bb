// Encodes and parses records of files and batches. A batch's record is the object that clients see, and more members.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "schema/batch.h"
#include "schema/record_members.h"
#include "schema/secret.h"

namespace lorry::schema {
namespace {

constexpr std::string_view file_prefix = "file-";
constexpr std::string_view batch_prefix = "batch_";

struct StateRow {
    BatchState state;
    std::string_view name;
    bool is_final = false;
};
constexpr std::array batch_states = {
    StateRow{BatchState::validating, "validating"},     StateRow{BatchState::failed, "failed", true},
    StateRow{BatchState::in_progress, "in_progress"},   StateRow{BatchState::finalizing, "finalizing"},
    StateRow{BatchState::completed, "completed", true}, StateRow{BatchState::expired, "expired", true},
    StateRow{BatchState::cancelling, "cancelling"},     StateRow{BatchState::cancelled, "cancelled", true},
};

const StateRow& row_of(BatchState state) {
    const auto row = std::ranges::find(batch_states, state, &StateRow::state);
    CHECK(row != batch_states.end(), "each state has a row");
    return *row;
}

bool is_id(std::string_view text, std::string_view prefix) { return text.starts_with(prefix) && is_random_id(text.substr(prefix.size())); }

Json object_of(const BatchError& error) {
    return Json::object({{"code", error.code}, {"line", error.line}, {"message", repair_utf8(error.message)}, {"param", error.param}});
}

std::optional<std::string> text_at(MemberReader& reader, std::string_view key) {
    return reader.has(key) ? std::optional(reader.text(key)) : std::nullopt;
}

// Calls `take` with each element that is an object.
template <typename Take>
void each_object(const Json& object, std::string_view key, const Take& take) {
    const Json* list = object.find(key);
    if (list == nullptr || !list->is_array()) return;
    for (const Json& element : *list->as_array()) {
        if (element.is_object()) take(element);
    }
}

void read_owner(const Json& owner, BatchRecord& batch) {
    MemberReader reader(owner);
    batch.next_line = reader.count("next_line");
    batch.next_byte = reader.count("next_byte");
    batch.parts = reader.texts("parts");
    each_object(owner, "results_at", [&](const Json& element) {
        MemberReader at(element);
        batch.results_at[at.partition("partition")] = at.count("offset");
    });
}

}  // namespace

std::string draw_file_id() { return std::string(file_prefix) + draw_random_id(); }
std::string draw_batch_id() { return std::string(batch_prefix) + draw_random_id(); }
bool is_file_id(std::string_view text) { return is_id(text, file_prefix); }
bool is_batch_id(std::string_view text) { return is_id(text, batch_prefix); }

std::string_view name_of(FilePurpose purpose) { return purpose == FilePurpose::batch ? "batch" : "batch_output"; }
std::string_view name_of(BatchState state) { return row_of(state).name; }
std::optional<BatchState> batch_state_named(std::string_view name) {
    const auto row = std::ranges::find(batch_states, name, &StateRow::name);
    return row == batch_states.end() ? std::nullopt : std::optional(row->state);
}
bool is_final(BatchState state) { return row_of(state).is_final; }

Json describe_file(const FileRecord& file) {
    return Json::object({{"id", file.id},
                         {"object", "file"},
                         {"bytes", file.bytes},
                         {"created_at", file.created},
                         {"expires_at", Json()},
                         {"filename", repair_utf8(file.name)},
                         {"purpose", name_of(file.purpose)},
                         {"status", "processed"},
                         {"status_details", Json()}});
}

std::string encode_file(const FileRecord& file) {
    Json object = describe_file(file);
    object.set("tenant", repair_utf8(file.tenant));
    return object.dump();
}

Expected<FileRecord, std::string> parse_file(std::string_view value) {
    const auto object = parse_object(value, "file's record");
    if (!object) return unexpected(object.error());
    MemberReader reader(*object);
    FileRecord file{.id = reader.required_text("id"), .tenant = reader.text("tenant"), .name = reader.text("filename")};
    if (!is_file_id(file.id)) reader.fail("field 'id' is no file's id");
    const std::string purpose = reader.required_text("purpose");
    file.purpose = purpose == name_of(FilePurpose::batch) ? FilePurpose::batch : FilePurpose::batch_output;
    file.bytes = reader.count("bytes");
    file.created = reader.count("created_at");
    if (!reader.error().empty()) return unexpected(reader.error());
    return file;
}

Json describe_batch(const BatchRecord& batch) {
    Json errors;
    if (!batch.errors.empty()) {
        Json::Array data;
        for (const BatchError& error : batch.errors) data.push_back(object_of(error));
        errors = Json::object({{"object", "list"}, {"data", std::move(data)}});
    }
    Json metadata;
    for (const auto& [key, text] : batch.metadata) metadata.set(repair_utf8(key), repair_utf8(text));
    Json object = Json::object({{"id", batch.id},
                                {"object", "batch"},
                                {"endpoint", schema::row_of(batch.endpoint).url},
                                {"errors", std::move(errors)},
                                {"input_file_id", batch.input_file},
                                {"completion_window", "24h"},
                                {"status", name_of(batch.state)},
                                // Chosen before they are written.
                                {"output_file_id", is_final(batch.state) ? Json(batch.output_file) : Json()},
                                {"error_file_id", is_final(batch.state) ? Json(batch.error_file) : Json()},
                                {"created_at", batch.created},
                                {"expires_at", batch.expires}});
    for (const StateRow& row : batch_states) {
        if (row.state == BatchState::validating) continue;
        const auto at = batch.since.find(row.state);
        object.set(fmt::format("{}_at", row.name), at == batch.since.end() ? Json() : Json(at->second));
    }
    object.set("request_counts", Json::object({{"total", batch.lines}, {"completed", batch.succeeded}, {"failed", batch.failed}}));
    object.set("metadata", std::move(metadata));
    return object;
}

std::int64_t jobs_left(const BatchRecord& batch) { return is_final(batch.state) ? 0 : batch.lines - batch.succeeded - batch.failed; }

std::string encode_batch(const BatchRecord& batch) {
    Json object = describe_batch(batch);
    object.set("tenant", repair_utf8(batch.tenant));
    object.set("key", batch.key);
    object.set("output_file_id", batch.output_file);
    object.set("error_file_id", batch.error_file);
    if (batch.models) {
        Json models = Json::array({});
        for (const std::string& model : *batch.models) models.push(repair_utf8(model));
        object.set("models", std::move(models));
    }
    if (batch.key_jobs_max) object.set("key_jobs_max", *batch.key_jobs_max);
    Json at = Json::array({});
    for (const auto& [partition, offset] : batch.results_at) at.push(Json::object({{"partition", partition}, {"offset", offset}}));
    Json parts = Json::array({});
    for (const std::string& part : batch.parts) parts.push(part);
    object.set(
        "owner",
        Json::object(
            {{"next_line", batch.next_line}, {"next_byte", batch.next_byte}, {"results_at", std::move(at)}, {"parts", std::move(parts)}}));
    return object.dump();
}

Expected<BatchRecord, std::string> parse_batch(std::string_view value) {
    const auto object = parse_object(value, "batch's record");
    if (!object) return unexpected(object.error());
    MemberReader reader(*object);
    BatchRecord batch{.id = reader.required_text("id"),
                      .tenant = reader.text("tenant"),
                      .key = reader.text("key"),
                      .input_file = reader.required_text("input_file_id"),
                      .models = reader.has("models") ? std::optional(reader.texts("models")) : std::nullopt,
                      .key_jobs_max = reader.has("key_jobs_max") ? std::optional(reader.count("key_jobs_max")) : std::nullopt,
                      .created = reader.count("created_at"),
                      .expires = reader.count("expires_at"),
                      .output_file = text_at(reader, "output_file_id"),
                      .error_file = text_at(reader, "error_file_id")};
    if (!is_batch_id(batch.id)) reader.fail("field 'id' is no batch's id");
    const auto endpoint = endpoint_at(reader.required_text("endpoint"));
    if (!endpoint) reader.fail("field 'endpoint' is no url that this version knows");
    batch.endpoint = endpoint.value_or(Endpoint::chat_completions);
    const auto state = batch_state_named(reader.required_text("status"));
    if (!state) return unexpected(std::string("field 'status' is no state that this version knows"));
    batch.state = *state;
    for (const StateRow& each : batch_states) {
        const std::string key = fmt::format("{}_at", each.name);
        if (reader.has(key)) batch.since[each.state] = reader.count(key);
    }
    const Json empty = Json::object({});
    MemberReader counts(object_at(*object, "request_counts", empty));
    batch.lines = counts.count("total");
    batch.succeeded = counts.count("completed");
    batch.failed = counts.count("failed");
    if (const Json* metadata = object->find("metadata"); metadata != nullptr && metadata->is_object()) {
        for (const auto& [key, text] : *metadata->as_object()) {
            if (text.is_string()) batch.metadata.emplace_back(key, *text.as_string());
        }
    }
    each_object(object_at(*object, "errors", empty), "data", [&](const Json& element) {
        MemberReader error(element);
        batch.errors.push_back({.code = error.text("code"),
                                .line = error.has("line") ? std::optional(error.count("line")) : std::nullopt,
                                .message = error.text("message"),
                                .param = text_at(error, "param")});
    });
    read_owner(object_at(*object, "owner", empty), batch);
    if (!reader.error().empty()) return unexpected(reader.error());
    return batch;
}

}  // namespace lorry::schema
