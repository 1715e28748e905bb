// A row's bits depend neither on other rows nor on the number of threads (attention_test.cpp tests the same for attention).
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/kernels/devices.h"
#include "tests/support/labels.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

class RowInvariance : public OnEachDevice {
protected:
    // An odd number, unless a table's row needs a multiple.
    static std::int64_t in_features() { return GetParam().has_library ? 80 : 77; }
    static Table row_of(const Table& table, std::int64_t row) {
        Table one(1, table.columns);
        for (std::int64_t i = 0; i < table.columns; ++i) one.at(0, i) = table.at(row, i);
        return one;
    }
    static Table rows_of(const Table& table, std::int64_t begin, std::int64_t count) {
        Table part(count, table.columns);
        for (std::int64_t row = 0; row < count; ++row) {
            for (std::int64_t i = 0; i < table.columns; ++i) part.at(row, i) = table.at(begin + row, i);
        }
        return part;
    }
};

TEST_P(RowInvariance, MatmulRowsAreTheSameAmongAnyNumberOfOthers) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Part part(normal(160, in_features(), 0.1), Format::float32, false);
    const WeightPart view = part.view();
    const Table x = reference::rounded(normal(300, in_features()), input());
    const auto one_thread = GetParam().make(1);
    const auto weight = one_thread->pack_weight({&view, 1}, WeightRole::projection);
    const Memory all_out(*one_thread, 300, 160);
    const Memory all_in(*one_thread, x, weight->input_format());
    one_thread->matmul({.out = all_out.matrix(), .in = all_in.matrix(), .weight = *weight});

    const auto three_threads = GetParam().make(3);
    const auto same_weight = three_threads->pack_weight({&view, 1}, WeightRole::projection);
    std::int64_t begin = 0;
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 24, 171}) {
        const Memory in(*three_threads, rows_of(x, begin, rows), weight->input_format());
        const Memory out(*three_threads, rows, 160);
        three_threads->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *same_weight});
        for (std::int64_t row = 0; row < rows; ++row)
            ASSERT_EQ(out.read_row(row), all_out.read_row(begin + row)) << "one of " << rows << " rows";
        begin += rows;
    }
    ASSERT_EQ(begin, 300);
    const Memory in(*three_threads, x, same_weight->input_format());
    const Memory out(*three_threads, 300, 160);
    three_threads->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *same_weight});
    EXPECT_EQ(out.read().data, all_out.read().data);
}

// Pins: the most rows that the chunks of each thread's share can have, and that the scratch memory of an activated matmul holds.
TEST_P(RowInvariance, RowsThatFillTheirChunksAreTheSameOnOneThread) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Part gate(normal(96, in_features(), 0.1), Format::float32, false);
    const Part up(normal(96, in_features(), 0.1), Format::float32, false);
    const WeightPart views[] = {gate.view(), up.view()};
    const Table x = reference::rounded(normal(480, in_features()), input());
    std::vector<std::vector<double>> sums;
    std::vector<std::vector<double>> activated;
    for (const int threads : {1, 2}) {
        const auto backend = GetParam().make(threads);
        const auto weight = backend->pack_weight(views, WeightRole::gate_up);
        const Memory in(*backend, x, weight->input_format());
        const Memory out(*backend, 480, 192);
        const Memory gated(*backend, 480, 96, weight->input_format());
        backend->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight});
        sums.push_back(out.read().data);
        backend->activated_matmul(
            {.gated = true, .out = gated.matrix(), .sums = out.matrix(), .in = in.matrix(), .weight = *weight, .bias = {}});
        activated.push_back(gated.read().data);
    }
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(activated[0], activated[1]);
}

// Pins: a GPU moves four elements at once only at a multiple of their size.
TEST_P(RowInvariance, NormedAndActivatedRowsAreTheSameWhereverTheyStand) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::int64_t columns = 300;
    const Table x = normal(5, 2 * columns);
    const Memory weight(*backend_, normal(1, columns));
    std::vector<Format> formats = GetParam().narrow_formats();
    formats.push_back(Format::float32);
    for (const Format format : formats) {
        const auto both = [&](const Table& rows, std::int64_t padding) {
            const Memory in(*backend_, rows, Format::float32, padding);
            const Memory normed(*backend_, rows.rows, columns, format, padding);
            const Memory activated(*backend_, rows.rows, columns, format, padding);
            backend_->norm({.kind = NormKind::layer,
                            .out = normed.matrix(),
                            .in = in.matrix().slice_columns(0, columns),
                            .weight = weight.vector(),
                            .bias = weight.vector(),
                            .epsilon = 1e-5F});
            backend_->activation({.kind = ActivationKind::silu, .gated = true, .out = activated.matrix(), .in = in.matrix()});
            return std::pair(normed.read().data, activated.read().data);
        };
        EXPECT_EQ(both(x, 3), both(x, 4)) << kernels::name_of(format);
        EXPECT_EQ(both(row_of(x, 0), 0), both(row_of(x, 0), 1)) << kernels::name_of(format);
    }
}

TEST_P(RowInvariance, LoraRowsAreTheSameAloneAndBesideOtherAdapters) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Table x = reference::rounded(normal(64, 90), input());
    const Table before = normal(64, 60);
    std::vector<std::unique_ptr<PackedLora>> adapters;
    for (const std::int64_t rank : {8, 5, 32}) {
        const Part a(normal(rank, 90, 0.1), Format::float32, false);
        const Part b(normal(60, rank, 0.1), Format::float32, false);
        const LoraPart lora{a.view(), b.view(), 1.5F, 0};
        adapters.push_back(backend_->pack_lora({&lora, 1}));
    }
    const std::vector<LoraGroup> groups{
        {0, 10, adapters[0].get()}, {10, 1, adapters[1].get()}, {11, 2, nullptr}, {13, 51, adapters[2].get()}};
    const Memory in(*backend_, x, input());
    const Memory out(*backend_, before);
    backend_->lora({.out = out.matrix(), .in = in.matrix(), .groups = groups});
    for (const LoraGroup& group : groups) {
        for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
            const LoraGroup alone{0, 1, group.lora};
            const Memory one_in(*backend_, row_of(x, row), input());
            const Memory one_out(*backend_, row_of(before, row));
            backend_->lora({.out = one_out.matrix(), .in = one_in.matrix(), .groups = {&alone, 1}});
            ASSERT_EQ(one_out.read_row(0), out.read_row(row)) << "row " << row;
        }
    }
}

// Pins: a row's sums are the same whether its adapter's rows fill one tile or many, and whether the pieces of the inputs are added up by
// another block or by the same one.
TEST_P(RowInvariance, LoraRowsAreTheSameInGroupsOfAnySize) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::int64_t in_features = 1104;  // three pieces
    const Part a(normal(72, in_features, 0.03), Format::float32, false);
    const Part b(normal(60, 40, 0.1), Format::float32, false);
    const Part second_b(normal(300, 32, 0.1), Format::float32, false);
    const Table both = a.stored;
    const Part first_a(rows_of(both, 0, 40), Format::float32, false);
    const Part second_a(rows_of(both, 40, 32), Format::float32, false);
    const LoraPart parts[] = {{first_a.view(), b.view(), 1.0F, 0}, {second_a.view(), second_b.view(), 1.0F, 60}};
    const auto lora = backend_->pack_lora(parts);
    const Table x = reference::rounded(normal(34, in_features), input());
    const Table before = normal(34, 360);
    const Memory in(*backend_, x, input(), 8);
    std::vector<std::vector<float>> alone;
    for (std::int64_t row = 0; row < 34; ++row) {
        const Memory one_in(*backend_, row_of(x, row), input());
        const Memory one_out(*backend_, row_of(before, row));
        const LoraGroup group{0, 1, lora.get()};
        backend_->lora({.out = one_out.matrix(), .in = one_in.matrix(), .groups = {&group, 1}});
        alone.push_back(one_out.read_row(0));
    }
    for (const std::int64_t rows : {2, 16, 17, 34}) {
        const Memory out(*backend_, before);
        const LoraGroup group{34 - rows, rows, lora.get()};
        backend_->lora({.out = out.matrix(), .in = in.matrix(), .groups = {&group, 1}});
        for (std::int64_t row = 34 - rows; row < 34; ++row)
            ASSERT_EQ(out.read_row(row), alone[static_cast<std::size_t>(row)]) << "one of " << rows << " rows";
    }
    // Enough groups to fill a chip: 140 of one row, each with two blocks for its 72 ranks.
    Table many_x(140, in_features);
    Table many_before(140, 360);
    std::vector<LoraGroup> groups;
    for (std::int64_t row = 0; row < 140; ++row) {
        for (std::int64_t i = 0; i < in_features; ++i) many_x.at(row, i) = x.at(row % 34, i);
        for (std::int64_t i = 0; i < 360; ++i) many_before.at(row, i) = before.at(row % 34, i);
        groups.push_back({row, 1, lora.get()});
    }
    const Memory many_in(*backend_, many_x, input(), 8);
    const Memory many_out(*backend_, many_before);
    backend_->lora({.out = many_out.matrix(), .in = many_in.matrix(), .groups = groups});
    for (std::int64_t row = 0; row < 140; ++row)
        ASSERT_EQ(many_out.read_row(row), alone[static_cast<std::size_t>(row % 34)]) << "row " << row;
}

// Pins: int8 and int4 results do not depend on the instruction set; bfloat16 results are the same from the processor and from the
// emulation, except with tiles, which add up in their own order.
TEST(SameBits, DotMatmulsOfAllInstructionSetsAgreeBitForBit) {
    std::map<std::string, std::vector<double>> outputs;
    for (const Device& device : devices()) {
        const auto backend = device.is_gpu() ? nullptr : device.make();
        if (backend == nullptr) continue;
        std::mt19937_64 random(7);
        std::normal_distribution<double> normal;
        Table w(101, 203);
        Table x(30, 203);
        for (Table* table : {&w, &x}) {
            for (double& value : table->data) value = reference::rounded(normal(random), Format::float32);
        }
        const Part part(w, Format::float32, false);
        const WeightPart view = part.view();
        const auto weight = backend->pack_weight({&view, 1}, WeightRole::projection);
        if (weight->input_format() == Format::float32) continue;
        const Memory in(*backend, x, weight->input_format());
        const Memory out(*backend, 30, 101);
        backend->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight});
        std::string arithmetic =
            device.quantize != Quantization::none ? kernels::name_of(device.quantize) : kernels::name_of(device.weights);
        if (device.multiplies_by_tiles()) arithmetic += " by tiles";
        const auto [place, is_first] = outputs.try_emplace(arithmetic, out.read().data);
        if (!is_first) {
            EXPECT_EQ(out.read().data, place->second) << device.name;
        }
    }
    EXPECT_EQ(outputs.count("int8"), 1U);
    EXPECT_EQ(outputs.count("int4"), 1U);
}

// An output's sum by the description of TDPBF16PS (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 4), for
// 32 inputs at a time.
float sum_by_tiles(const Table& x, std::int64_t row, const Table& weight, std::int64_t output) {
    const auto flushed = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value; };
    const auto number = [&](const Table& table, std::int64_t at, std::int64_t i) { return flushed(static_cast<float>(table.at(at, i))); };
    float sum = 0.0F;
    for (std::int64_t begin = 0; begin < x.columns; begin += 32) {
        float sums[2] = {};
        for (std::int64_t i = begin; i < std::min(begin + 32, x.columns); ++i)
            sums[i % 2] = flushed(std::fma(number(x, row, i), number(weight, output, i), sums[i % 2]));
        sum = flushed(sum + flushed(sums[0] + sums[1]));
    }
    return sum;
}

// Pins: a row is summed the same way whatever number of rows a tile has, with widths that do not fill a panel and inputs that do not fill a
// tile, down to numbers that tiles treat as zero.
TEST(SameBits, BfloatMatmulsByTilesAreAsTheManualSays) {
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal;
    int tested = 0;
    for (const Device& device : devices()) {
        if (!device.multiplies_by_tiles()) continue;
        const auto backend = device.make();
        if (backend == nullptr) continue;
        ++tested;
        for (const auto& [in_features, out_features] : {std::pair{2, 5}, std::pair{8, 48}, std::pair{31, 17}, std::pair{32, 96},
                                                        std::pair{33, 49}, std::pair{64, 16}, std::pair{203, 101}, std::pair{576, 50}}) {
            for (const double magnitude : {1.0, 0x1p-62, 0x1p-63}) {
                SCOPED_TRACE(::testing::Message() << device.name << ' ' << in_features << " x " << out_features << ", " << magnitude);
                Table w(out_features, in_features);
                Table x(40, in_features);
                for (Table* table : {&w, &x}) {
                    for (double& value : table->data) value = reference::rounded(normal(random) * magnitude, Format::bfloat16);
                }
                // Inputs that would change the sum if they were not treated as zero.
                for (std::int64_t i = 0; i < in_features; i += 7) {
                    x.at(i % 40, i) = 0x1p-127;
                    w.at(0, i) = 0x1p64;
                }
                const Part part(w, Format::bfloat16, false);
                const WeightPart view = part.view();
                const auto weight = backend->pack_weight({&view, 1}, WeightRole::projection);
                ASSERT_EQ(weight->input_format(), Format::bfloat16);
                Table want(40, out_features);
                for (std::int64_t row = 0; row < 40; ++row) {
                    for (std::int64_t output = 0; output < out_features; ++output)
                        want.at(row, output) = static_cast<double>(sum_by_tiles(x, row, w, output));
                }
                const Memory in(*backend, x, Format::bfloat16);
                const Memory out(*backend, 40, out_features);
                for (std::int64_t rows = 1; rows <= 40; ++rows) {
                    backend->matmul({.out = out.matrix().slice_rows(40 - rows, rows),
                                     .in = in.matrix().slice_rows(40 - rows, rows),
                                     .weight = *weight});
                    const Table got = out.read();
                    for (std::int64_t i = (40 - rows) * out_features; i < 40 * out_features; ++i) {
                        const auto at = static_cast<std::size_t>(i);
                        ASSERT_EQ(got.data[at], want.data[at]) << rows << " rows, row " << i / out_features;
                    }
                }
            }
        }
    }
    EXPECT_GE(tested, 1);
}

const tests::Labelled float32_lora_in_orders{"*.LoraRows*/cuda_float32", {tests::Label::in_orders}};
INSTANTIATE_TEST_SUITE_P(Op, RowInvariance, ::testing::ValuesIn(devices()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
