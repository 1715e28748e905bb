// 8 bits of floating point as e4m3 has them (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"): 1 sign, 4 exponent and 3 fraction
// bits, no infinity, largest 448, steps of 2^-9 around zero. Weights are converted on the host, rows of inputs on the device.
//
// A row of fp8 has a float32 scale. The scales of a matrix's rows are in a vector of their own; those of a head's keys or values in a block
// follow the elements (shapes.h). If a row has an infinity or NaN, its scale is not finite either.
#pragma once

#include <bit>
#include <cstdint>

namespace lorry::kernels::cuda {

struct Fp8 {
    std::uint8_t bits = 0;
};

constexpr float fp8_largest = 448.0F;

// Rounds to the nearest, ties to even; larger numbers become 448.
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
    // Drops 20 of 23 fraction bits and subtracts 127 - 7 from the exponent.
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

// Bits that order numbers by magnitude, with NaN last. fp8_scale of a row's largest is the row's scale.
constexpr std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU; }
constexpr float fp8_scale(std::uint32_t largest_magnitude_bits) {
    constexpr float least = 1e-30F;  // for rows of zeros and scales whose inverse would overflow
    const float scale = std::bit_cast<float>(largest_magnitude_bits) / fp8_largest;
    return scale < least ? least : scale;
}

}  // namespace lorry::kernels::cuda
