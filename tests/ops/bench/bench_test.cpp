// What `lorry bench` counts and generates, on a tiny model: figures that cannot be checked by eye.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "ops/bench/adapter_bench.h"
#include "ops/bench/limits.h"
#include "ops/bench/loss_bench.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/bench/speculation/speculation_bench.h"
#include "ops/bench/throughput_bench.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/paths.h"
#include "tests/support/golden_model.h"
#include "tests/support/program.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

Settings settings_of(const tests::TinyModel& tiny) {
    Settings settings;
    settings.model = tiny.model;
    settings.threads = 2;
    settings.speculation = "off";
    return settings;
}

TEST(Bench, AQuantileIsTheLeastValueThatSoManyDoNotExceed) {
    const std::vector<double> values = {1.0, 2.0, 3.0, 4.0};
    EXPECT_EQ(quantile(values, 0.5), 2.0);
    EXPECT_EQ(quantile(values, 0.51), 3.0);
    EXPECT_EQ(quantile(values, 0.99), 4.0);
    EXPECT_EQ(quantile(values, 0.0), 1.0);
}

TEST(Bench, ATokenRangeIsANumberOrTwo) {
    EXPECT_EQ(parse_token_range("7")->high, 7);
    EXPECT_EQ(parse_token_range("7:9")->low, 7);
    EXPECT_EQ(parse_token_range("7:9")->high, 9);
    for (const char* wrong : {"", "0", "9:7", "7:", ":7", "7-9", "lognormal:", "lognormal:100", "lognormal:100:100", "lognormal:0:9",
                              "lognormal:9:100:1", "lognormal:1:999999999999", "normal:9:100"})
        EXPECT_FALSE(parse_token_range(wrong)) << wrong;
}

// Pins: lengths could only be drawn with equal probability, although a few long requests are what holds a batch up.
TEST(Bench, ALongTailHasTheMedianAndTheNinthDecileThatWereAskedFor) {
    const TokenRange range = parse_token_range("lognormal:100:400").value();
    std::mt19937_64 random(1);
    std::vector<double> lengths(20'000);
    std::ranges::generate(lengths, [&] { return static_cast<double>(range.draw(random)); });
    std::ranges::sort(lengths);
    EXPECT_NEAR(quantile(lengths, 0.5), 100.0, 5.0);
    EXPECT_NEAR(quantile(lengths, 0.9), 400.0, 20.0);
    // The ninth decile, four times the median, is 1.28 standard deviations away; the cut is at 3.09.
    EXPECT_EQ(range.high, 2830);
    EXPECT_EQ(range.low, 4);
    EXPECT_EQ(lengths.back(), 2830.0);
    EXPECT_EQ(lengths.front(), 4.0);
}

// Pins: tokens, rows and operations are counted, not estimated.
TEST(Bench, ThroughputCountsWhatTheShapeAsksFor) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 6, .input_tokens = {10, 10}, .output_tokens = {5, 5}};
    const ThroughputResult result = run_throughput(setup, shape, 1);
    EXPECT_EQ(result.prompt_tokens, 60U);
    EXPECT_EQ(result.drawn_tokens, 30U);
    EXPECT_EQ(result.end.size(), 6U);
    EXPECT_EQ(result.per_token.size(), 6U);
    EXPECT_TRUE(std::is_sorted(result.end.begin(), result.end.end()));

    const engine::ModelConfig& config = setup.model().config();
    const auto width = static_cast<double>(config.heads * config.head_dim);
    const double qkv = (width + 2.0 * static_cast<double>(config.kv_heads * config.head_dim)) * static_cast<double>(config.hidden);
    const double rest =
        width * static_cast<double>(config.hidden) + (config.gated ? 3.0 : 2.0) * static_cast<double>(config.hidden * config.intermediate);
    const double head = static_cast<double>(config.vocabulary * config.hidden);
    const auto layers = static_cast<double>(config.layers);
    // 10 prompt rows and 4 drawn rows of each request are computed, and 5 of them sample; row i sees i tokens.
    const double products = 6.0 * (14.0 * (layers * qkv + (layers - 1.0) * rest) + 5.0 * (rest + head));
    EXPECT_DOUBLE_EQ(sum_of(result.matmul_steps).operations, 2.0 * products);
    EXPECT_DOUBLE_EQ(sum_of(result.attention_steps).operations, 2.0 * 6.0 * 14.0 * 15.0 / 2.0 * layers * 2.0 * width);
    EXPECT_DOUBLE_EQ(sum_of(result.attention_steps).bytes,
                     6.0 * (10.0 + 11.0 + 12.0 + 13.0 + 14.0) * static_cast<double>(setup.kv_token_bytes()));
    EXPECT_EQ(result.matmul_steps.size(), result.steps);
    EXPECT_EQ(result.attention_steps.size(), result.steps);

    EXPECT_EQ(result.decode.rows, 6U);
    EXPECT_EQ(result.decode.seconds.size(), 4U);
    EXPECT_DOUBLE_EQ(result.decode.context_tokens, 6.0 * (11.0 + 12.0 + 13.0 + 14.0) / 4.0);
}

// Pins: with and without guesses, the same made-up answers are drawn, and what is copied is guessed.
TEST(Bench, SpeculationTakesFewerStepsForAnswersThatCopy) {
    const tests::TinyModel tiny;
    Settings settings = settings_of(tiny);
    settings.speculation = "ngram";
    Script script;
    EngineSetup setup(settings, {.watch = [&](std::unique_ptr<kernels::Backend> backend) { return script.watch(std::move(backend)); },
                                 .sequence_tokens = std::nullopt});
    SpeculationShape shape{.batches = {2}, .input_tokens = {40, 40}, .output_tokens = 30, .span = 10, .repeat = 1, .chance_least = 0.0};
    const SpeculationResult copies = run_speculation(setup, shape, script).front();
    EXPECT_EQ(copies.tokens, 8U * 30U);
    EXPECT_GT(copies.accepted_tokens, 60U);
    EXPECT_GT(copies.drafted_tokens, copies.accepted_tokens);
    EXPECT_LT(copies.guessed.steps, copies.plain.steps * 3 / 4);
    EXPECT_GT(copies.processor_gain(), 0.0);
    shape.copied = 0.0;
    EXPECT_LT(run_speculation(setup, shape, script).front().accepted_tokens, 20U);
}

// Pins: steps in which a batch fills up or runs dry do not count as steps of the full batch.
TEST(Bench, DecodeStepsAreThoseOfTheFullestBatch) {
    DecodeSteps decode;
    decode.add(2, 100, 9.0);
    decode.add(3, 30, 2.0);
    decode.add(1, 7, 5.0);
    decode.add(3, 60, 1.0);
    EXPECT_EQ(decode.rows, 3U);
    EXPECT_EQ(decode.seconds, (std::vector<double>{1.0, 2.0}));
    EXPECT_DOUBLE_EQ(decode.context_tokens, 45.0);
}

// Pins: on a busy machine the first run, in which adapters were loaded, was the fastest, and no step had the full batch.
TEST(Bench, ARunWithFewerSequencesAtOnceIsNotTheBest) {
    const ThroughputResult loading{.seconds = 1.0, .decode = {.rows = 3}};
    const ThroughputResult slow{.seconds = 3.0, .decode = {.rows = 4}};
    const ThroughputResult fast{.seconds = 2.0, .decode = {.rows = 4}};
    EXPECT_TRUE(is_better(slow, loading));
    EXPECT_FALSE(is_better(loading, slow));
    EXPECT_TRUE(is_better(fast, slow));
    EXPECT_FALSE(is_better(slow, fast));
}

TEST(Bench, ASharedBeginningIsComputedOnce) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 4, .input_tokens = {40, 40}, .output_tokens = {1, 1}, .shared_tokens = 32};
    const ThroughputResult result = run_throughput(setup, shape, 1);
    EXPECT_EQ(result.cached_tokens, 3U * 32U);
    EXPECT_EQ(result.prompt_tokens, 4U * 40U - 3U * 32U);
}

// Pins: runs with other prompts drew other lengths, so the best run was the one with the least work, and adapters were compared with a
// base that had other requests.
TEST(Bench, OtherPromptsAreAsLong) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 5, .input_tokens = {1, 40}, .output_tokens = *parse_token_range("lognormal:5:9")};
    const ThroughputResult first = run_throughput(setup, shape, 1);
    const ThroughputResult second = run_throughput(setup, shape, 2);
    EXPECT_EQ(second.cached_tokens, 0U) << "the prompts are others";
    EXPECT_EQ(second.prompt_tokens, first.prompt_tokens);
    EXPECT_EQ(second.drawn_tokens, first.drawn_tokens);
}

// Pins: all runs but the first found the shared prefix in the cache.
TEST(Bench, EachSeedHasASharedBeginningOfItsOwn) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 4, .input_tokens = {40, 40}, .output_tokens = {1, 1}, .shared_tokens = 32};
    for (std::uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(run_throughput(setup, shape, seed).cached_tokens, 3U * 32U) << seed;
}

// Pins: a step over the first part of a long prompt reads neither the head nor the end of the last layer.
TEST(Bench, AStepThatSamplesNothingReadsFewerWeights) {
    const tests::TinyModel tiny;
    Settings settings = settings_of(tiny);
    settings.max_batch = 1;
    settings.step_tokens = 8;
    EngineSetup setup(settings);
    const ThroughputResult result = run_throughput(setup, {.requests = 1, .input_tokens = {16, 16}, .output_tokens = {1, 1}}, 1);
    ASSERT_EQ(result.matmul_steps.size(), 2U);
    EXPECT_EQ(result.matmul_steps[0].bytes, static_cast<double>(setup.model().step_bytes(8, 0)));
    EXPECT_EQ(result.matmul_steps[1].bytes, static_cast<double>(setup.model().step_bytes(8, 1)));
    EXPECT_LT(result.matmul_steps[0].bytes, result.matmul_steps[1].bytes);
}

// Pins: each step was counted as reading the whole position table and all embeddings.
TEST(Bench, AStepReadsWhatItMultipliesWithAndRowsOfTables) {
    const tests::TinyModel tiny;
    Settings settings = settings_of(tiny);
    settings.isa = "scalar";
    settings.dtype = "float32";
    const EngineSetup wide(settings);
    // Outputs in whole panels of 8, times inputs: q|k|v, attention's output, gate and up each, down, and the head.
    const std::size_t qkv = 144 * 60;
    const std::size_t others = 64 * 72 + 2 * 96 * 60 + 64 * 92;
    const std::size_t head = 136 * 60;
    const std::size_t embedding = 136 * 60 * 4 / 131;  // 131 tokens
    const std::size_t position = 12 * 4;
    EXPECT_EQ(wide.model().step_bytes(1, 1), 4 * (2 * (qkv + others) + head) + embedding + position);
    EXPECT_EQ(wide.model().step_bytes(1, 0), 4 * (2 * qkv + others) + embedding + position) << "no head, no last layer's end";
    EXPECT_EQ(wide.model().step_bytes(131, 1), 4 * (2 * (qkv + others) + 2 * head) + 131 * position);
    EXPECT_EQ(wide.model().step_bytes(999, 1), 4 * (2 * (qkv + others) + 2 * head) + 640 * position) << "no row of a table twice";
    EXPECT_EQ(wide.model().step_bytes(0, 0), 0U);
}

// Pins: int4's embeddings, which are int8, were assumed to shrink like the projections.
TEST(Bench, WhatAStepReadsIsCountedInItsOwnFormat) {
    const tests::TinyModel tiny;
    Settings settings = settings_of(tiny);
    struct Bytes {
        std::size_t one_row = 0;  // with the layers' weights
        std::size_t next_row = 0;
    };
    const auto bytes_of = [&](const char* quantize) -> Bytes {
        settings.quantize = quantize;
        const EngineSetup setup(settings);
        const std::size_t one_row = setup.model().step_bytes(1, 0);
        return {.one_row = one_row, .next_row = setup.model().step_bytes(2, 0) - one_row};
    };
    const Bytes int8 = bytes_of("int8");
    const Bytes int4 = bytes_of("int4");
    EXPECT_EQ(int4.next_row, int8.next_row);
    EXPECT_LT(10 * int4.one_row, 8 * int8.one_row);
}

// Pins: requests with an arrival rate are not submitted early, and each waits from its own arrival on.
TEST(Bench, RequestsArriveAtTheRateThatWasAskedFor) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 5, .input_tokens = {4, 4}, .output_tokens = {2, 2}, .arrivals_per_second = 5.0, .stream = true};
    const ThroughputResult result = run_throughput(setup, shape, 1);
    EXPECT_EQ(result.end.size(), 5U);
    EXPECT_GE(result.seconds, 0.8);  // four gaps of 0.2 s on average
    EXPECT_LT(result.first_token.back(), 0.8);
}

TEST(Bench, RandomAdaptersCanBeLoaded) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    write_random_adapters(tiny.model, 4, 2, std::vector<std::int64_t>{3, 8}, folder.path());
    const engine::ModelConfig config = engine::ModelConfig::load(tiny.model);
    EXPECT_EQ(engine::inspect_adapter(folder.path() / "lora-0", config).value().rank_max, 3);
    EXPECT_EQ(engine::inspect_adapter(folder.path() / "lora-1", config).value().rank_max, 8);
    // Shared weights do not make adapters equal.
    EXPECT_EQ(engine::inspect_adapter(folder.path() / "lora-3", config).value().rank_max, 8);
    EXPECT_NE(engine::inspect_adapter(folder.path() / "lora-3", config).value().hash,
              engine::inspect_adapter(folder.path() / "lora-1", config).value().hash);
}

std::vector<engine::AdapterSource> made_up_adapters(const tests::TinyModel& tiny, std::int64_t count, const TemporaryFolder& folder) {
    write_random_adapters(tiny.model, count, 1, std::vector<std::int64_t>{4}, folder.path());
    std::vector<engine::AdapterSource> adapters;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::filesystem::path place = folder.path() / ("lora-" + std::to_string(i));
        adapters.push_back({engine::inspect_adapter(place, engine::ModelConfig::load(tiny.model)).value().hash, place});
    }
    return adapters;
}

// Pins: an adapter's elements are read once per step and multiplied with each of its rows.
TEST(Bench, TheLeastThatAdaptersTakeIsCountedByStep) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{
        .requests = 2, .input_tokens = {10, 10}, .output_tokens = {2, 2}, .models = {made_up_adapters(tiny, 1, folder).front()}};
    const auto elements = static_cast<double>(engine::inspect_adapter(folder.path() / "lora-0", setup.model().config()).value().elements);
    const Work all = sum_of(run_throughput(setup, shape, 1).adapter_steps);
    EXPECT_EQ(all.bytes, 2.0 * elements * 2.0) << "two steps of bfloat16";
    EXPECT_EQ(all.operations, 2.0 * elements * 2.0 * 11.0) << "two requests of ten prompt rows and a drawn one";
}

// Pins: wrong calls were refused only after the model had been written, loaded and measured, or were silently ignored.
TEST(Bench, WrongCallsAreRefusedBeforeAnythingIsLoaded) {
    const tests::TinyModel tiny;
    const std::string model = tiny.model.string();
    const std::string empty = (tiny.folder / "empty").string();
    std::filesystem::create_directories(empty);
    struct Case {
        std::vector<std::string> words;
        const char* reason;
    };
    for (const Case& wrong :
         {Case{{"throughput", "--model", model, "--against-base"}, "--against-base compares"},
          Case{{"throughput", "--model", model, "--no-base"}, "--no-base leaves nothing"},
          Case{{"throughput", "--model", model, "--shared-tokens", "32", "--input-tokens", "31:64"},
               "--shared-tokens 32: a prompt may have only 31"},
          Case{{"throughput", "--model", model, "--ranks", "8"}, "--random-adapters"},
          Case{{"throughput", "--model", model, "--adapters", empty}, "the folder has no adapters"},
          Case{{"throughput", "--model", model, "--device", "cuda", "--profile"}, "--profile: a GPU's ops"},
          Case{{"throughput", "--model", model, "--output-tokens", "0"}, "--output-tokens 0"},
          Case{{"throughput", "--model", model, "--top-p", "0"}, "--top-p"},
          Case{{"throughput", "--model", model, "--input-tokens", "lognormal:9:9"}, "lognormal:MEDIAN:P90 with P90 above MEDIAN"},
          Case{{"throughput"}, "no model is given"}, Case{{"throughput", "--random-adapters", "2"}, "--random-adapters needs --model"},
          Case{{"throughput", "--model", model, "--random-weights", "gpt2"}, "not both"},
          Case{{"adapters", "--model", model}, "there are no adapters"}, Case{{"loading", "--model", model}, "there are no adapters"},
          Case{{"attention"}, "no model is given"}, Case{{"attention", "--model", model, "--random-weights", "gpt2"}, "not both"},
          Case{{"adapters", "--model", model, "--adapters", tiny.adapters.string()}, "adapter broken cannot be used"}}) {
        std::vector<std::string> command = {LORRY_PROGRAM, "bench"};
        command.insert(command.end(), wrong.words.begin(), wrong.words.end());
        const tests::ProgramResult result = tests::run_program_of(std::move(command));
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(wrong.reason), std::string::npos) << result.err;
        EXPECT_EQ(result.err.find("KV cache"), std::string::npos) << "it was loaded: " << result.err;
    }
}

schema::Json json_of(std::vector<std::string> words) {
    std::vector<std::string> command = {LORRY_PROGRAM, "bench"};
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("--json");
    const tests::ProgramResult result = tests::run_program_of(std::move(command));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? schema::Json::parse(result.out).value() : schema::Json();
}

// The members of an object with these keys as text: "cpu=… device=…".
std::string members(const schema::Json& json, std::initializer_list<const char*> keys) {
    std::string text;
    for (const char* key : keys) {
        const schema::Json* value = json.find(key);
        text += (text.empty() ? "" : " ") + std::string(key) + "=" + (value == nullptr ? "?" : value->dump());
    }
    return text;
}

// Pins: a file of figures did not name the machine, formats and shape that they were measured with.
TEST(Bench, FiguresForScriptsSayWhatTheyWereMeasuredOnAndWith) {
    const tests::TinyModel tiny;
    const std::string model = tiny.model.string();
    const std::vector<std::string> made_up = {"--model",        model, "--random-adapters", "3",  "--ranks",     "2,4",
                                              "--input-tokens", "3:5", "--output-tokens",   "2",  "--max-batch", "2",
                                              "--threads",      "2",   "--device",          "cpu"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), made_up.begin(), made_up.end());
        return json_of(std::move(words));
    };
    const std::string narrow = R"(model="tiny" weights="int8, KV cache too" max_batch=2)";
    const schema::Json throughput =
        with({"throughput", "--quantize", "int8", "--kv-dtype", "int8", "--against-base", "--profile", "--repeat", "1", "--temperature",
              "0.5", "--top-p", "0.75", "--repetition-penalty", "1.5", "--frequency-penalty", "0.25", "--step-tokens", "256"});
    EXPECT_EQ(members(throughput, {"model", "weights", "max_batch"}), narrow);
    EXPECT_EQ(
        members(throughput, {"requests", "input_tokens", "output_tokens", "adapter_count", "ranks", "base_too", "repeats", "step_tokens"}),
        "requests=8 input_tokens=[3,5] output_tokens=[2,2] adapter_count=3 ranks=[2,4] base_too=true repeats=1 step_tokens=256");
    EXPECT_EQ(members(throughput, {"sampling"}),
              R"(sampling={"temperature":0.5,"top_p":0.75,"repetition_penalty":1.5,"frequency_penalty":0.25})");
    EXPECT_GT(throughput.find("adapters")->find("throughput_of_base")->as_number(), 0.0);
    EXPECT_FALSE(throughput.find("profile")->find("ops")->as_array()->empty());

    const schema::Json adapters = with(
        {"adapters", "--quantize", "int8", "--kv-dtype", "int8", "--requests", "6", "--window", "4", "--cached", "2", "--repeat", "2"});
    EXPECT_EQ(members(adapters, {"model", "weights", "max_batch"}), narrow);
    EXPECT_EQ(members(adapters, {"requests", "window", "cached", "adapter_count", "ranks", "repeats"}),
              "requests=6 window=4 cached=2 adapter_count=3 ranks=[2,4] repeats=2");
    ASSERT_EQ(adapters.find("ways")->as_array()->size(), 3U);
    EXPECT_NE(adapters.find("ways")->as_array()->front().find("wait_longest_by_p50"), nullptr);

    // With a tiny model, requests could fill their context before an adapter is loaded.
    const schema::Json loading = json_of({"loading", "--random-weights", "stories42m", "--random-adapters", "2", "--ranks", "2,4",
                                          "--device", "cpu", "--requests", "2", "--input-tokens", "4", "--quiet-steps", "2"});
    EXPECT_EQ(members(loading, {"model", "max_batch", "adapter_count", "ranks", "requests", "input_tokens", "quiet_steps"}),
              R"(model="stories42m" max_batch=2 adapter_count=2 ranks=[2,4] requests=2 input_tokens=4 quiet_steps=2)");
    EXPECT_GT(loading.find("loading_steps")->as_number(), 0.0);
    EXPECT_GT(loading.find("load_seconds")->as_number(), 0.0);

    const schema::Json attention = json_of({"attention", "--model", model, "--device", "cpu", "--threads", "2", "--batch", "2", "--context",
                                            "20", "--prompt", "8", "--step-tokens", "16"});
    EXPECT_EQ(members(attention, {"model", "weights"}), R"(model="tiny" weights="bfloat16")");
    ASSERT_EQ(attention.find("shapes")->as_array()->size(), 2U);
    EXPECT_EQ(members(attention.find("shapes")->as_array()->back(), {"name", "sequences", "tokens", "rows"}),
              R"(name="prefill, 2 x 8" sequences=2 tokens=8 rows=8)");
    EXPECT_GT(attention.find("machine")->find("read_bytes_per_second")->as_number(), 0.0);

    const schema::Json queue = json_of({"queue", "--model", model, "--jobs", "4", "--batch", "2", "--repeat", "1", "--dtype", "float32"});
    EXPECT_EQ(members(queue, {"model", "weights", "max_batch", "prefix_cache", "jobs", "repeats"}),
              R"(model="tiny" weights="float32" max_batch=2 prefix_cache=false jobs=4 repeats=1)");
    EXPECT_EQ(queue.find("ways")->as_array()->size(), 4U);

    const schema::Json machine = json_of({"machine", "--device", "cpu", "--threads", "2", "--isa", "scalar"});
    EXPECT_EQ(members(machine, {"isa"}), R"(isa="scalar")");
    EXPECT_EQ(machine.find("rates")->as_array()->size(), 2U);
    const std::string version = std::string("lorry=\"") + program_version() + "\"";
    for (const schema::Json& json : {throughput, adapters, loading, attention, queue, machine}) {
        EXPECT_EQ(members(json, {"lorry"}), version);
        for (const char* key : {"cpu", "chip", "isa", "date"}) EXPECT_FALSE(json.find(key)->as_string()->empty()) << key;
        EXPECT_NE(json.find("commit"), nullptr);
    }
}

TEST(Bench, ACurveHasTheFiguresOfEachNumberOfThreads) {
    const tests::TinyModel tiny;
    const schema::Json json = json_of({"throughput", "--model", tiny.model.string(), "--input-tokens", "3", "--output-tokens", "2",
                                       "--max-batch", "2", "--repeat", "1", "--device", "cpu", "--thread-counts", "1,3"});
    const auto& curve = *json.find("curve")->as_array();
    ASSERT_EQ(curve.size(), 2U);
    EXPECT_EQ(members(curve[0], {"threads"}), "threads=1");
    EXPECT_EQ(members(curve[1], {"threads"}), "threads=3");
    EXPECT_EQ(members(*curve[1].find("figures"), {"model", "drawn_tokens"}), R"(model="tiny" drawn_tokens=16)");
}

TEST(Bench, ThePipelineRunsAllJobsWithoutTheModel) {
    const tests::TinyModel tiny;
    const std::string model = tiny.model.string();
    const tests::TempFolder folder;
    {
        std::ofstream jobs(folder / "jobs.jsonl");
        for (const auto& [id, name] : {std::pair("a", "base"), {"b", "base"}, {"c", "nobody"}}) {
            jobs << fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions",)"
                                R"("body":{{"model":"{}","prompt":[5,6,7],"max_tokens":5,"ignore_eos":true}}}})"
                                "\n",
                                id, name);
        }
    }
    const schema::Json pipeline =
        json_of({"pipeline", (folder / "jobs.jsonl").string(), "--model", model, "--device", "cpu", "--max-batch", "2", "--repeat", "2"});
    EXPECT_EQ(members(pipeline, {"model", "weights", "max_batch", "jobs", "failed", "tokens", "repeats"}),
              R"(model="tiny" weights="bfloat16" max_batch=2 jobs=3 failed=1 tokens=16 repeats=2)");
    ASSERT_EQ(pipeline.find("threads")->as_array()->size(), 3U);
    for (const schema::Json& thread : *pipeline.find("threads")->as_array()) {
        EXPECT_GT(thread.find("seconds_per_token")->as_number(), 0.0) << thread.dump();
    }
}

// Pins: JSON replaced the text, so a benchmark had to run twice for both; and neither named the machine that was measured.
TEST(Bench, FiguresArePrintedAsTextOrJsonAndAFileHoldsTheJsonBesideEither) {
    const tests::TempFolder folder;
    const std::string file = (folder / "machine.json").string();
    const auto machine = [&](std::vector<std::string> more) {
        std::vector<std::string> command = {LORRY_PROGRAM, "bench", "machine", "--device", "cpu", "--isa", "scalar", "--threads", "1"};
        command.insert(command.end(), more.begin(), more.end());
        return tests::run_program_of(std::move(command));
    };
    const tests::ProgramResult text = machine({"--json-file", file});
    ASSERT_EQ(text.exit_code, 0) << text.err;
    EXPECT_TRUE(text.out.find("float32 multiply-adds") != std::string::npos) << text.out;
    const std::string build = std::string(", scalar, with lorry ") + program_version();
    EXPECT_NE(text.out.find(build), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("\nisa scalar: set by --isa or lorry.toml\n"), std::string::npos) << text.out;
    const schema::Json kept = schema::Json::parse(tests::read_whole(file)).value();
    EXPECT_EQ(members(kept, {"isa", "isa_reason"}), R"(isa="scalar" isa_reason="scalar: set by --isa or lorry.toml")");
    EXPECT_EQ(kept.find("rates")->as_array()->size(), 2U);

    const tests::ProgramResult json = machine({"--json", "--json-file", file});
    ASSERT_EQ(json.exit_code, 0) << json.err;
    EXPECT_EQ(json.out, tests::read_whole(file));

    const tests::ProgramResult nowhere = machine({"--json-file", (folder / "no" / "machine.json").string()});
    EXPECT_EQ(nowhere.exit_code, 2);
    EXPECT_EQ(nowhere.out, "");
    EXPECT_NE(nowhere.err.find("there is no folder"), std::string::npos) << nowhere.err;
    const tests::ProgramResult nameless = machine({"--json-file", ""});
    EXPECT_EQ(nameless.exit_code, 2);
    EXPECT_NE(nameless.err.find("name is empty"), std::string::npos) << nameless.err;
}

// Pins: the GPU was read from the JSON under a name that `bench machine` and `bench tune` do not use.
TEST(Bench, TheLastLineNamesTheGpuThatWasMeasuredBeforeItsHost) {
    const auto printed = [](const std::optional<std::string>& gpu) {
        testing::internal::CaptureStdout();
        BenchOutput().print("text\n", schema::Json::Object(), {}, gpu);
        return testing::internal::GetCapturedStdout();
    };
    EXPECT_TRUE(printed("an H100").starts_with("text\nmeasured on an H100; the host on ")) << printed("an H100");
    EXPECT_TRUE(printed({}).starts_with("text\nmeasured on ")) << printed({});
    EXPECT_EQ(gpu_of({.name = "an H100", .has_own_memory = true}), "an H100");
    EXPECT_EQ(gpu_of({.name = "cpu (scalar)"}), std::nullopt);
}

// Pins: /dev/stdout was replaced by a regular file.
TEST(Bench, WhatIsNoPlainFileIsWrittenToAndNotReplaced) {
    const tests::TempFolder folder;
    write_text(folder / "file", "old");
    std::filesystem::create_symlink(folder / "file", folder / "link");
    write_text(folder / "link", "new");
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
    EXPECT_EQ(tests::read_whole((folder / "file").string()), "new");
}

// Pins: a broker's address and a benchmark's figures were written by two functions that reported the same failure differently.
TEST(Bench, AFileThatCannotBeWrittenIsNamedByWhoeverWritesIt) {
    const tests::TempFolder folder;
    const std::string nowhere = (folder / "no" / "address").string();
    const tests::ProgramResult result = tests::run_program_of({LORRY_PROGRAM, "broker", "--address-file", nowhere, "--stop-after", "10s"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find(nowhere + ": cannot be written"), std::string::npos) << result.err;
}

TEST(Bench, ARandomModelsSizeIsKnownBeforeItIsWritten) {
    EXPECT_EQ(random_model_bytes({"gpt2"}), 2 * 124'439'808);
    EXPECT_EQ(random_model_bytes({.name = "gpt2", .layers = 1}), 2 * (124'439'808 - 11 * 7'087'872));
}

// Pins: a model in several files, written by several threads at a time, is read as one.
TEST(Bench, ARandomModelHasTheLayersThatWereAskedFor) {
    const tests::TempFolder folder;
    write_random_model(RandomModel{.name = "stories42m", .layers = 2}, folder.path());
    const engine::ModelReport report = engine::inspect_model(folder.path());
    EXPECT_EQ(report.config.layers, 2);
    EXPECT_EQ(2 * report.parameters, random_model_bytes({.name = "stories42m", .layers = 2}));
}

TEST(Bench, ACacheSmallerThanTheAdaptersIsLoadedAgainAndAllRequestsEnd) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    EngineSetup setup(settings_of(tiny));
    const AdapterShape shape{.requests = 60,
                             .in_flight = 20,
                             .input_tokens = {5, 5},
                             .output_tokens = {3, 3},
                             .exponent = 0.5,
                             .adapters = made_up_adapters(tiny, 10, folder)};
    const std::size_t bytes = setup.adapter_bytes(shape.adapters);
    const AdapterResult all = run_adapters(setup, shape, {.name = "all", .adapter_bytes = bytes});
    EXPECT_EQ(all.drawn_tokens, 180U);
    EXPECT_EQ(all.loads, 0U) << "they were loaded before the clock started";
    EXPECT_EQ(all.adapter_bytes, bytes) << "all of them fit into their sum";
    const AdapterResult cached = run_adapters(setup, shape, {.name = "cached", .adapter_bytes = bytes * 3 / 10});
    EXPECT_EQ(cached.drawn_tokens, 180U);
    EXPECT_GT(cached.loads, 0U);
    EXPECT_EQ(cached.waits.size(), all.waits.size()) << "the same adapters were asked for";
    EXPECT_LE(cached.adapter_bytes, bytes * 3 / 10);
}

std::filesystem::path three_prompts(const TemporaryFolder& folder) {
    const std::filesystem::path jobs = folder.path() / "jobs.jsonl";
    std::ofstream out(jobs);
    for (const char* prompt : {"w1 w2 w3", "w4 w5 w6 w7 w8", "w9 w10 w11 w12 w13 w14 w15"}) {
        out << R"({"custom_id":")" << prompt
            << R"(","method":"POST","url":"/v1/completions","body":{"model":"base","max_tokens":6,"prompt":")" << prompt << "\"}}\n";
    }
    return jobs;
}

// Pins: float32 is the reference, and the other formats are close to it on a model whose weights have no outliers. A tiny model that was
// never trained is the hardest case for int4.
TEST(Bench, TheLossOfNarrowWeightsIsMeasuredAgainstFloat32) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    const std::vector<LossRow> rows = measure_loss(settings_of(tiny), three_prompts(folder), 10);
    ASSERT_EQ(rows.size(), 5U);
    EXPECT_EQ(rows[0].weights, "float32");
    EXPECT_EQ(rows[2].weights, "int8");
    EXPECT_EQ(rows[3].weights, "int8, KV cache too");
    EXPECT_EQ(rows[4].weights, "int4");
    for (const LossRow& row : rows) {
        EXPECT_EQ(row.answers, 3);
        EXPECT_EQ(members(row.circumstances, {"model", "weights"}), "model=\"tiny\" weights=\"" + row.weights + "\"");
        EXPECT_EQ(row.tokens, rows[0].tokens);
        EXPECT_NEAR(row.perplexity / rows[0].perplexity, 1.0, row.weights == "int4" ? 0.5 : 0.05) << row.weights;
    }
    EXPECT_EQ(rows[0].answers_same, 3);
}

// Pins: after the first rows, it failed with the first format that quantizes.
TEST(Bench, TheLossOfAQuantizedCheckpointIsMeasuredWithItsOwnCodes) {
    const tests::TinyModel tiny;
    const tests::GoldenFolder weights(tests::golden_folder() / "quantized" / "bitsandbytes-nf4");
    std::filesystem::copy_file(tiny.model / "tokenizer.json", weights.path() / "tokenizer.json");
    Settings settings = settings_of(tiny);
    settings.model = weights.path();
    const TemporaryFolder folder;
    const std::vector<LossRow> rows = measure_loss(settings, three_prompts(folder), 10);
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].weights, "float32");
    EXPECT_EQ(rows[1].weights, "bfloat16");
    EXPECT_EQ(rows[2].weights, "bfloat16, KV cache int8");
    for (const LossRow& row : rows) {
        EXPECT_EQ(row.answers, 3);
        EXPECT_EQ(row.tokens, rows[0].tokens);
        EXPECT_NEAR(row.perplexity / rows[0].perplexity, 1.0, 0.05) << row.weights;
    }
}

}  // namespace
}  // namespace lorry::ops
