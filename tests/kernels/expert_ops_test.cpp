// The ops that only mixtures of experts use, on each instruction set, and attention's sinks.
#include <algorithm>
#include <cmath>

#include "tests/kernels/cpu_devices.h"
#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

class ExpertOps : public OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Cpu, ExpertOps, ::testing::ValuesIn(cpu_devices()), name_of);

TEST_P(ExpertOps, PickedRowsAreCopiesInAnyFormat) {
    const Table from = normal(5, 33);
    const std::vector<std::int32_t> rows = {4, 0, 0, 2};
    std::vector<Format> formats = GetParam().narrow_formats();
    formats.push_back(Format::float32);
    for (const Format format : formats) {
        const Memory in(*backend_, from, format);
        const Memory out(*backend_, 4, 33, format);
        backend_->pick_rows({.out = out.matrix(), .in = in.matrix(), .rows = rows});
        EXPECT_TRUE(out.padding_is_untouched());
        for (std::size_t i = 0; i < rows.size(); ++i)
            EXPECT_EQ(out.read_row(static_cast<std::int64_t>(i)), in.read_row(rows[i])) << name_of(format);
    }
}

// Pins: a sum in another order, or one that loses what was there before.
TEST_P(ExpertOps, MixedRowsAddUpInOrder) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Table before = normal(3, 37);
    const Table experts = normal(6, 37);
    const Table shared = normal(3, 37);
    const Table scores = normal(3, 1);
    const std::vector<std::int32_t> places = {0, 3, 5, 1, 2, 2};
    const std::vector<float> factors = {0.5F, 0.25F, 0.125F, 0.3F, 0.7F, 0.1F};
    const Memory out(*backend_, before);
    const Memory out_without(*backend_, before);
    const Memory in(*backend_, experts);
    const Memory in_shared(*backend_, shared);
    const Memory in_scores(*backend_, scores);
    backend_->mix_rows({.out = out.matrix(),
                        .in = in.matrix(),
                        .places = places,
                        .factors = factors,
                        .shared = in_shared.matrix(),
                        .shared_scores = in_scores.matrix()});
    backend_->mix_rows(
        {.out = out_without.matrix(), .in = in.matrix(), .places = places, .factors = factors, .shared = {}, .shared_scores = {}});
    EXPECT_TRUE(out.padding_is_untouched());
    for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t i = 0; i < 37; ++i) {
            float sum = 0.0F;
            for (std::size_t j = 0; j < 2; ++j) {
                const std::size_t at = static_cast<std::size_t>(row) * 2 + j;
                sum += static_cast<float>(experts.at(places[at], i)) * factors[at];
            }
            EXPECT_EQ(out_without.read().at(row, i), static_cast<double>(static_cast<float>(before.at(row, i)) + sum));
            const double share = 1.0 / (1.0 + std::exp(-scores.at(row, 0)));
            EXPECT_NEAR(out.read().at(row, i), before.at(row, i) + static_cast<double>(sum) + share * shared.at(row, i), 1e-5);
        }
    }
}

TEST_P(ExpertOps, TheClampedGateAgreesWithItsFormula) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Table from = normal(4, 2 * 37, 3.0);
    const Memory in(*backend_, from);
    const Memory out(*backend_, 4, 37);
    backend_->clamped_gate({.out = out.matrix(), .in = in.matrix(), .alpha = 1.7F, .limit = 2.5F});
    EXPECT_TRUE(out.padding_is_untouched());
    Table want(4, 37);
    for (std::int64_t row = 0; row < 4; ++row) {
        for (std::int64_t i = 0; i < 37; ++i) {
            const double gate = std::min(from.at(row, i), 2.5);
            const double up = std::clamp(from.at(row, 37 + i), -2.5, 2.5);
            want.at(row, i) = gate / (1.0 + std::exp(-1.7 * gate)) * (up + 1.0);
        }
    }
    expect_close(out.read(), want, tolerance("activation", weights()));
}

// Pins: a sink of another head, and one that is left out of the largest score. Keys of zero give every token the same weight.
TEST_P(ExpertOps, SinksTakeTheirShareOfAttentionsWeights) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t rows = 21;
    constexpr std::int64_t size = 16;
    Table qkv = normal(rows, (4 + 2 * 2) * size);
    for (std::int64_t row = 0; row < rows; ++row) std::fill_n(qkv.data.begin() + row * qkv.columns + 4 * size, 2 * size, 0.0);
    Table sinks(1, 4);
    sinks.data = {-2.0, 0.5, 3.0, 100.0};
    const auto cache = backend_->make_kv_cache({1, 2, size}, 4, 0);
    poison(*backend_, *cache);
    const std::vector<BlockId> blocks = {3, 1};
    const std::vector<StepSequence> sequences = {{.row_begin = 0, .row_count = rows, .position = 0, .blocks = blocks}};
    const std::vector<std::int32_t> zeros(rows, 0);
    const StepInputs step{.rows = rows, .tokens = zeros, .positions = zeros, .rope_rows = zeros, .sequences = sequences, .sample_rows = {}};
    const Memory in(*backend_, qkv);
    const Memory out(*backend_, rows, 4 * size);
    const Memory sink(*backend_, sinks);
    backend_->begin_step(step);
    backend_->rope_store(
        {.qkv = in.matrix(), .heads = 4, .kv_heads = 2, .head_dim = size, .rope_table = {}, .cache = *cache, .layer = 0, .step = step});
    backend_->attention({.out = out.matrix(),
                         .qkv = in.matrix(),
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = size,
                         .scale = 0.25F,
                         .window = 9,
                         .sinks = sink.vector(),
                         .cache = *cache,
                         .layer = 0,
                         .step = step});
    const Table got = out.read();
    backend_->finish_step();
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t first = std::max<std::int64_t>(0, row - 8);
        for (std::int64_t head = 0; head < 4; ++head) {
            const double total = static_cast<double>(row - first + 1) + std::exp(sinks.at(0, head));
            for (std::int64_t d = 0; d < size; ++d) {
                double sum = 0.0;
                for (std::int64_t token = first; token <= row; ++token) sum += qkv.at(token, (6 + head / 2) * size + d);
                EXPECT_NEAR(got.at(row, head * size + d), sum / total, 0.03) << "row " << row << ", head " << head;
            }
        }
    }
}

}  // namespace

}  // namespace lorry::kernels::testing
