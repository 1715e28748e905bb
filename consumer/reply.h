// From the engine's results to what leaves: response bodies and stream chunks in the shapes of the OpenAI API and of vLLM's /classify.
// Called by the pipeline's publishing thread; pure.
#pragma once

#include <map>
#include <span>
#include <string>

#include "consumer/intake.h"
#include "schema/completion.h"

namespace lorry::consumer {

// What all replies of a worker share.
struct ReplyContext {
    const engine::Tokenizer& tokenizer;
    std::string base_name;  // answers to "base" too
    std::string system_fingerprint;
};

// The body of a finished job and what it used. results stand in the order of prepared.requests, none with an error.
struct Reply {
    schema::Json body;
    schema::Usage usage;
};
Reply make_reply(const ReplyContext& context, const PreparedJob& prepared, std::span<const engine::Result> results,
                 schema::Timestamp finished);

// Chunks of one streaming job; seq counts over all its choices.
class ChunkWriter {
public:
    // echo: the texts of the job's prompts if it asked for them, else empty; a choice's text starts with its prompt then.
    ChunkWriter(const ReplyContext& context, const schema::Job& job, std::vector<std::string> echo, schema::Timestamp started,
                std::int64_t attempt);

    // Text of one choice, opened first by a role (chat) or its prompt (echo).
    std::vector<schema::Chunk> text(std::int32_t choice, const engine::Delta& delta);
    // The end of one choice; the end of the stream, if usage was asked for.
    std::vector<schema::Chunk> end(std::int32_t choice, engine::FinishReason reason);
    std::vector<schema::Chunk> end_stream(const schema::Usage& usage);

private:
    void open(std::int32_t choice, std::vector<schema::Chunk>& chunks);
    schema::Chunk wrap(schema::Json chunk);
    schema::Json choice_chunk(std::int32_t choice, schema::Json content, schema::Json logprobs, schema::Json finish_reason) const;
    schema::Json envelope() const;
    std::size_t prompt_of(std::int32_t choice) const { return static_cast<std::size_t>(choice / samples_); }

    const ReplyContext& context_;
    const schema::Endpoint endpoint_;
    const std::string model_;
    const std::string job_id_;
    const std::string custom_id_;
    const std::string body_id_;
    const std::vector<std::string> echo_;
    const std::int32_t samples_;
    const schema::Timestamp started_;
    const std::int64_t attempt_;
    const bool wants_usage_;
    std::vector<bool> opened_;
    std::map<std::size_t, engine::Delta::ScoredPrompt> scored_;  // echoed prompts with log-probabilities
    std::int64_t seq_ = 0;
};

// The "id" inside a response body: "chatcmpl-…", "cmpl-…", "classify-…"; equal for every attempt.
std::string body_id(schema::Endpoint endpoint, const schema::Source& source, const std::string& custom_id);

}  // namespace lorry::consumer
