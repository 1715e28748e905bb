// Rotary positions on q and k, with an optional RMSNorm per head before, and the write of k and v to their cache block.
// Instantiated by kernels_*.cpp.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Rope {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    // Rotates the pairs (i, i + half) of one head.
    static void rotate(float* head, const float* cosine, const float* sine, std::int64_t half) {
        std::int64_t i = 0;
        for (; i + lanes <= half; i += lanes) {
            const Floats a = V::load(head + i);
            const Floats b = V::load(head + half + i);
            const Floats c = V::load(cosine + i);
            const Floats s = V::load(sine + i);
            V::store(head + i, a * c - b * s);
            V::store(head + half + i, b * c + a * s);
        }
        for (; i < half; ++i) {
            const float a = head[i];
            const float b = head[half + i];
            head[i] = a * cosine[i] - b * sine[i];
            head[half + i] = b * cosine[i] + a * sine[i];
        }
    }

    template <class Storage>
    static void store_strided(const float* from, Storage* to, std::int64_t size, std::int64_t step) {
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            Storage part[V::width];
            V::store(part, V::load(from + i));
            for (int lane = 0; lane < lanes; ++lane) to[(i + lane) * step] = part[lane];
        }
        if (i < size) {
            Storage part[V::width];
            V::store(part, V::load_part(from + i, size - i));
            for (std::int64_t lane = 0; i + lane < size; ++lane) to[(i + lane) * step] = part[lane];
        }
    }

    // Keys lie [head_dim][16 tokens], values [16 tokens][value_stride].
    template <class Storage>
    static void store_kv(const RopeTask& task, std::int64_t row, const float* k, const float* v) {
        std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        const std::int64_t slot = task.row_slots[row];
        for (std::int64_t head = 0; head < task.kv_heads; ++head) {
            auto* const keys = reinterpret_cast<Storage*>(block + head * task.head_bytes);
            auto* const values = reinterpret_cast<Storage*>(block + head * task.head_bytes + task.value_offset);
            store_strided<Storage>(k + head * task.head_dim, keys + slot, task.head_dim, kv_block_size);
            store_strided<Storage>(v + head * task.head_dim, values + slot * task.value_stride, task.head_dim, 1);
        }
    }

    static void prepare(const RopeTask& task, std::int64_t row, float* heads, std::int64_t count, const float* norm) {
        for (std::int64_t head = 0; head < count; ++head) {
            float* const x = heads + head * task.head_dim;
            if (norm != nullptr) Norm<Isa>::rms(x, x, norm, nullptr, task.head_dim, task.epsilon);
            if (task.table != nullptr) {
                const float* const cosine = task.table + task.table_rows[row] * task.table_stride;
                rotate(x, cosine, cosine + task.head_dim / 2, task.head_dim / 2);
            }
        }
    }

    static void run(const RopeTask& task, std::int64_t row_begin, std::int64_t row_end) {
        for (std::int64_t row = row_begin; row < row_end; ++row) {
            float* const q = task.qkv + row * task.stride;
            float* const k = q + task.heads * task.head_dim;
            const float* const v = k + task.kv_heads * task.head_dim;
            prepare(task, row, q, task.heads, task.q_norm);
            prepare(task, row, k, task.kv_heads, task.k_norm);
            if (task.bfloat16) {
                store_kv<Bf16>(task, row, k, v);
            } else {
                store_kv<float>(task, row, k, v);
            }
        }
    }
};

}  // namespace lorry::kernels::cpu
