// The words on the wire: jobs in, completions, chunks, statuses and registrations out (DESIGN: contracts with the outside).
// Pure functions, any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schema/completion.h"

namespace lorry::schema {

// One record of the jobs topic or one line of an input file.
struct JobRecord {
    Source source;
    std::optional<std::string> key;
    std::optional<std::string> value;  // nullopt: a Kafka null value
    std::vector<Header> headers;
    std::optional<Timestamp> timestamp;
};

// A record that is no valid job. With a custom_id it becomes an error completion, without one a dead letter.
struct BadRecord {
    std::optional<std::string> custom_id;
    std::string job_id;  // as Job::id; empty without custom_id
    std::string batch_id;
    JobError error;
};

struct ParseLimits {
    std::size_t bytes_max = 1 << 20;  // of the value; larger is a 413
};

// Reads and checks a job. Unknown or unsupported fields and urls are a 400 that names them.
Expected<Job, BadRecord> parse_job(const JobRecord& record, const ParseLimits& limits);

// {"error":{"message","type","param","code"}} as the OpenAI API answers.
Json error_body(const JobError& error);

// xxh128 of source and custom_id, hex with prefix "batch_req_": equal for every attempt at the same record.
std::string result_id(const Source& source, std::string_view custom_id);

std::string encode_completion(const Completion& completion);           // value of a result record, one line
std::vector<Header> completion_headers(const Completion& completion);  // source and attempt, then the job's own
std::string encode_chunk(const Chunk& chunk);
std::string encode_status(const Status& status);
std::vector<Header> dead_letter_headers(const DeadLetter& letter);  // __connect.errors.* as Kafka Connect (KIP-298)
std::string encode_adapter(const AdapterRegistration& adapter);
std::string encode_cancel(const Cancel& cancel);

Expected<Status, std::string> parse_status(std::string_view value);
Expected<AdapterRegistration, std::string> parse_adapter(std::string_view value);
Expected<Cancel, std::string> parse_cancel(std::string_view value, Timestamp at);
// What readers need of a result record (collect, resume, score): custom_id, whether it succeeded, the error's text.
struct ResultSummary {
    std::string id;
    std::string custom_id;
    int status_code = 0;
    bool ok = false;
    std::string error;
    Usage usage;
};
Expected<ResultSummary, std::string> parse_result(std::string_view value);
// The value of the header of that name, or nullptr.
const std::string* find_header(std::span<const Header> headers, std::string_view name);

}  // namespace lorry::schema
