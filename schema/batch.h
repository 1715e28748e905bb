// Files and batches of the HTTP API, as the topics PREFIX.files and PREFIX.batches describe them, and as clients see them. Made by
// ops/gateway; batches are carried out by consumer/batches. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/check.h"
#include "schema/endpoint.h"
#include "schema/job.h"
#include "schema/json.h"

namespace lorry::schema {

// A prefix and 128 random bits as hexadecimal digits: "file-…", "batch_…". Throws std::runtime_error without randomness.
std::string draw_file_id();
std::string draw_batch_id();
// Nothing else is an id, so none can be a path.
bool is_file_id(std::string_view text);
bool is_batch_id(std::string_view text);

enum class FilePurpose : std::uint8_t { batch, batch_output };
std::string_view name_of(FilePurpose purpose);

using Seconds = std::int64_t;  // since 1970, as the API has them

struct FileRecord {
    std::string id;
    std::string tenant;
    std::string name;  // as the client gave it: for people, never a path
    FilePurpose purpose = FilePurpose::batch;
    std::int64_t bytes = 0;
    Seconds created = 0;
};
std::string encode_file(const FileRecord& file);  // the value of a record
Json describe_file(const FileRecord& file);       // OpenAI's object `file`
Expected<FileRecord, std::string> parse_file(std::string_view value);

enum class BatchState : std::uint8_t { validating, failed, in_progress, finalizing, completed, expired, cancelling, cancelled };
std::string_view name_of(BatchState state);
std::optional<BatchState> batch_state_named(std::string_view name);
bool is_final(BatchState state);

struct BatchError {
    std::string code;
    std::optional<std::int64_t> line;  // from 1
    std::string message;
    std::optional<std::string> param;
};

struct BatchRecord {
    std::string id;
    std::string tenant;
    std::string key;  // the id of the API key that its jobs count for; empty: none
    std::string input_file;
    Endpoint endpoint = Endpoint::chat_completions;
    std::vector<std::pair<std::string, std::string>> metadata;
    std::optional<std::vector<std::string>> models;  // KeyScopes::models of its key
    std::optional<std::int64_t> key_jobs_max;        // KeyLimits::batch_jobs of its key
    BatchState state = BatchState::validating;
    std::map<BatchState, Seconds> since;  // when it entered each state that it had, except validating
    Seconds created = 0;
    Seconds expires = 0;
    std::vector<BatchError> errors;
    std::int64_t lines = 0;      // of the input file
    std::int64_t succeeded = 0;  // of these
    std::int64_t failed = 0;
    std::optional<std::string> output_file;  // their ids; chosen before they are written
    std::optional<std::string> error_file;
    // Where its owner is.
    std::int64_t next_line = 0;                       // the next one to be sent, from 0
    std::int64_t next_byte = 0;                       // where it begins in the input file
    std::map<std::int32_t, std::int64_t> results_at;  // by partition of the results topic: those before are in `parts`, or irrelevant
    std::vector<std::string> parts;                   // stored texts with results
};
// Its jobs without a result; 0 until its lines were counted.
std::int64_t jobs_left(const BatchRecord& batch);
std::string encode_batch(const BatchRecord& batch);  // the value of a record
Json describe_batch(const BatchRecord& batch);       // OpenAI's object `batch`
Expected<BatchRecord, std::string> parse_batch(std::string_view value);

// A page of the files or batches of a tenant, in the order of their creation; those of one second in the order of their ids.
struct ListQuery {
    std::string tenant;
    std::optional<std::string> after;         // the id that the page begins after
    std::optional<FilePurpose> purpose = {};  // of files
    std::size_t limit = 20;                   // at least 1
    bool newest_first = true;
};
template <typename Record>
struct Page {
    std::vector<Record> records;
    bool has_more = false;
};

// Metadata of OpenAI's objects. The limits are OpenAI's.
inline constexpr std::size_t metadata_members_max = 16;
inline constexpr std::int64_t metadata_key_chars_max = 64;
inline constexpr std::int64_t metadata_value_chars_max = 512;

}  // namespace lorry::schema
