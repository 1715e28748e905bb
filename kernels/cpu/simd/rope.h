// Rotary positions for q and k, with an optional RMSNorm per head before them, and the store of k and v into their cache block.
// Instantiated by table.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/narrow.h"
#include "kernels/cpu/simd/norm.h"
#include "kernels/cpu/simd/simd.h"

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

    // Keys are [head_dim][16 tokens], values [16 tokens][value_stride].
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

    // Keys are [head_dim / 2][16 tokens][2], values [8][value_stride][2 tokens]. Another thread may be storing a token's neighbour, so only
    // the token's own elements are written.
    static void store_paired(const RopeTask& task, std::int64_t row, const float* k, const float* v) {
        std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        const std::int64_t slot = task.row_slots[row];
        for (std::int64_t head = 0; head < task.kv_heads; ++head) {
            auto* const keys = reinterpret_cast<Bf16*>(block + head * task.head_bytes) + slot * 2;
            auto* const values =
                reinterpret_cast<Bf16*>(block + head * task.head_bytes + task.value_offset) + slot / 2 * 2 * task.value_stride + slot % 2;
            const float* const key = k + head * task.head_dim;
            for (std::int64_t i = 0; i < task.head_dim; i += lanes) {
                const std::int64_t count = task.head_dim - i < lanes ? task.head_dim - i : lanes;
                Bf16 part[V::width];
                V::store(part, V::load_up_to(key + i, count));
                for (std::int64_t lane = 0; lane < count; lane += 2)
                    __builtin_memcpy(keys + (i + lane) * kv_block_size, part + lane, 2 * sizeof(Bf16));
            }
            store_strided<Bf16>(v + head * task.head_dim, values, task.head_dim, 2);
        }
    }

    // Keys are [head_dim / 4][16 tokens][4], values [8][value_stride][2 tokens]; kernels.h describes what is stored beside them.
    static void store_int8(const RopeTask& task, std::int64_t row, const float* k, const float* v) {
        std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        const std::int64_t slot = task.row_slots[row];
        for (std::int64_t head = 0; head < task.kv_heads; ++head) {
            std::byte* const keys = block + head * task.head_bytes;
            std::int32_t sum = 0;
            const float key_scale = each_int8(
                k + head * task.head_dim, task.head_dim, [&](std::int64_t d, const std::int8_t* x) __attribute__((always_inline)) {
                    for (int i = 0; i < lanes && d + i < task.head_dim; i += 4) __builtin_memcpy(keys + (d + i) * 16 + slot * 4, x + i, 4);
                    for (int i = 0; i < lanes; ++i) sum += x[i];
                });
            const std::int32_t offset = -128 * sum;
            std::byte* const beside_keys = keys + int8_keys_bytes(task.head_dim) + slot * 4;
            __builtin_memcpy(beside_keys, &key_scale, sizeof key_scale);
            __builtin_memcpy(beside_keys + 64, &offset, sizeof offset);

            std::byte* const values = keys + task.value_offset;
            std::byte* const of_token = values + slot / 2 * 2 * task.value_stride + slot % 2;
            const float value_scale = each_int8(
                v + head * task.head_dim, task.head_dim, [&](std::int64_t d, const std::int8_t* x) __attribute__((always_inline)) {
                    for (int i = 0; i < lanes && d + i < task.head_dim; ++i) of_token[(d + i) * 2] = static_cast<std::byte>(x[i]);
                });
            __builtin_memcpy(values + kv_block_size * task.value_stride + slot * 4, &value_scale, sizeof value_scale);
        }
    }

    using Octets = typename Vectors<lanes>::Octets;
    using Int8Scale = typename Narrow<Isa>::Int8Scale;
    // `lanes` elements as int8; those after the first `count` are zeros.
    [[gnu::always_inline]] static inline Octets int8(const float* x, std::int64_t count, const Int8Scale& scale) {
        return Narrow<Isa>::int8(V::load_up_to(x, count), scale) ^ 0x80;
    }
    // Calls put(i, x) with `lanes` elements from i on as int8, padded with zeros; returns their scale.
    template <class Put>
    [[gnu::always_inline]] static inline float each_int8(const float* x, std::int64_t size, const Put& put) {
        const Int8Scale scale = Narrow<Isa>::int8_scale(x, size);
        for (std::int64_t i = 0; i < size; i += lanes) {
            const Octets octets = int8(x + i, size - i, scale);
            std::int8_t part[V::width];
            __builtin_memcpy(part, &octets, sizeof octets);
            put(i, part);
        }
        return scale.scale;
    }

    using Bits = typename V::Bits;
    static constexpr std::int64_t element_bytes = 4;  // two dimensions of bfloat16, or four of int8
    static constexpr std::int64_t line_bytes = kv_block_size * element_bytes;
    // Dimensions that are transposed together.
    static constexpr std::int64_t staged_most = 64;

    // One stage of a transposition: in each square of 2 * half elements, swaps the two squares beside the diagonal.
    template <int half>
    [[gnu::always_inline]] static inline void swap_blocks(Bits* rows) {
        const auto lane = V::ramp();
        const auto is_upper = (lane & half) != 0;
        const auto low = is_upper ? lane - half + lanes : lane;
        const auto high = is_upper ? lane + lanes : lane + half;
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) {
            if ((i & half) != 0) continue;
            const Bits a = rows[i];
            const Bits b = rows[i + half];
            rows[i] = __builtin_shuffle(a, b, reinterpret_cast<Bits>(low));
            rows[i + half] = __builtin_shuffle(a, b, reinterpret_cast<Bits>(high));
        }
    }

    // Stores the staged elements of 16 tokens, [16][staged_bytes / element_bytes], as `lines` lines; each holds one element of every token.
    static void store_transposed(const std::byte* staged, std::int64_t staged_bytes, std::byte* to, std::int64_t lines) {
        for (std::int64_t begin = 0; begin < lines; begin += lanes) {
            Bits rows[extent(lanes)];
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i) __builtin_memcpy(&rows[i], staged + i * staged_bytes + begin * element_bytes, sizeof rows[i]);
            swap_blocks<8>(rows);
            swap_blocks<4>(rows);
            swap_blocks<2>(rows);
            swap_blocks<1>(rows);
            const std::int64_t count = lines - begin < lanes ? lines - begin : lanes;
            if (count == lanes) {
#pragma GCC unroll 16
                for (int i = 0; i < lanes; ++i) __builtin_memcpy(to + (begin + i) * line_bytes, &rows[i], sizeof rows[i]);
            } else {
                for (std::int64_t i = 0; i < count; ++i) __builtin_memcpy(to + (begin + i) * line_bytes, &rows[i], sizeof rows[i]);
            }
        }
    }
    // store_paired for the 16 tokens that fill a block: lines are written whole. k, v: of the first row.
    static void store_paired_block(const RopeTask& task, std::int64_t row, const float* k, const float* v) {
        std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        for (std::int64_t head = 0; head < task.kv_heads; ++head, k += task.head_dim, v += task.head_dim) {
            std::byte* const keys = block + head * task.head_bytes;
            for (std::int64_t d = 0; d < task.head_dim; d += staged_most) {
                const std::int64_t dims = task.head_dim - d < staged_most ? task.head_dim - d : staged_most;
                alignas(64) Bf16 staged[kv_block_size][extent(staged_most)];
                for (std::int64_t token = 0; token < kv_block_size; ++token) {
                    for (std::int64_t i = 0; i < dims; i += lanes)
                        V::store(staged[token] + i, V::load_up_to(k + token * task.stride + d + i, dims - i));
                }
                store_transposed(reinterpret_cast<const std::byte*>(staged), sizeof staged[0], keys + d / 2 * line_bytes, dims / 2);
            }
            std::byte* to = keys + task.value_offset;
            for (std::int64_t token = 0; token < kv_block_size; token += 2, to += task.value_stride * element_bytes) {
                for (std::int64_t d = 0; d < task.head_dim; d += lanes) {
                    const auto of_token = [&](std::int64_t which) __attribute__((always_inline)) {
                        return __builtin_convertvector(V::narrowed(V::load_up_to(v + which * task.stride + d, task.head_dim - d)), Bits);
                    };
                    const Bits pairs = of_token(token) | of_token(token + 1) << 16;
                    __builtin_memcpy(to + d * element_bytes, &pairs, sizeof pairs);
                }
            }
        }
    }
    // store_int8, likewise.
    static void store_int8_block(const RopeTask& task, std::int64_t row, const float* k, const float* v) {
        std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        for (std::int64_t head = 0; head < task.kv_heads; ++head, k += task.head_dim, v += task.head_dim) {
            std::byte* const keys = block + head * task.head_bytes;
            Int8Scale scales[kv_block_size];
            float written[kv_block_size];
            std::int32_t sums[kv_block_size] = {};
            for (std::int64_t token = 0; token < kv_block_size; ++token) {
                scales[token] = Narrow<Isa>::int8_scale(k + token * task.stride, task.head_dim);
                written[token] = scales[token].scale;
            }
            for (std::int64_t d = 0; d < task.head_dim; d += staged_most) {
                const std::int64_t dims = task.head_dim - d < staged_most ? task.head_dim - d : staged_most;
                alignas(64) std::byte staged[kv_block_size][extent(staged_most)];
                for (std::int64_t token = 0; token < kv_block_size; ++token) {
                    for (std::int64_t i = 0; i < dims; i += lanes) {
                        const Octets octets = int8(k + token * task.stride + d + i, dims - i, scales[token]);
                        __builtin_memcpy(staged[token] + i, &octets, sizeof octets);
                        for (int lane = 0; lane < lanes; ++lane) sums[token] += static_cast<std::int8_t>(octets[lane]);
                    }
                }
                store_transposed(staged[0], sizeof staged[0], keys + d / 4 * line_bytes, (dims + 3) / 4);
            }
            std::byte* const beside_keys = keys + int8_keys_bytes(task.head_dim);
            __builtin_memcpy(beside_keys, written, sizeof written);
            for (std::int32_t& sum : sums) sum *= -128;
            __builtin_memcpy(beside_keys + sizeof written, sums, sizeof sums);

            std::byte* const values = keys + task.value_offset;
            for (std::int64_t token = 0; token < kv_block_size; token += 2) {
                const float* const from[] = {v + token * task.stride, v + (token + 1) * task.stride};
                const Int8Scale own[] = {Narrow<Isa>::int8_scale(from[0], task.head_dim), Narrow<Isa>::int8_scale(from[1], task.head_dim)};
                std::byte* const to = values + token * task.value_stride;
                for (std::int64_t d = 0; d < task.head_dim; d += lanes) {
                    const auto wide = [&](int i) __attribute__((always_inline)) {
                        return __builtin_convertvector(int8(from[i] + d, task.head_dim - d, own[i]), typename V::Halves);
                    };
                    const auto pairs = wide(0) | wide(1) << 8;
                    __builtin_memcpy(to + d * 2, &pairs, sizeof pairs);
                }
                written[token] = own[0].scale;
                written[token + 1] = own[1].scale;
            }
            __builtin_memcpy(values + kv_block_size * task.value_stride, written, sizeof written);
        }
    }

    // Whether 16 rows from this one on are the tokens of one block.
    static bool fills_block(const RopeTask& task, std::int64_t row, std::int64_t row_end) {
        constexpr std::int64_t last = kv_block_size - 1;
        if (row + last >= row_end || task.row_slots[row] != 0) return false;
        return task.row_slots[row + last] == last && task.row_blocks[row + last] == task.row_blocks[row];
    }

    // A layout's store functions: one for a row, and one for 16 rows that fill a block (null: they are stored row by row).
    using Store = void (*)(const RopeTask&, std::int64_t row, const float* k, const float* v);
    struct Stores {
        Store row;
        Store block = nullptr;
    };
    static Stores stores_of(KvLayout layout) {
        constexpr bool by_blocks = lanes == kv_block_size;
        switch (layout) {
            case KvLayout::float32: break;
            case KvLayout::bfloat16: return {store_kv<Bf16>};
            case KvLayout::bfloat16_pairs:
                if constexpr (by_blocks) return {store_paired, store_paired_block};
                return {store_paired};
            case KvLayout::int8:
                if constexpr (by_blocks) return {store_int8, store_int8_block};
                return {store_int8};
        }
        return {store_kv<float>};
    }

    // Prefetches the row's KV block for writing. Called when a row begins another block. always_inline: g++ removes calls to functions that
    // only prefetch.
    [[gnu::always_inline]] static inline void prefetch_block(const RopeTask& task, std::int64_t row) {
        const std::byte* const block = task.keys + task.row_blocks[row] * task.block_bytes;
        for (std::int64_t at = 0; at < task.block_bytes; at += 64) __builtin_prefetch(block + at, 1, 2);
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

    // Prepares the queries and keys of a row.
    static void prepare_row(const RopeTask& task, std::int64_t row) {
        float* const q = task.qkv + row * task.stride;
        prepare(task, row, q, task.heads, task.q_norm);
        prepare(task, row, q + task.heads * task.head_dim, task.kv_heads, task.k_norm);
    }

    static void run(const RopeTask& task, std::int64_t row_begin, std::int64_t row_end) {
        const Stores stores = stores_of(task.layout);
        for (std::int64_t row = row_begin; row < row_end;) {
            const bool is_block = stores.block != nullptr && fills_block(task, row, row_end);
            const std::int64_t end = row + (is_block ? kv_block_size : 1);
            if (end < row_end && task.row_blocks[end] != task.row_blocks[row]) prefetch_block(task, end);
            const float* const k = task.qkv + row * task.stride + task.heads * task.head_dim;
            for (std::int64_t i = row; i < end; ++i) prepare_row(task, i);
            (is_block ? stores.block : stores.row)(task, row, k, k + task.kv_heads * task.head_dim);
            row = end;
        }
    }
};

}  // namespace lorry::kernels::cpu
