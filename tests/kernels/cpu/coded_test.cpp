// Weights in codes multiply as the weights that they decode to, bit for bit, whatever the kind of codes, the groups and the number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "kernels/checkpoint_weights.h"
#include "kernels/coded_weight.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/reference.h"

namespace lorry::kernels::testing {

namespace {

// What numbers scales are. powers: of two, which the numbers of MXFP4 have; small_powers: with these, numbers are too small for a bfloat16.
enum class DrawnScales : std::uint8_t { float32, float16, bfloat16, powers, small_powers };

struct CodedShape {
    CodeKind kind;
    bool has_zeros;
    std::int64_t out_features, in_features, group;
    bool in_order = true;  // of the groups of inputs
    DrawnScales scales = DrawnScales::float32;
};

float drawn_scale(const CodedShape& shape, int number) {
    const float scale = static_cast<float>(number) * (shape.kind == CodeKind::table ? 1e-4F : 1e-6F);
    const auto without = [&](std::uint32_t bits) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & ~bits); };
    switch (shape.scales) {
        case DrawnScales::float32: break;
        case DrawnScales::float16: return std::max(without(0x1FFF), 0x1p-14F);
        case DrawnScales::bfloat16: return without(0xFFFF);
        case DrawnScales::powers: return std::ldexp(1.0F, number % 12 - 9);
        case DrawnScales::small_powers: return std::ldexp(1.0F, number % 12 - 135);
    }
    return scale;
}

constexpr std::array<float, 16> e2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// A weight drawn from a seed, as codes and as the numbers that they mean.
struct Drawn {
    Drawn(const CodedShape& shape, std::uint64_t seed) : out_features(shape.out_features), in_features(shape.in_features) {
        std::mt19937_64 random(seed);
        const auto number = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
        part.kind = shape.kind;
        for (std::size_t i = 0; i < part.table.size(); ++i) part.table[i] = static_cast<float>(i) * 0.37F - 2.0F;
        if (shape.scales >= DrawnScales::powers) part.table = e2m1;
        part.groups = (in_features + shape.group - 1) / shape.group;
        for (std::int64_t i = 0; i < out_features * in_features; ++i) {
            const int code = number(0, shape.kind == CodeKind::table ? 15 : 255);
            codes.push_back(static_cast<std::uint8_t>(shape.kind == CodeKind::e4m3 && (code & 0x7F) == 0x7F ? 0 : code));
        }
        for (std::int64_t i = 0; i < out_features * part.groups; ++i) {
            scales.push_back(drawn_scale(shape, number(1, 1000)));
            zeros.push_back(static_cast<std::int8_t>(number(-9, 15)));
        }
        for (std::int64_t i = 0; i < in_features; ++i)
            group_of.push_back(static_cast<std::int32_t>((shape.in_order ? i : i * 7 % in_features) / shape.group));
        part.codes = codes.data();
        part.scales = scales.data();
        part.group_of = group_of.data();
        if (shape.has_zeros) part.zeros = zeros.data();
        for (std::int64_t o = 0; o < out_features; ++o) {
            for (std::int64_t i = 0; i < in_features; ++i) numbers.push_back(decoded(part, in_features, o, i));
        }
    }
    WeightPart as_codes() const { return {.out_features = out_features, .in_features = in_features, .coded = &part}; }
    WeightPart as_numbers() const { return {.data = numbers.data(), .out_features = out_features, .in_features = in_features}; }

    std::int64_t out_features, in_features;
    CodedPart part;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    std::vector<std::int8_t> zeros;
    std::vector<std::int32_t> group_of;
    std::vector<float> numbers;
};

// Rows of normal numbers in a weight's input format.
struct Inputs {
    Inputs(Backend& backend, std::int64_t rows, std::int64_t columns, Format format) {
        std::mt19937_64 random(static_cast<std::uint64_t>(rows * 31 + columns));
        std::normal_distribution<float> normal;
        matrix = {.format = format, .rows = rows, .columns = columns, .stride = backend.row_stride(format, columns)};
        std::vector<std::byte> bytes(static_cast<std::size_t>(rows * matrix.stride) * bytes_of(format));
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t i = 0; i < columns; ++i) {
                const float value = normal(random);
                const Half half = to_bfloat16(value);
                std::byte* const to = bytes.data() + static_cast<std::size_t>(row * matrix.stride + i) * bytes_of(format);
                std::memcpy(to, format == Format::float32 ? static_cast<const void*>(&value) : &half, bytes_of(format));
            }
        }
        buffer = backend.allocate(bytes.size());
        backend.upload(buffer->data(), bytes);
        matrix.data = buffer->data();
    }
    std::unique_ptr<Buffer> buffer;
    Matrix matrix;
};

std::vector<float> product(Backend& backend, const PackedWeight& weight, const Matrix& in, bool gated) {
    const std::int64_t columns = weight.out_features();
    const auto bytes = static_cast<std::size_t>(in.rows * columns) * sizeof(float);
    const auto sums = backend.allocate(bytes);
    const auto out = backend.allocate(bytes);
    const Matrix all{.data = sums->data(), .rows = in.rows, .columns = columns, .stride = columns};
    std::vector<kernels::TokenId> tokens(static_cast<std::size_t>(in.rows));
    std::vector<std::int32_t> positions(tokens.size());
    std::vector<BlockId> blocks(static_cast<std::size_t>((in.rows + backend.block_size() - 1) / backend.block_size()));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
    const std::vector sequences = {StepSequence{.row_begin = 0, .row_count = in.rows, .position = 0, .blocks = blocks}};
    const StepInputs step{.rows = in.rows, .tokens = tokens, .positions = positions, .sequences = sequences};
    backend.begin_step(step);
    std::vector<float> got(static_cast<std::size_t>(in.rows * (gated ? columns / 2 : columns)));
    if (gated) {
        const Matrix half{.data = out->data(), .rows = in.rows, .columns = columns / 2, .stride = columns / 2};
        backend.activated_matmul({.gated = true, .out = half, .sums = all, .in = in, .weight = weight});
        backend.read_back(std::as_writable_bytes(std::span(got)), out->data());
    } else {
        backend.matmul({.out = all, .in = in, .weight = weight});
        backend.read_back(std::as_writable_bytes(std::span(got)), sums->data());
    }
    backend.finish_step();
    return got;
}

class CodedWeights : public ::testing::TestWithParam<Device> {};

// Pins: few rows decode in registers, many rows decode panels; both, and the fusion of gate and up, give the bits of decoded weights. Codes
// of 4 bits have tables if their groups are long, whole or cut by the weight's end, and not if groups are short or in any order; scales of
// 16 bits are widened, and those that are powers of two become exponents.
TEST_P(CodedWeights, MultiplyAsTheWeightsThatTheyDecodeTo) {
    const auto backend = GetParam().make();
    if (backend == nullptr) GTEST_SKIP() << GetParam().lacks();
    // Where bfloat16 is widened, codes decode to float32, which numbers in bfloat16 do not keep.
    Device of_float32 = GetParam();
    of_float32.weights = Format::float32;
    const auto exact = of_float32.make();
    for (const CodedShape& shape :
         {CodedShape{CodeKind::table, false, 70, 48, 16}, CodedShape{CodeKind::table, true, 96, 65, 32},
          CodedShape{CodeKind::table, false, 70, 128, 64}, CodedShape{CodeKind::table, true, 50, 75, 40},
          CodedShape{CodeKind::table, false, 33, 136, 128}, CodedShape{CodeKind::table, true, 50, 64, 8, false},
          CodedShape{CodeKind::integer, false, 48, 33, 33}, CodedShape{CodeKind::integer, true, 64, 40, 5},
          CodedShape{CodeKind::e4m3, false, 34, 70, 64}, CodedShape{CodeKind::table, false, 70, 128, 32, true, DrawnScales::float16},
          CodedShape{CodeKind::table, true, 50, 96, 40, true, DrawnScales::float16},
          CodedShape{CodeKind::table, true, 50, 64, 8, false, DrawnScales::float16},
          CodedShape{CodeKind::table, true, 34, 75, 64, true, DrawnScales::bfloat16},
          CodedShape{CodeKind::integer, true, 33, 40, 20, true, DrawnScales::float16},
          CodedShape{CodeKind::e4m3, false, 34, 70, 32, true, DrawnScales::bfloat16},
          CodedShape{CodeKind::table, false, 70, 136, 32, true, DrawnScales::powers},
          CodedShape{CodeKind::table, false, 50, 75, 40, true, DrawnScales::powers},
          CodedShape{CodeKind::table, false, 50, 96, 32, true, DrawnScales::small_powers}}) {
        for (const bool gated : {false, true}) {
            const Drawn first(shape, 5);
            const Drawn second(shape, 6);
            const std::vector codes = {first.as_codes(), second.as_codes()};
            const std::vector numbers = {first.as_numbers(), second.as_numbers()};
            const WeightRole role = gated ? WeightRole::gate_up : WeightRole::projection;
            const auto coded = backend->pack_weight(codes, role);
            const bool is_widened = coded->input_format() == Format::float32;
            const auto plain = (is_widened ? *exact : *backend).pack_weight(numbers, role);
            ASSERT_EQ(coded->input_format(), plain->input_format());
            EXPECT_TRUE(shape.kind != CodeKind::table || coded->bytes() < plain->bytes());
            for (const std::int64_t rows : {1, 2, 3, 4, 5, 9, 33, 300}) {
                SCOPED_TRACE(fmt::format("{} outputs, {} inputs, groups of {}, {} rows{}", shape.out_features, shape.in_features,
                                         shape.group, rows, gated ? ", gated" : ""));
                const Inputs in(*backend, rows, shape.in_features, coded->input_format());
                Backend& plain_backend = is_widened ? *exact : *backend;
                EXPECT_EQ(product(*backend, *coded, in.matrix, gated), product(plain_backend, *plain, in.matrix, gated));
            }
        }
    }
}

// Pins: rounding per token, as int-quantized checkpoints with int8 activations compute: the sum of products of integers, times the scale of
// the row and that of the output.
TEST_P(CodedWeights, OfRoundedInputsMultiplyIntegers) {
    const auto backend = GetParam().make();
    if (backend == nullptr) GTEST_SKIP() << GetParam().lacks();
    for (const bool gated : {false, true}) {
        const CodedShape shape{CodeKind::integer, false, 40, 70, 70};
        Drawn first(shape, 7);
        Drawn second(shape, 8);
        for (Drawn* const drawn : {&first, &second}) drawn->part.rounds_inputs = true;
        const std::vector codes = {first.as_codes(), second.as_codes()};
        const auto weight = backend->pack_weight(codes, gated ? WeightRole::gate_up : WeightRole::projection);
        const bool emulated = std::string_view(GetParam().name).starts_with("emulated");
        if (emulated && weight->input_format() != Format::int8_rows) GTEST_SKIP() << "emulated lanes take no rounded inputs for codes";
        ASSERT_EQ(weight->input_format(), Format::int8_rows);
        for (const std::int64_t rows : {1, 3, 33}) {
            reference::Table values(rows, shape.in_features);
            std::mt19937_64 random(static_cast<std::uint64_t>(rows));
            std::normal_distribution<float> normal;
            for (std::int64_t row = 0; row < rows; ++row) {
                for (std::int64_t i = 0; i < shape.in_features; ++i) values.at(row, i) = static_cast<double>(normal(random));
            }
            const Memory in(*backend, values, Format::int8_rows, 0);
            const std::vector<float> got = product(*backend, *weight, in.matrix(), gated);
            const reference::Table rounded = in.read();
            const auto sum = [&](const Drawn& drawn, std::int64_t row, std::int64_t output) {
                double out = 0.0;
                for (std::int64_t i = 0; i < shape.in_features; ++i)
                    out +=
                        rounded.at(row, i) * static_cast<double>(drawn.numbers[static_cast<std::size_t>(output * shape.in_features + i)]);
                return out;
            };
            const std::int64_t columns = std::ssize(got) / rows;
            for (std::int64_t row = 0; row < rows; ++row) {
                for (std::int64_t o = 0; o < columns; ++o) {
                    const double up = sum(gated ? second : o < shape.out_features ? first : second, row, o % shape.out_features);
                    const double gate = sum(first, row, o % shape.out_features);
                    // Without rounding, it would differ by a hundredth.
                    const double want = gated ? gate / (1.0 + std::exp(-gate)) * up : up;
                    EXPECT_NEAR(static_cast<double>(got[static_cast<std::size_t>(row * columns + o)]), want, 1e-5)
                        << "row " << row << ", output " << o << (gated ? ", gated" : "");
                }
            }
        }
    }
}

std::vector<Device> cpus() {
    std::vector<Device> found = devices();
    std::erase_if(found, [](const Device& device) {
        return device.is_gpu() || device.quantize != Quantization::none || device.kv != KvFormat::as_weights;
    });
    return found;
}

INSTANTIATE_TEST_SUITE_P(Cpus, CodedWeights, ::testing::ValuesIn(cpus()), name_of);

// Pins: parts that mean different things by their codes cannot share panels; they are stored as numbers.
TEST(CodedParts, WithDifferentMeaningsAreStoredAsNumbers) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = CpuIsa::scalar, .storage = {.weights = Format::float32}});
    const Drawn nibbles({CodeKind::table, false, 24, 32, 16}, 1);
    const Drawn bytes({CodeKind::integer, false, 24, 32, 16}, 2);
    const std::vector mixed = {nibbles.as_codes(), bytes.as_codes()};
    const std::vector numbers = {nibbles.as_numbers(), bytes.as_numbers()};
    const auto coded = backend->pack_weight(mixed, WeightRole::projection);
    const auto plain = backend->pack_weight(numbers, WeightRole::projection);
    EXPECT_EQ(coded->bytes(), plain->bytes());
    const Inputs in(*backend, 4, 32, Format::float32);
    EXPECT_EQ(product(*backend, *coded, in.matrix, false), product(*backend, *plain, in.matrix, false));
}

// Pins: a scale took twice the bytes that it has in the file.
TEST(CodedParts, KeepScalesInSixteenBitsIfTheyAreExact) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = CpuIsa::scalar, .storage = {.weights = Format::float32}});
    const auto bytes_with = [&](float scale) {
        Drawn drawn({CodeKind::table, false, 32, 64, 16}, 1);
        drawn.scales[70] = scale;
        const std::vector codes = {drawn.as_codes()};
        return backend->pack_weight(codes, WeightRole::projection)->bytes();
    };
    Drawn of_two({CodeKind::table, false, 32, 64, 16, true, DrawnScales::powers}, 1);
    const std::vector codes = {of_two.as_codes()};
    const std::size_t narrow = backend->pack_weight(codes, WeightRole::projection)->bytes();
    EXPECT_EQ(bytes_with(1.0F), narrow + sizeof(Half) * 32 * 4) << "the other scales are float32";
}

// Pins: each finite number of binary16 is found again, and no other number becomes one.
TEST(CodedParts, NumbersOfFloat16AreExactOnes) {
    for (std::uint32_t bits = 0; bits < 0x1'0000; ++bits) {
        const auto half = static_cast<Half>(bits);
        const float number = from_float16(half);
        if (!std::isfinite(number)) {
            EXPECT_EQ(exact_float16(number), std::nullopt) << bits;
            continue;
        }
        ASSERT_EQ(exact_float16(number), half) << bits;
        ASSERT_EQ(exact_float16(std::nextafter(number, 1e9F)), std::nullopt) << bits;
    }
    for (const float number : {65536.0F, 65520.0F, 0x1p-25F, 3e38F, 1.0F / 3.0F}) EXPECT_EQ(exact_float16(number), std::nullopt) << number;
}

// Pins: kernels that multiply scales of e4m3 by 2^120 do not get scales that this makes infinite.
TEST(CodedParts, OfE4m3WithLargeScalesAreStoredAsNumbers) {
    const auto backend = make_cpu_backend({.threads = 1, .storage = {.weights = Format::float32}});
    for (const float scale : {127.0F, -128.0F, 3e4F}) {
        Drawn drawn({CodeKind::e4m3, false, 24, 32, 32}, 3);
        std::ranges::fill(drawn.scales, scale);
        std::ranges::transform(drawn.codes, drawn.numbers.begin(), [&](std::uint8_t code) { return from_e4m3(code) * scale; });
        const std::vector codes = {drawn.as_codes()};
        const std::vector numbers = {drawn.as_numbers()};
        const auto coded = backend->pack_weight(codes, WeightRole::projection);
        const auto plain = backend->pack_weight(numbers, WeightRole::projection);
        EXPECT_EQ(coded->bytes() == plain->bytes(), std::abs(scale) >= 128.0F) << scale;
        const Inputs in(*backend, 2, 32, coded->input_format());
        EXPECT_EQ(product(*backend, *coded, in.matrix, false), product(*backend, *plain, in.matrix, false)) << scale;
    }
}

}  // namespace

}  // namespace lorry::kernels::testing
