// Passes over a row of logits for sampling: the largest, the softmax weights, and the indices above a bound. Instantiated by table.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vector_math.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Scan {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Ints = typename V::Ints;
    static constexpr int lanes = Isa::lanes;

    static Largest largest(const float* x, std::int64_t size) {
        Floats best = V::all(-__builtin_inff());
        Ints best_index{};
        Ints index = V::ramp();
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            const Floats value = V::load(x + i);
            const auto wins = value > best;
            best = wins ? value : best;
            best_index = wins ? index : best_index;
            index += lanes;
        }
        float values[V::width];
        std::int32_t indices[V::width];
        __builtin_memcpy(values, &best, sizeof best);
        __builtin_memcpy(indices, &best_index, sizeof best_index);
        Largest result{-__builtin_inff(), 0};
        for (int lane = 0; lane < lanes; ++lane) {
            if (values[lane] > result.value || (values[lane] == result.value && indices[lane] < result.index)) {
                result = {values[lane], indices[lane]};
            }
        }
        for (; i < size; ++i) {
            if (x[i] > result.value) result = {x[i], static_cast<std::int32_t>(i)};
        }
        return result;
    }

    static void weights(const float* x, std::int64_t size, float largest, float scale, float* out, double* sums) {
        for (std::int64_t begin = 0, piece = 0; begin < size; begin += weight_piece, ++piece) {
            const std::int64_t end = begin + weight_piece < size ? begin + weight_piece : size;
            Floats total{};
            std::int64_t i = begin;
            for (; i + lanes <= end; i += lanes) {
                const Floats value = (V::load(x + i) - largest) * scale;
                const Floats weight = VectorMath<Isa>::exp(value == value ? value : V::all(-__builtin_inff()));
                total += weight;
                if (out != nullptr) V::store(out + i, weight);
            }
            float sum = V::sum(total);
            for (; i < end; ++i) {
                const Floats value = (V::all(x[i]) - largest) * scale;
                const Floats weight = VectorMath<Isa>::exp(value == value ? value : V::all(-__builtin_inff()));
                sum += weight[0];
                if (out != nullptr) out[i] = weight[0];
            }
            sums[piece] = static_cast<double>(sum);
        }
    }

    static std::int64_t at_least(const float* x, std::int64_t size, float bound, std::int32_t* indices) {
        std::int64_t count = 0;
        std::int64_t i = 0;
        // Few elements pass, so they are examined one by one only where one does.
        constexpr std::int64_t stride = 4 * lanes;
        for (; i + stride <= size; i += stride) {
            const auto near = (V::load(x + i) >= bound) | (V::load(x + i + lanes) >= bound);
            const auto far = (V::load(x + i + 2 * lanes) >= bound) | (V::load(x + i + 3 * lanes) >= bound);
            if (!Isa::any(near | far)) continue;
            for (std::int64_t j = i; j < i + stride; ++j) {
                if (x[j] >= bound) indices[count++] = static_cast<std::int32_t>(j);
            }
        }
        for (; i < size; ++i) {
            if (x[i] >= bound) indices[count++] = static_cast<std::int32_t>(i);
        }
        return count;
    }
};

}  // namespace lorry::kernels::cpu
