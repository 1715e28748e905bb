// Finds the int4 weights that are nearest to float32 ones; called when weights are packed. kernels.h says what factor and zero stand for.
#pragma once

#include <cstdint>
#include <span>

namespace lorry::kernels::cpu {

// The int8 that a nibble stands for. factors: those of its stretch, the factor in the low half, the zero in the high one.
constexpr int int4_value(std::uint8_t nibble, std::uint8_t factors) { return (nibble - (factors >> 4)) * (factors & 0xF); }

// One output: weights [in_features] become nibbles [in_features] with factors [stretches of it]; returns the scale by which all its int8
// are multiplied. Of each stretch the factor and the zero are chosen that leave the least squared error, among those next to its range.
// A weight that is not finite shows: the scale becomes NaN, and with it all of the output's results.
float quantize_int4(std::span<const float> weights, std::span<std::uint8_t> nibbles, std::span<std::uint8_t> factors);

}  // namespace lorry::kernels::cpu
