// A request while it is in the engine: its tokens, its KV blocks, and its results so far. Used by engine.cpp, running_set.cpp and
// batch.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/block_pool.h"
#include "engine/model/model.h"
#include "engine/prompt_lookup.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/stopping.h"
#include "engine/text/detokenizer.h"
#include "engine/text/grammar.h"
#include "engine/text/thought.h"

namespace lorry::engine {

// How steps compute a text that is pooled.
struct TextRows {
    PooledRows pooled = PooledRows::all;  // the tokens whose hidden states are wanted
    bool whole = false;                   // one step must compute all tokens
};

class Sequence {
public:
    // tokenizer: the base's. force_together: tokens that its grammar forces are appended at once; otherwise each is drawn in its turn.
    Sequence(Request request, std::uint64_t turn, const BlockHash& root, const Tokenizer& tokenizer, const TextRows& text_rows = {},
             bool force_together = true);

    const Request& request() const { return request_; }  // without its prompt, which is in `tokens`
    RequestId id() const { return request_.id; }
    const std::string& adapter_hash() const;  // empty: base
    PooledRows pooled_rows() const { return text_rows_.pooled; }
    bool is_whole() const { return text_rows_.whole; }
    std::span<const TokenId> prompt() const { return std::span(tokens).first(prompt_size_); }
    std::span<const TokenId> output() const { return std::span(tokens).subspan(prompt_size_); }
    std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(prompt_size_); }
    bool draws() const { return request_.max_tokens > 0 && !has_answered_; }
    // How many tokens are to be computed: all known ones, unless nothing is drawn or scored after them.
    std::int64_t known() const;
    bool is_complete() const { return computed >= known() && !draws(); }

    const BlockHash& root() const { return root_; }
    // The chain hashes of the first `count` full blocks of tokens.
    std::span<const BlockHash> chain(std::int64_t count, std::int64_t block_size) const;
    // How many tokens may come from the prefix index. The last known token and all scored rows must be computed.
    std::int64_t reusable_tokens() const;
    // For the scheduler, as if all queued steps had been read; their blocks are not in the index yet.
    SequenceView view() const;
    // The chain hashes of the full blocks within tokens [from, end), with `from` rounded down to the start of its block.
    std::span<const BlockHash> blocks_between(std::int64_t from, std::int64_t end, std::int64_t block_size) const;

    // The tokens that its grammar, its bad words and the end of its thought allow to be drawn next, as kernels::SampleRow::allowed; empty:
    // all. Takes microseconds, or longer with a hostile grammar. Valid until the next call. Sets result.error if the grammar has become too
    // complex, or if no token may be drawn.
    std::span<const std::uint32_t> allowed_tokens();
    // Guesses the tokens after the known ones, and finds out what may be drawn after each. Leaves `drafts` empty where that is impossible:
    // in a thought that a budget, a grammar or bad words wait for, and with a grammar and log-probabilities.
    void draft(const DraftLimits& limits);
    // What allowed_tokens() will return after the first `count` drafts, at least one. Valid until the next draft().
    std::span<const std::uint32_t> allowed_after_drafts(std::size_t count) const;
    // Output and drafts. Valid until the next call.
    std::span<const TokenId> output_and_drafts();
    // Appends a drawn token and those that are forced after it. True if the sequence has ended.
    bool accept(const kernels::SampleResult& drawn);
    // Sets result.error: the model computed NaN or infinity.
    void fail_overflow();
    // What became certain since the last call: text with its log-probabilities, and the prompt's scores.
    Delta take_delta(bool final);
    Result take_result();

    std::vector<TokenId> tokens;  // prompt, then drawn or forced
    // Guesses for the tokens after these. A step that was launched with some computes and draws after each; what it did not take is gone.
    std::vector<TokenId> drafts;
    std::int64_t computed = 0;  // tokens whose KV entries were written by steps that were read
    std::int64_t indexed = 0;   // full blocks that are in the prefix index
    // What queued steps will add. A step is queued from its launch until it was read.
    struct Queued {
        std::int64_t rows = 0;      // to `computed`
        std::int64_t draws = 0;     // to `tokens`
        std::int64_t draw_row = 0;  // the last draw is from this row of its step's logits
    };
    Queued queued;
    std::int64_t launched() const { return computed + queued.rows; }
    std::vector<BlockId> blocks;
    std::optional<std::int64_t> rope_length;  // Model::rope_length
    const std::uint64_t turn;                 // as WaitingEntry::turn
    bool running = false;                     // in the running set; false: it waits
    const Adapter* adapter = nullptr;         // pinned while running
    double mask_seconds = 0.0;                // what the last allowed_tokens() took
    double guess_seconds = 0.0;        // what each draft takes besides its row: what may be drawn after it; as far as draft() has seen
    std::int64_t times_held_back = 0;  // steps in a row that did not wait for allowed_tokens()
    std::vector<RequestId> followers;  // forks that wait until this sequence's first tokens are computed
    Result result;

private:
    bool append(TokenId token);
    bool append_forced();
    bool may_draft() const;
    // A copy of the answer that takes drafts.
    struct AnswerAhead {
        Grammar::Answer answer;
        Grammar::Answer::Forced forced = {};  // after the last token that is drawn
        std::size_t taken = 0;                // of these
        bool is_forced() const { return taken < forced.tokens.size(); }
        bool take(TokenId token, bool forces);
    };
    void allow_after_drafts();
    // Whether the next token is known: the grammar forces it, or it is of the mark that ends a thought whose budget is used up, or of the
    // header of a message.
    bool is_forced() const { return forced_taken_ < forced_.tokens.size(); }
    void force_tokens(std::vector<TokenId> forced);
    void end_thought_in_time();
    std::span<const std::uint32_t> allowed_by_grammar();
    void open(bool after_thought);
    void open_answer();
    bool choose(TokenId token);
    bool is_allowed_in_answer(TokenId token);
    void begin_answer();
    void force();
    bool complete_answer(TokenId token);
    // Whether the next token is one of a thought, which no grammar holds.
    bool thinks() const { return thought_ && !answer_ && thought_->state() == ThoughtState::thinking; }
    bool allow_by_grammar();
    bool allow_opening();
    void leave_out_bad_words(std::vector<std::uint32_t>& allowed, std::span<const TokenId> output) const;
    bool push_text(std::string text);
    bool divide(std::string& text);
    std::string text_of(TokenId token);
    void fail(schema::ErrorCode code, std::string message);
    void fail_structure(const std::string& why);
    void fail_allowed();
    void end_offsets_with_text();

    Request request_;
    std::size_t prompt_size_;
    TextRows text_rows_;
    mutable std::vector<BlockHash> chain_;  // a cache for chain()
    BlockHash root_;
    Detokenizer detokenizer_;
    StopMatcher matcher_;
    // With a grammar, where a thought or an answer may begin: the tokens that are left of both, once those that they share are taken. It is
    // decided if there are none of a thought.
    struct Opening {
        std::span<const TokenId> thought;
        std::span<const TokenId> answer;  // empty: the grammar's first token
    };
    std::optional<Opening> opening_;
    std::optional<Grammar::Answer> answer_;  // if there is a grammar, from where the answer begins
    Grammar::Answer::Forced forced_;         // after the last token that was drawn
    std::size_t forced_taken_ = 0;           // of forced_.tokens: those that were appended
    const bool force_together_;
    bool has_answered_ = false;                                     // nothing more is drawn
    std::vector<std::uint32_t> allowed_;                            // what allowed_tokens() returns
    std::optional<PromptLookup> lookup_;                            // from the first draft on
    std::vector<std::vector<std::uint32_t>> allowed_after_drafts_;  // if what was drawn before decides it
    std::vector<TokenId> output_and_drafts_;
    std::optional<ThoughtReader> thought_;
    // Indices in output(): where the last thought began, without its mark; and with it, or with the mark of one that may be next.
    std::int64_t thought_begin_ = 0;
    std::int64_t mark_begin_ = 0;
    // Of thoughts that have ended: their tokens with their marks; and those that count for the budget.
    std::int64_t thoughts_tokens_ = 0;
    std::int64_t budget_taken_ = 0;
    bool is_budget_used_ = false;
    std::int64_t characters_ = 0;           // of the text of the drawn tokens
    std::int64_t characters_streamed_ = 0;  // of these, handed out in deltas
    std::size_t logprobs_streamed_ = 0;
    bool prompt_streamed_ = false;
};

}  // namespace lorry::engine
