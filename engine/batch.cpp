// Fills the arrays of one step, and hands its results to the sequences.
#include "engine/batch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string_view>
#include <tuple>

#include "engine/engine_stats.h"
#include "schema/check.h"

namespace lorry::engine {
namespace {

// allowed: as SampleRow::allowed.
bool allows_others(std::span<const std::uint32_t> allowed, std::span<const TokenId> banned) {
    for (std::size_t word = 0; word < allowed.size(); ++word) {
        std::uint32_t rest = allowed[word];
        if (rest == 0) continue;
        for (const TokenId token : banned) {
            if (static_cast<std::size_t>(token) / 32 == word) rest &= ~(1U << (static_cast<unsigned>(token) % 32));
        }
        if (rest != 0) return true;
    }
    return false;
}

bool depends_on_drawn(const BatchEntry& entry) { return entry.sequence->request().drawing->depends_on_drawn(); }

}  // namespace

Batch::Batch(std::int64_t rows_max, std::int64_t sample_rows_max, std::int64_t sequences_max) {
    const auto rows = static_cast<std::size_t>(rows_max);
    const auto sample_rows = static_cast<std::size_t>(sample_rows_max);
    const auto sequences = static_cast<std::size_t>(sequences_max);
    tokens_.reserve(rows);
    drawn_.reserve(sequences);
    positions_.reserve(rows);
    rope_rows_.reserve(rows);
    entries_.reserve(sequences);
    sequences_.reserve(sequences);
    adapters_.reserve(sequences);
    sampled_.reserve(sample_rows);
    sample_rows_.reserve(sample_rows);
    results_.resize(sample_rows);
}

void Batch::clear() {
    entries_.clear();
    tokens_.clear();
    drawn_.clear();
    positions_.clear();
    token_types_.clear();
    texts_.clear();
    rope_rows_.clear();
    sequences_.clear();
    sampled_.clear();
    adapters_.clear();
    sample_rows_.clear();
}

void Batch::add(Sequence& sequence, std::int64_t rows, std::int64_t drafts) {
    entries_.push_back({.sequence = &sequence, .rows = rows, .drafts = drafts});
}

void Batch::drop(const Sequence& sequence) {
    for (BatchEntry& entry : entries_) {
        if (entry.sequence == &sequence) entry.sequence = nullptr;
    }
}

void Batch::build(Model& model) {
    // Rows of one adapter are adjacent. Within an adapter the oldest sequence comes first, so that the order does not depend on the plan.
    std::ranges::sort(entries_, {}, [](const BatchEntry& entry) {
        return std::tuple(std::string_view(entry.sequence->adapter_hash()), entry.sequence->turn, entry.sequence->id());
    });
    for (BatchEntry& entry : entries_) add_rows(model, entry);
    if (!token_types_.empty()) token_types_.resize(tokens_.size(), 0);
    step_ = {.rows = static_cast<std::int64_t>(tokens_.size()),
             .tokens = tokens_,
             .drawn = drawn_,
             .positions = positions_,
             .token_types = token_types_,
             .rope_rows = rope_rows_,
             .sequences = sequences_,
             .sample_rows = sampled_};
}

void Batch::add_rows(Model& model, BatchEntry& entry) {
    const Sequence& sequence = *entry.sequence;
    const auto row_begin = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t begin = sequence.launched();
    const std::int64_t count = entry.rows + entry.drafts;
    entry.vocabulary = model.config().vocabulary;
    if (sequence.adapter != nullptr) entry.vocabulary = sequence.adapter->info().vocabulary.value_or(entry.vocabulary);
    const bool is_refused = sequence.result.error.has_value();  // perhaps as its tokens do not exist
    for (std::int64_t position = begin; position < begin + count; ++position) {
        const std::int64_t after_known = position - std::ssize(sequence.tokens);
        if (after_known >= 0 && entry.drafts > 0) {
            tokens_.push_back(sequence.drafts[static_cast<std::size_t>(after_known)]);
        } else if (after_known >= 0) {
            drawn_.push_back({.row = std::ssize(tokens_), .sample_row = sequence.queued.draw_row});
            tokens_.push_back(0);
        } else {
            tokens_.push_back(is_refused ? 0 : sequence.tokens[static_cast<std::size_t>(position)]);
        }
        positions_.push_back(static_cast<std::int32_t>(position));
        rope_rows_.push_back(model.rope_row(position, sequence.rope_length));
    }
    if (const auto& types = sequence.request().token_types; !types.empty()) {
        token_types_.resize(static_cast<std::size_t>(row_begin), 0);
        token_types_.insert(token_types_.end(), types.begin() + begin, types.begin() + begin + entry.rows);
    }
    sequences_.push_back({.row_begin = row_begin, .row_count = count, .position = begin, .blocks = std::span(sequence.blocks)});
    if (sequence.adapter != nullptr) {
        if (!adapters_.empty() && adapters_.back().adapter == sequence.adapter) {
            adapters_.back().row_count += count;
        } else {
            adapters_.push_back({row_begin, count, sequence.adapter});
        }
    }
    add_sample_rows(entry, row_begin);
}

void Batch::add_sample_rows(BatchEntry& entry, std::int64_t row_begin) {
    Sequence& sequence = *entry.sequence;
    const Request& request = sequence.request();
    const SequenceView view = sequence.view();
    const std::int64_t begin = sequence.launched();
    const std::int64_t end = begin + entry.rows;
    entry.sample_begin = static_cast<std::int64_t>(sample_rows_.size());
    if (request.pooling) return add_pooled_rows(entry, row_begin);
    if (sequence.result.error) return;

    if (view.score_begin) {
        for (std::int64_t position = std::max(begin, *view.score_begin); position < std::min(end, view.score_end); ++position) {
            sampled_.push_back(static_cast<std::int32_t>(row_begin + position - begin));
            sample_rows_.push_back({.draw = false,
                                    .vocabulary = entry.vocabulary,
                                    .top_logprobs = request.score_top,
                                    .targets = std::span(sequence.tokens).subspan(static_cast<std::size_t>(position) + 1, 1),
                                    .want_ranks = request.score_ranks});
            ++entry.score_rows;
        }
    }
    if (!view.samples || end != view.known) return;
    entry.final_row = true;
    entry.draws = sequence.draws();
    sampled_.push_back(static_cast<std::int32_t>(row_begin + entry.rows - 1));
    const Drawing& drawing = *request.drawing;
    const schema::Sampling& sampling = drawing.sampling;
    const std::span<const TokenId> output = sequence.output();
    kernels::SampleRow row{.draw = entry.draws,
                           .vocabulary = entry.vocabulary,
                           .temperature = static_cast<float>(sampling.temperature.value_or(1.0)),
                           .top_k = sampling.top_k.value_or(0),
                           .top_p = static_cast<float>(sampling.top_p.value_or(1.0)),
                           .min_p = static_cast<float>(sampling.min_p.value_or(0.0)),
                           .repetition_penalty = static_cast<float>(sampling.repetition_penalty.value_or(1.0)),
                           .presence_penalty = static_cast<float>(sampling.presence_penalty),
                           .frequency_penalty = static_cast<float>(sampling.frequency_penalty),
                           .prompt = sequence.prompt(),
                           .output = output,
                           .ends_with_drawn = sequence.queued.draws > 0,
                           .logit_bias = drawing.logit_bias,
                           .banned = {},
                           .seed = request.seed,
                           .position = static_cast<std::uint64_t>(view.known),
                           .want_logprob = sampling.logprobs.has_value(),
                           .top_logprobs = sampling.logprobs.value_or(0),
                           .targets = {}};
    const std::int64_t drawn = std::ssize(output) + sequence.queued.draws;
    if (drawn < sampling.min_tokens) row.banned = drawing.end_tokens;
    if (drawn == 0) row.targets = request.final_targets;
    sample_rows_.push_back(row);
    if (entry.drafts == 0) return;
    row.targets = {};
    const bool counts = row.has_output_penalty() || row.has_repetition_penalty();
    const std::span<const TokenId> output_and_drafts = counts ? sequence.output_and_drafts() : std::span<const TokenId>{};
    for (std::int64_t i = 1; i <= entry.drafts; ++i) {
        sampled_.push_back(sampled_.back() + 1);
        if (counts) row.output = output_and_drafts.first(output.size() + static_cast<std::size_t>(i));
        ++row.position;
        if (drawn + i >= sampling.min_tokens) row.banned = {};
        sample_rows_.push_back(row);
    }
}

void Batch::allow_tokens(kernels::Backend& backend, MaskTime& time) {
    const auto seconds_between = [](Clock::time_point from, Clock::time_point to) {
        return std::chrono::duration<double>(to - from).count();
    };
    depending_.clear();
    double longest = 0.0;
    for (BatchEntry& entry : entries_) {
        if (!entry.draws) continue;
        if (!depends_on_drawn(entry)) {
            allow(entry);
            continue;
        }
        depending_.push_back(&entry);
        longest = std::max(longest, entry.sequence->mask_seconds);
    }
    if (depending_.empty()) return;
    // The quick ones first. The more often a row was held back, the sooner is its turn; none overtakes one that the step does not wait for.
    std::ranges::sort(depending_, {}, [](const BatchEntry* entry) {
        const Sequence& sequence = *entry->sequence;
        return std::pair(sequence.mask_seconds / static_cast<double>(1 + sequence.times_held_back), sequence.id());
    });
    time.begin(longest);
    const Clock::time_point begin = Clock::now();
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> is_late = false;
    backend.on_host(std::ssize(depending_), [&](std::int64_t) {
        const std::size_t place = next.fetch_add(1);
        BatchEntry& entry = *depending_[place];
        const Clock::time_point start = Clock::now();
        if (!time.affords(place == 0 ? 0.0 : seconds_between(begin, start), entry.sequence->mask_seconds)) is_late = true;
        if (is_late) return hold_back(entry);
        allow(entry);
        entry.sequence->mask_seconds = seconds_between(start, Clock::now());
    });
    time.end(seconds_between(begin, Clock::now()));
}

void Batch::allow(BatchEntry& entry) {
    for (std::int64_t drafts = 0; drafts <= entry.drafts; ++drafts) {
        kernels::SampleRow& row = sample_rows_[static_cast<std::size_t>(entry.final_sample_row() + drafts)];
        row.allowed =
            drafts == 0 ? entry.sequence->allowed_tokens() : entry.sequence->allowed_after_drafts(static_cast<std::size_t>(drafts));
        // The sampler needs a token that may be drawn. Where a grammar allows end tokens only, the answer ends before min_tokens.
        if (!row.allowed.empty() && !row.banned.empty() && !allows_others(row.allowed, row.banned)) row.banned = {};
    }
    entry.sequence->times_held_back = 0;
}

void Batch::hold_back(BatchEntry& entry) {
    for (std::int64_t drafts = 0; drafts <= entry.drafts; ++drafts) {
        kernels::SampleRow& row = sample_rows_[static_cast<std::size_t>(entry.final_sample_row() + drafts)];
        row = {.draw = false, .vocabulary = row.vocabulary, .targets = row.targets};
    }
    entry.draws = false;
    entry.held_back = true;
    ++entry.sequence->times_held_back;
    entry.sequence->mask_seconds /= 2.0;  // it may have been long by chance
}

void Batch::add_pooled_rows(BatchEntry& entry, std::int64_t row_begin) {
    const Sequence& sequence = *entry.sequence;
    const Request& request = sequence.request();
    const std::int64_t begin = sequence.launched();
    // A request that the model turned out to be unable to serve has its rows computed, and ends with its error.
    if (sequence.result.error || begin + entry.rows < sequence.known()) return;
    if (*request.pooling == PoolingTask::fill_mask) {
        for (const std::int64_t position : request.mask_positions) {
            sampled_.push_back(static_cast<std::int32_t>(row_begin + position - begin));
            sample_rows_.push_back({.draw = false, .vocabulary = entry.vocabulary, .top_logprobs = request.score_top});
            ++entry.score_rows;
        }
        entry.fills = true;
        return;
    }
    const std::int64_t first = sequence.pooled_rows() == PooledRows::last ? row_begin + entry.rows - 1 : row_begin;
    const std::int64_t count = sequence.pooled_rows() == PooledRows::all ? entry.rows : 1;
    entry.text = texts_.size();
    texts_.push_back({.row_begin = std::ssize(sampled_), .row_count = count, .task = *request.pooling, .adapter = sequence.adapter});
    for (std::int64_t row = first; row < first + count; ++row) sampled_.push_back(static_cast<std::int32_t>(row));
}

bool Batch::is_finite(const BatchEntry& entry) const {
    const std::int64_t end = entry.final_sample_row() + (entry.final_row ? 1 : 0);
    for (std::int64_t row = entry.sample_begin; row < end; ++row) {
        if (!result(row).is_finite) return false;
    }
    return true;
}

void Batch::hand_results(kernels::Backend& backend) {
    depending_.clear();
    for (BatchEntry& entry : entries_) {
        if (entry.sequence == nullptr) continue;
        if (entry.draws && depends_on_drawn(entry)) {
            depending_.push_back(&entry);  // grammars take tokens, which takes long enough to divide it
        } else {
            hand(entry);
        }
    }
    backend.on_host(std::ssize(depending_), [&](std::int64_t i) { hand(*depending_[static_cast<std::size_t>(i)]); });
}

void Batch::hand(BatchEntry& entry) const {
    Sequence& sequence = *entry.sequence;
    sequence.computed += entry.held_back ? entry.rows - 1 : entry.rows;
    sequence.queued.rows -= entry.rows;
    entry.outcome = Outcome::failed;
    if (sequence.result.error) return;
    if (!is_finite(entry) || !std::ranges::all_of(sequence.result.pooled, [](float x) { return std::isfinite(x); }))
        return sequence.fail_overflow();
    hand_scores(entry);
    bool ended = sequence.is_complete();
    if (entry.draws) {
        --sequence.queued.draws;
        if (sequence.result.first_token == Clock::time_point{}) sequence.result.first_token = Clock::now();
        ended = hand_draws(entry);
    }
    entry.outcome = ended ? Outcome::ended : Outcome::goes_on;
}

void Batch::hand_scores(const BatchEntry& entry) const {
    Sequence& sequence = *entry.sequence;
    for (std::int64_t i = 0; i < entry.score_rows; ++i) {
        const kernels::SampleResult& scored = result(entry.sample_begin + i);
        if (entry.fills) {
            sequence.result.fills.push_back({.token = scored.top.front().token, .logprob = scored.top.front().logprob, .top = scored.top});
            continue;
        }
        const std::size_t next = static_cast<std::size_t>(*sequence.request().score_begin) + sequence.result.scores.size() + 1;
        sequence.result.scores.push_back({.token = sequence.tokens[next], .logprob = scored.targets.front(), .top = scored.top});
        if (sequence.request().score_ranks) sequence.result.scores.back().rank = scored.ranks.front();
    }
    if (entry.final_row && sequence.output().empty() && !sequence.request().final_targets.empty()) {
        sequence.result.final_targets = result(entry.final_sample_row()).targets;
    }
}

bool Batch::hand_draws(BatchEntry& entry) const {
    Sequence& sequence = *entry.sequence;
    const std::size_t known = sequence.tokens.size();
    const std::span<const TokenId> drafts = std::span(sequence.drafts).first(static_cast<std::size_t>(entry.drafts));
    std::size_t added = 0;
    std::size_t right = 0;  // drafts that are as what was added
    bool ended = false;
    while (!ended && right == added) {
        const kernels::SampleResult& drawn = result(entry.final_sample_row() + static_cast<std::int64_t>(added));
        if (!drawn.is_finite) {
            sequence.fail_overflow();
            return true;
        }
        ended = sequence.accept(drawn);
        ++entry.counts.drawn;
        entry.counts.forced += sequence.tokens.size() - known - added - 1;
        added = sequence.tokens.size() - known;
        while (right < std::min(added, drafts.size()) && drafts[right] == sequence.tokens[known + right]) ++right;
    }
    entry.counts.accepted = right;
    sequence.computed += static_cast<std::int64_t>(right);
    return ended;
}

void Batch::count(EngineStats& counts) const {
    ++counts.steps;
    counts.rows += static_cast<std::uint64_t>(step_.rows);
    counts.sampled_rows += step_.sample_rows.size();
    for (const BatchEntry& entry : entries_) {
        const std::int64_t prompt_left = std::max<std::int64_t>(0, entry.sequence->prompt_tokens() - entry.sequence->launched());
        counts.prompt_tokens += static_cast<std::uint64_t>(std::min(prompt_left, entry.rows));
    }
    for (const kernels::StepSequence& sequence : step_.sequences) {
        const std::int64_t end = sequence.position + sequence.row_count;
        counts.context_tokens += static_cast<std::uint64_t>(end);
        counts.attended_tokens += static_cast<std::uint64_t>(sequence.row_count * (sequence.position + 1 + end) / 2);
    }
    for (const AdapterRows& group : adapters_) {
        const auto elements = static_cast<std::uint64_t>(group.adapter->info().elements);
        ++counts.adapter_groups;
        counts.adapter_elements += elements;
        counts.adapter_products += elements * static_cast<std::uint64_t>(group.row_count);
    }
    counts.last_rows = step_.rows;
    counts.last_adapters = static_cast<std::int64_t>(adapters_.size());
}

}  // namespace lorry::engine
