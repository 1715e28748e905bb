// The records that leave a worker: how a job ended, and its status while it runs. Encoded by codec.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/job.h"
#include "schema/json.h"

namespace lorry::schema {

struct Usage {
    std::int64_t prompt_tokens = 0;
    std::int64_t completion_tokens = 0;
    std::int64_t cached_tokens = 0;                     // of the prompt's tokens, those taken from the prefix index
    std::optional<std::int64_t> reasoning_tokens = {};  // of the completion's; nullopt: the model does not think
};

enum class JobState : std::uint8_t { running, completed, failed, expired, cancelled };
const char* name_of(JobState state);
std::optional<JobState> state_named(std::string_view name);
bool is_terminal(JobState state);

// The only reasons for a non-null "error" in a line of an OpenAI Batch output file.
enum class BatchFailure : std::uint8_t { expired, cancelled, request_timeout };
ErrorCode code_of(BatchFailure failure);

// The identities and times of one run of a job, for completions' headers and status records.
struct Run {
    std::string job_id;
    std::string batch_id;
    std::string tenant;   // empty: none
    std::string key;      // id of the API key that it was called with; empty: none
    std::string model;    // as asked for
    std::string adapter;  // content hash; empty: base
    std::string worker;
    Source source;
    std::int64_t attempt = 0;  // the attempt's start, µs since epoch
    std::optional<Timestamp> submitted;
    std::optional<Timestamp> started;
    std::optional<Timestamp> finished;
};

// Exactly one leaves per job: a response (a success, or an error's 4xx or 5xx) or a batch failure.
struct Completion {
    std::string id;  // result id, see result_id()
    std::string custom_id;
    Run run;
    JobState state = JobState::completed;
    int status_code = 200;  // of the response
    Json body;              // response body; body.error for refused jobs (codec.h: error_body)
    std::optional<BatchFailure> failure;
    std::string failure_message;
    Usage usage;
    std::optional<std::int64_t> chunks = {};  // how many this attempt has published, all before the completion; nullopt: no stream
    std::vector<Header> headers = {};         // the job's own, passed on
};

// Whether an answer ended at max_tokens or at the context's end: its finish_reason is "length".
bool was_cut(const Completion& completion);

// A streamed part of a completion. The concatenation of an attempt's chunks equals the completion's text; seq counts from 0.
struct Chunk {
    std::string job_id;
    std::string custom_id;
    std::int64_t attempt = 0;
    std::int64_t seq = 0;
    Json chunk;  // chat.completion.chunk or text_completion
};

struct Status {
    Run run;
    JobState state = JobState::running;
    Usage usage;
    std::string error;  // code: message, for failed
};

// A record without a usable custom_id; the bytes of its key and value are unchanged.
struct DeadLetter {
    Source source;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<Header> headers;
    JobError error;
};

// An adapter's own classification head.
struct RegisteredHead {
    std::string task;  // "classify" or "token_classify"
    std::int64_t labels = 0;
};

// One adapter, as registered in the adapters topic under its name. A tombstone removes it.
struct AdapterRegistration {
    std::string name;
    std::string hash;  // of content, see engine/model/adapter.h
    std::string path;  // relative to adapters_root
    std::string base;  // the base model's name
    std::int64_t rank_max = 0;
    std::vector<std::string> targets;
    std::int64_t bytes = 0;
    std::optional<Timestamp> registered;
    std::optional<RegisteredHead> head = {};  // nullopt: it has none, or an earlier version registered it
    // Hash of its own tokenizer and chat template, see engine/text/model_text.h; empty: it uses the base's, or it was registered by an
    // earlier version.
    std::string text = {};
    std::optional<std::int64_t> vocabulary = {};  // tokens; nullopt: as many as the base has
};

// A message of the control topic: cancels one call, or jobs by their id: those below `jobs_end` or, without it (as earlier versions send
// it), those whose timestamp is not later than its own.
struct Cancel {
    std::string id;
    bool is_batch = false;
    Timestamp at{};                      // the record's timestamp
    std::vector<std::int64_t> jobs_end;  // where each partition of the jobs topic ended before the cancel was sent
    std::string jobs_topic_id;           // of the topic that jobs_end, or the call, belongs to; empty: unknown
    std::optional<Source> call = {};     // where the call is; then `id` is its id, and jobs_end is empty
};

}  // namespace lorry::schema
