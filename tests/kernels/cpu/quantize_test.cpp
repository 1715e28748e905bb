// int4 weights: the largest error, what is stored exactly, how shapes are padded, and the size.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/quantize.h"
#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

using cpu::int4_stretch;

struct Quantized {
    explicit Quantized(std::span<const float> weights)
        : nibbles(weights.size()), factors((weights.size() + int4_stretch - 1) / int4_stretch) {
        scale = cpu::quantize_int4(weights, nibbles, factors);
    }
    int integer(std::size_t i) const { return cpu::int4_value(nibbles[i], factors[i / int4_stretch]); }
    float value(std::size_t i) const { return static_cast<float>(integer(i)) * scale; }

    std::vector<std::uint8_t> nibbles;
    std::vector<std::uint8_t> factors;
    float scale = 0.0F;
};

std::vector<float> random_weights(std::size_t count, std::uint64_t seed, float deviation) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> weights(count);
    for (float& weight : weights) weight = normal(random);
    return weights;
}

double relative_error(std::span<const float> weights, const Quantized& got) {
    double errors = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        errors += std::pow(static_cast<double>(weights[i] - got.value(i)), 2.0);
        squares += std::pow(static_cast<double>(weights[i]), 2.0);
    }
    return std::sqrt(errors / squares);
}

TEST(Int4, NormalWeightsKeepNineTenthsOfTheirSize) {
    for (const std::size_t count : {1U, 5U, 16U, 17U, 33U, 576U, 1543U}) {
        const std::vector<float> weights = random_weights(count, count, 0.02F);
        EXPECT_LT(relative_error(weights, Quantized(weights)), count < 16 ? 0.1 : 0.08) << count << " weights";
    }
}

// Pins: each stretch has its own step, however much smaller than those of other stretches of the output.
TEST(Int4, AStretchIsOffByHalfAStepOfItsOwn) {
    std::vector<float> weights = random_weights(512, 3, 0.02F);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= static_cast<float>(i / int4_stretch % 8 + 1);
    const Quantized got(weights);
    for (std::size_t begin = 0; begin < weights.size(); begin += int4_stretch) {
        const auto [low, high] = std::minmax_element(weights.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     weights.begin() + static_cast<std::ptrdiff_t>(begin + int4_stretch));
        // A factor is a whole number, so a step may be one scale wider than the range needs.
        const float step = (*high - *low) / 15.0F + got.scale;
        float squares = 0.0F;
        for (std::size_t i = begin; i < begin + int4_stretch; ++i) squares += std::pow(weights[i] - got.value(i), 2.0F);
        EXPECT_LE(std::sqrt(squares / int4_stretch), step / 2.0F) << "weights from " << begin;
    }
}

TEST(Int4, EveryProductIsAnInt8) {
    std::mt19937_64 random(5);
    std::uniform_int_distribution<int> kind(0, 3);
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        // Ranges on one side of zero, outliers and weights of one sign could exceed int8.
        std::vector<float> weights = random_weights(64, seed, 1.0F);
        for (float& weight : weights) {
            if (kind(random) == 0) weight = std::abs(weight) * 10.0F;
        }
        if (seed % 2 == 0) {
            for (float& weight : weights) weight = -std::abs(weight);
        }
        const Quantized got(weights);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            EXPECT_GE(got.integer(i), -128) << "seed " << seed;
            EXPECT_LE(got.integer(i), 127) << "seed " << seed;
            EXPECT_LE(got.nibbles[i], 15);
        }
    }
}

TEST(Int4, ZerosStayZero) {
    const std::vector<float> zeros(40);
    const Quantized nothing(zeros);
    EXPECT_EQ(nothing.scale, 0.0F);
    for (std::size_t i = 0; i < zeros.size(); ++i) EXPECT_EQ(nothing.value(i), 0.0F);

    std::vector<float> weights = random_weights(48, 7, 1.0F);
    std::fill(weights.begin() + 16, weights.begin() + 32, 0.0F);
    weights[5] = 0.0F;
    const Quantized got(weights);
    EXPECT_EQ(got.value(5), 0.0F);
    for (std::size_t i = 16; i < 32; ++i) EXPECT_EQ(got.value(i), 0.0F);
    EXPECT_LT(relative_error(weights, got), 0.1);
}

// Pins: weights that 4.5 bits can represent are stored exactly.
TEST(Int4, WeightsOnItsGridComeBackExactly) {
    std::vector<float> weights(32);
    for (std::size_t i = 0; i < 16; ++i) weights[i] = static_cast<float>((static_cast<int>(i) - 8) * 15) * 0.25F;
    for (std::size_t i = 16; i < 32; ++i) weights[i] = static_cast<float>((static_cast<int>(i) - 20) * 3) * 0.25F;
    const Quantized got(weights);
    EXPECT_EQ(got.scale, 0.25F);
    for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(got.value(i), weights[i]) << i;
}

// Pins: a broken checkpoint does not give plausible answers.
TEST(Quantized, AnOutputWithAWeightThatIsNotFiniteIsNoNumber) {
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        reference::Table table(6, 40);
        table.at(2, 7) = broken;
        table.at(4, 7) = 1.0;
        const Part part(table, Format::float32, false);
        const WeightPart view = part.view();
        for (const cpu::Storage storage : {cpu::Storage::int8, cpu::Storage::int4}) {
            const cpu::Panels panels = cpu::pack_panels({&view, 1}, {.storage = storage, .width = 16, .group = 4});
            std::vector<float> row(40);
            cpu::unpack_row(panels, 2, row.data(), false);
            EXPECT_TRUE(std::ranges::none_of(row, [](float x) { return std::isfinite(x); }));
            cpu::unpack_row(panels, 4, row.data(), false);
            EXPECT_NEAR(row[7], 1.0F, 0.01F) << "other outputs must not change";
        }
    }
}

// Pins: panels hold the quantizer's results, for any shape and any layout of the checkpoint.
TEST(Int4, PanelsOfAnyShapeHoldEachOutputsOwnWeights) {
    for (const std::int64_t in_features : {4, 15, 16, 17, 40, 131}) {
        for (const std::int64_t out_features : {1, 47, 48, 49, 100}) {
            for (const bool transposed : {false, true}) {
                SCOPED_TRACE(::testing::Message() << out_features << " x " << in_features << (transposed ? " transposed" : ""));
                const std::vector<float> values = random_weights(static_cast<std::size_t>(in_features * out_features), 11, 0.1F);
                reference::Table table(out_features, in_features);
                for (std::size_t i = 0; i < values.size(); ++i) table.data[i] = static_cast<double>(values[i]);
                const Part part(table, Format::float32, transposed);
                const WeightPart view = part.view();
                const cpu::Panels panels = cpu::pack_panels({&view, 1}, {.storage = cpu::Storage::int4, .width = 48, .group = 4});
                const reference::Table unpacked = unpacked_weight(panels);
                for (std::int64_t output = 0; output < out_features; ++output) {
                    const std::span<const float> row(values.data() + output * in_features, static_cast<std::size_t>(in_features));
                    const Quantized want(row);
                    for (std::int64_t i = 0; i < in_features; ++i)
                        ASSERT_EQ(unpacked.at(output, i), static_cast<double>(want.value(static_cast<std::size_t>(i))));
                }
            }
        }
    }
}

TEST(Int4, TakesLittleMoreThanHalfOfInt8AndLeavesEmbeddingsInt8) {
    const auto int4 = make_cpu_backend({.threads = 1, .isa = {}, .storage = {.quantize = Quantization::int4}});
    const auto int8 = make_cpu_backend({.threads = 1, .isa = {}, .storage = {.quantize = Quantization::int8}});
    const Part part(reference::Table(960, 576), Format::float32, false);
    const WeightPart view = part.view();
    const auto bytes = [&](Backend& backend, WeightRole role) { return backend.pack_weight({&view, 1}, role)->bytes(); };
    // 4.5 bits per weight; a scale and an offset per output.
    EXPECT_EQ(bytes(*int4, WeightRole::projection), 960U * 576U * 9U / 16U + 960U * 8U);
    EXPECT_EQ(bytes(*int8, WeightRole::projection), 960U * 576U + 960U * 8U);
    EXPECT_EQ(bytes(*int4, WeightRole::embedding), bytes(*int8, WeightRole::embedding));
}

}  // namespace

}  // namespace lorry::kernels::testing
