// RMSNorm and LayerNorm, row by row. Instantiated by table.h; rope.h normalizes heads with it.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Norm {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    static float sum(const float* x, std::int64_t size) {
        Floats total{};
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) total += V::load(x + i);
        if (i < size) total += V::load_part(x + i, size - i);
        return V::sum(total);
    }

    static float sum_of_squares(const float* x, std::int64_t size, float mean) {
        Floats total{};
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            const Floats centred = V::load(x + i) - mean;
            total = V::fma(centred, centred, total);
        }
        float rest = V::sum(total);
        for (; i < size; ++i) rest += (x[i] - mean) * (x[i] - mean);
        return rest;
    }

    // out = (x - mean) * factor * weight + bias; out may be x.
    static void apply(float* out, const float* x, const float* weight, const float* bias, std::int64_t size, float mean, float factor) {
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            Floats value = (V::load(x + i) - mean) * factor * V::load(weight + i);
            if (bias != nullptr) value += V::load(bias + i);
            V::store(out + i, value);
        }
        for (; i < size; ++i) {
            float value = (x[i] - mean) * factor * weight[i];
            if (bias != nullptr) value += bias[i];
            out[i] = value;
        }
    }

    static void rms(float* out, const float* x, const float* weight, const float* bias, std::int64_t size, float epsilon) {
        const float mean_square = sum_of_squares(x, size, 0.0F) / static_cast<float>(size);
        apply(out, x, weight, bias, size, 0.0F, 1.0F / square_root<Isa>(mean_square + epsilon));
    }

    static void layer(float* out, const float* x, const float* weight, const float* bias, std::int64_t size, float epsilon) {
        const float mean = sum(x, size) / static_cast<float>(size);
        const float variance = sum_of_squares(x, size, mean) / static_cast<float>(size);
        apply(out, x, weight, bias, size, mean, 1.0F / square_root<Isa>(variance + epsilon));
    }

    static void run(const NormTask& task, std::int64_t row_begin, std::int64_t row_end) {
        for (std::int64_t row = row_begin; row < row_end; ++row) {
            float* const out = task.out + row * task.out_stride;
            const float* const in = task.in + row * task.in_stride;
            if (task.subtract_mean) {
                layer(out, in, task.weight, task.bias, task.columns, task.epsilon);
            } else {
                rms(out, in, task.weight, task.bias, task.columns, task.epsilon);
            }
        }
    }
};

}  // namespace lorry::kernels::cpu
