// The wire format: parses jobs, encodes completions, chunks, statuses and registrations, and parses those for the programs that collect and
// watch. Called by consumer/ (intake, publishing, ledger) and ops/ (run, submit, collect, tail, cancel, adapters). Pure functions, any
// thread. Encoders write keys in a fixed order and repair text that is not UTF-8; callers keep Json bodies valid. Implemented in
// codec_job.cpp (a line), codec_body.cpp (its body, one table row per field), codec_result.cpp and codec_status.cpp (what leaves).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schema/completion.h"
#include "schema/topics.h"
#include "schema/whole_number.h"

namespace lorry::schema {

// One record of the jobs topic or one line of an input file.
struct JobRecord {
    Source source;
    std::optional<std::string> key;
    std::optional<std::string> value;  // nullopt: a Kafka null value
    std::vector<Header> headers;
    std::optional<Timestamp> timestamp;
};
// A job with more headers is payload_too_large.
constexpr std::size_t job_headers_max = 1'000;
// Results and dead letters have the headers of their job, and at most this many that Lorry adds (a dead letter gets ten).
constexpr std::size_t added_headers_max = 16;
// Bytes of the texts of key, value and headers.
std::int64_t text_bytes(const std::optional<std::string>& key, const std::optional<std::string>& value, std::span<const Header> headers);
// What the record takes in memory: an empty header is two bytes in Kafka, and many more here.
std::int64_t memory_bytes(const JobRecord& record);

// A record that is not a valid job. With a custom_id it becomes an error completion, without one a dead letter.
struct BadRecord {
    std::optional<std::string> custom_id;
    std::string job_id;  // as Job::id; empty without custom_id
    std::string batch_id;
    std::string model;  // as asked for; empty if it was not read
    JobError error;
};

struct ParseLimits {
    std::size_t bytes_max = 1 << 20;           // of the value, and of key and headers; more is payload_too_large
    std::size_t scanned_bytes_max = 64 << 20;  // a larger one is not searched for its custom_id
};

// Of a custom_id, a batch_id or a tenant: they become keys, headers and rows.
inline constexpr std::size_t id_bytes_max = 512;
inline constexpr std::size_t cancel_partitions_max = 10'000;
inline constexpr std::size_t cancel_bytes_max = 512 << 10;

// Header names that Lorry reads or writes. On results, they replace headers of the same name that the job brought.
inline constexpr std::string_view batch_id_header = "batch_id";
inline constexpr std::string_view deadline_header = "deadline";        // ms since epoch, decimal
inline constexpr std::string_view tenant_header = "tenant";            // passed on to the result, too
inline constexpr std::string_view api_key_id_header = "api_key_id";    // as it is; which of the tenant's keys the job counts for
inline constexpr std::string_view traceparent_header = "traceparent";  // of W3C Trace Context; passed on as any other
inline constexpr std::string_view tracestate_header = "tracestate";
inline constexpr std::string_view source_topic_header = "source_topic";
inline constexpr std::string_view source_partition_header = "source_partition";
inline constexpr std::string_view source_offset_header = "source_offset";
inline constexpr std::string_view source_topic_id_header = "source_topic_id";  // distinguishes a topic from a later one of the same name
inline constexpr std::string_view attempt_header = "attempt";
// Of results, dead letters and terminal statuses: the transaction that they were written in, worker/number.
inline constexpr std::string_view transaction_header = "transaction";
inline constexpr std::string_view chunks_header = "chunks";  // of results of streams: how many chunks the attempt has
// Of results without an answer: how many tokens were computed for it all the same, of prompts and answers.
inline constexpr std::string_view tokens_header = "tokens";
// Of dead letters, as Kafka Connect names them.
inline constexpr std::string_view dead_letter_topic_header = "__connect.errors.topic";
inline constexpr std::string_view dead_letter_partition_header = "__connect.errors.partition";
inline constexpr std::string_view dead_letter_offset_header = "__connect.errors.offset";

// Reads and checks a job. Unknown or unsupported fields and urls are errors that name them. Never throws, whatever the bytes.
// A record is refused without an id (and becomes a dead letter) if its value is null, not JSON or not an object, or if its custom_id is
// missing, empty, not a string or over 512 bytes.
Expected<Job, BadRecord> parse_job(const JobRecord& record, const ParseLimits& limits);

// batch_id/custom_id, or custom_id alone without a batch_id.
std::string job_id(std::string_view batch_id, std::string_view custom_id);

// {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details":{"cached_tokens"}}, in bodies and statuses.
Json encode_usage(const Usage& usage);

// {"error":{"message","type","param","code"}}, as in OpenAI's API.
Json error_body(const JobError& error);

// Makes `completion` the response of a job that ended with this error.
void set_error(Completion& completion, const JobError& error);
// "code: message" of a completion that is not a success; empty for a success.
std::string error_text(const Completion& completion);

// xxh128 of source and custom_id, hex with prefix "batch_req_": equal for every attempt at the same record.
std::string result_id(const Source& source, std::string_view custom_id);

std::string encode_completion(const Completion& completion);           // value of a result record, one line without its end
std::vector<Header> completion_headers(const Completion& completion);  // source, attempt and batch_id, then the job's own
std::string encode_chunk(const Chunk& chunk);
std::string encode_status(const Status& status);
// The letter's own headers, then __connect.errors.* as in Kafka Connect (KIP-298).
std::vector<Header> dead_letter_headers(const DeadLetter& letter);
std::string encode_adapter(const AdapterRegistration& adapter);
std::string encode_cancel(const Cancel& cancel);

Expected<Status, std::string> parse_status(std::string_view value);
// Refuses paths that are absolute or leave the root by "..", and names that adapter_name_error refuses.
Expected<AdapterRegistration, std::string> parse_adapter(std::string_view value);
// Why this cannot be an adapter's name, or nullopt if it can: 1 to 200 bytes of UTF-8 without control characters, '@' (name@hash pins), '#'
// (spreads keys) and '/', and not "base".
std::optional<std::string> adapter_name_error(std::string_view name);
// Refuses more than cancel_bytes_max bytes, ids longer than a job's can be, a jobs_end of more than cancel_partitions_max partitions, and a
// batch with a call.
Expected<Cancel, std::string> parse_cancel(std::string_view value, Timestamp at);

// A result record as readers need it (collect, resume, score).
struct ResultSummary {
    std::string id;
    std::string custom_id;
    int status_code = 0;  // 0: the result has no response (a batch failure)
    bool ok = false;
    std::string error;  // "code: message", empty when ok
    Usage usage;
};
Expected<ResultSummary, std::string> parse_result(std::string_view value);
// A result record as the caller of a call needs it.
struct Answer {
    int status_code = 0;
    Json body;
    std::optional<BatchFailure> failure;  // set: there is neither status nor body
};
Expected<Answer, std::string> parse_answer(std::string_view value);

// The value of the last header of that name (Kafka's rule for repeated headers), or nullptr.
const std::string* find_header(std::span<const Header> headers, std::string_view name);
// The header's value as a number; nullopt: there is no such header, or it is not a number.
template <typename Number>
std::optional<Number> find_number(std::span<const Header> headers, std::string_view name) {
    const std::string* text = find_header(headers, name);
    return text == nullptr ? std::nullopt : parse_whole<Number>(*text);
}

// The job that the headers of a result or dead letter name, and the id of its topic (empty: not given). nullopt: they do not name a job.
struct NamedSource {
    Source source;
    std::string topic_id;
};
std::optional<NamedSource> source_of_result(std::span<const Header> headers);
std::optional<NamedSource> source_of_dead_letter(std::span<const Header> headers);
// Whether it is a job of one of these topics, and not of an earlier topic of the same name.
bool is_job_of(const NamedSource& named, const TopicIds& topics);

// The key of a record without content, written where a transaction must reach a partition and has nothing else to write there.
inline constexpr std::string_view filler_key = "lorry/filler";

}  // namespace lorry::schema
