// A job: one line of an OpenAI Batch input file, read and checked. Made by parse_job (codec.h), consumed by consumer/intake.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schema/check.h"
#include "schema/endpoint.h"
#include "schema/error_code.h"
#include "schema/structure.h"

namespace lorry::schema {

// Milliseconds since the Unix epoch, as in Kafka.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;
// A time that comes from outside. Only numbers within the years 1970 to 9999 are times, so that differences, dates and microseconds do not
// overflow. nullopt: any other number, which counts as no time.
constexpr std::optional<Timestamp> timestamp_of(std::int64_t milliseconds) {
    constexpr Timestamp end = std::chrono::sys_days(std::chrono::year(10'000) / 1 / 1);
    if (milliseconds < 0 || milliseconds >= end.time_since_epoch().count()) return std::nullopt;
    return Timestamp(std::chrono::milliseconds(milliseconds));
}

// Where a job was read. For `lorry run`, topic is the file's name, partition 0 and offset the line, counted from 0.
struct Source {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t offset = 0;
    auto operator<=>(const Source&) const = default;
};

using Header = std::pair<std::string, std::string>;

// A member that has no default: an initialization that leaves it out does not compile.
template <typename T>
class Required {
public:
    constexpr Required(T value) : value_(value) {}
    constexpr operator T() const { return value_; }

private:
    T value_;
};

// Why a job was refused or failed, as OpenAI's error object.
struct JobError {
    Required<ErrorCode> code;  // one that has a response
    std::string param;         // the field at fault, may be empty
    std::string message;       // what was wrong and what to do

    // HTTP's, as the code's row says.
    int status_code() const;
};
std::string text_of(const JobError& error);  // "code: message"

// A chat, converted for the chat template: JSON texts that only the renderer reads.
struct ChatPrompt {
    std::string messages;          // JSON array
    std::string tools;             // JSON array or empty
    std::string template_options;  // JSON object (chat_template_kwargs) or empty
    bool add_generation_prompt = true;
    std::optional<std::string> continued;  // the text of the last message, which the answer goes on with (continue_final_message)
};
// Text to be tokenized, or token ids as they are.
using TextPrompt = std::variant<std::string, std::vector<std::int32_t>>;

struct Sampling {
    // If the job leaves one out: the value in the model's generation_config.json, else the one that has no effect (fill_in).
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<std::int32_t> top_k;  // 0: off (vLLM's -1 and 0)
    std::optional<double> min_p;
    std::optional<double> repetition_penalty;
    double presence_penalty = 0.0;
    double frequency_penalty = 0.0;
    std::vector<std::pair<std::int32_t, float>> logit_bias;
    std::optional<std::uint64_t> seed;
    std::optional<std::int32_t> max_tokens;  // nullopt: the endpoint's default
    std::int32_t min_tokens = 0;
    std::vector<std::string> stop;
    std::vector<std::int32_t> stop_token_ids;
    std::vector<std::string> bad_words;                          // are not drawn
    std::optional<std::vector<std::int32_t>> allowed_token_ids;  // not empty; nullopt: all
    std::optional<std::int64_t> thinking_token_budget;           // tokens of a thought; nullopt: any number
    bool ignore_eos = false;
    bool include_stop_text = false;  // vLLM's include_stop_str_in_output
    bool skip_special_tokens = true;
    std::optional<std::int32_t> logprobs;  // how many alternatives beside the drawn token's log-probability; nullopt: no log-probabilities

    // Takes each of the first five fields from `defaults` if it is missing.
    void fill_in(const Sampling& defaults);
};

// A function that the model may call, of `tools`.
struct ToolFunction {
    std::string name;
    std::string parameters;  // a JSON schema; empty: any object
};
// Which calls an answer may have, and which it must have: tools, tool_choice and parallel_tool_calls.
struct ToolUse {
    enum class Choice : std::uint8_t { none, automatic, required };
    Choice choice = Choice::none;
    std::vector<ToolFunction> functions;  // those that may be called; empty if none may
    bool named = false;                   // required: tool_choice names the only function
    bool parallel = true;                 // several calls in one answer
};

// Cuts a text that has more tokens: truncate_prompt_tokens and truncation_side.
struct Truncation {
    std::optional<std::int64_t> tokens;  // nullopt: as many as the model takes
    bool keeps_end = false;              // the first tokens go
};

// How the classes of tokens become entities: aggregation_strategy of transformers' TokenClassificationPipeline.
enum class Aggregation : std::uint8_t { none, simple, first, average, max };

// What a job may ask of an embedding or of a classification.
struct PoolingFields {
    std::vector<std::string> second_texts;  // score: text_2; rerank: documents
    std::optional<Truncation> truncation;   // nullopt: a text that is too long is refused, or cut into windows
    // embeddings, classify, token_classify: a long text is split into windows that share this many tokens with their neighbours. Then
    // truncation's tokens are those of a window.
    std::optional<std::int64_t> stride;
    // embeddings
    std::optional<std::string> prompt_name;  // prompt_name or input_type: what the model puts before a text
    std::optional<std::int64_t> dimensions;  // that are kept; nullopt: all
    std::optional<bool> normalize;           // to length 1; nullopt: as the model is configured
    bool base64 = false;                     // encoding_format
    // classify with choices: zero-shot classification
    std::optional<std::string> hypothesis_template;  // {} stands for the choice; nullopt: default_hypothesis_template
    std::optional<bool> multi_label;                 // each choice is decided by itself
    // token_classify
    Aggregation aggregation = Aggregation::simple;
    // score, rerank
    std::optional<std::string> instruction;  // what makes a text match; nullopt: the model's own
    // rerank
    std::optional<std::int64_t> top_n;  // nullopt: all
    bool return_documents = true;
    // fill_mask
    std::int32_t top_k = 5;
};
inline constexpr std::string_view default_hypothesis_template = "This example is {}.";  // of transformers' ZeroShotClassificationPipeline

// Prompts × n, prompts × choices, pairs, or windows: the most that one job may ask of the engine.
inline constexpr std::size_t job_sequences_max = 4096;

struct Job {
    Source source;
    std::string custom_id;
    std::string id;  // batch_id/custom_id, or custom_id alone without the header
    Endpoint endpoint = Endpoint::chat_completions;
    std::string model;                                         // as asked for: a name or name@hash
    std::variant<ChatPrompt, std::vector<TextPrompt>> prompt;  // classify: either; all but it and chats: texts; rerank: one, the query
    std::vector<std::string> choices;                          // classify only, at least two or none
    std::optional<Structure> structure;                        // what each answer must match; nullopt: text of any form
    ToolUse tools;                                             // chats
    bool include_reasoning = true;                             // chats: a thought is part of the result
    std::optional<bool> add_special_tokens;                    // to a prompt that is drawn from; nullopt: to texts, not to chats
    std::optional<Truncation> prompt_truncation;               // of a prompt that is drawn from, which keeps its end
    PoolingFields pooling;
    Sampling sampling;
    std::int32_t n = 1;
    std::int32_t priority = 0;  // lower runs first, as vLLM
    std::string cache_salt;     // jobs of different salts share no prefixes; empty: none
    bool echo = false;
    std::optional<std::int32_t> prompt_logprobs;  // how many alternatives beside each prompt token; nullopt: none are in the result
    bool stream = false;
    bool stream_usage = false;  // stream_options.include_usage

    std::string batch_id;                // header; empty: none
    std::optional<Timestamp> deadline;   // header
    std::string tenant;                  // header; empty: none
    std::vector<Header> headers;         // all but batch_id and deadline, passed on to the result
    std::optional<Timestamp> submitted;  // the record's timestamp
};

}  // namespace lorry::schema
