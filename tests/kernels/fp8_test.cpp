// How fp8 rounds numbers, weights and rows, and that matmuls multiply exactly the rounded values.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cuda/fp8.h"
#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

using cuda::float_of;
using cuda::Fp8;
using cuda::fp8_of;
using reference::Table;

constexpr float float_infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

TEST(Fp8, EveryOfItsNumbersIsItself) {
    for (unsigned bits = 0; bits < 256; ++bits) {
        const Fp8 code{static_cast<std::uint8_t>(bits)};
        const float value = float_of(code);
        if ((bits & 0x7FU) == 0x7FU) {
            EXPECT_TRUE(std::isnan(value)) << bits;
            continue;
        }
        EXPECT_EQ(fp8_of(value).bits, bits) << value;
        EXPECT_EQ(static_cast<double>(value), reference::e4m3(static_cast<double>(value))) << bits;
    }
    EXPECT_EQ(float_of({0x7E}), 448.0F);
    EXPECT_EQ(float_of({0x81}), -0.001953125F);  // 2^-9
}

// Pins: rounding, ties and their neighbours, and both ends of the range.
TEST(Fp8, EveryNumberBecomesTheNearest) {
    const auto expect_nearest = [](float x) {
        EXPECT_EQ(static_cast<double>(float_of(fp8_of(x))), reference::e4m3(static_cast<double>(x))) << x;
        EXPECT_EQ(float_of(fp8_of(-x)), -float_of(fp8_of(x))) << x;
    };
    for (unsigned bits = 0; bits < 0x7E; ++bits) {
        const float low = float_of({static_cast<std::uint8_t>(bits)});
        const float high = float_of({static_cast<std::uint8_t>(bits + 1)});
        const float middle = (low + high) / 2.0F;
        for (const float x : {low, std::nextafter(low, high), std::nextafter(middle, low), middle, std::nextafter(middle, high)})
            expect_nearest(x);
    }
    std::mt19937_64 random(20261121);
    std::uniform_int_distribution<std::uint32_t> any(0, 0x7F7FFFFF);  // all finite numbers
    for (int i = 0; i < 100'000; ++i) expect_nearest(std::bit_cast<float>(any(random)));
    EXPECT_EQ(float_of(fp8_of(1e9F)), 448.0F);
    EXPECT_EQ(float_of(fp8_of(-float_infinity)), -448.0F);
    EXPECT_TRUE(std::isnan(float_of(fp8_of(not_a_number))));
}

std::vector<Device> gpus() {
    std::vector<Device> gpus = devices();
    std::erase_if(gpus, [](const Device& device) { return device.quantize != Quantization::fp8; });
    return gpus;
}

class Fp8Rows : public OnEachDevice {
protected:
    // Numbers that e4m3 represents, with 448 in each row: scales are 1 and nothing is rounded.
    Table representable(std::int64_t rows, std::int64_t columns) {
        Table table(rows, columns);
        for (double& value : table.data) value = static_cast<double>(number(-8, 8));
        for (std::int64_t row = 0; row < rows; ++row) table.at(row, number(0, columns - 1)) = number(0, 1) == 0 ? 448.0 : -448.0;
        return table;
    }
};

// Pins: each weight is multiplied by its own input, to the last bit, whether rows begin at multiples of 16 bytes or not.
TEST_P(Fp8Rows, SumsOfRepresentableNumbersAreExact) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    struct Shape {
        std::int64_t rows, in, out, padding;
    };
    for (const Shape& shape : {Shape{1, 16, 1, 4}, Shape{3, 64, 65, 4}, Shape{65, 80, 64, 8}, Shape{64, 576, 63, 4}, Shape{2, 200, 130, 3},
                               Shape{5, 15, 7, 1}, Shape{63, 65, 66, 3}, Shape{130, 128, 9, 4}}) {
        SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.in << " x " << shape.out);
        const Part part(representable(shape.out, shape.in), Format::float32, false);
        const WeightPart view = part.view();
        const auto weight = backend_->pack_weight({&view, 1}, WeightRole::projection);
        ASSERT_EQ(weight->input_format(), Format::fp8_rows);
        const Table x = representable(shape.rows, shape.in);
        const Memory in(*backend_, x, Format::fp8_rows, shape.padding);
        const Memory out(*backend_, shape.rows, shape.out);
        backend_->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight});
        EXPECT_EQ(out.read().data, reference::matmul(x, part.stored).data);
    }
}

// Pins: rows of zeros, of numbers so small that their scale has no inverse, and of numbers so large that their squares overflow.
TEST_P(Fp8Rows, RowsOfAnySizeKeepTheirLargestNumber) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const std::int64_t columns : {4, 33, 300}) {
        Table x(5, columns);
        const double sizes[] = {0.0, 1e-42, 1e-25, 1.0, 3e38};
        for (std::int64_t row = 0; row < x.rows; ++row) {
            for (std::int64_t i = 0; i < columns; ++i)
                x.at(row, i) = reference::rounded(sizes[row] / static_cast<double>(1 + i), Format::float32);
        }
        const Memory in(*backend_, x);
        const Memory narrow(*backend_, 5, columns, Format::fp8_rows);
        backend_->activation({.kind = ActivationKind::relu, .out = narrow.matrix(), .in = in.matrix()});
        EXPECT_EQ(narrow.read().data, Memory(*backend_, x, Format::fp8_rows).read().data);
        for (std::int64_t row = 2; row < x.rows; ++row) {
            const auto largest = static_cast<double>(narrow.read_row(row).front());
            EXPECT_NEAR(largest, x.at(row, 0), 1e-6 * x.at(row, 0)) << "the largest is 448 scales";
        }
        for (const float value : narrow.read_row(0)) EXPECT_EQ(value, 0.0F);
        for (const float value : narrow.read_row(1)) EXPECT_LE(std::abs(value), 1e-30F);
    }
}

// Pins: a broken checkpoint does not give plausible answers, and does not affect other outputs.
TEST_P(Fp8Rows, AnOutputWithAWeightThatIsNotFiniteIsNoNumber) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const float broken : {not_a_number, float_infinity}) {
        Table values = normal(70, 40);
        values.at(2, 7) = static_cast<double>(broken);
        for (std::int64_t i = 0; i < 40; ++i) values.at(4, i) = 0.0;
        const Part part(values, Format::float32, false);
        const WeightPart view = part.view();
        const auto weight = backend_->pack_weight({&view, 1}, WeightRole::projection);
        const Memory in(*backend_, normal(3, 40), Format::fp8_rows);
        const Memory out(*backend_, 3, 70);
        backend_->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight});
        for (std::int64_t row = 0; row < 3; ++row) {
            const std::vector<float> sums = out.read_row(row);
            EXPECT_FALSE(std::isfinite(sums[2]));
            EXPECT_EQ(sums[4], 0.0F);
            EXPECT_EQ(std::ranges::count_if(sums, [](float sum) { return std::isfinite(sum); }), 69);
        }
    }
}

TEST_P(Fp8Rows, ARowThatIsNotFiniteSpoilsItsOwnSumsAlone) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Part part(normal(70, 40), Format::float32, false);
    const WeightPart view = part.view();
    const auto weight = backend_->pack_weight({&view, 1}, WeightRole::projection);
    for (const float broken : {not_a_number, float_infinity, -float_infinity}) {
        Table x = normal(5, 40);
        x.at(1, 17) = static_cast<double>(broken);
        const Memory wide(*backend_, x);
        const Memory ones(*backend_, Table(normal(1, 40)));
        const Memory in(*backend_, 5, 40, Format::fp8_rows);
        backend_->norm(
            {.kind = NormKind::rms, .out = in.matrix(), .in = wide.matrix(), .weight = ones.vector(), .bias = {}, .epsilon = 1e-5F});
        const Memory out(*backend_, 5, 70);
        backend_->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight});
        for (std::int64_t row = 0; row < 5; ++row) {
            for (const float sum : out.read_row(row)) EXPECT_EQ(std::isfinite(sum), row != 1) << "row " << row;
        }
    }
}

TEST_P(Fp8Rows, TakeAByteForEachWeightAndLeaveEmbeddingsWide) {
    const Part part(Table(65, 70), Format::float32, false);
    const WeightPart view = part.view();
    const auto projection = backend_->pack_weight({&view, 1}, WeightRole::projection);
    const auto embedding = backend_->pack_weight({&view, 1}, WeightRole::embedding);
    EXPECT_EQ(projection->bytes(), 65U * 128U + 65U * 4U) << "rows are filled up to 64";
    EXPECT_EQ(embedding->bytes(), 65U * 128U * 2U);
    EXPECT_EQ(embedding->input_format(), Format::bfloat16);
}

INSTANTIATE_TEST_SUITE_P(Op, Fp8Rows, ::testing::ValuesIn(gpus()), name_of);

// Pins: a device that lacks a format says which ones it has.
TEST(Fp8, OnlyTheGpuHasItAndItHasNoIntegers) {
    const auto refusal = [](const auto& make) {
        try {
            make();
        } catch (const std::runtime_error& error) {
            return std::string(error.what());
        }
        return std::string("made");
    };
    EXPECT_EQ(refusal([] { return make_cpu_backend({.threads = 1, .isa = {}, .storage = {.quantize = Quantization::fp8}}); }),
              "the CPU has no fp8 weights: choose int8 or int4");
    EXPECT_EQ(refusal([] { return make_cpu_backend({.threads = 1, .isa = {}, .storage = {.kv = KvFormat::fp8}}); }),
              "the CPU has no fp8 KV cache: choose int8");
    EXPECT_EQ(refusal([] { return make_cuda_backend({.storage = {.kv = KvFormat::int8}}); }), "the GPU has no int8 KV cache: choose fp8");
    EXPECT_EQ(refusal([] { return make_cuda_backend({.storage = {.quantize = Quantization::int8}}); }),
              "the GPU has no int8 weights: choose fp8");
    EXPECT_EQ(refusal([] { return make_cuda_backend({.storage = {.quantize = Quantization::int4}}); }),
              "the GPU has no int4 weights: choose fp8");
}

}  // namespace

}  // namespace lorry::kernels::testing
