// How a drawn token changes its sequence, and what the scheduler sees of it.
#include "engine/sequence.h"

#include <algorithm>

#include "schema/check.h"
#include "schema/json.h"

namespace lorry::engine {

namespace {

schema::JobError error_of_grammar(const std::string& why) {
    return {.code = schema::ErrorCode::invalid_structure,
            .param = {},
            .message = "the answer could not go on as its structure demands: " + why + "; simplify the structure"};
}

}  // namespace

SharedDrawing shared(Drawing drawing) { return std::make_shared<const Drawing>(std::move(drawing)); }

const SharedDrawing& default_drawing() {
    static const SharedDrawing drawing = shared({});
    return drawing;
}

const char* name_of(FinishReason reason) { return reason == FinishReason::stop ? "stop" : "length"; }

Sequence::Sequence(Request request, std::uint64_t arrival_order, const BlockHash& root, const Tokenizer& tokenizer,
                   const TextRows& text_rows, bool force_together)
    : tokens(std::move(request.prompt)),
      arrival(arrival_order),
      request_(std::move(request)),
      prompt_size_(tokens.size()),
      text_rows_(text_rows),
      root_(root),
      detokenizer_(tokenizer, request_.drawing->sampling.skip_special_tokens),
      matcher_(request_.drawing->sampling.stop, request_.drawing->sampling.include_stop_text),
      // Log-probabilities come with draws.
      force_together_(force_together && !request_.drawing->sampling.logprobs && request_.final_targets.empty()) {
    result.id = request_.id;
    result.prompt_tokens = prompt_tokens();
    result.finish = FinishReason::length;
    if (!draws()) return;
    detokenizer_.prime(tokens);
    if (request_.drawing->grammar == nullptr) return;
    answer_ = request_.drawing->grammar->begin();
    force();
    has_answered_ = append_forced();
}

const std::string& Sequence::adapter_hash() const {
    static const std::string base;
    return request_.adapter ? request_.adapter->hash : base;
}

std::int64_t Sequence::known() const {
    if (draws() || request_.pooling || !request_.final_targets.empty()) return static_cast<std::int64_t>(tokens.size());
    return request_.score_begin ? prompt_tokens() - 1 : 0;
}

std::span<const BlockHash> Sequence::chain(std::int64_t count, std::int64_t block_size) const {
    while (static_cast<std::int64_t>(chain_.size()) < count) {
        const auto begin = chain_.size() * static_cast<std::size_t>(block_size);
        const auto block = std::span(tokens).subspan(begin, static_cast<std::size_t>(block_size));
        chain_.push_back(chain_hash(chain_.empty() ? root_ : chain_.back(), block));
    }
    return std::span(chain_).first(static_cast<std::size_t>(count));
}

std::span<const BlockHash> Sequence::blocks_between(std::int64_t from, std::int64_t end, std::int64_t block_size) const {
    const std::int64_t first = from / block_size;
    const std::int64_t count = std::max(first, std::min(end, std::ssize(tokens)) / block_size);
    return chain(count, block_size).subspan(static_cast<std::size_t>(first));
}

std::int64_t Sequence::reusable_tokens() const {
    if (is_whole()) return 0;
    const std::int64_t all_but_last = known() - 1;
    const SequenceView seen = view();
    return std::max<std::int64_t>(0, seen.score_begin ? std::min(all_but_last, *seen.score_begin) : all_but_last);
}

SequenceView Sequence::view() const {
    SequenceView view;
    view.known = known();
    // A token that a queued step draws is computed next, unless it reaches max_tokens. A grammar must have seen it first.
    const bool goes_on = std::ssize(output()) + queued.draws < request_.max_tokens;
    if (goes_on && request_.drawing->grammar == nullptr) view.known += queued.draws;
    view.computed = launched();
    view.blocks = static_cast<std::int64_t>(blocks.size());
    view.samples = draws() || !request_.final_targets.empty();
    view.whole = is_whole();
    view.mask_rows = std::ssize(request_.mask_positions);
    if (request_.score_begin) {
        // After a preemption, rows whose scores are known are not scored again.
        const std::int64_t next = *request_.score_begin + static_cast<std::int64_t>(result.scores.size());
        if (next < prompt_tokens() - 1) view.score_begin = next;
        view.score_end = prompt_tokens() - 1;
    }
    view.priority = request_.priority;
    view.arrival = arrival;
    view.large = request_.large;
    return view;
}

std::span<const std::uint32_t> Sequence::allowed_tokens() {
    if (!answer_) return {};
    if (is_forced()) {
        const auto token = static_cast<std::size_t>(forced_.tokens[forced_taken_]);
        only_forced_.assign(token / 32 + 1, 0);
        only_forced_.back() = 1U << (token % 32);
        return only_forced_;
    }
    const auto allowed = answer_->allowed();
    if (allowed) return *allowed;
    result.error = error_of_grammar(allowed.error());
    return {};
}

// Asks the grammar which tokens must come next.
void Sequence::force() {
    auto forced = answer_->force();
    if (!forced) {
        result.error = error_of_grammar(forced.error());
        return;
    }
    forced_ = *std::move(forced);
    forced_taken_ = 0;
}

// True if nothing may follow the token, which is no end token, or if the grammar failed.
bool Sequence::complete_answer(TokenId token) {
    if (!answer_) return false;
    if (is_forced()) {
        ++forced_taken_;
        return forced_.complete && !is_forced();
    }
    const auto complete = answer_->accept(token);
    if (!complete) result.error = error_of_grammar(complete.error());
    if (complete.value_or(true)) return true;
    force();
    return result.error.has_value();
}

// Appends a token that was drawn or forced. True if the sequence has ended.
bool Sequence::append(TokenId token) {
    const schema::Sampling& sampling = request_.drawing->sampling;
    tokens.push_back(token);
    const auto count = static_cast<std::int64_t>(output().size());
    const auto take_text = [&](const std::string& text) {
        characters_ += schema::count_characters(text);
        return matcher_.push(text, count > sampling.min_tokens);
    };
    // Until min_tokens are drawn, end tokens are banned, unless a grammar allows nothing else.
    const bool is_end_token = std::ranges::find(request_.drawing->end_tokens, token) != request_.drawing->end_tokens.end();
    const bool is_complete = !is_end_token && complete_answer(token);
    if (is_end_token || is_complete) result.finish = FinishReason::stop;
    if (!is_end_token || sampling.include_stop_text) {
        if (take_text(detokenizer_.push(token))) {
            result.finish = FinishReason::stop;
            return true;  // what the detokenizer still holds comes after the stop text
        }
    }
    const bool ended = is_end_token || is_complete || count >= request_.max_tokens;
    if (ended && take_text(detokenizer_.finish())) result.finish = FinishReason::stop;
    return ended;
}

// Appends the tokens that the grammar forces. True if the sequence has ended.
bool Sequence::append_forced() {
    if (!force_together_) return false;
    while (is_forced()) {
        if (append(forced_.tokens[forced_taken_])) return true;
    }
    return false;
}

bool Sequence::accept(const kernels::SampleResult& drawn) {
    if (request_.drawing->sampling.logprobs) result.logprobs.push_back({drawn.token, drawn.logprob, drawn.top, characters_});
    return append(drawn.token) || append_forced();
}

Delta Sequence::take_delta(bool final) {
    Delta delta{.id = request_.id, .text = matcher_.take_certain(final), .logprobs = {}, .prompt = {}};
    if (request_.score_begin && !prompt_streamed_ && !view().score_begin) {
        delta.prompt = {.first = tokens.front(), .scores = result.scores};
        prompt_streamed_ = true;
    }
    if (final) end_offsets_with_text();
    characters_streamed_ += schema::count_characters(delta.text);
    for (; logprobs_streamed_ < result.logprobs.size(); ++logprobs_streamed_) {
        const TokenLogprobs& next = result.logprobs[logprobs_streamed_];
        if (!final && next.text_begin >= characters_streamed_) break;
        delta.logprobs.push_back(next);
    }
    return delta;
}

Result Sequence::take_result() {
    result.tokens.assign(output().begin(), output().end());
    result.text = matcher_.text();
    end_offsets_with_text();
    return std::move(result);
}

// Tokens of a stop text that was cut off begin at the end of the text.
void Sequence::end_offsets_with_text() {
    const std::int64_t end = schema::count_characters(matcher_.text());
    for (auto entry = result.logprobs.rbegin(); entry != result.logprobs.rend() && entry->text_begin > end; ++entry) {
        entry->text_begin = end;
    }
}

}  // namespace lorry::engine
