// Reads weights in a checkpoint's formats as float32, and rounds float32 to bfloat16. Used by both backends to pack weights.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "kernels/coded_weight.h"
#include "kernels/device_objects.h"
#include "schema/check.h"

namespace lorry::kernels {

using Half = std::uint16_t;

inline float from_bfloat16(Half x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline Half to_bfloat16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return static_cast<Half>((bits >> 16) | 0x40U);
    return static_cast<Half>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits.
inline float from_float16(Half x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000U) << 16;
    const std::uint32_t exponent = (x >> 10) & 0x1FU;
    const std::uint32_t mantissa = x & 0x3FFU;
    if (exponent == 0) {  // subnormal: mantissa * 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112U;
    return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// The binary16 that is exactly x, a finite number.
inline std::optional<Half> exact_float16(float x) {
    constexpr float largest = 65504.0F;
    constexpr float least_normal = 0x1p-14F;
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const float magnitude = std::bit_cast<float>(bits & 0x7FFF'FFFFU);
    if (!(magnitude <= largest)) return std::nullopt;
    std::uint32_t half = ((bits & 0x7FFF'FFFFU) >> 13U) - (112U << 10U);
    if (magnitude < least_normal) half = static_cast<std::uint32_t>(magnitude * 0x1p24F);
    half |= bits >> 16U & 0x8000U;
    const auto found = static_cast<Half>(half);
    return from_float16(found) == x ? std::optional(found) : std::nullopt;
}

// 1 sign, 4 exponent and 3 fraction bits, without infinities; not NaN. Exact.
inline float from_e4m3(std::uint8_t code) {
    const std::uint32_t exponent = (code >> 3) & 0xFU;
    const auto fraction = static_cast<float>(code & 7U);
    const float magnitude = exponent == 0 ? fraction * 0x1p-9F : (8.0F + fraction) * static_cast<float>(1U << exponent) * 0x1p-10F;
    return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

inline float meaning_of(CodeKind kind, const std::array<float, 16>& table, std::uint8_t code) {
    switch (kind) {
        case CodeKind::table: return table[code & 0xFU];
        case CodeKind::integer: return static_cast<float>(static_cast<std::int8_t>(code));
        case CodeKind::e4m3: break;
    }
    return from_e4m3(code);
}

// An element of a part in codes.
inline float decoded(const CodedPart& part, std::int64_t in_features, std::int64_t output, std::int64_t input) {
    const std::int64_t scale = output * part.groups + part.group_of[input];
    const float meaning = meaning_of(part.kind, part.table, part.codes[output * in_features + input]);
    const float zero = part.zeros == nullptr ? 0.0F : static_cast<float>(part.zeros[scale]);
    return (meaning - zero) * part.scales[scale];
}

struct ReadFloat32 {
    using Element = float;
    static float read(float x) { return x; }
};
struct ReadFloat16 {
    using Element = Half;
    static float read(Half x) { return from_float16(x); }
};
struct ReadBfloat16 {
    using Element = Half;
    static float read(Half x) { return from_bfloat16(x); }
};

template <class Read, class Take>
void read_part_as(const WeightPart& part, const Take& take) {
    const auto* from = static_cast<const typename Read::Element*>(part.data);
    // The source may be a mapped file: read it in order.
    if (part.transposed) {
        for (std::int64_t i = 0; i < part.in_features; ++i) {
            for (std::int64_t o = 0; o < part.out_features; ++o) take(o, i, Read::read(*from++));
        }
        return;
    }
    for (std::int64_t o = 0; o < part.out_features; ++o) {
        for (std::int64_t i = 0; i < part.in_features; ++i) take(o, i, Read::read(*from++));
    }
}

// Calls take(output, input, value) for each element of a part.
template <class Take>
void read_part(const WeightPart& part, const Take& take) {
    if (part.coded != nullptr) {
        for (std::int64_t o = 0; o < part.out_features; ++o) {
            for (std::int64_t i = 0; i < part.in_features; ++i) take(o, i, decoded(*part.coded, part.in_features, o, i));
        }
        return;
    }
    switch (part.format) {
        case Format::float32: return read_part_as<ReadFloat32>(part, take);
        case Format::float16: return read_part_as<ReadFloat16>(part, take);
        case Format::bfloat16: return read_part_as<ReadBfloat16>(part, take);
        case Format::int8_rows:
        case Format::fp8_rows: break;
    }
    CHECK(false, "a part of a weight is float32, float16 or bfloat16");
}

}  // namespace lorry::kernels
