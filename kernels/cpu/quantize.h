// Finds the int4 weights that are nearest to float32 weights. Called by pack.cpp. kernels.h defines factor and zero.
#pragma once

#include <cstdint>
#include <span>

namespace lorry::kernels::cpu {

// The int8 that a nibble represents. factors: of its stretch, with the factor in the low half and the zero in the high half.
constexpr int int4_value(std::uint8_t nibble, std::uint8_t factors) { return (nibble - (factors >> 4)) * (factors & 0xF); }

// Quantizes one output: weights [in_features] to nibbles [in_features] and factors [stretches]; returns the scale by which the output's
// int8s are multiplied. For each stretch it takes the factor and zero with the least squared error among those near the stretch's range.
// If a weight is not finite, the scale is NaN, and so are all of the output's results.
float quantize_int4(std::span<const float> weights, std::span<std::uint8_t> nibbles, std::span<std::uint8_t> factors);

}  // namespace lorry::kernels::cpu
