// The limits of machines, and what `lorry bench throughput` reports in shares of them: invented work on invented machines.
#include <gtest/gtest.h>

#include "ops/bench/limits.h"
#include "ops/bench/throughput_report.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

TEST(Limits, AGpuIsMeasuredByWhatItCopiesAndMultiplies) {
    const kernels::cuda::ChipRates rates{.copied_per_second = 4e12, .operations_per_second = 8e14};
    const MachineLimits wide = limits_of(rates, kernels::Quantization::none);
    EXPECT_EQ(wide.bytes, 4e12);
    EXPECT_EQ(wide.matmuls.per_second, 8e14);
    EXPECT_EQ(wide.seen, "copy 4000.0 GB/s, bfloat16 800000.0 GFLOP/s, fp8 1600000.0 GFLOP/s (assumed)");
    const kernels::cuda::ChipRates fp8_too{.copied_per_second = 4e12, .operations_per_second = 8e14, .fp8_operations_per_second = 15e14};
    EXPECT_EQ(limits_of(fp8_too, kernels::Quantization::fp8).matmuls.per_second, 15e14);
    EXPECT_EQ(limits_of(fp8_too, kernels::Quantization::none).seen, "copy 4000.0 GB/s, bfloat16 800000.0 GFLOP/s, fp8 1500000.0 GFLOP/s");
    const MachineLimits narrow = limits_of(rates, kernels::Quantization::fp8);
    EXPECT_EQ(narrow.matmuls.per_second, 16e14);
    EXPECT_STREQ(narrow.matmuls.unit(), "GFLOP/s");
    EXPECT_EQ(narrow.attention.per_second, 8e14);
    EXPECT_EQ(narrow.adapters.per_second, 8e14);
    EXPECT_EQ(narrow.machine.find("copy_bytes_per_second")->as_number(), 4e12);
}

kernels::cpu::Rates rates_with(std::optional<double> bfloat16_dot, std::optional<double> int8_dot) {
    return {.threads = 2, .copy = 50e9, .read = 100e9, .float32 = 20e9, .bfloat16_dot = bfloat16_dot, .int8_dot = int8_dot};
}

// The rate of each kind of work in turn: "90.0 GOP/s, …".
std::string rates_of(const MachineLimits& limits) {
    std::string text;
    for (const OperationRate& rate : {limits.matmuls, limits.attention, limits.adapters})
        text += (text.empty() ? "" : ", ") + show_giga(rate.per_second, rate.unit());
    return text;
}

// Pins: attention over a cache that is not quantized, and adapters, were measured against the int8 rate of the weights.
TEST(Limits, WeightsAndKvCacheHaveTheRatesOfTheirOwnFormats) {
    using enum kernels::Format;
    using enum kernels::Quantization;
    const auto limits = [](const kernels::StorageOptions& options, std::optional<double> int8_dot = 90e9) {
        return rates_of(limits_of(rates_with(40e9, int8_dot), options));
    };
    constexpr auto int8_cache = kernels::KvFormat::int8;
    EXPECT_EQ(limits({.weights = float32}), "20.0 GFLOP/s, 20.0 GFLOP/s, 20.0 GFLOP/s");
    EXPECT_EQ(limits({.weights = bfloat16}), "40.0 GFLOP/s, 40.0 GFLOP/s, 40.0 GFLOP/s");
    EXPECT_EQ(limits({.weights = bfloat16, .quantize = int8}), "90.0 GOP/s, 40.0 GFLOP/s, 40.0 GFLOP/s");
    EXPECT_EQ(limits({.weights = float32, .quantize = int4}), "90.0 GOP/s, 20.0 GFLOP/s, 20.0 GFLOP/s");
    // 90 operations on scores take one second, as many on weighted values take two: 180 in three seconds.
    EXPECT_EQ(limits({.weights = bfloat16, .quantize = int8, .kv = int8_cache}), "90.0 GOP/s, 60.0 GOP/s, 40.0 GFLOP/s");
    EXPECT_EQ(limits({.weights = bfloat16, .kv = int8_cache}), "40.0 GFLOP/s, 60.0 GOP/s, 40.0 GFLOP/s");
    // Without an int8 rate, int8 is multiplied at the rate of float32.
    EXPECT_EQ(limits({.weights = float32, .quantize = int8, .kv = int8_cache}, std::nullopt), "20.0 GOP/s, 20.0 GOP/s, 20.0 GFLOP/s");
}

// Pins: each kind of work has its own rate, but in a step all kinds share memory and processor.
TEST(Limits, AStepTakesWhatItsBytesOrItsOperationsTake) {
    const std::vector<Work> matmuls = {{.bytes = 100.0, .operations = 10.0}, {.bytes = 1.0, .operations = 40.0}};
    EXPECT_DOUBLE_EQ(seconds_at_least({{matmuls, 20.0}}, 50.0), 2.0 + 2.0);
    const std::vector<Work> attention = {{.bytes = 50.0, .operations = 10.0}, {.bytes = 1.0, .operations = 10.0}};
    EXPECT_DOUBLE_EQ(seconds_at_least({{matmuls, 20.0}, {attention, 5.0}}, 50.0), 3.0 + (2.0 + 2.0));
}

// Two steps in two seconds, on a machine that needs at least 1 s for the base's part of them and 0.25 s for their adapters.
ThroughputReport made_up_report() {
    return {.circumstances = schema::Json::object({{"model", "tiny"}}),
            .result = {.seconds = 2.0,
                       .steps = 2,
                       .prompt_tokens = 6,
                       .cached_tokens = 2,
                       .drawn_tokens = 4,
                       .adapter_groups = 3,
                       .matmul_steps = {{.bytes = 40e9, .operations = 8e9}, {.bytes = 8e9, .operations = 16e9}},
                       .attention_steps = {{.bytes = 10e9, .operations = 2e9}, {.bytes = 2e9, .operations = 4e9}},
                       .adapter_steps = {{.bytes = 25e9, .operations = 1e9}, {}},
                       .decode = {.rows = 2, .context_tokens = 16.0, .seconds = {0.75, 1.0}},
                       .idle_seconds = 0.25,
                       .first_token = {0.5, 1.0},
                       .end = {1.5, 2.0},
                       .per_token = {1.0, 1.0}},
            .limits = limits_of(rates_with(40e9, {}), {}),
            .base = ThroughputResult{.seconds = 1.5},
            .memory_peak = 1 << 20};
}

// Pins: shares are of the rates for the weights' format, adapters count in a step, and what they add is compared with their own minimum.
TEST(Report, AReportSaysWhatAStepTakesBesideWhatTheMachineDoes) {
    const std::string text = throughput_text(made_up_report());
    for (const char* line :
         {"requests         2 in 2.00 s: 1.00/s\n", "tokens out       2/s\n", "tokens in        4/s, 2 of 8 from the prefix",
          "bytes            40 GiB a step: 42.5 GB/s, 42 % of the 100.0 GB/s",
          "operations       15.50 billion a step: 15.5 GFLOP/s, 39 % of the 40.0 GFLOP/s",
          "at least         1.25 s, if every step took the minimum for its bytes or operations: 62 % of the time\n",
          "adapters         1.5 a step, 12 GiB and 0.50 billion operations of it\n",
          "                 0.75 of the base's throughput: they add 0.50 s, 2.00 times the 0.25 s", "memory at most   1.0 MiB\n",
          "the machine      copy 50.0 GB/s, read 100.0 GB/s, float32 20.0 GFLOP/s, bfl"})
        EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
}

// Pins: with --quantize int8, attention counted as int8 work too, and all work was reported as floating-point operations.
TEST(Report, AReportOfMixedOperationsMeasuresEachAgainstItsOwnRate) {
    ThroughputReport report = made_up_report();
    report.limits = limits_of(rates_with(40e9, 80e9), {.quantize = kernels::Quantization::int8});
    report.result.matmul_steps = {{.bytes = 0.0, .operations = 40e9}, {.bytes = 0.0, .operations = 40e9}};
    report.result.attention_steps = {{.bytes = 0.0, .operations = 10e9}, {.bytes = 0.0, .operations = 10e9}};
    report.result.adapter_steps = {{}, {}};
    // One second of int8 and half a second of bfloat16: 100 billion operations in 1.5 s.
    const std::string text = throughput_text(report);
    for (const char* line : {"operations       50.00 billion a step: 50.0 GOP/s, 75 % of the 66.7 GOP/s that the processor reached\n",
                             "at least         1.50 s,"})
        EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
    const schema::Json json = throughput_json(report);
    EXPECT_EQ(json.find("seconds_at_least")->as_number(), 1.5);
    EXPECT_DOUBLE_EQ(*json.find("operations_share")->as_number(), 0.75);
}

TEST(Report, AReportForScriptsHasTheSameFigures) {
    const schema::Json json = throughput_json(made_up_report());
    const auto number = [](const schema::Json& object, const char* key) { return object.find(key)->as_number(); };
    EXPECT_EQ(*json.find("model")->as_string(), "tiny");
    EXPECT_EQ(number(json, "tokens_in_per_second"), 4.0);
    EXPECT_EQ(number(*json.find("end"), "p99_seconds"), 2.0);
    EXPECT_EQ(number(json, "step_bytes"), 42.5e9);
    EXPECT_EQ(number(json, "bytes_share"), 0.425);
    EXPECT_EQ(number(json, "operations_share"), 15.5 / 40.0);
    EXPECT_EQ(number(json, "seconds_at_least"), 1.25);
    EXPECT_EQ(number(json, "seconds_at_least_share"), 0.625);
    EXPECT_EQ(number(*json.find("machine"), "read_bytes_per_second"), 100e9);
    EXPECT_EQ(number(*json.find("adapters"), "added_seconds"), 0.5);
    EXPECT_EQ(number(*json.find("adapters"), "added_of_least"), 2.0);
    EXPECT_EQ(number(*json.find("adapters"), "throughput_of_base"), 0.75);
    EXPECT_EQ(number(*json.find("decode"), "rows"), 2.0);
    EXPECT_EQ(number(*json.find("decode"), "context_tokens"), 8.0);
    EXPECT_EQ(number(*json.find("decode")->find("step"), "p50_seconds"), 0.75);
    EXPECT_EQ(number(*json.find("adapters")->find("base_decode"), "steps"), 0.0);
    EXPECT_EQ(number(json, "idle_seconds"), 0.25);
    EXPECT_EQ(number(json, "memory_peak_bytes"), 1048576.0);

    ThroughputReport on_gpu = made_up_report();
    on_gpu.limits.reset();
    EXPECT_EQ(throughput_json(on_gpu).find("machine"), nullptr);
    EXPECT_NE(throughput_text(on_gpu).find("operations       15.50 billion a step: 15.5 GFLOP/s\n"), std::string::npos);
    EXPECT_NE(throughput_text(on_gpu).find("they add 0.50 s\n"), std::string::npos);
}

}  // namespace
}  // namespace lorry::ops
