// exp and erf on vectors, with errors of a few units in the last place. Used by the activation, attention and sampling kernels. The
// polynomials were fitted at Chebyshev nodes; their intervals and errors are noted beside them.
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
        typename V::Bits bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        const typename V::Bits power_bits = (bits - 0x4B400000U + 127U) << 23;
        Floats power;
        __builtin_memcpy(&power, &power_bits, sizeof power);
        return x < -87.0F ? Floats{} : value * power;
    }

    [[gnu::always_inline]] static inline Floats erf(Floats x) {
        constexpr float near_terms[] = {1.1283792F,    -0.37612638F,    0.11283783F,    -0.02686543F,
                                        0.0052210318F, -0.00084840804F, 0.00011265959F, -9.6670443e-6F};  // |x| <= 1: 4e-11
        // -log(erfc(x)) around 2.5 for 1 <= x <= 4: the error of erf is 5e-10; beyond 4, erf is 1 in float32.
        constexpr float far_terms[] = {7.8068153F,     5.3526807F,     0.9438937F,   0.010858542F,  -0.0021653035F,
                                       0.00042012252F, -7.7291376e-5F, 1.331501e-5F, -1.6371514e-6F};
        const Floats near = x * polynomial(x * x, near_terms);
        const Floats size = V::magnitude(x);
        const Floats bounded = V::smaller(V::all(4.0F), size);
        const Floats far = 1.0F - exp(-polynomial(bounded - 2.5F, far_terms));
        return size < 1.0F ? near : x < 0.0F ? -far : far;
    }
};

}  // namespace lorry::kernels::cpu
