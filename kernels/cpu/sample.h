// Draws tokens from rows of logits and looks up log-probabilities, as SampleRow in kernels/ops.h describes. Used by the CPU backend.
//
// One thread computes a row. The weights exp((logit - largest) / temperature) are written to scratch memory and never over the logits, so
// that log-probabilities are those of the model. top_k, top_p and min_p become one cut (the last token kept, by weight, then by id); the
// token is drawn by walking the kept tokens in the order of their ids. The vocabulary is never sorted.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/thread_pool.h"

namespace lorry::kernels::cpu {

class Sampler {
public:
    Sampler(const Kernels& kernels, ThreadPool& pool);

    // logits [rows, vocabulary], row r at logits + r * stride; results[r] belongs to rows[r]. vocabulary: of rows that have none of their
    // own.
    void run(const float* logits, std::int64_t stride, std::int64_t vocabulary, std::span<const SampleRow> rows,
             std::span<SampleResult> results);

private:
    struct Candidate {
        float weight = 0.0F;
        TokenId token = 0;
    };
    // One thread's memory, kept between steps for its capacity.
    struct Scratch {
        std::vector<float> logits;         // [vocabulary] with bias and penalties
        std::vector<float> weights;        // [vocabulary]
        std::vector<double> sums;          // of the pieces of weights
        std::vector<std::int32_t> tokens;  // indices above a bound
        std::vector<Candidate> candidates;
        std::vector<std::int32_t> counts;  // [vocabulary] occurrences in the output; all zero between rows
        std::vector<std::uint8_t> seen;    // [vocabulary] 1: occurs in prompt or output; all zero between rows
    };

    void sample_row(const float* logits, std::int64_t vocabulary, const SampleRow& row, SampleResult& result, Scratch& scratch) const;
    void log_probabilities(const float* logits, std::int64_t vocabulary, const SampleRow& row, SampleResult& result,
                           Scratch& scratch) const;
    void top_tokens(const float* logits, std::int64_t vocabulary, float largest, double log_sum, std::int32_t count, SampleResult& result,
                    Scratch& scratch) const;
    const float* adjusted(const float* logits, std::int64_t vocabulary, const SampleRow& row, Scratch& scratch) const;
    TokenId draw(const float* logits, std::int64_t vocabulary, const SampleRow& row, Scratch& scratch) const;
    Candidate cut(std::int64_t vocabulary, const SampleRow& row, double total, Scratch& scratch) const;

    const Kernels& kernels_;
    ThreadPool& pool_;
    std::vector<Scratch> scratch_;  // [threads]
};

}  // namespace lorry::kernels::cpu
