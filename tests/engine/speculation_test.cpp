// Promise 4 with drafts: answers are the same bit for bit with and without them, whatever a request asks for and however its steps are cut.
// Pins: a draft that was taken though the sampler draws another token, and what a draft that was not taken leaves in the cache, the index,
// the grammar, the penalties or the text.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/text/grammar.h"
#include "tests/support/labels.h"
#include "tests/support/model_rig.h"

namespace lorry::engine {
namespace {

using kernels::Format;
using tests::ModelRig;
using tests::Stored;
using tests::told;

constexpr const char* checkpoint = "llama-gqa-linear";
// "~" of the checkpoint's vocabulary, in which token t is the character '!' + t.
constexpr TokenId end_token = 93;

class Requests {
public:
    Requests(const ModelConfig& config, std::uint64_t seed) : config_(config), random_(seed) {
        GrammarCompiler compiler(tests::gpt2_tokenizer(), config.vocabulary, {end_token});
        for (const char* const regex : {R"((\{"a":[0-2],"is":"[xy]{2}"\}[,;]){2,9})", "(ab|abc|ba){6,40}", "[a-c]{5,60}"}) {
            grammars_.push_back(*compiler.compile({.kind = schema::Structure::Kind::regex, .text = regex}));
        }
    }

    std::vector<Request> make(std::size_t count) {
        std::vector<Request> requests;
        for (std::size_t i = 0; i < count; ++i) requests.push_back(one(requests.size() + 1));
        // Samples of one prompt.
        for (std::size_t i = 0; i < count / 4; ++i) {
            Request fork = requests[i];
            if (fork.prompt.size() < 2) continue;
            fork.id = requests.size() + 1;
            fork.seed = random_();
            fork.score_begin.reset();
            fork.final_targets.clear();
            fork.fork = Fork{.leader = requests[i].id, .tokens = std::ssize(fork.prompt) - 1};
            requests.push_back(std::move(fork));
        }
        return requests;
    }

private:
    bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
    }

    // Few different tokens, so that guesses are often right.
    Request one(RequestId id) {
        Request request{.id = id};
        const TokenId first = static_cast<TokenId>(between(0, 60));
        const std::int64_t different = between(2, 6);
        const std::int64_t length = between(1, 70);
        for (std::int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<TokenId>(first + between(0, different - 1)));
        request.max_tokens = between(1, 60);
        request.seed = random_();
        request.stream = chance(50);
        if (chance(60)) request.adapter = tests::adapter_named(std::vector{"plain", "patterns", "saved-head", "lm-head"}[id % 4], config_);
        if (chance(10)) request.score_begin = 0;
        if (chance(10)) request.final_targets = {3, 5};
        request.drawing = shared(drawing_of(first, different));
        return request;
    }

    Drawing drawing_of(TokenId first, std::int64_t different) {
        Drawing drawing;
        drawing.end_tokens = {end_token};
        schema::Sampling& sampling = drawing.sampling;
        sampling.temperature = std::vector{0.0, 0.3, 0.9, 1.3}[random_() % 4];
        if (chance(25)) sampling.top_p = 0.7;
        if (chance(15)) sampling.top_k = 3;
        if (chance(15)) sampling.min_p = 0.2;
        if (chance(25)) sampling.repetition_penalty = 1.1;
        if (chance(25)) sampling.frequency_penalty = 0.3;
        if (chance(15)) sampling.presence_penalty = -0.4;
        if (chance(30)) sampling.logprobs = 2;
        if (chance(30)) sampling.min_tokens = static_cast<std::int32_t>(between(1, 30));
        if (chance(20)) sampling.include_stop_text = true;
        if (chance(25)) drawing.logit_bias = {{.token = first, .bias = 2.5F}, {.token = end_token, .bias = 3.0F}};
        if (chance(40)) {
            drawing.grammar = grammars_[random_() % grammars_.size()];
        } else if (chance(70)) {
            drawing.allowed.assign(static_cast<std::size_t>(config_.vocabulary + 31) / 32, 0);
            const auto allow = [&](TokenId token) { drawing.allowed[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32); };
            for (std::int64_t i = 0; i < different; ++i) allow(static_cast<TokenId>(first + i));
            allow(end_token);
        }
        if (chance(30)) sampling.stop = {std::string(2, static_cast<char>('!' + first)), "ba"};
        if (chance(20)) {
            if (drawing.allowed.empty()) drawing.allowed.assign(static_cast<std::size_t>(config_.vocabulary + 31) / 32, ~0U);
            drawing.bad_words = {{first, first}, {static_cast<TokenId>(first + 1), first}, {64, 65, 66}};
        }
        if (chance(15)) think(drawing);
        return drawing;
    }

    void think(Drawing& drawing) {
        static constexpr ThoughtMarks marks{.start = "(", .end = ")"};
        if (drawing.allowed.empty()) drawing.allowed.assign(static_cast<std::size_t>(config_.vocabulary + 31) / 32, ~0U);
        drawing.thinking = Thinking{.marks = &marks, .begin = ThoughtState::thinking, .start_tokens = {7}, .end_tokens = {8}, .budget = 7};
    }

    const ModelConfig config_;
    std::mt19937_64 random_;
    std::vector<std::shared_ptr<const Grammar>> grammars_;
};

// Also checks that streamed text is the result's.
std::map<RequestId, std::string> run(Engine& engine, const std::vector<Request>& requests) {
    for (const Request& request : requests) engine.submit(request);
    std::map<RequestId, std::string> results;
    std::map<RequestId, std::string> streamed;
    StepOutput output;
    while (engine.has_work()) {
        if (!engine.step(output)) engine.wait_for_adapters(std::chrono::milliseconds(20));
        engine.check_integrity();
        for (const Delta& delta : output.deltas) streamed[delta.id] += delta.text;
        for (const Result& result : output.results) {
            results[result.id] = told(result);
            const auto text = streamed.find(result.id);
            if (text == streamed.end() || result.error) continue;
            EXPECT_EQ(text->second, result.text) << "request " << result.id;
        }
    }
    return results;
}

class Speculation : public testing::TestWithParam<Stored> {
protected:
    void SetUp() override {
        ModelRig rig(GetParam(), checkpoint, {.steps_queued_max = 1});
        const std::uint64_t seed = std::random_device{}();
        RecordProperty("seed", std::to_string(seed));
        std::cout << "seed " << seed << "\n";
        requests = Requests(rig.model->config(), seed).make(24);
        // Whatever the seed, some guesses are right: this one can draw one token only.
        Drawing one_token{.allowed = std::vector<std::uint32_t>(static_cast<std::size_t>(rig.model->config().vocabulary + 31) / 32, 0)};
        one_token.allowed[2] = 1U;
        requests.push_back({.id = requests.size() + 1, .prompt = {64, 64, 64}, .drawing = shared(std::move(one_token)), .max_tokens = 60});
    }

    // The same answers, with drafts of which some are right and some are wrong.
    EngineStats expect_same(EngineOptions options, std::int64_t kv_tokens = 8000) const {
        ModelRig without(GetParam(), checkpoint, {.steps_queued_max = 1}, 8000);
        const auto expected = run(*without.engine, requests);
        EXPECT_EQ(without.engine->stats().drafted_tokens, 0U);
        options.drafts_max = 6;
        options.draft_chance_least = 0.0;
        ModelRig rig(GetParam(), checkpoint, options, kv_tokens);
        const auto results = run(*rig.engine, requests);
        EXPECT_EQ(results.size(), expected.size());
        for (const auto& [id, text] : results) EXPECT_EQ(text, expected.at(id)) << "request " << id;
        const EngineStats stats = rig.engine->stats();
        EXPECT_GT(stats.accepted_tokens, 0U);
        return stats;
    }

    std::vector<Request> requests;
};

TEST_P(Speculation, GivesTheSameAnswersInABatch) {
    const EngineStats with = expect_same({});
    EXPECT_GT(with.accepted_tokens, 20U);
    EXPECT_GT(with.drafted_tokens, with.accepted_tokens + 20U);
}

TEST_P(Speculation, GivesTheSameAnswersOneStepAtATime) { expect_same({.steps_queued_max = 1}); }

TEST_P(Speculation, GivesTheSameAnswersInChunks) { expect_same({.sequences_max = 5, .step_rows_max = 9}); }

TEST_P(Speculation, GivesTheSameAnswersWithoutAPrefixIndex) { expect_same({.sequences_max = 12, .prefix_cache = false}); }

TEST_P(Speculation, GivesTheSameAnswersWhereForcedTokensAreDrawn) { expect_same({.force_together = false}); }

TEST_P(Speculation, GivesTheSameAnswersWhereMasksAreLate) {
    const EngineStats with = expect_same({.mask_patience = MaskPatience{.step_share = 0.02, .seconds_least = 15e-6}});
    EXPECT_GT(with.held_back, 0U);
}

TEST_P(Speculation, GivesTheSameAnswersUnderPreemption) {
    for (Request& request : requests) {
        Drawing drawing = *request.drawing;
        drawing.end_tokens.clear();
        request.drawing = shared(std::move(drawing));
        request.max_tokens = 140;
    }
    const EngineStats stats = expect_same({.sequences_max = 16}, 16 * 32);
    EXPECT_GT(stats.preemptions, 0U) << "the pool was too large";
}

// In part, as it takes long there.
const tests::Labelled gpu_speculation{"Formats/Speculation.*Batch/bfloat16:Formats/Speculation.*Chunks/bfloat16", {tests::Label::on_cuda}};
INSTANTIATE_TEST_SUITE_P(Formats, Speculation,
                         testing::Values(Stored{Format::float32}, Stored{Format::bfloat16},
                                         Stored{Format::bfloat16, kernels::Quantization::int8, kernels::KvFormat::int8}),
                         [](const auto& stored) { return stored.param.name(); });

}  // namespace
}  // namespace lorry::engine
