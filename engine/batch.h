// The rows of one step in the form that the device takes (packed, sorted by adapter, not padded), and the step's results. engine.cpp fills
// a batch from a plan and reads it after the step. All arrays are allocated once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/mask_time.h"
#include "engine/model/model.h"
#include "engine/sequence.h"
#include "kernels/backend.h"

namespace lorry::engine {

struct EngineStats;

// What a step's results mean for a sequence.
enum class Outcome : std::uint8_t {
    goes_on,
    ended,   // nothing is left to be computed
    failed,  // the same, and what this step computed is not handed out
};
struct DrawCounts {
    std::uint64_t drawn = 0;
    std::uint64_t forced = 0;    // as EngineStats::forced_tokens
    std::uint64_t accepted = 0;  // as EngineStats::accepted_tokens
};

// A sequence's part in a step.
struct BatchEntry {
    Sequence* sequence = nullptr;     // nullptr: the sequence is gone, and these rows are ignored
    std::int64_t vocabulary = 0;      // its tokens are below
    std::int64_t rows = 0;            // tokens [computed, computed + rows)
    std::int64_t drafts = 0;          // rows after these, for the sequence's first drafts
    std::int64_t sample_begin = 0;    // its first row of logits
    std::int64_t score_rows = 0;      // how many rows of logits score prompt tokens; these come first
    bool final_row = false;           // then comes the row of the last known token
    bool draws = false;               // a token is drawn from the final row, and from those of the drafts, which come next
    bool held_back = false;           // instead, the final row is computed again by a later step: what it may draw was not known in time
    bool fills = false;               // the rows that score are those of masks
    std::optional<std::size_t> text;  // its place in Batch::texts(), if it is pooled
    Outcome outcome = Outcome::goes_on;
    DrawCounts counts;  // of the step's results

    std::int64_t final_sample_row() const { return sample_begin + score_rows; }
};

class Batch {
public:
    Batch(std::int64_t rows_max, std::int64_t sample_rows_max, std::int64_t sequences_max);

    // Adds a sequence's rows, and those of its drafts. Its blocks must be allocated. Call build() after the last one.
    void add(Sequence& sequence, std::int64_t rows, std::int64_t drafts);
    void build(Model& model);
    // Sets which tokens may be drawn, as the sequences say, on the host's threads. The device may compute the step meanwhile. Rows that
    // `time` does not wait for are held back.
    void allow_tokens(kernels::Backend& backend, MaskTime& time);
    void clear();
    // Ignores the rows of a sequence that ended or was cancelled while this step is queued.
    void drop(const Sequence& sequence);
    // Adds this step's work to the counts. Call it before the sequences count the rows as queued.
    void count(EngineStats& counts) const;

    std::span<const BatchEntry> entries() const { return entries_; }
    const kernels::StepInputs& step() const { return step_; }
    std::span<const AdapterRows> adapters() const { return adapters_; }
    // In the order of rows; Model::forward sets their results.
    std::span<PooledText> texts() { return texts_; }
    std::span<const kernels::SampleRow> sample_rows() const { return sample_rows_; }
    std::span<kernels::SampleResult> sample_results() { return std::span(results_).first(sample_rows_.size()); }

    // Once the step was read: gives the sequences its results, on the host's threads, and sets `outcome` and `counts` of the entries.
    void hand_results(kernels::Backend& backend);

private:
    const kernels::SampleResult& result(std::int64_t sample_row) const { return results_[static_cast<std::size_t>(sample_row)]; }
    // False if the logits of any of the entry's rows overflowed, except those of drafts.
    bool is_finite(const BatchEntry& entry) const;
    // All of an entry's results.
    void hand(BatchEntry& entry) const;
    // The scores of prompt tokens and of the wanted successors.
    void hand_scores(const BatchEntry& entry) const;
    // What its final row draws, and what the rows of its drafts draw as long as the sequence goes on as they guess: these drafts are
    // computed tokens then, and the rows of the others are ignored. True if the sequence has ended.
    bool hand_draws(BatchEntry& entry) const;
    void allow(BatchEntry& entry);
    void hold_back(BatchEntry& entry);
    void add_rows(Model& model, BatchEntry& entry);
    void add_sample_rows(BatchEntry& entry, std::int64_t row_begin);
    void add_pooled_rows(BatchEntry& entry, std::int64_t row_begin);

    std::vector<BatchEntry> entries_;
    std::vector<BatchEntry*> depending_;  // what they may draw depends on what was drawn; only used while a function runs
    std::vector<TokenId> tokens_;
    std::vector<kernels::DrawnRow> drawn_;
    std::vector<std::int32_t> positions_;
    std::vector<std::int32_t> token_types_;  // none as long as all are 0
    std::vector<PooledText> texts_;
    std::vector<std::int32_t> rope_rows_;
    std::vector<kernels::StepSequence> sequences_;
    std::vector<std::int32_t> sampled_;
    std::vector<AdapterRows> adapters_;
    std::vector<kernels::SampleRow> sample_rows_;
    std::vector<kernels::SampleResult> results_;
    kernels::StepInputs step_;
};

}  // namespace lorry::engine
