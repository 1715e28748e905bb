// What `lorry bench` counts and makes up, on a tiny model: figures nobody could check by eye.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/adapter.h"
#include "ops/bench_requests.h"
#include "ops/loss_bench.h"
#include "ops/random_model.h"
#include "ops/throughput_bench.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

Settings settings_of(const tests::TinyModel& tiny) {
    Settings settings;
    settings.model = tiny.model;
    settings.threads = 2;
    return settings;
}

TEST(Bench, a_quantile_is_the_least_value_that_so_many_do_not_exceed) {
    const std::vector<double> values = {1.0, 2.0, 3.0, 4.0};
    EXPECT_EQ(quantile(values, 0.5), 2.0);
    EXPECT_EQ(quantile(values, 0.51), 3.0);
    EXPECT_EQ(quantile(values, 0.99), 4.0);
    EXPECT_EQ(quantile(values, 0.0), 1.0);
}

TEST(Bench, a_token_range_is_a_number_or_two) {
    EXPECT_EQ(parse_token_range("7")->high, 7);
    EXPECT_EQ(parse_token_range("7:9")->low, 7);
    EXPECT_EQ(parse_token_range("7:9")->high, 9);
    for (const char* wrong : {"", "0", "9:7", "7:", ":7", "7-9"}) EXPECT_FALSE(parse_token_range(wrong)) << wrong;
}

// Pins: tokens, rows and operations are counted, not estimated.
TEST(Bench, throughput_counts_what_the_shape_asks_for) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 6, .input_tokens = {10, 10}, .output_tokens = {5, 5}, .shared_tokens = 0, .adapters = {}};
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
    // Of each request 10 prompt rows and 4 drawn ones are computed, 5 of them sample; row i sees i tokens.
    const double products =
        6.0 * (14.0 * (layers * qkv + (layers - 1.0) * rest) + 5.0 * (rest + head) + 14.0 * 15.0 / 2.0 * layers * 2.0 * width);
    EXPECT_DOUBLE_EQ(result.work.operations, 2.0 * products);
}

TEST(Bench, a_shared_beginning_is_computed_once) {
    const tests::TinyModel tiny;
    EngineSetup setup(settings_of(tiny));
    const ThroughputShape shape{.requests = 4, .input_tokens = {40, 40}, .output_tokens = {1, 1}, .shared_tokens = 32, .adapters = {}};
    const ThroughputResult result = run_throughput(setup, shape, 1);
    EXPECT_EQ(result.cached_tokens, 3U * 32U);
    EXPECT_EQ(result.prompt_tokens, 4U * 40U - 3U * 32U);
}

TEST(Bench, random_adapters_can_be_loaded) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    write_random_adapters(tiny.model, 2, std::vector<std::int64_t>{3, 8}, folder.path());
    const engine::ModelConfig config = engine::ModelConfig::load(tiny.model);
    EXPECT_EQ(engine::inspect_adapter(folder.path() / "lora-0", config).value().rank_max, 3);
    EXPECT_EQ(engine::inspect_adapter(folder.path() / "lora-1", config).value().rank_max, 8);
}

// Pins: float32 is the measure, and the others are near it on a model whose weights have no outliers; never trained and tiny, it is as hard
// on int4 as a model can be.
TEST(Bench, the_loss_of_narrow_weights_is_measured_against_float32) {
    const tests::TinyModel tiny;
    const TemporaryFolder folder;
    const std::filesystem::path jobs = folder.path() / "jobs.jsonl";
    {
        std::ofstream out(jobs);
        for (const char* prompt : {"w1 w2 w3", "w4 w5 w6 w7 w8", "w9 w10 w11 w12 w13 w14 w15"}) {
            out << R"({"custom_id":")" << prompt
                << R"(","method":"POST","url":"/v1/completions","body":{"model":"base","max_tokens":6,"prompt":")" << prompt << "\"}}\n";
        }
    }
    const std::vector<LossRow> rows = measure_loss(settings_of(tiny), jobs, 10);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0].weights, "float32");
    EXPECT_EQ(rows[2].weights, "int8");
    EXPECT_EQ(rows[3].weights, "int4");
    for (const LossRow& row : rows) {
        EXPECT_EQ(row.answers, 3);
        EXPECT_EQ(row.tokens, rows[0].tokens);
        EXPECT_NEAR(row.perplexity / rows[0].perplexity, 1.0, row.weights == "int4" ? 0.5 : 0.05) << row.weights;
    }
    EXPECT_EQ(rows[0].answers_same, 3);
}

}  // namespace
}  // namespace lorry::ops
