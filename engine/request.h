// What the engine is asked to do and what it answers. A Request is one token sequence; a job becomes one or more of them
// (consumer/intake.h). All values; the engine's thread owns them once submitted.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_cache.h"
#include "kernels/backend.h"
#include "schema/job.h"

namespace lorry::engine {

using kernels::TokenId;
using RequestId = std::uint64_t;
using Clock = std::chrono::steady_clock;

// This request starts as a copy of another's first `tokens` tokens, which are computed once (n > 1, choices).
struct Fork {
    RequestId leader = 0;
    std::int64_t tokens = 0;
};

struct Request {
    RequestId id = 0;                      // chosen by the caller, unique among unfinished requests
    std::vector<TokenId> prompt;           // at least one token
    std::optional<AdapterSource> adapter;  // nullopt: the base model
    schema::Sampling sampling;             // its seed, max_tokens and logit_bias are not read: see below
    std::vector<kernels::TokenBias> logit_bias;
    std::uint64_t seed = 0;
    std::int64_t max_tokens = 0;      // 0: nothing is drawn
    std::vector<TokenId> end_tokens;  // end the text when drawn, never part of it
    std::int32_t priority = 0;        // lower first
    bool stream = false;              // deltas are wanted
    std::optional<Fork> fork;         // its leader must have been submitted before

    // Log-probabilities of the prompt: of prompt[i] for every i > score_begin, given what stands before it (echo, choices).
    std::optional<std::int64_t> score_begin;
    std::int32_t score_top = 0;  // how many alternatives beside each
    // Log-probabilities of these tokens as the one that follows the prompt.
    std::vector<TokenId> final_targets;
};

struct TokenLogprobs {
    TokenId token = 0;
    float logprob = 0.0F;
    std::vector<kernels::TokenLogprob> top;
    std::int64_t text_begin = 0;  // drawn tokens: characters (code points) of Result::text before this token's own
};

enum class FinishReason : std::uint8_t { stop, length };
const char* name_of(FinishReason reason);

// A finished request.
struct Result {
    RequestId id = 0;
    std::optional<schema::JobError> error;  // then nothing else is meaningful
    std::vector<TokenId> tokens;            // drawn, an end token included
    std::string text;                       // without stop texts and end tokens
    FinishReason finish = FinishReason::stop;
    std::vector<TokenLogprobs> logprobs;  // of drawn tokens, when asked for
    std::vector<TokenLogprobs> scores;    // of prompt tokens after score_begin, in order
    std::vector<float> final_targets;     // as Request::final_targets
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;  // of the prompt, not computed again
    Clock::time_point started{};     // when it first ran
    Clock::time_point first_token{};
};

// Text that became certain in this step, for requests that stream. The concatenation equals Result::text.
struct Delta {
    RequestId id = 0;
    std::string text;
    std::vector<TokenLogprobs> logprobs;  // of the tokens whose own text is handed out now
    // Once, when all of a prompt with score_begin is scored: before any text of it and of its forks.
    struct ScoredPrompt {
        TokenId first = 0;
        std::vector<TokenLogprobs> scores;  // as Result::scores
    };
    std::optional<ScoredPrompt> prompt;
    bool empty() const { return text.empty() && logprobs.empty() && !prompt; }
};

}  // namespace lorry::engine
