// Penalties, weights, the cut, the draw and log-probabilities of one row of logits; see sample.h.
#include "kernels/cpu/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/greedy.h"
#include "kernels/philox.h"

namespace lorry::kernels::cpu {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t index(TokenId token) { return static_cast<std::size_t>(token); }

// By descending weight, then by ascending id.
constexpr auto before = [](const auto& a, const auto& b) { return a.weight != b.weight ? a.weight > b.weight : a.token < b.token; };

// 1 + how many tokens come before this one by descending logit, then by ascending id.
std::int32_t rank_of(TokenId token, std::span<const float> logits) {
    const float own = logits[index(token)];
    std::int32_t ahead = 0;
    for (const float other : logits.first(index(token))) ahead += other >= own ? 1 : 0;
    for (const float other : logits.subspan(index(token) + 1)) ahead += other > own ? 1 : 0;
    return ahead + 1;
}

template <class Candidates>
double mass_of(const Candidates& candidates) {
    double mass = 0.0;
    for (const auto& candidate : candidates) mass += static_cast<double>(candidate.weight);
    return mass;
}

// Moves the shortest prefix (in `before` order) whose weights add up to at least `target` to the front; returns its length, at least 1.
// Each round halves the range in which the prefix ends, so only a few candidates are ever sorted.
template <class Candidates>
std::size_t heaviest_prefix(Candidates& candidates, double target) {
    std::size_t begin = 0;
    std::size_t end = candidates.size();
    double mass = 0.0;
    const auto at = [&](std::size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
    while (end - begin > 32) {
        const std::size_t middle = begin + (end - begin) / 2;
        std::nth_element(at(begin), at(middle), at(end), before);
        double half = 0.0;
        for (std::size_t i = begin; i < middle; ++i) half += static_cast<double>(candidates[i].weight);
        if (mass + half >= target) {
            end = middle;
        } else {
            mass += half;
            begin = middle;
        }
    }
    std::sort(at(begin), at(end), before);
    while (begin < end) {
        mass += static_cast<double>(candidates[begin++].weight);
        if (mass >= target) break;
    }
    return begin;
}

}  // namespace

Sampler::Sampler(const Kernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.threads())) {}

void Sampler::run(const float* logits, std::int64_t stride, std::int64_t vocabulary, std::span<const SampleRow> rows,
                  std::span<SampleResult> results) {
    pool_.run(static_cast<std::int64_t>(rows.size()), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t row = begin; row < end; ++row) {
            const auto i = static_cast<std::size_t>(row);
            sample_row(logits + row * stride, rows[i].vocabulary.value_or(vocabulary), rows[i], results[i],
                       scratch_[static_cast<std::size_t>(thread)]);
        }
    });
}

void Sampler::sample_row(const float* logits, std::int64_t vocabulary, const SampleRow& row, SampleResult& result, Scratch& scratch) const {
    const auto size = static_cast<std::size_t>(vocabulary);
    if (scratch.weights.size() != size) {
        scratch.logits.resize(size);
        scratch.weights.resize(size);
        scratch.sums.resize((size + weight_piece - 1) / weight_piece);
        scratch.tokens.resize(size);
        scratch.candidates.reserve(size);
        scratch.counts.resize(size);
        scratch.seen.resize(size);
    }
    result.is_finite = std::isfinite(kernels_.largest(logits, vocabulary).value);
    if (row.draw) result.token = draw(adjusted(logits, vocabulary, row, scratch), vocabulary, row, scratch);
    log_probabilities(logits, vocabulary, row, result, scratch);
}

void Sampler::log_probabilities(const float* logits, std::int64_t vocabulary, const SampleRow& row, SampleResult& result,
                                Scratch& scratch) const {
    result.top.clear();
    result.targets.clear();
    result.ranks.clear();
    const bool drawn = row.draw && row.want_logprob;
    if (!drawn && row.top_logprobs <= 0 && row.targets.empty()) return;
    const float largest = kernels_.largest(logits, vocabulary).value;
    kernels_.weights(logits, vocabulary, largest, 1.0F, nullptr, scratch.sums.data());
    double sum = 0.0;
    for (const double piece : scratch.sums) sum += piece;
    const double log_sum = static_cast<double>(largest) + std::log(sum);
    const auto logprob = [&](TokenId token) { return static_cast<float>(static_cast<double>(logits[token]) - log_sum); };
    if (drawn) result.logprob = logprob(result.token);
    for (const TokenId token : row.targets) result.targets.push_back(logprob(token));
    if (row.want_ranks) {
        const std::span<const float> all(logits, static_cast<std::size_t>(vocabulary));
        for (const TokenId token : row.targets) result.ranks.push_back(rank_of(token, all));
    }
    if (row.top_logprobs > 0) top_tokens(logits, vocabulary, largest, log_sum, row.top_logprobs, result, scratch);
}

void Sampler::top_tokens(const float* logits, std::int64_t vocabulary, float largest, double log_sum, std::int32_t count,
                         SampleResult& result, Scratch& scratch) const {
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(count, vocabulary));
    for (const float distance : {4.0F, 16.0F, infinity}) {
        const std::int64_t found = kernels_.at_least(logits, vocabulary, largest - distance, scratch.tokens.data());
        if (static_cast<std::size_t>(found) < wanted && distance != infinity) continue;
        scratch.candidates.clear();
        for (std::int64_t i = 0; i < found; ++i) {
            const TokenId token = scratch.tokens[static_cast<std::size_t>(i)];
            scratch.candidates.push_back({logits[token], token});
        }
        break;
    }
    const std::size_t kept = std::min(wanted, scratch.candidates.size());
    const auto end = scratch.candidates.begin() + static_cast<std::ptrdiff_t>(kept);
    std::partial_sort(scratch.candidates.begin(), end, scratch.candidates.end(), before);
    for (auto candidate = scratch.candidates.begin(); candidate != end; ++candidate) {
        result.top.push_back({candidate->token, static_cast<float>(static_cast<double>(candidate->weight) - log_sum)});
    }
}

// The logits with bias, bans and penalties; the model's own logits if the row asks for none of these.
const float* Sampler::adjusted(const float* logits, std::int64_t vocabulary, const SampleRow& row, Scratch& scratch) const {
    const bool repetition = row.has_repetition_penalty();
    const bool counted = row.has_output_penalty();
    if (row.logit_bias.empty() && row.banned.empty() && row.allowed.empty() && !repetition && !counted) return logits;
    std::copy_n(logits, vocabulary, scratch.logits.begin());
    for (const TokenBias& bias : row.logit_bias) scratch.logits[index(bias.token)] += bias.bias;
    for (const TokenId token : row.banned) scratch.logits[index(token)] = -infinity;
    for (std::size_t word = 0; !row.allowed.empty() && word * 32 < scratch.logits.size(); ++word) {
        const std::uint32_t bits = word < row.allowed.size() ? row.allowed[word] : 0;
        if (bits == ~0U) continue;
        const std::size_t end = std::min(scratch.logits.size(), word * 32 + 32);
        for (std::size_t token = word * 32; token < end; ++token) {
            if ((bits >> (token % 32) & 1U) == 0) scratch.logits[token] = -infinity;
        }
    }
    if (repetition) {
        for (const std::span<const TokenId> tokens : {row.prompt, row.output}) {
            for (const TokenId token : tokens) {
                if (scratch.seen[index(token)] != 0) continue;
                scratch.seen[index(token)] = 1;
                float& logit = scratch.logits[index(token)];
                logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
            }
        }
        for (const std::span<const TokenId> tokens : {row.prompt, row.output}) {
            for (const TokenId token : tokens) scratch.seen[index(token)] = 0;
        }
    }
    if (counted) {
        for (const TokenId token : row.output) ++scratch.counts[index(token)];
        for (const TokenId token : row.output) {
            std::int32_t& count = scratch.counts[index(token)];
            if (count == 0) continue;
            scratch.logits[index(token)] -= row.frequency_penalty * static_cast<float>(count) + row.presence_penalty;
            count = 0;
        }
    }
    return scratch.logits.data();
}

TokenId Sampler::draw(const float* logits, std::int64_t vocabulary, const SampleRow& row, Scratch& scratch) const {
    const Largest largest = kernels_.largest(logits, vocabulary);
    // With an infinite logit, or with none above -inf, there are no finite weights.
    if (is_greedy(row) || !std::isfinite(largest.value)) return largest.index;
    kernels_.weights(logits, vocabulary, largest.value, 1.0F / row.temperature, scratch.weights.data(), scratch.sums.data());
    const double chance = uniform(row.seed, row.position);

    const bool truncated = (row.top_k > 0 && row.top_k < vocabulary) || row.top_p < 1.0F || row.min_p > 0.0F;
    if (truncated) {
        double total = 0.0;
        for (const double sum : scratch.sums) total += sum;
        const Candidate last = cut(vocabulary, row, total, scratch);
        const std::int64_t found = kernels_.at_least(scratch.weights.data(), vocabulary, last.weight, scratch.tokens.data());
        const auto kept = [&](TokenId token) { return scratch.weights[index(token)] > last.weight || token <= last.token; };
        const std::span<const TokenId> tokens(scratch.tokens.data(), static_cast<std::size_t>(found));
        double mass = 0.0;
        for (const TokenId token : tokens) mass += kept(token) ? static_cast<double>(scratch.weights[index(token)]) : 0.0;
        double rest = chance * mass;
        TokenId drawn = largest.index;
        for (const TokenId token : tokens) {
            if (!kept(token)) continue;
            drawn = token;
            rest -= static_cast<double>(scratch.weights[index(token)]);
            if (rest < 0.0) break;
        }
        return drawn;
    }

    double total = 0.0;
    for (const double sum : scratch.sums) total += sum;
    double rest = chance * total;
    std::size_t piece = 0;
    while (piece + 1 < scratch.sums.size() && rest >= scratch.sums[piece]) rest -= scratch.sums[piece++];
    // A piece's sum was rounded: if its elements add up to slightly less, the last one with a weight is drawn.
    const auto begin = static_cast<std::int64_t>(piece) * weight_piece;
    TokenId drawn = largest.index;
    for (std::int64_t i = begin; i < std::min(vocabulary, begin + weight_piece); ++i) {
        const float weight = scratch.weights[static_cast<std::size_t>(i)];
        if (weight <= 0.0F) continue;
        drawn = static_cast<TokenId>(i);
        rest -= static_cast<double>(weight);
        if (rest < 0.0) break;
    }
    return drawn;
}

// The last token that top_k, then top_p, then min_p keep; weights are relative to the largest, which is 1.
Sampler::Candidate Sampler::cut(std::int64_t vocabulary, const SampleRow& row, double total, Scratch& scratch) const {
    const bool limits_count = row.top_k > 0 && row.top_k < vocabulary;
    const auto count_max = static_cast<std::size_t>(row.top_k);
    // Lower the bound until all tokens that are kept are certainly above it.
    constexpr std::array bounds{0x1p-6F, 0x1p-12F, 0x1p-20F, std::numeric_limits<float>::denorm_min()};
    for (const float bound : bounds) {
        const bool above_min_p = bound <= row.min_p;
        const std::int64_t found = kernels_.at_least(scratch.weights.data(), vocabulary, bound, scratch.tokens.data());
        scratch.candidates.clear();
        for (std::int64_t i = 0; i < found; ++i) {
            const TokenId token = scratch.tokens[static_cast<std::size_t>(i)];
            scratch.candidates.push_back({scratch.weights[index(token)], token});
        }
        const bool enough = limits_count       ? scratch.candidates.size() >= count_max
                            : row.top_p < 1.0F ? mass_of(scratch.candidates) >= static_cast<double>(row.top_p) * total
                                               : above_min_p;
        if (enough || bound == bounds.back()) break;
    }
    std::vector<Candidate>& kept = scratch.candidates;
    if (limits_count && kept.size() > count_max) {
        std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count_max - 1), kept.end(), before);
        kept.resize(count_max);
    }
    if (row.top_p < 1.0F) {
        const double mass = limits_count ? mass_of(kept) : total;
        kept.resize(heaviest_prefix(kept, static_cast<double>(row.top_p) * mass));
    }
    Candidate last = *std::max_element(kept.begin(), kept.end(), before);
    if (last.weight < row.min_p) last = {row.min_p, std::numeric_limits<TokenId>::max()};
    return last;
}

}  // namespace lorry::kernels::cpu
