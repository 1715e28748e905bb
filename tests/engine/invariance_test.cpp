// Promise 4: the same request gives the same tokens and log-probabilities, bit for bit, alone, batched, chunked, preempted, after a prefix
// hit, forked, and in a batch with other adapters. Runs a golden checkpoint with real kernels in every weight format.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/engine.h"
#include "engine/text/grammar.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/labels.h"
#include "tests/support/model_rig.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/widened.h"

namespace lorry::engine {
namespace {

using kernels::Format;
using tests::adapter_named;
using tests::ModelRig;
using tests::Stored;
using tests::told;

// The checkpoint's vocabulary has the printable characters as tokens. 93 ("~") ends answers.
void hold_to_grammar(Request& request, const ModelConfig& config) {
    GrammarCompiler compiler(tests::gpt2_tokenizer(), config.vocabulary, {93});
    constexpr const char* schema =
        R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-f]{6,30}$"},"b":{"type":"integer","minimum":-99}},)"
        R"("required":["a","b"],"additionalProperties":false})";
    Drawing drawing = *request.drawing;
    drawing.end_tokens = {93};
    if (request.id % 8 == 3) drawing.sampling.logprobs.reset();  // tokens that are forced are then computed together
    drawing.grammar = *compiler.compile({.text = schema, .space = ""});
    request.drawing = shared(std::move(drawing));
}

// Three of four tokens, and none of them after its neighbour; or after a thought that is ended: "(" begins it and ")" ends it.
void allow_some(Request& request, const ModelConfig& config, bool thinks) {
    static constexpr ThoughtMarks marks{.start = "(", .end = ")"};
    Drawing drawing = *request.drawing;
    drawing.allowed.assign(static_cast<std::size_t>(config.vocabulary + 31) / 32, 0x77777777U);
    for (TokenId token = 0; token + 1 < 90; ++token) drawing.bad_words.push_back({token, token + 1});
    if (thinks)
        drawing.thinking = Thinking{.marks = &marks, .begin = ThoughtState::thinking, .start_tokens = {7}, .end_tokens = {8}, .budget = 5};
    request.drawing = shared(std::move(drawing));
}

// Greedy and sampled requests, some held to a grammar or to some tokens, base and adapters, with penalties, log-probabilities and
// scores, of several lengths.
std::vector<Request> mixed_requests(const ModelConfig& config) {
    const std::vector<std::optional<AdapterSource>> adapters{std::nullopt, adapter_named("plain", config),
                                                             adapter_named("patterns", config), adapter_named("saved-head", config),
                                                             adapter_named("lm-head", config)};
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 15; ++id) {
        Request request;
        request.id = id;
        for (std::uint64_t i = 0; i < 3 + id * 5; ++i) {
            request.prompt.push_back(static_cast<TokenId>((i * i * 7 + (id % 3) * 11) % static_cast<std::uint64_t>(config.vocabulary)));
        }
        request.adapter = adapters[id % adapters.size()];
        request.max_tokens = 24;
        request.seed = id;
        request.drawing = shared({.sampling = {.temperature = id % 2 == 0 ? 0.0 : 0.9,
                                               .top_p = id % 4 == 1 ? 0.8 : 1.0,
                                               .repetition_penalty = id % 7 == 0 ? 1.2 : 1.0,
                                               .frequency_penalty = id % 5 == 0 ? 0.5 : 0.0,
                                               .logprobs = 3}});
        if (id % 4 == 3) hold_to_grammar(request, config);
        if (id % 4 == 2 || id == 11) allow_some(request, config, id != 6);
        if (id % 6 == 0) {
            request.score_begin = 1;
            request.score_top = 2;
            request.score_ranks = true;
        }
        if (id % 5 == 1) request.final_targets = {3, 5};
        requests.push_back(std::move(request));
    }
    return requests;
}

class Invariance : public testing::TestWithParam<Stored> {
protected:
    static constexpr const char* checkpoint = "llama-gqa-linear";

    // Runs each request alone in an engine that reads each step before it launches the next, and computes forced tokens one per step.
    std::map<RequestId, std::string> alone(const std::vector<Request>& requests) {
        std::map<RequestId, std::string> expected;
        ModelRig rig(GetParam(), checkpoint, {.prefix_cache = false, .steps_queued_max = 1, .force_together = false});
        for (const Request& request : requests) {
            for (const auto& [id, result] : rig.run({request})) expected[id] = told(result);
        }
        return expected;
    }
    std::map<RequestId, std::string> alone() { return alone(mixed_requests(ModelRig(GetParam(), checkpoint, {}).model->config())); }
    static void expect_same(const std::map<RequestId, Result>& results, const std::map<RequestId, std::string>& expected) {
        ASSERT_EQ(results.size(), expected.size());
        for (const auto& [id, result] : results) EXPECT_EQ(told(result), expected.at(id)) << "request " << id;
    }
};

TEST_P(Invariance, HoldsInABatchOfAllAdapters) {
    ModelRig rig(GetParam(), checkpoint, {});
    const std::vector<Request> requests = mixed_requests(rig.model->config());
    // Adapters are loaded first, so that the batches do not depend on the loading thread.
    for (Request first : requests) {
        first.prompt = {1};
        first.max_tokens = 1;
        first.score_begin.reset();
        rig.run({first});
    }
    const std::uint64_t steps = rig.engine->stats().steps;
    const auto results = rig.run(requests);
    // Where two steps are queued, a row with a grammar waits until its token was read, and misses every second step.
    const std::uint64_t most = rig.backend->steps_queued_max() == 1 ? 26 : 52;
    EXPECT_LE(rig.engine->stats().steps - steps, most) << "two steps of prefill, then all rows together";
    expect_same(results, alone());
}

TEST_P(Invariance, HoldsWhereMasksAreLate) {
    ModelRig rig(GetParam(), checkpoint, {.mask_patience = MaskPatience{.step_share = 0.02, .seconds_least = 15e-6}});
    if (rig.backend->info().has_own_memory) GTEST_SKIP() << "an emulated GPU takes too long for so many steps; GrammarTest queues them";
    std::vector<Request> requests = mixed_requests(rig.model->config());
    std::erase_if(requests, [](const Request& request) { return request.drawing->grammar == nullptr; });
    expect_same(rig.run(requests), alone(requests));
    EXPECT_GT(rig.engine->stats().held_back, 0U);
}

TEST_P(Invariance, HoldsWhenPromptsAreCutIntoChunks) {
    ModelRig rig(GetParam(), checkpoint, {.sequences_max = 5, .step_rows_max = 7});
    expect_same(rig.run(mixed_requests(rig.model->config())), alone());
}

// Pins: in an MLP whose width is a multiple of the panels, matmul and activation are one op unless an adapter changes the matmul. With the
// golden checkpoint's own width they are never one op; the results must be the same.
TEST_P(Invariance, IsTheSameWhereMatmulAndActivationAreOneOp) {
    const tests::TempFolder folder;
    tests::copy_widened(tests::golden_folder() / "checkpoints" / checkpoint, folder / "wide");
    std::vector<Request> requests = mixed_requests(ModelRig(GetParam(), checkpoint, {}).model->config());
    requests[3].adapter = adapter_named("all-linear", ModelRig(GetParam(), checkpoint, {}).model->config());
    const auto expected = alone(requests);

    ModelRig rig(GetParam(), folder / "wide", {});
    ModelRig chunks(GetParam(), folder / "wide", {.sequences_max = 5, .step_rows_max = 7});
    ASSERT_EQ(rig.model->config().intermediate, tests::widened_intermediate);
    for (Request& request : requests) {
        if (!request.adapter) continue;
        const std::filesystem::path wide = folder / request.adapter->folder.filename().string();
        if (!std::filesystem::exists(wide)) tests::copy_widened(request.adapter->folder, wide);
        request.adapter = AdapterSource{.hash = inspect_adapter(wide, rig.model->config())->hash, .folder = wide};
    }
    expect_same(rig.run(requests), expected);
    expect_same(chunks.run(requests), expected);
}

TEST_P(Invariance, HoldsUnderPreemption) {
    // A sequence starts if one block is left to grow into. These grow by more for any block size, and the pool has no other blocks.
    ModelRig any(GetParam(), checkpoint, {});
    const std::int64_t block = any.backend->block_size();
    std::vector<Request> requests = mixed_requests(any.model->config());
    // Three that grow in every step, and one with a grammar.
    std::erase_if(requests, [](const Request& request) { return request.id < 9 || (request.id % 4 > 1 && request.id != 15); });
    std::int64_t blocks = 0;
    for (Request& request : requests) {
        request.max_tokens = 140;
        blocks += (std::ssize(request.prompt) + block - 1) / block + 1;
    }
    ModelRig rig(GetParam(), checkpoint, {.prefix_cache = false}, blocks * block);
    const auto results = rig.run(requests);
    EXPECT_GT(rig.engine->stats().preemptions, 0U) << "the pool was too large";
    expect_same(results, alone(requests));
}

TEST_P(Invariance, HoldsAfterAPrefixHit) {
    ModelRig rig(GetParam(), checkpoint, {});
    rig.run(mixed_requests(rig.model->config()));
    const auto again = rig.run(mixed_requests(rig.model->config()));
    EXPECT_GT(rig.engine->stats().cached_tokens, 0U);
    expect_same(again, alone());
}

// Pins: magnitudes scale an adapter's own rows, also where a projection adds to the residual.
TEST_P(Invariance, HoldsBesideAnAdapterWithMagnitudes) {
    ModelRig rig(GetParam(), checkpoint, {});
    const ModelConfig& config = rig.model->config();
    std::vector<Request> requests = mixed_requests(config);
    for (Request& request : requests) {
        if (request.id % 5 == 3) request.adapter = adapter_named("dora", config);
    }
    expect_same(rig.run(requests), alone(requests));
}

TEST_P(Invariance, HoldsWhereTheStartOfABlockIsCopied) {
    ModelRig rig(GetParam(), checkpoint, {});
    const std::int64_t block = rig.backend->block_size();
    const std::int64_t equal = block + block / 2 + 1;
    std::vector<Request> requests = mixed_requests(rig.model->config());
    requests = {requests[4], requests[10]};  // of the base and of an adapter
    std::vector<Request> before = requests;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        for (std::vector<TokenId>* const prompt : {&requests[i].prompt, &before[i].prompt}) {
            prompt->clear();
            for (std::int64_t token = 0; token < 2 * block + 2; ++token) prompt->push_back(static_cast<TokenId>(token * token % 50));
        }
        for (std::int64_t token = equal; token < 2 * block + 2; ++token) ++requests[i].prompt[static_cast<std::size_t>(token)];
    }
    rig.run(before);
    const auto results = rig.run(requests);
    for (const auto& [id, result] : results) EXPECT_EQ(result.cached_tokens, equal) << "request " << id;
    expect_same(results, alone(requests));
}

TEST_P(Invariance, HoldsForForks) {
    ModelRig rig(GetParam(), checkpoint, {});
    const Request first = mixed_requests(rig.model->config())[9];
    const std::string expected = alone().at(first.id);
    Request fork = first;
    fork.id = 100;
    fork.fork = Fork{.leader = first.id, .tokens = static_cast<std::int64_t>(first.prompt.size()) - 1};
    const auto results = rig.run({first, fork});
    EXPECT_EQ(told(results.at(first.id)), expected);
    EXPECT_EQ(results.at(100).tokens, results.at(first.id).tokens);
}

// Batches that shrink and grow: base only; with adapters; with an adapter that replaces a matrix, whose steps do not use the graph; with
// one that changes the head, which is after the graph; all together.
TEST_P(Invariance, HoldsWhereStepsAreLaunchedAsGraphs) {
    std::vector<Request> requests = mixed_requests(ModelRig(GetParam(), checkpoint, {}).model->config());
    for (Request& request : requests) request.max_tokens = 2 + static_cast<std::int64_t>(request.id * 5 % 13);
    const auto expected = alone(requests);
    ModelRig rig(GetParam(), checkpoint, {.sequences_max = 18, .graph_bytes = std::size_t{64} << 20});
    const bool is_gpu = rig.backend->info().has_own_memory;
    ASSERT_EQ(rig.backend->info().graphs, is_gpu ? 2 : 0);
    for (const std::vector<RequestId>& kinds : std::vector<std::vector<RequestId>>{{0}, {0, 1, 2}, {3}, {4}, {0, 1, 2, 3, 4}}) {
        std::vector<Request> those;
        std::ranges::copy_if(requests, std::back_inserter(those),
                             [&](const Request& request) { return std::ranges::find(kinds, request.id % 5) != kinds.end(); });
        const std::uint64_t before = rig.backend->info().graph_steps;
        for (const auto& [id, result] : rig.run(those)) EXPECT_EQ(told(result), expected.at(id)) << "request " << id;
        const bool some_are_graphs = rig.backend->info().graph_steps > before;
        EXPECT_EQ(some_are_graphs, is_gpu && kinds.front() != 3) << "adapter " << kinds.back();
    }
}

// Ends that only the drawn token reveals, cancels and forks, each while a step is queued on a device that takes more than one.
TEST_P(Invariance, HoldsWhenOthersEndForkAndGoInTheMiddle) {
    const ModelConfig config = ModelRig(GetParam(), checkpoint, {}).model->config();
    std::vector<Request> requests = mixed_requests(config);
    for (Request& request : requests) {
        Drawing drawing = *request.drawing;
        for (TokenId token = static_cast<TokenId>(request.id % 4); request.id % 3 != 0 && token < config.vocabulary; token += 12) {
            drawing.end_tokens.push_back(token);
        }
        request.drawing = shared(std::move(drawing));
    }
    std::map<RequestId, std::string> expected = alone(requests);
    Request fork = requests[9];
    fork.id = 100;
    fork.fork = Fork{.leader = requests[9].id, .tokens = static_cast<std::int64_t>(fork.prompt.size()) - 1};
    fork.final_targets.clear();
    fork.score_begin.reset();
    const std::vector<Request> one{fork};
    expected.merge(alone(one));
    const std::vector<RequestId> cancelled{4, 11};

    ModelRig rig(GetParam(), checkpoint, {.sequences_max = 7, .step_rows_max = 40});
    requests.push_back(fork);
    for (const Request& request : requests) rig.engine->submit(request);
    std::map<RequestId, Result> results;
    StepOutput output;
    std::size_t started = 0;
    while (rig.engine->has_work()) {
        if (!rig.engine->step(output)) rig.engine->wait_for_adapters(std::chrono::milliseconds(5));
        for (const RequestId id : output.started) {
            if (std::ranges::find(cancelled, id) != cancelled.end()) rig.engine->cancel(id);
            ++started;
        }
        rig.engine->check_integrity();
        for (Result& result : output.results) {
            const RequestId id = result.id;
            results.emplace(id, std::move(result));
        }
    }
    EXPECT_EQ(started, requests.size());
    EXPECT_TRUE(std::ranges::any_of(results, [](const auto& one_of) { return one_of.second.finish == FinishReason::stop; }));
    for (const RequestId id : cancelled) {
        expected.erase(id);
        results.erase(id);
    }
    expect_same(results, expected);
}

// Pins: with dynamic NTK, the rope frequencies of a prompt beyond the original context depend on its length. Keys of one prompt are then
// wrong for a prompt of another length, even if their tokens are equal (each choice of /classify is the prompt and more).
TEST_P(Invariance, ForksUnderDynamicRopeShareBlocksOnlyWithPromptsOfTheirLength) {
    Request leader;
    leader.id = 1;
    for (TokenId i = 0; i < 70; ++i) leader.prompt.push_back((i * i * 7 + 11) % 131);
    leader.max_tokens = 12;
    leader.drawing = shared({.sampling = {.temperature = 0.0, .logprobs = 2}});
    Request same = leader;
    same.id = 2;
    same.fork = Fork{.leader = 1, .tokens = 69};
    Request longer = leader;
    longer.id = 3;
    longer.prompt.insert(longer.prompt.end(), {5, 6, 7});
    Request longer_fork = longer;
    longer_fork.fork = Fork{.leader = 1, .tokens = 70};
    ModelRig alone(GetParam(), "llama-dynamic", {.prefix_cache = false});
    const std::string expected = told(alone.run({longer}).at(3));
    const std::string expected_leader = told(alone.run({leader}).at(1));
    ModelRig rig(GetParam(), "llama-dynamic", {});
    const auto results = rig.run({leader, same, longer_fork});
    EXPECT_EQ(told(results.at(1)), expected_leader);
    EXPECT_EQ(told(results.at(2)), expected_leader);
    EXPECT_EQ(told(results.at(3)), expected);
    EXPECT_EQ(rig.engine->stats().prompt_tokens, 70U + 1U + 73U);

    // Within the original context nothing depends on the length, and everything is shared.
    const auto cut = [](Request request, std::size_t tokens, std::int64_t shared) {
        request.prompt.resize(tokens);
        if (request.fork) request.fork->tokens = shared;
        request.id += 10;
        if (request.fork) request.fork->leader += 10;
        return request;
    };
    rig.run({cut(leader, 40, 0), cut(longer_fork, 43, 40)});
    EXPECT_EQ(rig.engine->stats().prompt_tokens, 70U + 1U + 73U + 40U + 3U);
}

std::size_t bytes_of_adapter(const ModelRig& rig, const std::string& name) {
    return (*AdapterFiles::read(tests::golden_folder() / "adapters" / name, "", *rig.model))->slot_bytes(*rig.backend);
}

// Only one adapter fits at a time. The second one has a single request after many of the first one's, of which more keep arriving.
TEST_P(Invariance, AnAdapterWithoutRoomGetsItsTurnAndHoldsUpNobodyElse) {
    ModelRig sizes(GetParam(), checkpoint, {});
    const std::size_t room = std::max(bytes_of_adapter(sizes, "plain"), bytes_of_adapter(sizes, "patterns"));
    ModelRig rig(GetParam(), checkpoint, {.sequences_max = 3, .fairness_patience = 60, .lend_blocks = false}, 3200, room);
    const ModelConfig& config = rig.model->config();
    const auto request = [&](RequestId id, std::optional<AdapterSource> adapter) {
        Request one;
        one.id = id;
        one.prompt = {1, 2, static_cast<TokenId>(3 + id % 100)};
        one.adapter = std::move(adapter);
        one.max_tokens = 6;
        return one;
    };
    const AdapterSource plain = adapter_named("plain", config);
    const AdapterSource patterns = adapter_named("patterns", config);
    rig.run({request(1000, plain)});
    std::vector<RequestId> order;
    StepOutput output;
    RequestId next = 0;
    rig.engine->submit(request(next++, plain));
    rig.engine->submit(request(500, patterns));
    while (rig.engine->has_work()) {
        // At least two requests of the first adapter always wait, and sometimes one of the base, until the second adapter had its turn.
        const bool done = std::ranges::find(order, RequestId{500}) != order.end();
        ASSERT_LT(next, 500U) << "the second adapter starves";
        if (!done) rig.engine->submit(request(next++, plain));
        if (!done && next % 3 == 0) rig.engine->submit(request(next++, std::nullopt));
        // Steps of a tiny model take microseconds, so give the loading thread time, too.
        if (!rig.engine->step(output) || !done) rig.engine->wait_for_adapters(std::chrono::milliseconds(5));
        for (const Result& result : output.results) {
            EXPECT_FALSE(result.error);
            order.push_back(result.id);
        }
    }
    EXPECT_EQ(order.size(), next + 1);
    EXPECT_GE(rig.engine->stats().adapters.evictions, 2U) << "evicted for the second adapter, and loaded again";
}

// The only request for an adapter that found no slot is cancelled while it waits: the adapter is dropped, and others can load.
TEST_P(Invariance, AnAdapterWithoutRoomIsGivenUpWithItsLastRequest) {
    ModelRig sizes(GetParam(), checkpoint, {});
    const std::size_t other = std::min(bytes_of_adapter(sizes, "patterns"), bytes_of_adapter(sizes, "rank12-rslora"));
    const std::size_t room = bytes_of_adapter(sizes, "plain") + other - 1;
    ModelRig rig(GetParam(), checkpoint, {.sequences_max = 3, .lend_blocks = false}, 3200, room);
    const ModelConfig& config = rig.model->config();
    const auto request = [&](RequestId id, const char* adapter, std::int64_t max_tokens) {
        Request one;
        one.id = id;
        one.prompt = {1, 2, 3};
        one.adapter = adapter_named(adapter, config);
        one.max_tokens = max_tokens;
        return one;
    };
    rig.run({request(1, "plain", 1)});
    StepOutput output;
    rig.engine->submit(request(2, "plain", 60));
    rig.engine->step(output);
    rig.engine->submit(request(3, "patterns", 5));
    for (int i = 0; i < 20; ++i) {
        rig.engine->step(output);
        rig.engine->wait_for_adapters(std::chrono::milliseconds(2));
    }
    rig.engine->cancel(3);
    rig.engine->submit(request(4, "rank12-rslora", 5));
    std::vector<RequestId> ended;
    while (rig.engine->has_work()) {
        if (!rig.engine->step(output)) rig.engine->wait_for_adapters(std::chrono::milliseconds(5));
        for (const Result& result : output.results) ended.push_back(result.id);
    }
    EXPECT_EQ(ended, (std::vector<RequestId>{2, 4}));
    EXPECT_EQ(rig.engine->stats().adapters.loads, 2U) << "the cancelled request's adapter never got a slot";
}

TEST_P(Invariance, ShowsAdaptersApart) {
    // Otherwise the tests above would pass with adapters that do nothing.
    ModelRig rig(GetParam(), checkpoint, {});
    auto requests = mixed_requests(rig.model->config());
    Request base = requests[1];
    Request adapted = base;
    base.adapter.reset();
    adapted.id = 100;
    adapted.adapter = adapter_named("plain", rig.model->config());
    const auto results = rig.run({base, adapted});
    EXPECT_NE(results.at(base.id).tokens, results.at(100).tokens);
}

const tests::Labelled gpu_invariance{"Formats/Invariance.Holds*/bfloat16:Formats/Invariance.Forks*/bfloat16", {tests::Label::on_cuda}};
// In part, as it takes several times as long there.
const tests::Labelled gpu_invariance_with_asan{
    "Formats/Invariance.ShowsAdaptersApart/bfloat16:Formats/Invariance.ForksUnder*/bfloat16:Formats/Invariance.HoldsInABatch*/bfloat16:"
    "Formats/Invariance.HoldsForForks/bfloat16:Formats/Invariance.HoldsAfterAPrefixHit/bfloat16",
    {tests::Label::asan_cuda}};
INSTANTIATE_TEST_SUITE_P(Formats, Invariance,
                         testing::Values(Stored{Format::float32}, Stored{Format::bfloat16},
                                         Stored{Format::bfloat16, kernels::Quantization::int8},
                                         Stored{Format::bfloat16, kernels::Quantization::int4},
                                         Stored{Format::bfloat16, kernels::Quantization::int8, kernels::KvFormat::int8}),
                         [](const auto& stored) { return stored.param.name(); });
// fp8 weights, which only GPUs have.
const tests::Labelled fp8_invariance{"Gpu/*", {tests::Label::slow}};
INSTANTIATE_TEST_SUITE_P(Gpu, Invariance, testing::Values(Stored{Format::bfloat16, kernels::Quantization::fp8, kernels::KvFormat::fp8}),
                         [](const auto& stored) { return stored.param.name(); });

// Pins: the prefix cache gave a request that may pass longrope's original context the blocks of one that may not, or the other way round.
TEST(LongRope, RequestsShareBlocksOnlyWithThoseOfTheSameFactors) {
    const tests::GoldenFolder folder(tests::golden_folder() / "checkpoints" / "phi3-longrope");
    std::vector<Request> requests;  // of the same prompt: 70 or 110 tokens at most, of 84
    for (RequestId id = 1; id <= 4; ++id) {
        Request request{.id = id};
        for (TokenId token = 3; token < 53; ++token) request.prompt.push_back(token);
        request.max_tokens = id % 2 == 0 ? 20 : 60;
        request.drawing = shared({.sampling = {.temperature = 0.0, .logprobs = 1}});
        requests.push_back(std::move(request));
    }
    const auto run = [&](bool prefix_cache, bool together) {
        const ModelRig rig({.weights = Format::float32}, folder.path(), {.prefix_cache = prefix_cache});
        std::vector<std::string> out;
        if (together) {
            for (const auto& [id, result] : rig.run(requests)) out.push_back(told(result));
        } else {
            for (const Request& request : requests) {
                for (const auto& [id, result] : rig.run({request})) out.push_back(told(result));
            }
        }
        if (!together) {
            EXPECT_EQ(rig.engine->stats().cached_tokens > 0, prefix_cache);
        }
        return out;
    };
    const auto alone = run(false, false);
    EXPECT_EQ(run(true, false), alone);
    EXPECT_EQ(run(true, true), alone);
    EXPECT_NE(alone[0].substr(0, 20), alone[1].substr(0, 20)) << "the factors show";
}

}  // namespace
}  // namespace lorry::engine
