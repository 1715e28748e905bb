// Turns the engine's results into response bodies and stream chunks, in the shapes of OpenAI's API and of vLLM's /classify. The entries of
// jobs that draw nothing are those of reply_pooling.h. Called by the publisher, and by intake for errors. Pure functions.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "consumer/plan.h"
#include "schema/completion.h"

namespace lorry::consumer {

// What all replies of a worker share.
struct ReplyContext {
    const engine::Tokenizer& tokenizer;  // the base's
    std::string base_name;               // answers to "base" too
    std::string system_fingerprint;
    std::int64_t reply_bytes_max = std::int64_t{64} << 20;  // a larger reply is not built

    // own: as ReplyPlan::text.
    const engine::Tokenizer& tokenizer_of(const std::shared_ptr<const engine::ModelText>& own) const {
        return own == nullptr ? tokenizer : own->tokenizer;
    }
};

// The body of a finished job and its usage. results: in the order of plan.places, none with an error.
struct Reply {
    schema::Json body;
    schema::Usage usage;
};
Reply make_reply(const ReplyContext& context, const ReplyPlan& plan, std::span<const engine::Result> results, schema::Timestamp finished);

schema::Usage usage_of(const ReplyPlan& plan, std::span<const engine::Result> results);

// About how many bytes make_reply's body has as JSON text, without building it.
std::int64_t reply_bytes_of(const ReplyPlan& plan, std::span<const engine::Result> results);

// A job's completion so far: whose it is, and of which run.
schema::Completion completion_for(const schema::Job& job, schema::Run run);
// The completion of a job that ended with this error.
schema::Completion error_completion(const schema::Job& job, schema::Run run, const schema::JobError& error);

// What the chunks of a streaming job repeat of it.
struct StreamHead {
    schema::Endpoint endpoint = schema::Endpoint::completions;
    schema::Source source;
    std::string job_id;
    std::string custom_id;
    std::string model;              // as asked for
    std::vector<std::string> echo;  // the texts of its prompts, if it asked for them: a choice's text starts with its prompt then
    std::int32_t echo_top = 0;      // alternatives of each of their tokens, if they are scored
    std::int32_t samples = 1;
    bool wants_usage = false;
    AnswerPlan answer;                                        // of a chat
    std::shared_ptr<const engine::ModelText> text = nullptr;  // as ReplyPlan::text
    bool shows_reasoning = true;
    bool names_call = false;  // tool_choice names a function: the answer stops with its call
};
StreamHead stream_head_of(const ReplyPlan& plan);

// Writes the chunks of one streaming job; seq counts over all of its choices.
class ChunkWriter {
public:
    ChunkWriter(const ReplyContext& context, StreamHead head, schema::Timestamp started, std::int64_t attempt);

    const schema::Source& source() const { return head_.source; }  // of its job
    // Text of one choice, after a first chunk with its role (chat) or its prompt (echo).
    std::vector<schema::Chunk> text(std::int32_t choice, const engine::Delta& delta);
    // The end of one choice.
    std::vector<schema::Chunk> end(std::int32_t choice, engine::FinishReason reason);
    // The usage, if the job asked for it.
    std::vector<schema::Chunk> end_stream(const schema::Usage& usage);
    std::int64_t written() const { return seq_; }  // chunks so far

private:
    // How far the answer of one choice of a chat has come.
    struct Answer {
        AnswerReader reader;
        std::int64_t calls = 0;
    };
    void open(std::int32_t choice, std::vector<schema::Chunk>& chunks);
    Answer& answer_of(std::int32_t choice);
    void add_parts(std::int32_t choice, AnswerReader::Parts parts, schema::Json logprobs, std::vector<schema::Chunk>& chunks);
    schema::Chunk wrap(schema::Json chunk);
    schema::Json choice_chunk(std::int32_t choice, schema::Json::Member part, schema::Json logprobs, schema::Json finish_reason) const;
    schema::Json logprobs_of(std::int32_t choice, const engine::Delta& delta) const;
    schema::Json envelope() const;
    std::size_t prompt_of(std::int32_t choice) const { return static_cast<std::size_t>(choice / head_.samples); }

    const ReplyContext& context_;
    const StreamHead head_;
    const schema::EndpointRow endpoint_;
    const schema::GenerationRow generation_;
    const std::string body_id_;
    const schema::Timestamp started_;
    const std::int64_t attempt_;
    std::vector<bool> opened_;
    std::map<std::int32_t, Answer> answers_;                     // chats
    std::map<std::size_t, engine::Delta::ScoredPrompt> scored_;  // echoed prompts with log-probabilities
    std::int64_t seq_ = 0;
};

// The "id" inside a response body, such as "chatcmpl-…"; equal for every attempt.
std::string body_id(schema::Endpoint endpoint, const schema::Source& source, const std::string& custom_id);

}  // namespace lorry::consumer
