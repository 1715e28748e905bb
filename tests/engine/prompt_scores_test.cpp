// Log-probabilities, ranks and likeliest tokens of prompts (prompt_logprobs) are those of transformers' logits, however a prompt is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/model_rig.h"

namespace lorry::engine {
namespace {

constexpr const char* scored_checkpoint = "llama-gqa-linear";
constexpr std::int32_t top = 20;
constexpr double close = 2e-4;  // twice what model_test.cpp allows a logit

// The engine's scores of a golden case. rows_max: of a step.
std::vector<TokenLogprobs> scores_of(const std::vector<TokenId>& prompt, std::optional<std::string> adapter, std::int64_t rows_max) {
    const tests::ModelRig rig({}, scored_checkpoint, {.step_rows_max = rows_max});
    Request request{.id = 1, .prompt = prompt, .max_tokens = 1};
    if (adapter) request.adapter = tests::adapter_named(*adapter, rig.model->config());
    rig.run({request});  // from now on the prompt is in the prefix cache
    request.id = 2;
    request.score_begin = 0;
    request.score_top = top;
    request.score_ranks = true;
    return rig.run({request}).at(2).scores;
}

// Tokens whose logits differ by less than `close` may change places.
void expect_as_logits_say(const TokenLogprobs& score, TokenId token, std::span<const float> logits) {
    const double largest = *std::ranges::max_element(logits);
    const double sum =
        std::accumulate(logits.begin(), logits.end(), 0.0, [&](double all, double logit) { return all + std::exp(logit - largest); });
    const auto logprob = [&](TokenId of) { return static_cast<double>(logits[static_cast<std::size_t>(of)]) - largest - std::log(sum); };
    const auto above = [&](double bar) {
        return std::ranges::count_if(logits, [&](float logit) { return static_cast<double>(logit) - largest - std::log(sum) > bar; });
    };
    EXPECT_EQ(score.token, token);
    EXPECT_NEAR(static_cast<double>(score.logprob), logprob(token), close);
    EXPECT_GT(score.rank, above(logprob(token) + close));
    EXPECT_LE(score.rank, above(logprob(token) - close));
    ASSERT_EQ(std::ssize(score.top), top);
    for (std::size_t i = 0; i < score.top.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(score.top[i].logprob), logprob(score.top[i].token), close);
        EXPECT_GT(static_cast<std::int64_t>(i) + 1, above(logprob(score.top[i].token) + close));
        EXPECT_LE(static_cast<std::int64_t>(i) + 1, above(logprob(score.top[i].token) - close));
        if (score.top[i].token != token) continue;
        EXPECT_EQ(score.rank, static_cast<std::int32_t>(i) + 1);
    }
}

void expect_golden(const std::string& folder, std::optional<std::string> adapter) {
    const tests::Golden golden = tests::read_golden(tests::golden_folder() / folder);
    const auto vocabulary = static_cast<std::size_t>(golden.vocabulary);
    for (const tests::GoldenCase& one : golden.cases) {
        for (const std::int64_t rows_max : {5, 512}) {
            SCOPED_TRACE(folder + ", steps of " + std::to_string(rows_max) + " rows");
            const std::vector<TokenLogprobs> scores = scores_of(one.prompt, adapter, rows_max);
            ASSERT_EQ(scores.size(), one.prompt.size() - 1);
            for (std::size_t i = 0; i < scores.size(); ++i) {
                expect_as_logits_say(scores[i], one.prompt[i + 1], std::span(one.logits).subspan(i * vocabulary, vocabulary));
            }
        }
    }
}

TEST(PromptScores, AreThoseOfTransformersLogits) {
    expect_golden(std::string("checkpoints/") + scored_checkpoint, std::nullopt);
    expect_golden("adapters/plain", "plain");
}

}  // namespace
}  // namespace lorry::engine
