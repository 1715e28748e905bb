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
        EXPECT_EQ(table.row(position, 1), position);
        EXPECT_EQ(read_row(table, table.row(position, 1)), expected_row(config.rope, position, 0)) << position;
    }
    EXPECT_FALSE(table.depends_on_prompt_length(4000));
}

TEST(RopeTable, DynamicFrequenciesFollowThePromptAndThenEachToken) {
    const auto backend = tests::float32_backend();
    const auto config = config_of(RopeConfig::Kind::dynamic);
    RopeTable table(config, *backend, 16);
    const auto row = [&](std::int64_t position, std::int64_t prompt) { return read_row(table, table.row(position, prompt)); };
    EXPECT_EQ(row(10, 500), expected_row(config.rope, 10, 500)) << "within the original context";
    EXPECT_EQ(row(10, 500), expected_row(config.rope, 10, 1));
    EXPECT_EQ(row(10, 1500), expected_row(config.rope, 10, 1500)) << "prompt tokens use the prompt's length";
    EXPECT_EQ(row(1499, 1500), expected_row(config.rope, 1499, 1500));
    EXPECT_EQ(row(1500, 1500), expected_row(config.rope, 1500, 1501)) << "generated tokens use their own length";
    EXPECT_EQ(row(1499, 20), expected_row(config.rope, 1499, 1500));
    EXPECT_EQ(row(1000, 20), expected_row(config.rope, 1000, 1001));
    EXPECT_NE(row(10, 1500), row(10, 500));
    EXPECT_TRUE(table.depends_on_prompt_length(1001));
    EXPECT_FALSE(table.depends_on_prompt_length(1000));
}

// Pins: the part of the table with fixed frequencies was as long as the original context, also where the table was shorter.
TEST(RopeTable, MayEndBeforeTheOriginalContext) {
    const auto backend = tests::float32_backend();
    auto config = config_of(RopeConfig::Kind::dynamic);
    config.max_positions = 600;
    RopeTable table(config, *backend, 16);
    EXPECT_EQ(table.matrix().rows, 600 + 2 * 16);
    EXPECT_EQ(read_row(table, table.row(599, 1)), expected_row(config.rope, 599, 1));
    EXPECT_EQ(table.row(599, 1), 599);
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

}  // namespace
}  // namespace lorry
