// Chooses factor, zero and nibbles of each stretch; see quantize.h.
#include "kernels/cpu/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

// Four lanes, which every x86-64 has.
using Lanes = Vectors<4>::Floats;
using Stretch = std::array<Lanes, int4_stretch / 4>;

constexpr int nibble_most = 15;
constexpr int factor_most = 15;
constexpr int factors_tried = 2;  // the one that covers the range and the next smaller one, which clips its ends

struct Range {
    float low = 0.0F;
    float high = 0.0F;
    float width() const { return high - low; }
};

Range range_of(const Stretch& weights) {
    Lanes low{};
    Lanes high{};
    for (const Lanes& four : weights) {
        low = four < low ? four : low;
        high = four > high ? four : high;
    }
    return {std::min({low[0], low[1], low[2], low[3]}), std::max({high[0], high[1], high[2], high[3]})};
}

// A stretch in steps of `step`, before the zero is added, clamped to [low, high].
Stretch rounded(const Stretch& weights, float step, int low, int high) {
    constexpr float round = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    const float inverse = 1.0F / step;
    const Lanes least = static_cast<float>(low) - Lanes{};
    const Lanes most = static_cast<float>(high) - Lanes{};
    Stretch steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        Lanes four = weights[i] * inverse;
        // In this order a NaN becomes a number in range.
        four = four > least ? four : least;
        four = four < most ? four : most;
        steps[i] = (four + round) - round;
    }
    return steps;
}

float squared_error(const Stretch& weights, const Stretch& steps, float step) {
    Lanes sums{};
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Lanes error = weights[i] - steps[i] * step;
        sums += error * error;
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The choice for a stretch.
struct Choice {
    int factor = 0;
    int zero = 0;
    Stretch steps{};
};

Choice choose(const Stretch& weights, float scale) {
    const Range range = range_of(weights);
    Choice best;
    float least = squared_error(weights, best.steps, 0.0F);
    // Slightly less, because the division may have rounded up.
    const int fits = std::clamp(static_cast<int>(std::ceil(range.width() / (scale * nibble_most) - 1e-4F)), 1, factor_most);
    for (int factor = std::max(1, fits - factors_tried + 1); factor <= fits; ++factor) {
        const float step = scale * static_cast<float>(factor);
        const int nearest = static_cast<int>(std::lrintf(-range.low / step));
        for (int zero = std::max(0, nearest - 1); zero <= std::min(nibble_most, nearest + 1); ++zero) {
            // The products are int8.
            const int low = -std::min(zero, 128 / factor);
            const int high = std::min(nibble_most - zero, 127 / factor);
            const Stretch steps = rounded(weights, step, low, high);
            const float error = squared_error(weights, steps, step);
            if (error < least) {
                least = error;
                best = {.factor = factor, .zero = zero, .steps = steps};
            }
        }
    }
    return best;
}

}  // namespace

float quantize_int4(std::span<const float> weights, std::span<std::uint8_t> nibbles, std::span<std::uint8_t> factors) {
    const std::size_t stretches = (weights.size() + int4_stretch - 1) / int4_stretch;
    CHECK(nibbles.size() == weights.size() && factors.size() == stretches,
          "there is a nibble for each weight and a byte of factors for each stretch");
    // Padded with zeros, which cost no precision.
    const auto stretch = [&](std::size_t index) {
        Stretch padded{};
        const std::size_t begin = index * int4_stretch;
        const std::span<const float> part = weights.subspan(begin, std::min<std::size_t>(int4_stretch, weights.size() - begin));
        std::memcpy(&padded, part.data(), part.size_bytes());
        return padded;
    };
    // The scale with which the widest stretch needs the largest factor and the largest weight fits into an int8.
    float scale = 0.0F;
    for (std::size_t i = 0; i < stretches; ++i) {
        const Range range = range_of(stretch(i));
        scale = std::max({scale, range.width() / (nibble_most * factor_most), range.high / 127.0F, -range.low / 127.0F});
    }
    for (const float weight : weights) scale += weight - weight;
    if (scale == 0.0F || !std::isfinite(scale)) {
        std::ranges::fill(nibbles, std::uint8_t{0});
        std::ranges::fill(factors, std::uint8_t{0});
        return scale;
    }
    for (std::size_t i = 0; i < stretches; ++i) {
        const Choice choice = choose(stretch(i), scale);
        factors[i] = static_cast<std::uint8_t>(choice.factor | choice.zero << 4);
        const std::size_t begin = i * int4_stretch;
        for (std::size_t j = 0; j < int4_stretch && begin + j < nibbles.size(); ++j)
            nibbles[begin + j] = static_cast<std::uint8_t>(static_cast<int>(choice.steps[j / 4][j % 4]) + choice.zero);
    }
    return scale;
}

}  // namespace lorry::kernels::cpu
