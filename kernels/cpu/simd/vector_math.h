// exp and the normal distribution on vectors, with errors of a few units in the last place. Used by the activation, attention and sampling
// kernels. The polynomials were fitted for the smallest greatest error; their intervals and errors are noted beside them.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct VectorMath {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Ints = typename V::Ints;

    template <std::size_t terms>
    [[gnu::always_inline]] static inline Floats polynomial(Floats x, const float (&coefficients)[terms]) {
        Floats value = V::all(coefficients[terms - 1]);
        for (std::size_t i = terms - 1; i > 0; --i) value = V::fma(value, x, V::all(coefficients[i - 1]));
        return value;
    }

    // e^x for x <= 88; larger x count as 88 (1.65e38). x < -87 gives exactly 0, so that a masked score of -inf has no weight. Keeps NaN.
    [[gnu::always_inline]] static inline Floats exp(Floats x) {
        constexpr float terms[] = {0.5F, 0.16666577F, 0.041666555F, 0.0083631731F, 0.0013926176F};  // |r| <= ln(2) / 2: 1e-8
        const Floats bounded = V::smaller(V::all(88.0F), x);
        const Floats shifted = V::fma(bounded, V::all(1.44269504F), V::all(V::integer_bits));
        const Floats n = shifted - V::integer_bits;
        const Floats r = V::fma(n, V::all(-1.42860677e-6F), V::fma(n, V::all(-0.693145752F), bounded));
        const Floats value = V::fma(r * r, polynomial(r, terms), r + 1.0F);
        return x < -87.0F ? Floats{} : value * power_of_two(shifted);
    }

    // The error is absolute: 2e-7.
    [[gnu::always_inline]] static inline Floats tanh(Floats x) { return 1.0F - 2.0F / (exp(x * 2.0F) + 1.0F); }

    // 1 - Phi(x) for x >= 0, where Phi is the normal distribution function: (1 - erf(x / sqrt(2))) / 2. x > 6 gives exactly 0. Keeps NaN.
    [[gnu::always_inline]] static inline Floats normal_tail(Floats x) {
        // -log2 of the result for x <= 6: the result, times x, errs by 1e-8 at most.
        constexpr float tail_terms[] = {0.999999903F,    1.15110973F,     0.459172215F,   0.052603057F,  -0.00721639899F,
                                        0.000253442668F, 0.000138086063F, -2.9271617e-5F, 1.99187251e-6F};
        // (2^r - 1) / r for |r| <= 1/2: 2^r errs by 3e-9 of it at most.
        constexpr float power_terms[] = {0.693147202F, 0.240226511F, 0.0555033353F, 0.00961803915F, 0.00133985787F, 0.000154664985F};
        const Floats logarithm = -polynomial(V::smaller(V::all(6.0F), x), tail_terms);
        const Floats shifted = logarithm + V::integer_bits;
        const Floats r = logarithm - (shifted - V::integer_bits);
        const Floats value = V::fma(r, polynomial(r, power_terms), V::all(1.0F));
        return x > 6.0F ? Floats{} : value * power_of_two(shifted);
    }

private:
    // 2^n for the integer n that was rounded by adding integer_bits.
    [[gnu::always_inline]] static inline Floats power_of_two(Floats shifted) {
        typename V::Bits bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        const typename V::Bits power_bits = (bits - 0x4B400000U + 127U) << 23;
        Floats power;
        __builtin_memcpy(&power, &power_bits, sizeof power);
        return power;
    }
};

}  // namespace lorry::kernels::cpu
