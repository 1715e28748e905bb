// How a drawn token changes its sequence, and what the scheduler sees of it.
#include "engine/sequence.h"

#include <algorithm>

#include "engine/text/tokenizer.h"
#include "schema/check.h"
#include "schema/json.h"

namespace lorry::engine {

namespace {

constexpr std::size_t word_bits = 32;
constexpr double newest_guess_share = 0.125;  // in Sequence::guess_seconds

bool has_bit(std::span<const std::uint32_t> words, TokenId token) {
    const auto index = static_cast<std::size_t>(token);
    return index / word_bits < words.size() && (words[index / word_bits] >> (index % word_bits) & 1U) != 0;
}

void set_bit(std::vector<std::uint32_t>& words, TokenId token, bool value) {
    const auto index = static_cast<std::size_t>(token);
    const std::uint32_t bit = 1U << (index % word_bits);
    if (index / word_bits >= words.size()) {
        if (!value) return;
        words.resize(index / word_bits + 1);
    }
    std::uint32_t& word = words[index / word_bits];
    word = value ? word | bit : word & ~bit;
}

bool has_any(std::span<const std::uint32_t> words) {
    return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; });
}

// Leaves in `allowed` what is also in `others`; all of them if it is empty, which allows all.
void intersect(std::vector<std::uint32_t>& allowed, std::span<const std::uint32_t> others) {
    if (allowed.empty()) return allowed.assign(others.begin(), others.end());
    allowed.resize(std::min(allowed.size(), others.size()));
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] &= others[i];
}

const Tokenizer& tokenizer_of(const Request& request, const Tokenizer& of_model) {
    return request.drawing->tokenizer != nullptr ? *request.drawing->tokenizer : of_model;
}

}  // namespace

SharedDrawing shared(Drawing drawing) { return std::make_shared<const Drawing>(std::move(drawing)); }

const SharedDrawing& default_drawing() {
    static const SharedDrawing drawing = shared({});
    return drawing;
}

std::span<const TokenId> Thinking::decisive_tokens() const {
    const auto differs = std::ranges::mismatch(start_tokens, answer_tokens).in1;
    const auto count = static_cast<std::size_t>(differs - start_tokens.begin());
    return std::span(start_tokens).first(std::min(count + 1, start_tokens.size()));
}

const char* name_of(FinishReason reason) { return reason == FinishReason::stop ? "stop" : "length"; }

Sequence::Sequence(Request request, std::uint64_t its_turn, const BlockHash& root, const Tokenizer& tokenizer, const TextRows& text_rows,
                   bool force_together)
    : tokens(std::move(request.prompt)),
      turn(its_turn),
      request_(std::move(request)),
      prompt_size_(tokens.size()),
      text_rows_(text_rows),
      root_(root),
      detokenizer_(tokenizer_of(request_, tokenizer), request_.drawing->sampling.skip_special_tokens),
      matcher_(request_.drawing->sampling.stop, request_.drawing->sampling.include_stop_text),
      // Log-probabilities come with draws.
      force_together_(force_together && !request_.drawing->sampling.logprobs && request_.final_targets.empty()) {
    result.id = request_.id;
    result.prompt_tokens = prompt_tokens();
    result.finish = FinishReason::length;
    if (const auto& thinking = request_.drawing->thinking) {
        thought_.emplace(*thinking->marks, thinking->begin, request_.drawing->grammar != nullptr);
        result.thought_tokens = 0;
    }
    if (!draws()) return;
    // Some decoders drop the space of a text's first token, which a grammar counts as part of the answer.
    if (request_.drawing->grammar != nullptr) {
        if (const auto before = tokenizer_of(request_, tokenizer).encode("a", false)) detokenizer_.prime(*before);
    }
    detokenizer_.prime(tokens);
    if (request_.drawing->grammar != nullptr && !thinks()) open(false);
    end_thought_in_time();
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
    // A token that a queued step draws is computed next, unless it reaches max_tokens or decides which tokens may follow it.
    const bool goes_on = std::ssize(output()) + queued.draws < request_.max_tokens;
    // So do drafts: the step that computes them, or that finds out whether their first is right, is read first.
    if (goes_on && !request_.drawing->depends_on_drawn() && drafts.empty()) view.known += queued.draws;
    if (queued.draws == 0) view.drafts = std::ssize(drafts);
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
    view.turn = turn;
    view.large = request_.large;
    return view;
}

void Sequence::fail(schema::ErrorCode code, std::string message) {
    result.error = schema::JobError{.code = code, .param = {}, .message = std::move(message)};
}

void Sequence::fail_overflow() {
    const std::string who = adapter_hash().empty() ? "the base model" : "adapter " + adapter_hash();
    result.error = schema::JobError{.code = schema::ErrorCode::non_finite_logits,
                                    .param = "model",
                                    .message = "the model's output overflowed for this prompt: " + who +
                                               " computes NaN or infinity, although all of its weights are finite; run the job with dtype "
                                               "= \"float32\", and check how the model was trained or quantized" +
                                               (adapter_hash().empty() ? "" : ", and the adapter's lora_alpha")};
}

void Sequence::fail_structure(const std::string& why) {
    fail(schema::ErrorCode::invalid_structure, "the answer could not go on as its structure demands: " + why + "; simplify the structure");
}

void Sequence::force_tokens(std::vector<TokenId> forced) {
    forced_ = {.tokens = std::move(forced), .complete = false};
    forced_taken_ = 0;
}

// Once thoughts have used up their budget, the mark that ends one is forced.
void Sequence::end_thought_in_time() {
    if (!thinks() || is_forced()) return;
    const Thinking& thinking = *request_.drawing->thinking;
    if (is_budget_used_ && !thinking.marks->harmony) return;
    if (!thinking.budget || budget_taken_ + std::ssize(output()) - thought_begin_ < *thinking.budget) return;
    is_budget_used_ = true;
    std::vector<TokenId> forced = thinking.end_tokens;
    forced.insert(forced.end(), thinking.next_tokens.begin(), thinking.next_tokens.end());
    force_tokens(std::move(forced));
}

std::span<const std::uint32_t> Sequence::allowed_tokens() {
    const Drawing& drawing = *request_.drawing;
    if (is_forced()) {
        allowed_.clear();
        set_bit(allowed_, forced_.tokens[forced_taken_], true);
        return allowed_;
    }
    if (!drawing.depends_on_drawn()) return drawing.allowed;
    if (drawing.allowed.empty() && answer_) return allowed_by_grammar();
    allowed_ = drawing.allowed;
    if (drawing.grammar != nullptr && !allow_by_grammar()) return {};
    leave_out_bad_words(allowed_, output());
    if (allowed_.empty() || has_any(allowed_)) return allowed_;
    fail_allowed();
    return {};
}

void Sequence::fail_allowed() {
    fail(schema::ErrorCode::invalid_value,
         "no token may be drawn: 'bad_words', 'allowed_token_ids' and the answer's structure together leave none; relax one of them");
}

bool Sequence::may_draft() const {
    const Drawing& drawing = *request_.drawing;
    if (!draws() || result.error || is_forced()) return false;
    if (!drawing.depends_on_drawn()) return true;
    if (drawing.grammar != nullptr) {
        const bool may_become_thought = thought_ && thought_->state() == ThoughtState::undecided;
        return answer_ && !opening_ && !may_become_thought && (force_together_ || !drawing.bad_words.empty());
    }
    if (!thought_ || thought_->is_settled()) return true;
    return thought_->state() == ThoughtState::answering && !drawing.thinking->budget;
}

void Sequence::draft(const DraftLimits& limits) {
    drafts.clear();
    // The token after the last draft is drawn as well.
    const std::int64_t count = std::min(limits.count, request_.max_tokens - std::ssize(output()) - 1);
    if (count <= 0 || !may_draft()) return;
    if (!lookup_) lookup_.emplace();
    lookup_->extend(tokens);
    lookup_->guess(tokens, {.count = count, .chance_least = limits.chance_least}, drafts);
    // Nothing is drawn after an end token.
    const std::vector<TokenId>& ends = request_.drawing->end_tokens;
    drafts.erase(std::ranges::find_first_of(drafts, ends), drafts.end());
    if (!request_.drawing->depends_on_drawn()) return;
    if (drafts.empty()) {
        guess_seconds *= 1.0 - newest_guess_share;  // they may have taken long by chance
        return;
    }
    const auto guesses = static_cast<double>(drafts.size());
    const Clock::time_point begin = Clock::now();
    allow_after_drafts();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / guesses;
    guess_seconds = guess_seconds == 0.0 ? seconds : guess_seconds + newest_guess_share * (seconds - guess_seconds);
}

// Lets a copy of the answer take a draft, as append() lets the answer itself. False if it is not allowed, or if nothing follows it.
bool Sequence::AnswerAhead::take(TokenId token, bool forces) {
    if (is_forced()) return forced.tokens[taken++] == token && (is_forced() || !forced.complete);
    const auto complete = answer.accept(token);
    if (!complete || *complete) return false;
    if (!forces) return true;
    auto next = answer.force();
    if (!next || (next->complete && next->tokens.empty())) return false;
    forced = *std::move(next);
    taken = 0;
    return true;
}

// Finds out what may be drawn after each of the drafts. They end where the grammar does not allow them.
void Sequence::allow_after_drafts() {
    const Drawing& drawing = *request_.drawing;
    std::optional<AnswerAhead> ahead;
    if (answer_ && !drafts.empty()) ahead = AnswerAhead{.answer = answer_->copy()};
    const std::span<const TokenId> all = output_and_drafts();
    allowed_after_drafts_.resize(drafts.size());
    for (std::size_t i = 0; i < drafts.size(); ++i) {
        std::vector<std::uint32_t>& allowed = allowed_after_drafts_[i];
        allowed = drawing.allowed;
        bool goes_on = !ahead || ahead->take(drafts[i], drawing.bad_words.empty());
        // A token that is forced is not drawn, so its row needs no mask.
        if (goes_on && ahead && ahead->is_forced()) continue;
        if (goes_on && ahead) {
            const auto by_grammar = ahead->answer.allowed();
            goes_on = by_grammar.has_value();
            if (goes_on) intersect(allowed, *by_grammar);
        }
        leave_out_bad_words(allowed, all.first(output().size() + i + 1));
        if (!goes_on || (!allowed.empty() && !has_any(allowed))) return drafts.resize(i);
    }
}

std::span<const std::uint32_t> Sequence::allowed_after_drafts(std::size_t count) const {
    if (!request_.drawing->depends_on_drawn()) return request_.drawing->allowed;
    return allowed_after_drafts_[count - 1];
}

std::span<const TokenId> Sequence::output_and_drafts() {
    output_and_drafts_.assign(output().begin(), output().end());
    output_and_drafts_.insert(output_and_drafts_.end(), drafts.begin(), drafts.end());
    return output_and_drafts_;
}

// Empty if the grammar failed.
std::span<const std::uint32_t> Sequence::allowed_by_grammar() {
    const auto allowed = answer_->allowed();
    if (allowed) return *allowed;
    fail_structure(allowed.error());
    return {};
}

// False if the grammar failed.
bool Sequence::allow_by_grammar() {
    const Drawing& drawing = *request_.drawing;
    if (thinks()) {  // a thought that ended the text would leave no answer
        for (const TokenId token : drawing.end_tokens) set_bit(allowed_, token, false);
        return true;
    }
    if (opening_) return allow_opening();
    intersect(allowed_, allowed_by_grammar());
    return !result.error;
}

// The first token that tells a thought from an answer. False if the grammar failed.
bool Sequence::allow_opening() {
    const TokenId thought = opening_->thought.front();
    const bool is_thought_allowed = allowed_.empty() || has_bit(allowed_, thought);
    if (opening_->answer.empty()) {
        intersect(allowed_, allowed_by_grammar());
        if (result.error) return false;
    } else {
        allowed_.clear();
        set_bit(allowed_, opening_->answer.front(), true);
    }
    if (is_thought_allowed) set_bit(allowed_, thought, true);
    return true;
}

// output: what comes before the token that is drawn. A thought that its budget forbids is a bad word, too.
void Sequence::leave_out_bad_words(std::vector<std::uint32_t>& allowed, std::span<const TokenId> output) const {
    const auto leave_out = [&](std::span<const TokenId> word) {
        const std::span<const TokenId> before = word.first(word.size() - 1);
        if (before.size() > output.size()) return;
        if (std::ranges::equal(before, output.last(before.size()))) set_bit(allowed, word.back(), false);
    };
    const Drawing& drawing = *request_.drawing;
    std::ranges::for_each(drawing.bad_words, leave_out);
    if (is_budget_used_ && drawing.thinking->marks->harmony) leave_out(drawing.thinking->decisive_tokens());
}

// A thought or an answer begins, or goes on as the prompt began it. What begins both is forced.
void Sequence::open(bool after_thought) {
    const auto& thinking = request_.drawing->thinking;
    const bool in_answer = !thinking || (!after_thought && thinking->begin == ThoughtState::answering);
    const bool may_think = !in_answer && (after_thought ? thinking->marks->harmony && !is_budget_used_ : true);
    Opening opening;
    std::vector<TokenId> shared;
    if (!in_answer) opening.answer = thinking->answer_tokens;
    if (after_thought) shared = thinking->next_tokens;
    if (may_think) opening.thought = thinking->start_tokens;
    const bool chooses = !opening.thought.empty();
    const std::size_t both = chooses ? thinking->decisive_tokens().size() - 1 : opening.answer.size();
    shared.insert(shared.end(), opening.answer.begin(), opening.answer.begin() + static_cast<std::ptrdiff_t>(both));
    opening.answer = opening.answer.subspan(both);
    if (chooses) opening.thought = opening.thought.subspan(both);
    opening_ = opening;
    if (chooses && opening.answer.empty()) answer_ = request_.drawing->grammar->begin();
    force_tokens(std::move(shared));
    open_answer();
}

// If nothing but the answer can begin, and its header is complete, it does.
void Sequence::open_answer() {
    if (!opening_ || !opening_->thought.empty() || is_forced()) return;
    opening_.reset();
    begin_answer();
}

// Takes the token that tells a thought from an answer. True if the answer is complete, or if the grammar failed.
bool Sequence::choose(TokenId token) {
    const Opening opening = *std::exchange(opening_, std::nullopt);
    const auto rest_of = [](std::span<const TokenId> all) { return std::vector<TokenId>(all.begin() + 1, all.end()); };
    if (token == opening.thought.front() && !(opening.answer.empty() && is_allowed_in_answer(token))) {
        answer_.reset();
        force_tokens(rest_of(opening.thought));
        return false;
    }
    if (opening.answer.empty()) return complete_answer(token);
    opening_ = Opening();
    force_tokens(rest_of(opening.answer));
    return false;
}

bool Sequence::is_allowed_in_answer(TokenId token) {
    const auto allowed = allowed_by_grammar();
    return has_bit(allowed, token);
}

void Sequence::begin_answer() {
    answer_ = request_.drawing->grammar->begin();
    force();
}

// Asks the grammar which tokens must come next. With bad words none is forced: each draw is checked against them.
void Sequence::force() {
    const Drawing& drawing = *request_.drawing;
    if (!drawing.bad_words.empty()) return;
    auto forced = answer_->force();
    if (!forced) return fail_structure(forced.error());
    forced_ = *std::move(forced);
    forced_taken_ = 0;
    const auto is_allowed = [&](TokenId token) { return drawing.allowed.empty() || has_bit(drawing.allowed, token); };
    if (!std::ranges::all_of(forced_.tokens, is_allowed)) fail_allowed();
}

// True if nothing may follow the token, which is no end token, or if the grammar failed.
bool Sequence::complete_answer(TokenId token) {
    if (!answer_) return false;
    const auto complete = answer_->accept(token);
    if (!complete) fail_structure(complete.error());
    if (complete.value_or(true)) return true;
    force();
    return result.error.has_value();
}

// True if a stop text is complete. There are none in a thought, nor in a header.
bool Sequence::push_text(std::string text) {
    const bool is_answer = !thought_ || thought_->is_settled() || divide(text);
    characters_ += schema::count_characters(text);
    return matcher_.push(text, is_answer && std::ssize(output()) > request_.drawing->sampling.min_tokens);
}

// True if no part of the text is of a thought, or may be. Cuts white space off that came with the end of a thought, if a structure follows:
// that begins after it.
bool Sequence::divide(std::string& text) {
    const ThoughtState before = thought_->state();
    const bool was_thinking = thinks();
    const ThoughtReader::Parts parts = thought_->push(text);
    const ThoughtState after = thought_->state();
    if (after == ThoughtState::thinking && answer_) {
        // What the structure took for the answer's beginning opened a thought: the answer follows it.
        answer_.reset();
        forced_ = {};
        forced_taken_ = 0;
    }
    const std::int64_t count = std::ssize(output());
    if (thinks() && !was_thinking) thought_begin_ = count;
    const bool thought_ended = !thinks() && (was_thinking || !parts.thought.empty());
    if (thinks() || thought_ended) result.thought_tokens = thoughts_tokens_ + count - mark_begin_;
    if (thought_ended) {
        thoughts_tokens_ = *result.thought_tokens;
        budget_taken_ += count - thought_begin_;
    }
    if (thought_ended || (after == ThoughtState::undecided && before == ThoughtState::answering)) mark_begin_ = count;
    if (thought_ended && !parts.answer.empty() && request_.drawing->grammar != nullptr) {
        if (parts.answer.find_first_not_of(thought_space) == std::string::npos) {
            text.resize(text.size() - parts.answer.size());
        } else {
            fail(schema::ErrorCode::invalid_structure,
                 "one token ended the thought and began the answer, so the structure could not apply to it; leave the structure out");
        }
    }
    return after == ThoughtState::answering && !was_thinking && parts.thought.empty() &&
           (before == ThoughtState::answering || !parts.answer.empty());
}

// What a token adds to the text. An unfinished character before a token that is shown stays unfinished.
std::string Sequence::text_of(TokenId token) {
    const std::vector<ShownToken>& shown = request_.drawing->shown_tokens;
    const auto found = std::ranges::find(shown, token, &ShownToken::token);
    return found == shown.end() ? detokenizer_.push(token) : detokenizer_.finish() + found->text;
}

// Appends a token that was drawn or forced. True if the sequence has ended.
bool Sequence::append(TokenId token) {
    const Drawing& drawing = *request_.drawing;
    const bool was_thinking = thinks();
    const bool was_forced = is_forced();
    if (was_forced) ++forced_taken_;
    tokens.push_back(token);

    // Until min_tokens are drawn, end tokens are banned, unless a grammar allows nothing else.
    const bool is_end_token = std::ranges::find(drawing.end_tokens, token) != drawing.end_tokens.end();
    bool is_complete = false;
    if (was_forced) {
        is_complete = forced_.complete && !is_forced();
    } else if (!is_end_token && !was_thinking) {
        is_complete = opening_ ? choose(token) : complete_answer(token);
    }
    if (!is_end_token || drawing.sampling.include_stop_text) {
        if (push_text(text_of(token))) {
            result.finish = FinishReason::stop;
            return true;  // what the detokenizer still holds comes after the stop text
        }
    }
    if (thinks()) is_complete = false;
    if (is_end_token || is_complete) result.finish = FinishReason::stop;
    const bool ended = is_end_token || is_complete || std::ssize(output()) >= request_.max_tokens;
    if (ended && push_text(detokenizer_.finish())) result.finish = FinishReason::stop;
    if (!ended) open_answer();
    if (!ended && was_thinking && !thinks() && drawing.grammar != nullptr && !result.error) open(true);
    end_thought_in_time();
    return ended;
}

// Appends the tokens that are forced. True if the sequence has ended.
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
    Delta delta{.id = request_.id, .text = matcher_.take_certain(final), .logprobs = {}, .tokens = std::ssize(output()), .prompt = {}};
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
