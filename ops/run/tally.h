// Counts jobs per model as they end, for the progress and the summary of `lorry run`. Memory is bounded, whatever model names the jobs
// have. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "consumer/observer.h"
#include "schema/json.h"

namespace lorry::ops {

struct ModelTally {
    std::int64_t jobs = 0;
    std::int64_t failed = 0;
    std::int64_t cut = 0;  // ended at max_tokens or at the context's end
    schema::Usage usage;
    // Prompt and output tokens, those from the prefix cache included. Progress, summary and dry run count these in "tokens/s".
    std::int64_t tokens() const { return usage.prompt_tokens + usage.completion_tokens; }
};

class Tally {
public:
    void add(const consumer::JobObservation& job);
    // A job without a custom_id.
    void add_nameless(schema::ErrorCode code, const std::string& message);

    const ModelTally& total() const { return total_; }
    // A line per model and one for all.
    std::string table(double seconds) const;
    // The kinds of errors, most frequent first, with their most frequent messages.
    std::string errors() const;
    schema::Json json(double seconds) const;

private:
    struct Error {
        std::int64_t count = 0;
        std::map<std::string, std::int64_t> messages;  // bounded: of all others, only the count is kept
    };
    void add_error(schema::ErrorCode code, const std::string& text);

    std::map<std::string, ModelTally> models_;
    std::map<std::string, Error> errors_;  // by code
    ModelTally total_;
};

}  // namespace lorry::ops
