// The engine's bookkeeping over the hash model: with chunks, shared prefixes, forks, preemption and cancels, each request gets the tokens
// that it would get alone.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "schema/json.h"
#include "tests/support/hash_engine.h"

namespace lorry::engine {
namespace {

using tests::hash_logprob;
using tests::hash_of;
using tests::hash_rank;
using tests::hash_tokens;
using tests::prompt_of;
using tests::request_of;

struct Rig : tests::HashEngine {
    Rig(std::int64_t steps_queued, std::int64_t blocks, const EngineOptions& engine_options = {})
        : HashEngine(steps_queued, blocks, 200, engine_options) {}
};

// Parameter: how many steps may be queued.
class EngineTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(EngineTest, DrawsWhatTheModelSaysUntilMaxTokens) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(9, 1), 12));
    const auto results = rig.run();
    EXPECT_EQ(results.at(1).tokens, hash_tokens(prompt_of(9, 1), 12));
    EXPECT_EQ(results.at(1).finish, FinishReason::length);
    EXPECT_EQ(results.at(1).prompt_tokens, 9);
}

TEST_P(EngineTest, StopsAtAnEndTokenAndLeavesItOutOfTheText) {
    Rig rig(GetParam(), 50);
    const auto tokens = hash_tokens(prompt_of(5, 2), 10);
    Request request = request_of(1, prompt_of(5, 2), 10);
    request.drawing = shared({.end_tokens = {tokens[4]}});
    rig.engine->submit(request);
    const auto results = rig.run();
    const std::span<const TokenId> before_end(tokens.data(), 4);
    EXPECT_EQ(results.at(1).tokens.size(), 5U);
    EXPECT_EQ(results.at(1).finish, FinishReason::stop);
    EXPECT_EQ(results.at(1).text, tests::gpt2_tokenizer().decode(before_end, true));
}

TEST_P(EngineTest, BansEndTokensUntilMinTokensWereDrawn) {
    Rig rig(GetParam(), 50);
    const auto tokens = hash_tokens(prompt_of(5, 2), 10);
    Request request = request_of(1, prompt_of(5, 2), 10);
    request.drawing = shared({.sampling = {.min_tokens = 3}, .end_tokens = {tokens[0]}});
    rig.engine->submit(request);
    EXPECT_GE(rig.run().at(1).tokens.size(), 3U);
}

TEST_P(EngineTest, EndsAtTheContextLimit) {
    Rig rig(GetParam(), 5);
    EXPECT_EQ(rig.engine->context_max(), 20);
    rig.engine->submit(request_of(1, prompt_of(15, 3), 100));
    const auto results = rig.run();
    EXPECT_EQ(results.at(1).tokens.size(), 5U);
    EXPECT_EQ(results.at(1).finish, FinishReason::length);
}

TEST_P(EngineTest, ScoresAPromptAndItsSuccessors) {
    Rig rig(GetParam(), 50);
    Request request = request_of(1, prompt_of(11, 4), 0);
    request.score_begin = 2;
    request.score_ranks = true;
    request.final_targets = {7, 9};
    rig.engine->submit(request);
    const auto results = rig.run();
    const auto prompt = prompt_of(11, 4);
    ASSERT_EQ(results.at(1).scores.size(), 8U);
    for (std::size_t i = 0; i < 8; ++i) {
        const std::uint64_t hash = hash_of(std::span(prompt).first(i + 3));
        EXPECT_EQ(results.at(1).scores[i].token, prompt[i + 3]);
        EXPECT_EQ(results.at(1).scores[i].logprob, hash_logprob(hash, prompt[i + 3]));
        EXPECT_EQ(results.at(1).scores[i].rank, hash_rank(hash, prompt[i + 3]));
    }
    EXPECT_EQ(results.at(1).final_targets, (std::vector<float>{hash_logprob(hash_of(prompt), 7), hash_logprob(hash_of(prompt), 9)}));
}

TEST_P(EngineTest, TakesASharedPrefixFromTheIndex) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(40, 5), 3));
    rig.run();
    std::vector<TokenId> longer = prompt_of(40, 5);
    longer.push_back(1);
    rig.engine->submit(request_of(2, longer, 3));
    const auto results = rig.run();
    EXPECT_EQ(results.at(2).cached_tokens, 40);
    EXPECT_EQ(results.at(2).tokens, hash_tokens(longer, 3));
}

// Prompts whose common tokens end within a block, as in most jobs that share an instruction.
TEST_P(EngineTest, CopiesTheStartOfABlockThatAnotherPromptBeganInTheSameWay) {
    for (const std::int64_t equal : {3, 9, 10, 11, 12}) {
        SCOPED_TRACE(equal);
        Rig rig(GetParam(), 50);
        rig.engine->submit(request_of(1, prompt_of(40, 5), 3));
        rig.run();
        std::vector<TokenId> prompt = prompt_of(equal, 5);
        prompt.push_back(static_cast<TokenId>((prompt_of(equal + 1, 5).back() + 1) % tests::hash_vocabulary));
        for (std::int32_t i = 0; i < 5; ++i) prompt.push_back(i);
        rig.engine->submit(request_of(2, prompt, 3));
        const auto results = rig.run();
        EXPECT_EQ(results.at(2).cached_tokens, equal);
        EXPECT_EQ(results.at(2).tokens, hash_tokens(prompt, 3));
    }
}

TEST_P(EngineTest, ComputesAPromptAgainWhereAPoolHasNoRoomForItBesideWhatItWouldCopy) {
    Rig rig(GetParam(), 4);
    rig.engine->submit(request_of(1, prompt_of(12, 5), 1));
    rig.run();
    std::vector<TokenId> prompt = prompt_of(6, 5);
    for (std::int32_t i = 0; i < 8; ++i) prompt.push_back(i);
    rig.engine->submit(request_of(2, prompt, 2));
    const auto results = rig.run();
    EXPECT_EQ(results.at(2).cached_tokens, 4);
    EXPECT_EQ(results.at(2).tokens, hash_tokens(prompt, 2));
}

TEST_P(EngineTest, ComputesThePromptOfForksOnce) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(22, 6), 5));
    for (RequestId id = 2; id < 6; ++id) {
        Request fork = request_of(id, prompt_of(22, 6), 5);
        fork.fork = Fork{.leader = 1, .tokens = 21};
        rig.engine->submit(fork);
    }
    const auto results = rig.run();
    for (RequestId id = 1; id < 6; ++id) EXPECT_EQ(results.at(id).tokens, hash_tokens(prompt_of(22, 6), 5));
    EXPECT_EQ(rig.engine->stats().prompt_tokens, 22U + 4U) << "each fork computes the last prompt token only";
}

TEST_P(EngineTest, LetsForksOfACancelledLeaderGoOnAlone) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(22, 6), 5));
    Request fork = request_of(2, prompt_of(22, 6), 5);
    fork.fork = Fork{.leader = 1, .tokens = 21};
    rig.engine->submit(fork);
    rig.engine->cancel(1);
    EXPECT_EQ(rig.run().at(2).tokens, hash_tokens(prompt_of(22, 6), 5));
}

TEST_P(EngineTest, StreamsDeltasThatAddUpToTheText) {
    Rig rig(GetParam(), 50);
    Request request = request_of(1, prompt_of(9, 7), 40);
    request.stream = true;
    request.drawing = shared({.sampling = {.stop = {"\x7F never \x7F"}}});
    rig.engine->submit(request);
    std::string streamed;
    std::string text;
    while (rig.engine->has_work()) {
        rig.engine->step(rig.output);
        for (const Delta& delta : rig.output.deltas) streamed += delta.text;
        for (const Result& result : rig.output.results) text = result.text;
    }
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(streamed, text);
}

TEST_P(EngineTest, SaysNothingMoreOfACancelledRequest) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(9, 1), 50));
    rig.engine->submit(request_of(2, prompt_of(9, 2), 5));
    rig.engine->step(rig.output);
    rig.engine->cancel(1);
    const auto results = rig.run();
    EXPECT_FALSE(results.contains(1));
    EXPECT_EQ(results.at(2).tokens.size(), 5U);
    EXPECT_EQ(rig.engine->stats().kv_blocks_used, 0);
}

// Pins: results of a queued step must not go to the request that took the cancelled one's place or id.
TEST_P(EngineTest, GivesNothingOfAQueuedStepToTheRequestAfterACancelledOne) {
    Rig rig(GetParam(), 50);
    for (int i = 0; i < 4; ++i) {
        rig.engine->submit(request_of(1, prompt_of(9, i), 50));
        rig.engine->step(rig.output);
        rig.engine->step(rig.output);
        rig.engine->cancel(1);
        rig.engine->check_integrity();
    }
    rig.engine->submit(request_of(1, prompt_of(6, 7), 5));
    EXPECT_EQ(rig.run().at(1).tokens, hash_tokens(prompt_of(6, 7), 5));
    EXPECT_EQ(rig.engine->stats().kv_blocks_used, 0);
}

// An end that only the drawn token reveals costs a row in each further queued step; an end that is known beforehand costs none.
TEST_P(EngineTest, ComputesRowsBehindAnEndOnlyWhereItIsNotYetKnown) {
    Rig length(GetParam(), 50);
    length.engine->submit(request_of(1, prompt_of(5, 2), 7));
    length.run();
    EXPECT_EQ(length.engine->stats().rows, 5U + 6U);
    EXPECT_EQ(length.engine->stats().steps, 7U);

    const auto tokens = hash_tokens(prompt_of(5, 2), 10);
    Rig stopped(GetParam(), 50);
    Request request = request_of(1, prompt_of(5, 2), 10);
    request.drawing = shared({.end_tokens = {tokens[6]}});
    stopped.engine->submit(request);
    EXPECT_EQ(stopped.run().at(1).tokens.size(), 7U);
    EXPECT_EQ(static_cast<std::int64_t>(stopped.engine->stats().rows), 5 + 6 + GetParam() - 1);
    EXPECT_EQ(stopped.engine->stats().drawn_tokens, 7U);
    EXPECT_EQ(stopped.engine->stats().kv_blocks_used, 0);
}

TEST_P(EngineTest, PreemptsNobodyForBlocksThatAQueuedStepGivesBack) {
    Rig rig(GetParam(), 3);
    rig.engine->submit(request_of(1, prompt_of(4, 1), 2));
    rig.engine->submit(request_of(2, prompt_of(3, 2), 6));
    const auto results = rig.run();
    EXPECT_EQ(results.at(1).tokens, hash_tokens(prompt_of(4, 1), 2));
    EXPECT_EQ(results.at(2).tokens, hash_tokens(prompt_of(3, 2), 6));
    EXPECT_EQ(rig.engine->stats().preemptions, 0U);
}

TEST_P(EngineTest, LeavesTheBackendToTheNextEngineWithNoStepQueued) {
    Rig rig(GetParam(), 50);
    rig.engine->submit(request_of(1, prompt_of(9, 1), 50));
    rig.engine->step(rig.output);
    rig.engine = std::make_unique<Engine>(*rig.model, *rig.backend, tests::gpt2_tokenizer(), rig.options);
    rig.engine->submit(request_of(1, prompt_of(6, 2), 9));
    EXPECT_EQ(rig.run().at(1).tokens, hash_tokens(prompt_of(6, 2), 9));
}

// "The same instruction, a million inputs": a common prefix of many prompts is computed once, even if all arrive together.
TEST_P(EngineTest, ComputesACommonPrefixOnceForAllThatComeTogether) {
    Rig rig(GetParam(), 2000, {.sequences_max = 64, .step_rows_max = 4096});
    const auto instruction = prompt_of(140, 1);
    std::map<RequestId, std::vector<TokenId>> prompts;
    for (RequestId id = 1; id <= 64; ++id) {
        std::vector<TokenId> prompt = instruction;
        for (const TokenId token : prompt_of(40, static_cast<std::int32_t>(id) + 10)) prompt.push_back(token);
        rig.engine->submit(request_of(id, prompt, 3));
        prompts.emplace(id, std::move(prompt));
    }
    const auto results = rig.run();
    for (const auto& [id, prompt] : prompts) EXPECT_EQ(results.at(id).tokens, hash_tokens(prompt, 3));
    EXPECT_EQ(rig.engine->stats().prompt_tokens, 140U + 64 * 40U);
    EXPECT_EQ(static_cast<std::int64_t>(rig.engine->stats().steps), 3 + GetParam()) << "the others start once that step was read";
}

TEST_P(EngineTest, LetsOthersGoAheadOfThoseThatWaitForAPrefix) {
    Rig rig(GetParam(), 500, {.sequences_max = 8, .step_rows_max = 60});
    for (RequestId id = 1; id <= 3; ++id) rig.engine->submit(request_of(id, prompt_of(40, 1), 2));
    rig.engine->submit(request_of(4, prompt_of(10, 2), 2));
    rig.engine->step(rig.output);
    EXPECT_EQ(rig.output.started, (std::vector<RequestId>{1, 4}));
    for (std::int64_t unread = 1; unread < GetParam(); ++unread) {
        rig.engine->step(rig.output);
        EXPECT_TRUE(rig.output.started.empty());
    }
    rig.engine->step(rig.output);
    EXPECT_EQ(rig.output.started, (std::vector<RequestId>{2, 3}));
    rig.run();
}

TEST_P(EngineTest, WithoutAPrefixIndexNobodyWaitsForOthers) {
    Rig rig(GetParam(), 500, {.sequences_max = 8, .step_rows_max = 200, .prefix_cache = false});
    for (RequestId id = 1; id <= 3; ++id) rig.engine->submit(request_of(id, prompt_of(40, 1), 2));
    rig.engine->step(rig.output);
    EXPECT_EQ(rig.output.started.size(), 3U);
    rig.run();
}

// Streamed echo: the prompt's log-probabilities are handed out before any text of the request or of its forks.
TEST_P(EngineTest, HandsOutAPromptsScoresOnceAndBeforeAnyText) {
    for (const std::int64_t rows : {7, 100}) {
        Rig rig(GetParam(), 50, {.step_rows_max = rows});
        const auto prompt = prompt_of(22, 6);
        Request leader = request_of(1, prompt, 5);
        leader.stream = true;
        leader.score_begin = 0;
        rig.engine->submit(leader);
        Request fork = request_of(2, prompt, 5);
        fork.stream = true;
        fork.fork = Fork{.leader = 1, .tokens = 21};
        rig.engine->submit(fork);
        Request nothing_drawn = request_of(3, prompt_of(9, 3), 0);
        nothing_drawn.stream = true;
        nothing_drawn.score_begin = 0;
        rig.engine->submit(nothing_drawn);
        Request one_token = request_of(4, {5}, 0);
        one_token.stream = true;
        one_token.score_begin = 0;
        rig.engine->submit(one_token);
        std::vector<std::pair<RequestId, Delta::ScoredPrompt>> scored;
        std::map<RequestId, Result> results;
        while (rig.engine->has_work()) {
            rig.engine->step(rig.output);
            for (Delta& delta : rig.output.deltas) {
                EXPECT_FALSE(delta.empty());
                if (delta.prompt) scored.emplace_back(delta.id, *delta.prompt);
                if (!delta.text.empty()) {
                    EXPECT_TRUE(std::ranges::any_of(scored, [](const auto& one) { return one.first == 1; })) << "text of " << delta.id;
                }
            }
            for (Result& result : rig.output.results) results.emplace(result.id, std::move(result));
        }
        ASSERT_EQ(scored.size(), 3U);
        for (const auto& [id, one] : scored) {
            EXPECT_EQ(one.scores.size(), results.at(id).scores.size());
            EXPECT_EQ(one.first, id == 1 ? prompt.front() : id == 3 ? prompt_of(9, 3).front() : 5);
        }
    }
}

void expect_scores(const Request& request, const Result& result) {
    const auto size = static_cast<std::int64_t>(request.prompt.size());
    if (request.score_begin) {
        EXPECT_EQ(static_cast<std::int64_t>(result.scores.size()), std::max<std::int64_t>(0, size - 1 - *request.score_begin));
        for (std::size_t i = 0; i < result.scores.size(); ++i) {
            const std::size_t seen = static_cast<std::size_t>(*request.score_begin) + i + 1;
            const std::uint64_t hash = hash_of(std::span(request.prompt).first(seen));
            EXPECT_EQ(result.scores[i].logprob, hash_logprob(hash, request.prompt[seen]));
            EXPECT_EQ(result.scores[i].rank, request.score_ranks ? hash_rank(hash, request.prompt[seen]) : 0);
        }
    }
    if (!request.final_targets.empty()) {
        ASSERT_EQ(result.final_targets.size(), 3U);
        EXPECT_EQ(result.final_targets[1], hash_logprob(hash_of(request.prompt), 2));
    }
}

// Random requests with shared prefixes, forks, scores and cancels over a pool that is far too small: results must be the same as alone.
TEST_P(EngineTest, GivesEveryRequestItsOwnTokensUnderRandomPressure) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](std::int64_t from, std::int64_t to) {
        return from + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(to - from + 1));
    };
    std::uint64_t preemptions = 0;
    for (int round = 0; round < 60; ++round) {
        // In every third round, many sequences share the smallest pool that holds one of them.
        const bool is_tight = round % 3 == 0;
        EngineOptions options{
            .sequences_max = pick(is_tight ? 6 : 1, 9), .step_rows_max = pick(is_tight ? 20 : 1, 40), .fairness_patience = pick(1, 500)};
        options.prefix_cache = round % 5 != 0;
        Rig rig(GetParam(), pick(12, is_tight ? 12 : 60), options);
        std::map<RequestId, Request> asked;
        std::map<RequestId, Result> results;
        RequestId next = 1;
        for (int burst = 0; burst < 12; ++burst) {
            for (std::int64_t count = pick(0, 4); count > 0; --count) {
                Request request = request_of(next, prompt_of(pick(1, 30), static_cast<std::int32_t>(pick(1, 4))), pick(0, 14));
                request.priority = static_cast<std::int32_t>(pick(0, 2));
                if (pick(0, 3) == 0) request.score_begin = pick(0, 10);
                request.score_ranks = request.score_begin && pick(0, 1) == 0;
                if (pick(0, 3) == 0) request.final_targets = {1, 2, 3};
                if (pick(0, 2) == 0 && asked.contains(next - 1) && asked.at(next - 1).prompt.size() > 1) {
                    request.prompt = asked.at(next - 1).prompt;
                    request.score_begin.reset();
                    request.fork = Fork{.leader = next - 1, .tokens = static_cast<std::int64_t>(request.prompt.size()) - 1};
                }
                if (pick(0, 1) == 0 && request.max_tokens > 0) {
                    request.drawing = shared({.end_tokens = {hash_tokens(request.prompt, pick(1, request.max_tokens)).back()}});
                }
                asked.emplace(next, request);
                rig.engine->submit(request);
                ++next;
            }
            if (pick(0, 3) == 0 && next > 1) {
                const auto victim = static_cast<RequestId>(pick(1, static_cast<std::int64_t>(next) - 1));
                rig.engine->cancel(victim);
                if (!results.contains(victim)) asked.at(victim).max_tokens = -1;  // nothing is expected of it
            }
            for (std::int64_t steps = pick(0, 6); steps > 0 && rig.engine->has_work(); --steps) {
                rig.engine->step(rig.output);
                rig.engine->check_integrity();
                for (Result& result : rig.output.results) results.emplace(result.id, std::move(result));
            }
        }
        for (auto& [id, result] : rig.run()) results.emplace(id, std::move(result));
        for (const auto& [id, request] : asked) {
            if (request.max_tokens < 0) continue;
            ASSERT_TRUE(results.contains(id));
            const Result& result = results.at(id);
            std::vector<TokenId> expected = hash_tokens(request.prompt, request.max_tokens);
            const auto end = std::ranges::find_first_of(expected, request.drawing->end_tokens);
            if (end != expected.end()) expected.erase(end + 1, expected.end());
            EXPECT_EQ(result.tokens, expected) << "request " << id << " of round " << round;
            expect_scores(request, result);
        }
        EXPECT_EQ(rig.engine->stats().kv_blocks_used, 0) << "all blocks were released";
        preemptions += rig.engine->stats().preemptions;
    }
    EXPECT_GT(preemptions, 0U) << "the pools were too large to test anything";
}

INSTANTIATE_TEST_SUITE_P(StepsQueued, EngineTest, testing::Values(1, 2));

}  // namespace
}  // namespace lorry::engine
