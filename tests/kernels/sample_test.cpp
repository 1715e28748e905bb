// Sampling: which tokens can be drawn, how often, and the log-probabilities, compared with a reference that sorts.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/philox.h"
#include "tests/kernels/devices.h"
#include "tests/support/labels.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

constexpr float infinity = std::numeric_limits<float>::infinity();

class SampleTest : public OnEachDevice {
protected:
    // One result per row; all rows have the same logits.
    std::vector<SampleResult> sample(const std::vector<float>& logits, const std::vector<SampleRow>& rows, int threads = 2) {
        const auto backend = GetParam().make(threads);
        const auto columns = std::ssize(logits);
        Table all(std::ssize(rows), columns);
        for (std::size_t i = 0; i < all.data.size(); ++i) all.data[i] = static_cast<double>(logits[i % logits.size()]);
        const Memory memory(*backend, all);
        std::vector<SampleResult> results(rows.size());
        backend->begin_step({});
        backend->sample({.logits = memory.matrix(), .rows = rows, .results = results});
        backend->finish_step();
        return results;
    }

    std::vector<float> random_logits(std::int64_t size, double deviation) {
        std::vector<float> logits;
        for (const double value : normal(1, size, deviation).data) logits.push_back(static_cast<float>(value));
        return logits;
    }

    // How often each token is drawn with seeds 0, 1, …
    std::vector<int> histogram(const std::vector<float>& logits, SampleRow row, int draws) {
        // A draw takes milliseconds on the emulated GPU; fewer draws still show which tokens are possible.
        if (GetParam().is_gpu()) draws /= 20;
        std::vector<SampleRow> rows;
        for (int i = 0; i < draws; ++i) {
            row.seed = static_cast<std::uint64_t>(i);
            rows.push_back(row);
        }
        std::vector<int> counts(logits.size(), 0);
        for (const SampleResult& result : sample(logits, rows)) ++counts[static_cast<std::size_t>(result.token)];
        return counts;
    }

    static std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

    // Fails unless the counts fit the probabilities: no impossible token, and a plausible chi-square.
    static void expect_distribution(const std::vector<int>& counts, const std::vector<double>& probabilities) {
        int draws = 0;
        for (const int count : counts) draws += count;
        double chi_square = 0.0;
        double freedom = -1.0;
        double rare_expected = 0.0;
        double rare_drawn = 0.0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const double expected = probabilities[i] * draws;
            if (expected == 0.0) {
                EXPECT_EQ(counts[i], 0) << "token " << i << " must not be drawn";
            } else if (expected < 8.0) {
                rare_expected += expected;
                rare_drawn += counts[i];
            } else {
                chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
                freedom += 1.0;
            }
        }
        if (rare_expected >= 8.0) {
            chi_square += (rare_drawn - rare_expected) * (rare_drawn - rare_expected) / rare_expected;
            freedom += 1.0;
        }
        if (freedom < 1.0) return;
        // Six standard deviations by Wilson and Hilferty's approximation: a chance of 10^-9, also for few degrees of freedom.
        const double cube_root = 1.0 - 2.0 / (9.0 * freedom) + 6.0 * std::sqrt(2.0 / (9.0 * freedom));
        EXPECT_LT(chi_square, freedom * cube_root * cube_root * cube_root) << "with " << freedom << " degrees of freedom";
    }
};

TEST_P(SampleTest, GreedyTakesTheLargestLogitAndTheLowestIdAmongEquals) {
    const SampleRow greedy{.temperature = 0.0F};
    std::vector<float> logits(45, -1.0F);
    for (const std::size_t token : {41U, 18U, 25U, 33U}) logits[token] = 3.5F;
    EXPECT_EQ(sample(logits, {greedy})[0].token, 18);
    logits[44] = 4.0F;
    EXPECT_EQ(sample(logits, {greedy})[0].token, 44);
    logits[2] = std::numeric_limits<float>::quiet_NaN();
    logits[43] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(sample(logits, {greedy})[0].token, 44);
    const std::vector<float> nothing(45, -infinity);
    EXPECT_EQ(sample(nothing, {greedy})[0].token, 0);
}

TEST_P(SampleTest, ABrokenRowOfLogitsStillGivesATokenOfTheVocabulary) {
    const SampleRow row{.temperature = 1.0F, .top_k = 3, .top_p = 0.9F, .want_logprob = true, .top_logprobs = 3};
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), -infinity, infinity}) {
        const std::vector<float> logits(45, value);
        const auto results = sample(logits, {row});
        EXPECT_GE(results[0].token, 0);
        EXPECT_LT(results[0].token, 45);
        EXPECT_FALSE(results[0].is_finite);
    }
    EXPECT_TRUE(sample(random_logits(45, 1.0), {row})[0].is_finite);
}

// Pins: the inverse of a denormal temperature is infinite, so no token had a weight, and the cut read an empty list.
TEST_P(SampleTest, ATemperatureWhoseInverseOverflowsIsGreedy) {
    std::vector<float> logits = random_logits(45, 1.0);
    logits[17] = 9.0F;
    const float least = std::numeric_limits<float>::min();
    for (const float temperature : {std::numeric_limits<float>::denorm_min(), 1e-40F, least / 2, least, 1e-30F}) {
        for (const float top_p : {1e-40F, 0.5F, 1.0F}) {
            for (const float min_p : {0.0F, 1e-40F, 1.0F}) {
                const SampleRow row{.temperature = temperature, .top_k = top_p < 0.1F ? 3 : 0, .top_p = top_p, .min_p = min_p};
                EXPECT_EQ(sample(logits, {row})[0].token, 17) << temperature << ' ' << top_p << ' ' << min_p;
            }
        }
    }
}

// Every limit of every parameter, over logits of every size: the token is one of the vocabulary and is not banned.
TEST_P(SampleTest, ParametersAtTheirLimitsGiveATokenThatMayBeDrawn) {
    constexpr float largest = std::numeric_limits<float>::max();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::vector<float>> rows_of_logits{random_logits(45, 1.0), std::vector<float>(45, 0.0F)};
    rows_of_logits.push_back(random_logits(45, 1e38));
    for (const float value : {largest, -largest, infinity, -infinity, nan}) {
        rows_of_logits.push_back(random_logits(45, 1.0));
        for (std::size_t i = 0; i < 45; i += 4) rows_of_logits.back()[i] = value;
    }
    const std::array<TokenId, 3> used{4, 5, 44};
    const std::array<TokenId, 1> banned{4};
    const std::array<TokenBias, 2> bias{TokenBias{5, 100.0F}, TokenBias{8, -100.0F}};
    std::vector<SampleRow> rows;
    for (const float temperature : {0.0F, 1e-40F, 1e-30F, 1.0F, 100.0F}) {
        for (const float repetition : {1e-40F, 1.0F, 100.0F}) {
            for (const float top_p : {1e-40F, 0.9F, 1.0F}) {
                for (const float min_p : {0.0F, 1.0F}) {
                    rows.push_back({.temperature = temperature,
                                    .top_k = min_p > 0.0F ? 2'000'000'000 : static_cast<std::int32_t>(rows.size() % 3),
                                    .top_p = top_p,
                                    .min_p = min_p,
                                    .repetition_penalty = repetition,
                                    .presence_penalty = 2.0F,
                                    .frequency_penalty = -2.0F,
                                    .prompt = used,
                                    .output = used,
                                    .logit_bias = bias,
                                    .banned = banned,
                                    .seed = rows.size(),
                                    .want_logprob = true,
                                    .top_logprobs = 20});
                }
            }
        }
    }
    for (const std::vector<float>& logits : rows_of_logits) {
        for (const SampleResult& result : sample(logits, rows)) {
            ASSERT_GE(result.token, 0);
            ASSERT_LT(result.token, 45);
            EXPECT_NE(result.token, 4);
        }
    }
}

TEST_P(SampleTest, DrawsFollowTheSoftmaxAtAnyTemperature) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const float temperature : {0.3F, 1.0F, 2.5F}) {
        for (const std::int64_t vocabulary : {2, 45, 1100}) {
            SCOPED_TRACE(::testing::Message() << "temperature " << temperature << ", vocabulary " << vocabulary);
            const std::vector<float> logits = random_logits(vocabulary, 1.5);
            const SampleRow row{.temperature = temperature, .position = 7};
            expect_distribution(histogram(logits, row, 1500), reference::probabilities(doubles(logits), row));
        }
    }
}

TEST_P(SampleTest, TopKTopPAndMinPKeepWhatSortingKeeps) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<SampleRow> rows{
        {.top_k = 1},
        {.top_k = 5},
        {.top_k = 300},
        {.top_p = 0.1F},
        {.top_p = 0.9F},
        {.top_p = 0.999F},
        {.min_p = 0.2F},
        {.min_p = 1.0F},
        {.temperature = 0.5F, .top_k = 50, .top_p = 0.8F},
        {.temperature = 1.5F, .top_k = 20, .top_p = 0.95F, .min_p = 0.3F},
        {.top_k = 1'000'000, .top_p = 0.5F, .min_p = 0.01F},
    };
    // From peaked to flat: few or nearly all tokens are candidates of the cut.
    for (const double deviation : {6.0, 1.0, 0.01}) {
        for (const std::int64_t vocabulary : {45, 400}) {
            const std::vector<float> logits = random_logits(vocabulary, deviation);
            for (const SampleRow& row : rows) {
                SCOPED_TRACE(::testing::Message()
                             << "deviation " << deviation << ", vocabulary " << vocabulary << ", top_k " << row.top_k << ", top_p "
                             << row.top_p << ", min_p " << row.min_p << ", temperature " << row.temperature);
                expect_distribution(histogram(logits, row, 500), reference::probabilities(doubles(logits), row));
            }
        }
    }
}

TEST_P(SampleTest, AmongEqualLogitsTruncationKeepsTheLowestIds) {
    const std::vector<float> logits(64, 0.5F);
    for (const SampleRow& row : {SampleRow{.top_k = 3}, SampleRow{.top_p = 3.0F / 64.0F}}) {
        const std::vector<int> counts = histogram(logits, row, 300);
        EXPECT_EQ(counts[0] + counts[1] + counts[2], std::accumulate(counts.begin(), counts.end(), 0));
        EXPECT_GT(std::min({counts[0], counts[1], counts[2]}), 0);
    }
}

TEST_P(SampleTest, PenaltiesBiasAndBansAreAppliedAsTheFormulaeSay) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<TokenId> prompt{3, 3, 9, 20};
    const std::vector<TokenId> output{5, 9, 5, 5, 30};
    const std::vector<TokenBias> bias{{7, 2.5F}, {9, -1.5F}};
    const std::vector<TokenId> banned{11, 30};
    const std::vector<SampleRow> rows{
        {.temperature = 0.9F, .repetition_penalty = 1.7F, .prompt = prompt, .output = output},
        {.temperature = 0.9F, .repetition_penalty = 0.6F, .prompt = prompt, .output = output},
        {.temperature = 0.9F, .presence_penalty = 1.2F, .prompt = prompt, .output = output},
        {.temperature = 0.9F, .frequency_penalty = 0.8F, .prompt = prompt, .output = output},
        {.temperature = 0.9F, .presence_penalty = -1.0F, .frequency_penalty = -0.3F, .prompt = prompt, .output = output},
        {.logit_bias = bias},
        {.banned = banned},
        {.temperature = 0.7F,
         .top_k = 20,
         .repetition_penalty = 1.2F,
         .presence_penalty = 0.5F,
         .frequency_penalty = 0.4F,
         .prompt = prompt,
         .output = output,
         .logit_bias = bias,
         .banned = banned},
    };
    // Likely tokens, with logits of both signs, are penalized, so that a wrong formula moves much of the probability.
    std::vector<float> logits(45, -4.0F);
    for (const auto& [token, logit] : std::vector<std::pair<std::size_t, float>>{
             {3, 1.5F}, {5, 2.0F}, {9, 1.0F}, {20, -0.6F}, {30, 1.2F}, {7, 0.5F}, {11, 1.1F}, {12, -0.3F}}) {
        logits[token] = logit;
    }
    for (SampleRow row : rows) {
        expect_distribution(histogram(logits, row, 1500), reference::probabilities(doubles(logits), row));
        // The largest adjusted logit is the greedy choice.
        const std::vector<double> adjusted = reference::adjusted(doubles(logits), row);
        row.temperature = 0.0F;
        EXPECT_EQ(sample(logits, {row})[0].token, std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin());
    }
}

// Pins: tokens at the end of a word or of the mask, and tokens that a bias or a penalty would make likely again.
TEST_P(SampleTest, OnlyTokensOfTheMaskAreDrawnWhateverElseIsAsked) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<TokenId> prompt{31, 40, 40};
    const std::vector<TokenId> output{40, 64, 64, 2};
    const std::vector<TokenBias> bias{{2, 9.0F}, {64, 1.0F}};
    const std::vector<TokenId> banned{5};
    const auto masked = [](std::int64_t vocabulary, const std::vector<TokenId>& tokens, std::int64_t words) {
        std::vector<std::uint32_t> mask(static_cast<std::size_t>(words));
        for (const TokenId token : tokens) {
            if (token < vocabulary) mask[static_cast<std::size_t>(token) / 32] |= 1U << (static_cast<std::uint32_t>(token) % 32U);
        }
        return mask;
    };
    for (const std::int64_t vocabulary : {32, 65, 400}) {
        // Bit 401 is beyond the vocabulary; the shorter masks end before the vocabulary does.
        for (const std::vector<TokenId>& tokens : {std::vector<TokenId>{0, 5, 31}, {31}, {1, 3, 31, 40, 64, 399}}) {
            for (const std::int64_t words : {std::int64_t{13}, (vocabulary + 31) / 32, std::int64_t{1}}) {
                std::vector<std::uint32_t> mask = masked(std::min<std::int64_t>(vocabulary, words * 32), tokens, words);
                if (words == 13) mask[12] |= 1U << 17U;
                SCOPED_TRACE(::testing::Message() << vocabulary << " tokens, " << words << " words");
                const std::vector<float> logits = random_logits(vocabulary, 1.0);
                SampleRow row{.temperature = 0.8F, .allowed = mask};
                expect_distribution(histogram(logits, row, 500), reference::probabilities(doubles(logits), row));
                if (vocabulary < 65) continue;
                row = {.top_k = 20,
                       .repetition_penalty = 1.3F,
                       .frequency_penalty = 0.5F,
                       .prompt = prompt,
                       .output = output,
                       .logit_bias = bias,
                       .banned = banned,
                       .allowed = mask};
                expect_distribution(histogram(logits, row, 500), reference::probabilities(doubles(logits), row));
                row.temperature = 0.0F;
                const std::vector<double> adjusted = reference::adjusted(doubles(logits), row);
                EXPECT_EQ(sample(logits, {row})[0].token, std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin());
            }
        }
    }
}

// Pins: rows of adapters with fewer tokens share a step with rows of more.
TEST_P(SampleTest, WhatIsAfterARowsVocabularyCountsNowhere) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<TokenId> used{3, 44};
    const std::vector<std::uint32_t> allowed{0xF0F0F0F0U, ~0U, ~0U, ~0U};
    std::vector<SampleRow> rows{
        {.temperature = 0.0F},
        {.temperature = 3.0F},
        {.top_k = 60},
        {.top_p = 0.9F},
        {.min_p = 0.01F},
        {.temperature = 2.0F, .repetition_penalty = 1.5F, .frequency_penalty = 0.5F, .prompt = used, .output = used},
        {.temperature = 2.0F, .allowed = allowed},
    };
    for (SampleRow& row : rows) {
        row.want_logprob = true;
        row.top_logprobs = 60;
        row.targets = used;
        row.want_ranks = true;
    }
    std::vector<float> wide = random_logits(100, 1.0);
    const std::vector<float> narrow(wide.begin(), wide.begin() + 45);
    for (const float beyond : {50.0F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        std::fill(wide.begin() + 45, wide.end(), beyond);
        const auto expected = sample(narrow, rows);
        std::vector<SampleRow> some = rows;
        for (SampleRow& row : some) row.vocabulary = 45;
        some.push_back({.vocabulary = 46, .temperature = 0.0F});  // between them, another size
        some.insert(some.begin(), {.vocabulary = 1, .temperature = 0.0F});
        const auto results = sample(wide, some, 1);
        EXPECT_EQ(results.front().token, 0);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const SampleResult& result = results[i + 1];
            EXPECT_TRUE(result.is_finite);
            EXPECT_EQ(result.token, expected[i].token) << i;
            EXPECT_EQ(result.ranks, expected[i].ranks);
            ASSERT_EQ(result.top.size(), 45U);
            for (std::size_t j = 0; j < 45; ++j) {
                EXPECT_EQ(result.top[j].token, expected[i].top[j].token);
                EXPECT_FLOAT_EQ(result.top[j].logprob, expected[i].top[j].logprob);
            }
            EXPECT_FLOAT_EQ(result.logprob, expected[i].logprob);
        }
    }
}

// Pins: every token of a long context is counted, and rows do not share lists.
TEST_P(SampleTest, PenaltiesCountLongContextsOfSeveralRows) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<float> logits = random_logits(300, 1.0);
    std::vector<std::vector<TokenId>> lists;
    for (int i = 0; i < 6; ++i) {
        auto& list = lists.emplace_back();
        for (int j = 0; j < 700; ++j) list.push_back(static_cast<TokenId>(number(0, 299 - 50 * i)));
    }
    std::vector<SampleRow> rows;
    for (std::size_t i = 0; i < 6; ++i) {
        SampleRow row{.temperature = 0.0F, .prompt = lists[i], .output = lists[5 - i]};
        if (i % 3 != 0) row.repetition_penalty = 1.5F;
        if (i % 3 != 1) row.frequency_penalty = 0.125F;
        if (i % 2 == 0) row.presence_penalty = 0.25F;
        rows.push_back(row);
    }
    rows.push_back({.temperature = 0.0F});
    const auto results = sample(logits, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<double> adjusted = reference::adjusted(doubles(logits), rows[i]);
        EXPECT_EQ(results[i].token, std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin()) << "row " << i;
    }
}

TEST_P(SampleTest, LogProbabilitiesAreThoseOfTheModelBeforeAnyPenalty) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<TokenId> banned{1, 2, 3};
    const std::vector<TokenId> targets{44, 0, 2};
    std::vector<float> logits = random_logits(3000, 2.0);
    logits[77] = logits[1234] = 9.5F;  // equal: the lower id comes first
    // A structure lets every third token through.
    std::vector<std::uint32_t> allowed(94);
    for (std::size_t token = 0; token < logits.size(); token += 3) allowed[token / 32] |= 1U << (token % 32);
    const SampleRow row{
        .temperature = 0.5F, .banned = banned, .allowed = allowed, .seed = 4, .want_logprob = true, .top_logprobs = 20, .targets = targets};
    const std::vector<double> want = reference::log_softmax(doubles(logits));
    const auto close = tolerance("logprob", weights()) * 10.0;

    const SampleResult result = sample(logits, {row})[0];
    EXPECT_EQ(result.token % 3, 0);
    EXPECT_NEAR(static_cast<double>(result.logprob), want[static_cast<std::size_t>(result.token)], close);
    ASSERT_EQ(result.targets.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(static_cast<double>(result.targets[i]), want[static_cast<std::size_t>(targets[i])], close);
    std::vector<TokenId> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)]; });
    ASSERT_EQ(result.top.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(result.top[i].token, order[i]);
        EXPECT_NEAR(static_cast<double>(result.top[i].logprob), want[static_cast<std::size_t>(order[i])], close);
    }

    // Only log-probabilities, no draw; and more of them than the vocabulary has.
    const std::vector<float> few{0.0F, 1.0F, 0.0F};
    const SampleResult all = sample(few, {{.draw = false, .top_logprobs = 20}})[0];
    ASSERT_EQ(all.top.size(), 3U);
    EXPECT_EQ(all.top[0].token, 1);
    EXPECT_EQ(all.top[1].token, 0);
    EXPECT_EQ(all.top[2].token, 2);
}

// Pins: a target's rank is its place in the order of the most likely tokens, however far down it stands.
TEST_P(SampleTest, RanksArePlacesInTheOrderOfTheMostLikelyTokens) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    std::vector<float> logits = random_logits(3000, 2.0);
    logits[1234] = logits[77] = 9.5F;  // equal: the lower id comes first
    logits[5] = -infinity;
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    std::vector<TokenId> targets{1234, 77, 5, 0, 2999, 1500};
    const std::vector<SampleRow> rows{{.draw = false, .top_logprobs = 20, .targets = targets, .want_ranks = true},
                                      {.draw = false, .targets = targets},
                                      {.draw = false, .targets = std::span(targets).subspan(1, 1), .want_ranks = true}};
    const auto results = sample(logits, rows);
    ASSERT_EQ(results[0].ranks.size(), targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const auto place = std::ranges::find(order, static_cast<std::size_t>(targets[i]));
        EXPECT_EQ(results[0].ranks[i], place - order.begin() + 1) << "token " << targets[i];
        for (std::size_t top = 0; top < results[0].top.size(); ++top) {
            if (results[0].top[top].token != targets[i]) continue;
            EXPECT_EQ(results[0].ranks[i], static_cast<std::int32_t>(top) + 1);
        }
    }
    EXPECT_TRUE(results[1].ranks.empty());
    EXPECT_EQ(results[2].ranks, std::vector<std::int32_t>{results[0].ranks[1]});
}

TEST_P(SampleTest, ADrawDependsOnSeedAndPositionAloneNotOnItsNeighbours) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<float> logits = random_logits(5000, 1.0);
    std::vector<SampleRow> rows;
    for (std::uint64_t i = 0; i < 40; ++i)
        rows.push_back({.top_p = i % 2 == 0 ? 1.0F : 0.9F, .seed = 99, .position = i / 2, .want_logprob = true});
    const auto together = sample(logits, rows, 3);
    std::set<TokenId> distinct;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto alone = sample(logits, {rows[i]}, 1);
        EXPECT_EQ(alone[0].token, together[i].token);
        EXPECT_EQ(alone[0].logprob, together[i].logprob);
        distinct.insert(alone[0].token);
    }
    EXPECT_GT(distinct.size(), 15U);
}

// Pins: a vocabulary large enough for a GPU's full block of threads; draws that differ between devices.
TEST_P(SampleTest, OfALargeVocabularyTheTokenIsDrawnThatChanceFallsOnInTheOrderOfIds) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t vocabulary = 33'001;
    const std::vector<TokenId> often{7, 32'999, 7, 20'000};
    const std::vector<TokenId> banned{33'000, 12};
    const std::vector<SampleRow> rows{
        {.seed = 1},
        {.temperature = 0.7F, .seed = 2},
        {.top_k = 50, .seed = 3},
        {.top_k = 20'000, .seed = 4},
        {.top_p = 0.9F, .seed = 5},
        {.top_p = 0.2F, .seed = 6},
        {.min_p = 0.05F, .seed = 7},
        {.temperature = 0.8F, .top_k = 1000, .top_p = 0.95F, .min_p = 0.01F, .seed = 8},
        {.top_k = 400, .frequency_penalty = 0.5F, .output = often, .banned = banned, .seed = 9},
    };
    const std::vector<float> equal(vocabulary, -0.25F);
    for (const std::vector<float>& logits : {random_logits(vocabulary, 2.0), equal}) {
        const auto results = sample(logits, rows);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::vector<double> probabilities = reference::probabilities(doubles(logits), rows[i]);
            const auto drawn = probabilities.begin() + results[i].token;
            const double before = std::accumulate(probabilities.begin(), drawn, 0.0);
            const double chance = uniform(rows[i].seed, rows[i].position);
            EXPECT_GT(*drawn, 0.0) << "row " << i;
            // The weights are float32.
            EXPECT_NEAR(chance, before + *drawn / 2.0, *drawn / 2.0 + 1e-5) << "row " << i << ", token " << results[i].token;
        }
    }
}

std::vector<Device> float32_devices() {
    std::vector<Device> result;
    for (const Device& device : devices()) {
        if (device.weights == Format::float32) result.push_back(device);
    }
    return result;
}

const tests::Labelled sampling_with_tsan{"*.PenaltiesCount*/cuda_*", {tests::Label::tsan_cuda}};
INSTANTIATE_TEST_SUITE_P(Op, SampleTest, ::testing::ValuesIn(float32_devices()), name_of);

// The known answers that were published with the generator (Random123's kat_vectors).
TEST(Philox, GivesThePublishedNumbers) {
    using Words = std::array<std::uint32_t, 4>;
    EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, ~std::uint64_t{0}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace

}  // namespace lorry::kernels::testing
