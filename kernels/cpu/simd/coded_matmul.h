// Matmul with weights that are stored as codes (CodedPanels). Few rows decode them in registers; for more rows a panel is decoded once, and
// the kernels for its inputs multiply it. Instantiated by table.h, for float32 inputs and for pairs of bfloat16.
//
// An output is the same chain of multiply-adds as in matmul.h and dot_matmul.h, so results do not depend on which of the two ways is taken.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

// What codes of one kind mean, in lanes.
template <class Isa, CodeKind kind>
struct CodeMeaning {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Ints = typename V::Ints;
    using Bits = typename Vectors<Isa::lanes>::Bits;

    explicit CodeMeaning(const float* table) {
        if constexpr (kind == CodeKind::table) table_.load(table);
    }

    // Both inputs of a pair, from `lanes` outputs' bytes. odd: the bytes of the second input where they are apart.
    [[gnu::always_inline]] inline void pair(const std::byte* from, const std::byte* odd, Floats& first, Floats& second) const {
        if constexpr (kind == CodeKind::table) {
            const Ints both = Isa::widened(from);
            first = table_.at(both & 0xF);
            second = table_.at(both >> 4);
        } else {
            first = one(Isa::widened(from));
            second = one(Isa::widened(odd));
        }
    }

private:
    [[gnu::always_inline]] static inline Floats one(Ints code) {
        if constexpr (kind == CodeKind::integer) {
            return __builtin_convertvector((code ^ 0x80) - 0x80, Floats);
        } else {
            // A subnormal gets an exponent of its own, and loses what that adds.
            const Ints magnitude = code & 0x7F;
            const Ints is_subnormal = magnitude < 8;
            const Ints bits = (magnitude << 20) + (is_subnormal ? Ints{} + (121 << 23) : Ints{} + (120 << 23));
            Floats value;
            __builtin_memcpy(&value, &bits, sizeof bits);
            value -= is_subnormal ? Floats{} + 0x1p-6F : Floats{};
            Ints signed_bits;
            __builtin_memcpy(&signed_bits, &value, sizeof value);
            signed_bits |= (code & 0x80) << 24;
            __builtin_memcpy(&value, &signed_bits, sizeof value);
            return value;
        }
    }

    // 16 floats, looked up by lanes.
    struct Table {
        Floats parts[extent(16 / Isa::lanes > 0 ? 16 / Isa::lanes : 1)];
        [[gnu::always_inline]] inline void load(const float* from) { __builtin_memcpy(parts, from, sizeof parts); }
        [[gnu::always_inline]] inline Floats at(Ints index) const {
            Floats found = __builtin_shuffle(parts[0], index & (Isa::lanes - 1));
#pragma GCC unroll 4
            for (int part = 1; part < 16 / Isa::lanes; ++part) {
                const Floats other = __builtin_shuffle(parts[part], index & (Isa::lanes - 1));
                found = index >= part * Isa::lanes ? other : found;
            }
            return found;
        }
    };
    Table table_;
};

// Inputs and sums of one kind. A weight's two values become what is multiplied.
template <class IsaOfInputs>
struct FloatInputs {
    using Isa = IsaOfInputs;
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int vectors = 2;
    static constexpr std::int64_t element_bytes = 4;
    struct Weights {
        Floats first, second;
    };
    [[gnu::always_inline]] static inline Weights weights(Floats first, Floats second) { return {first, second}; }
    [[gnu::always_inline]] static inline void store(std::byte* to, int vector, Weights w) {
        auto* const floats = reinterpret_cast<float*>(to);
        V::store(floats + vector * Isa::lanes, w.first);
        V::store(floats + (vectors + vector) * Isa::lanes, w.second);
    }
    struct Inputs {
        Floats first, second;
    };
    // has_second: false for the last of an odd number of inputs.
    [[gnu::always_inline]] static inline Inputs load(const std::byte* from, bool has_second) {
        const auto* const floats = reinterpret_cast<const float*>(from);
        return {V::all(floats[0]), has_second ? V::all(floats[1]) : Floats{}};
    }
    [[gnu::always_inline]] static inline Floats add(Floats sums, Weights w, Inputs x, bool has_second) {
        sums = V::fma(x.first, w.first, sums);
        return has_second ? V::fma(x.second, w.second, sums) : sums;
    }
};

// count: vectors of a panel.
template <class IsaOfInputs, int count>
struct PairInputs {
    using Isa = IsaOfInputs;
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int vectors = count;
    static constexpr std::int64_t element_bytes = 2;
    using Weights = typename Vectors<Isa::lanes>::Bits;
    [[gnu::always_inline]] static inline Weights weights(Floats first, Floats second) {
        if constexpr (requires { Isa::paired(first, second); }) {
            return Isa::paired(first, second);
        } else {
            return __builtin_convertvector(V::narrowed(first), Weights) | __builtin_convertvector(V::narrowed(second), Weights) << 16;
        }
    }
    [[gnu::always_inline]] static inline void store(std::byte* to, int vector, const Weights& w) {
        __builtin_memcpy(to + vector * Isa::lanes * 4, &w, sizeof w);
    }
    [[gnu::always_inline]] static inline auto load(const std::byte* from, bool has_second) {
        if (has_second) [[likely]] {
            std::uint32_t pair;
            __builtin_memcpy(&pair, from, sizeof pair);
            return Isa::all_pairs(pair);
        }
        Bf16 first;
        __builtin_memcpy(&first, from, sizeof first);
        return Isa::all_pairs(first);
    }
    template <class X>
    [[gnu::always_inline]] static inline Floats add(Floats sums, const Weights& w, const X& x, bool) {
        typename Isa::Pairs pairs;
        __builtin_memcpy(&pairs, &w, sizeof w);
        return Isa::dot(sums, pairs, x);
    }
};

template <class Inputs>
struct CodedMatmul {
    using Isa = typename Inputs::Isa;
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;
    static constexpr int vectors = Inputs::vectors;
    static constexpr std::int64_t width = vectors * lanes;

    // A panel's scales and zeros for the inputs of a run.
    template <bool has_zeros>
    struct Scales {
        Floats scale[extent(vectors)];
        Floats zero[extent(vectors)];
        [[gnu::always_inline]] inline Scales(const float* scales, const std::int8_t* zeros) {
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) {
                scale[i] = V::load(scales + i * lanes);
                if constexpr (has_zeros) {
                    const auto bytes = Isa::widened(reinterpret_cast<const std::byte*>(zeros) + i * lanes);
                    zero[i] = __builtin_convertvector((bytes ^ 0x80) - 0x80, Floats);
                }
            }
        }
        [[gnu::always_inline]] inline Floats of(Floats meaning, int i) const {
            if constexpr (has_zeros) meaning -= zero[i];
            return meaning * scale[i];
        }
    };

    // Calls take(pair, weights) for each pair of inputs of a panel; weights(vector) decodes one vector of the pair's weights.
    template <CodeKind kind, bool has_zeros, class Take>
    [[gnu::always_inline]] static inline void each_pair(const CodedPanels& panels, std::int64_t panel, const Take& take) {
        const CodeMeaning<Isa, kind> meaning(panels.table);
        const std::byte* codes = panels.codes + panel * panels.panel_bytes;
        const float* const scales = panels.scales + panel * panels.groups * width;
        const std::int8_t* const zeros = has_zeros ? panels.zeros + panel * panels.groups * width : nullptr;
        std::int64_t pair = 0;
        for (std::int64_t run = 0; run < panels.run_count; ++run) {
            const CodeRun& of_run = panels.runs[run];
            const Scales<has_zeros> even(scales + of_run.even_group * width, has_zeros ? zeros + of_run.even_group * width : nullptr);
            const Scales<has_zeros> odd(scales + of_run.odd_group * width, has_zeros ? zeros + of_run.odd_group * width : nullptr);
            for (std::int32_t i = 0; i < of_run.pairs; ++i, ++pair) {
                take(
                    pair, [&](int vector) __attribute__((always_inline)) {
                        Floats first;
                        Floats second;
                        meaning.pair(codes + vector * lanes, codes + width + vector * lanes, first, second);
                        return Inputs::weights(even.of(first, vector), odd.of(second, vector));
                    });
                codes += width * coded_pair_bytes(kind);
            }
        }
    }

    template <CodeKind kind, bool has_zeros>
    static void decode_as(const CodedPanels& panels, std::byte* to) {
        constexpr std::int64_t pair_bytes = width * 2 * Inputs::element_bytes;
        each_pair<kind, has_zeros>(
            panels, 0, [&](std::int64_t pair, const auto& weights) __attribute__((always_inline)) {
                std::byte* const at = to + pair * pair_bytes;
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) Inputs::store(at, i, weights(i));
            });
        if (panels.in_features % 2 == 0) return;
        // The padding multiplies inputs that do not exist.
        std::byte* const last = to + panels.in_features / 2 * pair_bytes;
        if constexpr (Inputs::element_bytes == 4) {
            for (std::int64_t i = width * 4; i < pair_bytes; ++i) last[i] = std::byte{0};
        } else {
            for (std::int64_t i = 0; i < width; ++i) last[i * 4 + 2] = last[i * 4 + 3] = std::byte{0};
        }
    }

    template <CodeKind kind, bool has_zeros, int rows>
    [[gnu::noinline]] static void tile(const CodedTask& of_all, std::int64_t panel_begin, std::int64_t panel_end) {
        const CodedTask task = of_all;
        const std::int64_t whole = task.panels.in_features / 2;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
            }
            each_pair<kind, has_zeros>(
                task.panels, panel, [&](std::int64_t pair, const auto& weights) __attribute__((always_inline)) {
                    const bool has_second = pair < whole;
                    const std::byte* const in = task.in + pair * 2 * Inputs::element_bytes;
                    decltype(Inputs::load(in, has_second)) x[extent(rows)];
#pragma GCC unroll 4
                    for (int r = 0; r < rows; ++r) x[r] = Inputs::load(in + r * task.in_stride, has_second);
#pragma GCC unroll 4
                    for (int i = 0; i < vectors; ++i) {
                        const auto w = weights(i);
#pragma GCC unroll 4
                        for (int r = 0; r < rows; ++r) sums[r][i] = Inputs::add(sums[r][i], w, x[r], has_second);
                    }
                });
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) MatmulOutput<Isa>::template finish<vectors>(task, r, panel * width, sums[r]);
        }
    }

    template <CodeKind kind, bool has_zeros, int rows>
    static void tile_of(const CodedTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.rows == rows) {
            tile<kind, has_zeros, rows>(task, panel_begin, panel_end);
        } else if constexpr (rows > 1) {
            tile_of<kind, has_zeros, rows - 1>(task, panel_begin, panel_end);
        }
    }

    // Calls with<kind, has_zeros>() for what the panels have.
    template <class With>
    static void choose(const CodedPanels& panels, const With& with) {
        const bool has_zeros = panels.zeros != nullptr;
        switch (panels.kind) {
            case CodeKind::table:
                return has_zeros ? with.template operator()<CodeKind::table, true>() : with.template operator()<CodeKind::table, false>();
            case CodeKind::integer:
                return has_zeros ? with.template operator()<CodeKind::integer, true>()
                                 : with.template operator()<CodeKind::integer, false>();
            case CodeKind::e4m3: return with.template operator()<CodeKind::e4m3, false>();
        }
    }

    static void matmul(const CodedTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        choose(task.panels, [&]<CodeKind kind, bool has_zeros>() {
            tile_of<kind, has_zeros, static_cast<int>(coded_rows_max)>(task, panel_begin, panel_end);
        });
    }

    static void decode(const CodedPanels& panels, std::byte* to) {
        choose(panels, [&]<CodeKind kind, bool has_zeros>() { decode_as<kind, has_zeros>(panels, to); });
    }
};

}  // namespace lorry::kernels::cpu
