// The profile of `lorry bench throughput --profile`, on a tiny model.
#include <gtest/gtest.h>

#include "ops/bench/op_profile.h"
#include "ops/bench/throughput_bench.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

// The sum of a figure over the ops whose names start with `begin`.
double sum_in(const schema::Json& ops, std::string_view begin, std::string_view figure) {
    double sum = 0.0;
    for (const schema::Json& op : *ops.as_array()) {
        const schema::Json* const value = op.find(figure);
        if (op.find("op")->as_string()->starts_with(begin) && value != nullptr) sum += *value->as_number();
    }
    return sum;
}

// Pins: the work of all ops adds up to what the steps count. Attention had no figures at all, and nothing showed what a matmul of few
// rows reads.
TEST(OpProfile, CountsTheWorkOfEachOpAndItsShareOfTheLimits) {
    const tests::TinyModel tiny;
    Settings settings;
    settings.model = tiny.model;
    settings.threads = 2;
    OpProfile profile;
    EngineSetup setup(settings, {.watch = profile.watcher()});
    profile.clear();
    const ThroughputResult result = run_throughput(setup, {.requests = 3, .input_tokens = {10, 10}, .output_tokens = {5, 5}}, 1);
    const MachineLimits limits{.bytes = 1e9, .matmuls = {.per_second = 1e12}, .attention = {.per_second = 1e11}};

    const schema::Json ops = profile.json(limits);
    const double matmuls = sum_in(ops, "matmul", "operations") + sum_in(ops, "activated matmul", "operations");
    EXPECT_DOUBLE_EQ(matmuls, sum_of(result.matmul_steps).operations);
    EXPECT_DOUBLE_EQ(sum_in(ops, "attention", "operations"), sum_of(result.attention_steps).operations);
    EXPECT_DOUBLE_EQ(sum_in(ops, "attention", "bytes"), sum_of(result.attention_steps).bytes);
    for (const schema::Json& op : *ops.as_array()) {
        const auto number = [&](const char* key) { return *op.find(key)->as_number(); };
        const std::string& name = *op.find("op")->as_string();
        if (op.find("operations") == nullptr) continue;
        const double limit = name == "attention" ? 1e11 : 1e12;
        EXPECT_DOUBLE_EQ(number("operations_share"), number("operations") / number("seconds") / limit) << name;
        EXPECT_DOUBLE_EQ(number("bytes_share"), number("bytes") / number("seconds") / 1e9) << name;
    }
    EXPECT_EQ(sum_in(ops, "norm", "bytes"), 0.0) << "what is not counted has no figure";

    const std::string text = profile.show(result.seconds, limits);
    EXPECT_NE(text.find("share  GOP/s  of limit  GB/s  of limit"), std::string::npos) << text;
    EXPECT_NE(text.find("not an op"), std::string::npos) << text;
}

}  // namespace
}  // namespace lorry::ops
