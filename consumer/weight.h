// The resources that a job takes while it is in flight. Its weight is known once its prompts are tokenized, before its requests are made,
// so that a job that is too heavy is refused or waits while it is still small. Used by the preparer, which weighs, intake, which refuses,
// and jobs_in_flight.h, which adds up.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace lorry::consumer {

// Rows of logits, which scored prompts need, have no member: their memory is allocated once, for the rows of one step, and what they leave
// in the job's result counts as bytes. They take no step from others either, because a step serves sequences that decode first.
struct JobWeight {
    std::int64_t requests = 0;  // sequences
    std::int64_t rows = 0;      // prompt tokens to be computed: shared ones once
    std::int64_t tokens = 0;    // the most that its sequences come to hold, each counted by itself
    std::int64_t bytes = 0;     // the most host memory that it takes, with its results; of its reply, the part that repeats the prompts

    JobWeight& operator+=(const JobWeight& other);
    JobWeight& operator-=(const JobWeight& other);
    // True if any member is greater than the limit's.
    bool exceeds(const JobWeight& limit) const;
};

// Estimates for a weight's bytes.
inline constexpr std::int64_t request_bytes = 2'048;            // what a request takes besides its tokens
inline constexpr std::int64_t token_bytes = 16;                 // in the request, its sequence, its result and the prefix index
inline constexpr std::int64_t record_bytes_factor = 4;          // a job's text: the record, its fields, its prompts
inline constexpr std::int64_t answer_growth_bytes = 250'000;    // of what one answer knows of its grammar, from its begin to its end
inline constexpr std::int64_t fill_token_bytes = 6;             // one token of a text that is repeated with a filled mask
inline constexpr std::int64_t reply_memory_factor = 10;         // JSON values, and then their text
inline constexpr std::int64_t reply_logprob_bytes = 24;         // one log-probability in a reply of /v1/completions
inline constexpr std::int64_t reply_chat_logprob_bytes = 64;    // and of /v1/chat/completions
inline constexpr std::int64_t reply_prompt_logprob_bytes = 80;  // and of prompt_logprobs, with rank and text
inline constexpr std::int64_t reply_choice_bytes = 100;         // what a choice of a reply takes besides text and log-probabilities

// What jobs in flight may take. Every limit for one job follows from what all may take together.
struct InFlightLimits {
    std::int64_t tokens = 2'000'000;
    std::int64_t bytes = std::int64_t{1} << 30;
    std::int64_t sequences = 64;  // that run at a time
    std::int64_t step_rows = 512;
    bool keeps_room_for_calls = false;

    static InFlightLimits of(std::int64_t tokens, std::int64_t bytes, const engine::EngineOptions& engine);
    JobWeight all() const;
    // An eighth of the tokens and bytes, which is kept for calls.
    JobWeight kept_for_calls() const;
    // What jobs that are not calls may take together: all, or all but what is kept.
    JobWeight but_calls() const;
    // The heaviest job that is taken: half of what all may take. Large jobs together may take this, too, so that others keep the rest.
    JobWeight heaviest() const;
    // A job that takes more than this is large: an eighth of what all may take, of the places, or the rows of eight steps.
    JobWeight large() const;
};

}  // namespace lorry::consumer
