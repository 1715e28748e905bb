// A request on its way through the engine: its tokens, the KV blocks it holds, what was found out so far. Used by engine.cpp and batch.cpp.
#pragma once

#include <optional>
#include <vector>

#include "engine/block_pool.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/stopping.h"
#include "engine/text/detokenizer.h"

namespace lorry::engine {

class Sequence {
public:
    Sequence(Request request, std::uint64_t arrival, const BlockHash& root, const Tokenizer& tokenizer);

    const Request& request() const { return request_; }  // its prompt has moved to `tokens`
    RequestId id() const { return request_.id; }
    const std::string& adapter_hash() const;  // empty: base
    std::span<const TokenId> prompt() const { return std::span(tokens).first(prompt_size_); }
    std::span<const TokenId> output() const { return std::span(tokens).subspan(prompt_size_); }
    std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(prompt_size_); }
    bool draws() const { return request_.max_tokens > 0; }
    // Tokens that are to be computed: all that are known if something is drawn or scored after them.
    std::int64_t known() const;
    bool is_complete() const { return computed >= known() && !draws(); }

    const BlockHash& root() const { return root_; }
    // The chain hashes of the first `count` full blocks of tokens.
    std::span<const BlockHash> chain(std::int64_t count, std::int64_t block_size) const;
    // How many tokens may come from the prefix index: the last known one and all scored rows must be computed.
    std::int64_t reusable_tokens() const;
    // As if all queued steps had been read; their blocks are not in the index yet.
    SequenceView view() const;
    // The chain hashes of the full blocks within tokens [from, end), `from` counted down to its block's start.
    std::span<const BlockHash> blocks_between(std::int64_t from, std::int64_t end, std::int64_t block_size) const;

    // Takes a drawn token in; true when the sequence has ended.
    bool accept(const kernels::SampleResult& drawn);
    // What became certain since the last call: text with its log-probabilities, the prompt's scores.
    Delta take_delta(bool final);
    Result take_result();

    std::vector<TokenId> tokens;  // prompt, then drawn
    std::int64_t computed = 0;    // tokens whose KV is written, by steps that were read
    std::int64_t indexed = 0;     // full blocks that are in the prefix index
    // What queued steps will add: those that were launched and not read yet.
    struct Queued {
        std::int64_t rows = 0;      // to `computed`
        std::int64_t draws = 0;     // to `tokens`
        std::int64_t draw_row = 0;  // the last of these comes from this row of its step's logits
    };
    Queued queued;
    std::int64_t launched() const { return computed + queued.rows; }
    std::vector<BlockId> blocks;
    const std::uint64_t arrival;
    bool running = false;              // in the running set; else it waits
    const Adapter* adapter = nullptr;  // pinned while running
    std::vector<RequestId> followers;  // forks that wait for this one's first tokens
    Result result;

private:
    void end_offsets_with_text();

    Request request_;
    std::size_t prompt_size_;
    mutable std::vector<BlockHash> chain_;  // as far as chain() was asked for
    BlockHash root_;
    Detokenizer detokenizer_;
    StopMatcher matcher_;
    std::int64_t characters_ = 0;           // of the text that the drawn tokens gave so far
    std::int64_t characters_streamed_ = 0;  // of it, handed out in deltas
    std::size_t logprobs_streamed_ = 0;
    bool prompt_streamed_ = false;
};

}  // namespace lorry::engine
