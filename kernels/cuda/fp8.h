// 8 bits of floating point as e4m3 has them (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"): 1 sign, 4 exponent and 3 fraction
// bits, no infinity, largest 448, steps of 2^-9 around zero. Weights are made of them on the host, rows of inputs on the device.
//
// A row of fp8 has a float32 scale, which stands with those of the other rows in a vector of their own, of a head's keys or values in a
// block behind all elements (shapes.h). What is not finite shows: the scale of a row that has an infinity or NaN is none either.
#pragma once

#include <bit>
#include <cstdint>

namespace lorry::kernels::cuda {

struct Fp8 {
    std::uint8_t bits = 0;
};

constexpr float fp8_largest = 448.0F;

// The nearest, of two the even one; 448 for all that is larger.
constexpr Fp8 fp8_of(float x) {
    constexpr float least_normal = 0.015625F;  // 2^-6
    constexpr float ones = 16384.0F;           // its neighbours are 2^-9 apart, as are numbers below least_normal
    constexpr std::uint32_t largest = 0x7E;
    const auto all = std::bit_cast<std::uint32_t>(x);
    const auto magnitude = std::bit_cast<float>(all & 0x7FFFFFFFU);
    const std::uint32_t sign = all >> 24 & 0x80U;
    if (x != x) return {0x7F};
    if (magnitude < least_normal) {
        const std::uint32_t steps = std::bit_cast<std::uint32_t>(magnitude + ones) - std::bit_cast<std::uint32_t>(ones);
        return {static_cast<std::uint8_t>(sign | steps)};
    }
    // 20 of 23 fraction bits go, 127 - 7 from the exponent.
    const std::uint32_t bits = all & 0x7FFFFFFFU;
    const std::uint32_t nearest = ((bits + 0x7FFFFU + (bits >> 20 & 1U)) >> 20) - (120U << 3);
    return {static_cast<std::uint8_t>(sign | (nearest < largest ? nearest : largest))};
}

constexpr float float_of(Fp8 x) {
    constexpr float from_exponent = 0x1p120F;  // the exponent's bias is 7, that of float32 127
    if ((x.bits & 0x7FU) == 0x7FU) return std::bit_cast<float>(0x7FFFFFFFU);
    const auto magnitude = std::bit_cast<float>((x.bits & 0x7FU) << 20) * from_exponent;
    return (x.bits & 0x80U) != 0 ? -magnitude : magnitude;
}

// Numbers ordered by magnitude, NaN last: of a row's largest, fp8_scale is the row's scale.
constexpr std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU; }
constexpr float fp8_scale(std::uint32_t largest_magnitude_bits) {
    constexpr float least = 1e-30F;  // rows of zeros, and where 1 / scale would overflow
    const float scale = std::bit_cast<float>(largest_magnitude_bits) / fp8_largest;
    return scale < least ? least : scale;
}

}  // namespace lorry::kernels::cuda
