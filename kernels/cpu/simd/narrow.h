// Converts rows of float32 to the formats that the dot kernels read, and back. Instantiated by table.h; used by rope.h and
// int8_attention.h. Every instruction set gives the same bits, except for denormals (simd.h).
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Narrow {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    static void to_bfloat16(const float* from, std::byte* to, std::int64_t size) {
        auto* const out = reinterpret_cast<Bf16*>(to);
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) V::store(out + i, V::load(from + i));
        if (i < size) V::store_part(out + i, V::load_part(from + i, size - i), size - i);
    }

    static void from_bfloat16(const std::byte* from, float* to, std::int64_t size) {
        const auto* const in = reinterpret_cast<const Bf16*>(from);
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) V::store(to + i, V::load(in + i));
        for (; i < size; ++i) {
            const std::uint32_t bits = static_cast<std::uint32_t>(in[i]) << 16;
            __builtin_memcpy(to + i, &bits, sizeof bits);
        }
    }

    using Octets = typename Vectors<lanes>::Octets;

    // What a row's elements are divided by, and its inverse. A row with a NaN or infinity gets a scale that is not finite either, so that
    // it shows in the result.
    struct Int8Scale {
        float scale;
        Floats inverse;
    };
    [[gnu::always_inline]] static inline Int8Scale int8_scale(const float* from, std::int64_t size) {
        // Compared as integers, magnitudes keep their order, and infinities and NaN are larger than all others.
        typename V::Ints most{};
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) most = V::larger(V::magnitude_bits(V::load(from + i)), most);
        if (i < size) most = V::larger(V::magnitude_bits(V::load_part(from + i, size - i)), most);
        const std::int32_t bits = V::largest(most);
        float largest;
        __builtin_memcpy(&largest, &bits, sizeof bits);
        return {largest / 127.0F, V::all(largest > 0.0F ? 127.0F / largest : 0.0F)};
    }

    // round(x * 127 / largest) + 128
    [[gnu::always_inline]] static inline Octets int8(Floats x, const Int8Scale& scale) {
        return __builtin_convertvector(rounded(x * scale.inverse) + 128U, Octets);
    }

    // The nearest integers, for numbers up to 2^22, in two's complement.
    [[gnu::always_inline]] static inline typename V::Bits rounded(Floats x) {
        const Floats shifted = x + V::integer_bits;
        typename V::Bits bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        return bits - 0x4B400000U;
    }

    static void to_int8(const float* from, std::byte* to, std::int64_t size) {
        const Int8Scale scale = int8_scale(from, size);
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            const Octets octets = int8(V::load(from + i), scale);
            __builtin_memcpy(to + i, &octets, sizeof octets);
        }
        if (i < size) {
            const Octets octets = int8(V::load_part(from + i, size - i), scale);
            for (std::int64_t lane = 0; i + lane < size; ++lane) to[i + lane] = static_cast<std::byte>(octets[lane]);
        }
        __builtin_memcpy(to + int8_scale_offset(size), &scale.scale, sizeof scale.scale);
    }

    static void from_int8(const std::byte* from, float* to, std::int64_t size) {
        float scale;
        __builtin_memcpy(&scale, from + int8_scale_offset(size), sizeof scale);
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) V::store(to + i, integers(from + i) * scale);
        for (; i < size; ++i) to[i] = (static_cast<float>(from[i]) - 128.0F) * scale;
    }

    static void int8_to_bfloat16(const std::byte* from, std::byte* to, std::int64_t size) {
        auto* const out = reinterpret_cast<Bf16*>(to);
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            const Floats x = integers(from + i);
            typename V::Bits bits;
            __builtin_memcpy(&bits, &x, sizeof x);
            const auto halves = __builtin_convertvector(bits >> 16, typename V::Halves);  // exact: at most 8 bits
            __builtin_memcpy(out + i, &halves, sizeof halves);
        }
        for (; i < size; ++i) V::store_part(out + i, V::all(static_cast<float>(from[i]) - 128.0F), 1);
    }

private:
    // The integers of bytes that are stored plus 128.
    [[gnu::always_inline]] static inline Floats integers(const std::byte* from) {
        return __builtin_convertvector(Isa::widened(from) - 128, Floats);
    }
};

}  // namespace lorry::kernels::cpu
