// Activation functions, plain or gated. Instantiated by table.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vector_math.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Activate {
    using V = Simd<Isa>;
    using Math = VectorMath<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    template <Activation kind>
    [[gnu::always_inline]] static inline Floats value(Floats x) {
        if constexpr (kind == Activation::silu) {
            return x / (Math::exp(-x) + 1.0F);
        } else if constexpr (kind == Activation::gelu) {
            const Floats tail = Math::normal_tail(V::magnitude(x));
            return x * (x < 0.0F ? tail : 1.0F - tail);
        } else if constexpr (kind == Activation::gelu_tanh) {
            // (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y)), with y = sqrt(2 / pi) (x + 0.044715 x^3)
            const Floats cubic = V::fma(x * x * x, V::all(0.044715F), x);
            return x / (Math::exp(cubic * -1.59576912F) + 1.0F);
        } else if constexpr (kind == Activation::tanh) {
            return Math::tanh(x);
        } else {
            return x < 0.0F ? Floats{} : x;  // keeps NaN
        }
    }

    [[gnu::always_inline]] static inline Floats of(Activation kind, Floats x) {
        switch (kind) {
            case Activation::silu: return value<Activation::silu>(x);
            case Activation::gelu: return value<Activation::gelu>(x);
            case Activation::gelu_tanh: return value<Activation::gelu_tanh>(x);
            case Activation::tanh: return value<Activation::tanh>(x);
            case Activation::relu: break;
        }
        return value<Activation::relu>(x);
    }

    template <Activation kind>
    static void rows(const ActivationTask& task, std::int64_t row_begin, std::int64_t row_end) {
        for (std::int64_t row = row_begin; row < row_end; ++row) {
            const float* const in = task.in + row * task.in_stride;
            const float* const up = in + task.width;
            float* const out = task.out + row * task.out_stride;
            std::int64_t i = 0;
            for (; i + lanes <= task.width; i += lanes) {
                Floats x = value<kind>(V::load(in + i));
                if (task.gated) x *= V::load(up + i);
                if (task.accumulate) x += V::load(out + i);
                V::store(out + i, x);
            }
            if (const std::int64_t rest = task.width - i; rest > 0) {
                Floats x = value<kind>(V::load_part(in + i, rest));
                if (task.gated) x *= V::load_part(up + i, rest);
                if (task.accumulate) x += V::load_part(out + i, rest);
                V::store_part(out + i, x, rest);
            }
        }
    }

    static void run(const ActivationTask& task, std::int64_t row_begin, std::int64_t row_end) {
        switch (task.kind) {
            case Activation::silu: return rows<Activation::silu>(task, row_begin, row_end);
            case Activation::gelu: return rows<Activation::gelu>(task, row_begin, row_end);
            case Activation::gelu_tanh: return rows<Activation::gelu_tanh>(task, row_begin, row_end);
            case Activation::relu: return rows<Activation::relu>(task, row_begin, row_end);
            case Activation::tanh: return rows<Activation::tanh>(task, row_begin, row_end);
        }
    }
};

}  // namespace lorry::kernels::cpu
