// The rows of the rope table. The golden checkpoints verify the frequencies.
#include "engine/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/golden_model.h"

namespace lorry {
namespace {

using engine::RopeConfig;
using engine::RopeTable;

engine::ModelConfig config_of(RopeConfig::Kind kind) {
    engine::ModelConfig config;
    config.head_dim = 8;
    config.max_positions = 4000;
    config.rope = {.kind = kind, .theta = 10000.0, .factor = 4.0, .original_max_positions = 1000};
    return config;
}

std::vector<float> read_row(const RopeTable& table, std::int32_t row) {
    const kernels::Matrix matrix = table.matrix();
    const auto* values = static_cast<const float*>(matrix.data) + row * matrix.stride;
    return {values, values + matrix.columns};
}

// cos | sin for a sequence of `length` tokens
std::vector<float> expected_row(const RopeConfig& rope, std::int64_t position, std::int64_t length) {
    const auto frequencies = engine::rope_frequencies(rope, 8, length);
    std::vector<float> row;
    for (const float frequency : frequencies.inverse)
        row.push_back(static_cast<float>(std::cos(static_cast<double>(static_cast<float>(position) * frequency))));
    for (const float frequency : frequencies.inverse)
        row.push_back(static_cast<float>(std::sin(static_cast<double>(static_cast<float>(position) * frequency))));
    return row;
}

TEST(RopeTable, RowsBeyondTheFirstGrowthHoldTheirOwnPosition) {
    const auto backend = tests::float32_backend();
    const auto config = config_of(RopeConfig::Kind::linear);
    RopeTable table(config, *backend, 16);
    for (const std::int64_t position : {0, 511, 512, 3999}) {
        EXPECT_EQ(table.row(position, std::nullopt), position);
        EXPECT_EQ(read_row(table, table.row(position, std::nullopt)), expected_row(config.rope, position, 0)) << position;
    }
    EXPECT_EQ(engine::rope_length_of(config.rope, 4000, 4000), std::nullopt);
}

TEST(RopeTable, DynamicFrequenciesFollowThePromptAndThenEachToken) {
    const auto backend = tests::float32_backend();
    const auto config = config_of(RopeConfig::Kind::dynamic);
    RopeTable table(config, *backend, 16);
    const auto row = [&](std::int64_t position, std::int64_t prompt) {
        return read_row(table, table.row(position, engine::rope_length_of(config.rope, prompt, prompt)));
    };
    EXPECT_EQ(row(10, 500), expected_row(config.rope, 10, 500)) << "within the original context";
    EXPECT_EQ(row(10, 500), expected_row(config.rope, 10, 1));
    EXPECT_EQ(row(10, 1500), expected_row(config.rope, 10, 1500)) << "prompt tokens use the prompt's length";
    EXPECT_EQ(row(1499, 1500), expected_row(config.rope, 1499, 1500));
    EXPECT_EQ(row(1500, 1500), expected_row(config.rope, 1500, 1501)) << "generated tokens use their own length";
    EXPECT_EQ(row(1499, 20), expected_row(config.rope, 1499, 1500));
    EXPECT_EQ(row(1000, 20), expected_row(config.rope, 1000, 1001));
    EXPECT_NE(row(10, 1500), row(10, 500));
    EXPECT_EQ(engine::rope_length_of(config.rope, 1001, 1001), 1001);
    EXPECT_EQ(engine::rope_length_of(config.rope, 1000, 2000), std::nullopt);
}

// Pins: the part of the table with fixed frequencies was as long as the original context, also where the table was shorter.
TEST(RopeTable, MayEndBeforeTheOriginalContext) {
    const auto backend = tests::float32_backend();
    auto config = config_of(RopeConfig::Kind::dynamic);
    config.max_positions = 600;
    RopeTable table(config, *backend, 16);
    EXPECT_EQ(table.matrix().rows, 600 + 2 * 16);
    EXPECT_EQ(read_row(table, table.row(599, std::nullopt)), expected_row(config.rope, 599, 1));
    EXPECT_EQ(table.row(599, std::nullopt), 599);
}

// Pins: the rows of a step must not be overwritten by those of the next step, which is prepared while it runs.
TEST(RopeTable, RowsOfLongPromptsStayValidForTwoSteps) {
    const auto backend = tests::float32_backend();
    const auto config = config_of(RopeConfig::Kind::dynamic);
    constexpr std::int64_t rows_max = 16;
    RopeTable table(config, *backend, rows_max);
    std::vector<std::int32_t> rows;
    for (std::int64_t position = 0; position < 2 * rows_max; ++position) rows.push_back(table.row(position, 1200 + position % 3));
    for (std::int64_t position = 0; position < 2 * rows_max; ++position) {
        EXPECT_EQ(read_row(table, rows[static_cast<std::size_t>(position)]), expected_row(config.rope, position, 1200 + position % 3))
            << position;
    }
}

// Pins: a request that may pass the original context has the long factors from its first token on, whatever other requests have.
TEST(RopeTable, LongRequestsHaveRowsOfTheirOwn) {
    const auto backend = tests::float32_backend();
    auto config = config_of(RopeConfig::Kind::longrope);
    config.rope.short_factors = {1.0, 1.1, 1.2, 1.3};
    config.rope.long_factors = {2.0, 3.0, 4.0, 5.0};
    config.rope.attention_factor = 1.0;
    RopeTable table(config, *backend, 16);
    EXPECT_EQ(engine::rope_length_of(config.rope, 10, 1000), std::nullopt);
    const auto length = engine::rope_length_of(config.rope, 10, 1001);
    ASSERT_TRUE(length);
    EXPECT_EQ(engine::rope_length_of(config.rope, 900, 3000), length) << "they may share KV blocks";
    for (const std::int64_t position : {0, 7, 600, 999}) {
        EXPECT_EQ(read_row(table, table.row(position, std::nullopt)), expected_row(config.rope, position, 1)) << position;
        EXPECT_EQ(read_row(table, table.row(position, length)), expected_row(config.rope, position, 4000)) << position;
    }
    EXPECT_EQ(read_row(table, table.row(3999, length)), expected_row(config.rope, 3999, 4000));
    EXPECT_NE(read_row(table, table.row(7, length)), read_row(table, table.row(7, std::nullopt)));
}

TEST(RopeTable, DimensionsThatAreNotRotatedKeepTheirValues) {
    const auto backend = tests::float32_backend();
    auto config = config_of(RopeConfig::Kind::standard);
    config.rotary_dims = 4;
    RopeTable table(config, *backend, 16);
    const std::vector<float> row = read_row(table, table.row(5, std::nullopt));  // cosines of 4 pairs, sines of 4 pairs
    const float first = std::cos(5.0F);
    EXPECT_THAT(row, testing::ElementsAre(testing::FloatEq(first), testing::FloatEq(std::cos(0.05F)), 1.0F, 1.0F,
                                          testing::FloatEq(std::sin(5.0F)), testing::FloatEq(std::sin(0.05F)), 0.0F, 0.0F));
}

}  // namespace
}  // namespace lorry
