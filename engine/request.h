// What the engine takes and returns. A Request is one token sequence; consumer/intake.h turns a job into one or more requests. All types
// are values; once submitted, the engine's thread owns them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/adapter_cache.h"
#include "engine/block_pool.h"
#include "engine/model/pooling.h"
#include "engine/text/thought.h"
#include "kernels/backend.h"
#include "schema/job.h"

namespace lorry::engine {

class Grammar;
class Tokenizer;
using kernels::TokenId;
using RequestId = std::uint64_t;
using Clock = std::chrono::steady_clock;

// The request starts with the first `tokens` tokens of the leader, which are computed only once (n > 1, choices).
struct Fork {
    RequestId leader = 0;
    std::int64_t tokens = 0;
};

// How a model thinks before it answers (text/thought.h). A grammar and stop texts are for the answer.
struct Thinking {
    const ThoughtMarks* marks = nullptr;           // not null; constant, outlives all requests
    ThoughtState begin = ThoughtState::undecided;  // after the prompt
    std::vector<TokenId> start_tokens;             // that spell the mark that begins a thought; empty: no grammar lets one begin
    std::vector<TokenId> end_tokens;               // that spell the mark that ends it
    // Of a model whose text is made of messages, each of which may be a thought:
    std::vector<TokenId> next_tokens;    // that spell what stands between a thought and the message after it
    std::vector<TokenId> answer_tokens;  // that spell what stands before the part of the answer that a grammar is for
    std::optional<std::int64_t> budget;  // tokens of thoughts after which a thought is ended and none begins; nullopt: any number

    // The tokens at the beginning of start_tokens, the last of which tells a thought from an answer.
    std::span<const TokenId> decisive_tokens() const;
};

// A special token that is part of the text whatever skip_special_tokens says.
struct ShownToken {
    TokenId token = 0;
    std::string text;
};

// How tokens are drawn and when an answer ends: equal for all requests of a job, which share one.
struct Drawing {
    std::shared_ptr<const Tokenizer> tokenizer;  // of the adapter; null: the base's
    schema::Sampling sampling;                   // without seed, max_tokens and logit_bias, which are members here and of Request
    std::vector<kernels::TokenBias> logit_bias;
    std::vector<TokenId> end_tokens;         // end the text when drawn; part of it only if sampling.include_stop_text
    std::shared_ptr<const Grammar> grammar;  // which tokens may be drawn, and when the text is complete; null: any, and never
    // As kernels::SampleRow::allowed, for all draws. Set with allowed_token_ids, with bad words, with a grammar and a thought, or with
    // messages and a budget.
    std::vector<std::uint32_t> allowed;
    std::vector<std::vector<TokenId>> bad_words;  // each of at least two tokens, the last of which is not drawn after the others
    std::optional<Thinking> thinking;             // nullopt: the model does not think
    std::vector<ShownToken> shown_tokens;

    // Which tokens may be drawn next depends on those drawn before.
    bool depends_on_drawn() const { return grammar != nullptr || !bad_words.empty() || (thinking && thinking->budget); }
};
using SharedDrawing = std::shared_ptr<const Drawing>;
SharedDrawing shared(Drawing drawing);
// The one of requests that name none.
const SharedDrawing& default_drawing();

struct Request {
    RequestId id = 0;                           // chosen by the caller, unique among unfinished requests
    std::vector<TokenId> prompt;                // at least one token
    std::optional<AdapterSource> adapter;       // nullopt: the base model
    BlockHash prefix_scope;                     // only requests of equal scopes share KV blocks
    SharedDrawing drawing = default_drawing();  // not null
    std::uint64_t seed = 0;
    std::int64_t max_tokens = 0;  // 0: nothing is drawn
    // The most that may be drawn whatever the KV cache holds: it decides how longrope turns positions. nullopt: max_tokens.
    std::optional<std::int64_t> tokens_allowed;
    std::int32_t priority = 0;  // lower first
    std::string tenant;         // whose it is: at equal priority, tenants start in turn; empty: no tenant, which counts as one more
    bool large = false;         // its job is large: requests of such jobs get half of a step while others have work
    bool is_call = false;       // somebody waits for it: it starts before others, which all get half of a step together while it has work
    bool stream = false;        // steps hand out deltas
    std::optional<Fork> fork;   // the leader must have been submitted before

    // If set, the result has the log-probability of prompt[i], given the tokens before it, for every i > score_begin (echo, choices).
    std::optional<std::int64_t> score_begin;
    std::int32_t score_top = 0;  // how many alternatives for each
    bool score_ranks = false;    // and the rank of each
    // The result has the log-probability of each of these tokens as the next one after the prompt.
    std::vector<TokenId> final_targets;

    // If set, nothing is drawn: the result has `pooled`, or `fills` for fill_mask.
    std::optional<PoolingTask> pooling;
    std::vector<std::int32_t> token_types;     // [prompt.size()], of an encoder that has them; empty: all 0
    std::vector<std::int64_t> mask_positions;  // fill_mask: indices of the prompt, ascending; score_top says how many tokens for each
};

struct TokenLogprobs {
    TokenId token = 0;
    float logprob = 0.0F;
    std::vector<kernels::TokenLogprob> top;
    std::int64_t text_begin = 0;  // drawn tokens: characters (code points) of Result::text before this token's text
    std::int32_t rank = 0;        // prompt tokens, with score_ranks: as kernels::SampleResult::ranks
};

enum class FinishReason : std::uint8_t { stop, length };
const char* name_of(FinishReason reason);

// A finished request.
struct Result {
    RequestId id = 0;
    std::optional<schema::JobError> error;  // if set, the other members are meaningless
    std::vector<TokenId> tokens;            // drawn, including an end token
    std::string text;                       // without stop texts and end tokens
    FinishReason finish = FinishReason::stop;
    std::optional<std::int64_t> thought_tokens;  // of `tokens`, those of a thought with its marks; nullopt: the model does not think
    std::vector<TokenLogprobs> logprobs;         // of drawn tokens, if sampling.logprobs is set
    std::vector<TokenLogprobs> scores;           // of prompt tokens after score_begin, in order
    std::vector<float> final_targets;            // [Request::final_targets.size()]
    // embed: the vector, not normalized; classify: [labels]; token_classify: [prompt tokens, labels], row by row.
    std::vector<float> pooled;
    std::shared_ptr<const Labels> labels;  // of the head that classified; not null then
    std::vector<TokenLogprobs> fills;      // fill_mask: for each of mask_positions the likeliest tokens, in `top`
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;  // prompt tokens that were taken from the KV cache
    Clock::time_point started{};     // when it first ran
    Clock::time_point first_token{};
};

// Text of a streaming request that became certain in this step. The concatenation of all deltas equals Result::text.
struct Delta {
    RequestId id = 0;
    std::string text;
    std::vector<TokenLogprobs> logprobs;  // of the tokens whose text begins in this delta
    std::int64_t tokens = 0;              // of the output so far, also of those whose text is not certain yet
    // Set once, when a prompt with score_begin is completely scored: before any text of the request and of its forks.
    struct ScoredPrompt {
        TokenId first = 0;
        std::vector<TokenLogprobs> scores;  // as Result::scores
    };
    std::optional<ScoredPrompt> prompt;
    bool empty() const { return text.empty() && logprobs.empty() && !prompt; }
};

}  // namespace lorry::engine
