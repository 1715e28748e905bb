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

    explicit CodeMeaning(const float* table) {
        if constexpr (kind == CodeKind::table) table_.load(table);
    }

    // Numbers low and high of a vector of codes. high_from: the bytes of high where they are apart.
    [[gnu::always_inline]] inline void both(const std::byte* from, const std::byte* high_from, Floats& low, Floats& high) const {
        if constexpr (kind == CodeKind::table) {
            const Ints octets = Isa::widened(from);
            low = table_.at(octets);
            high = table_.at(octets >> 4);
        } else {
            low = one(sign_extended(from));
            high = one(sign_extended(high_from));
        }
    }
    [[gnu::always_inline]] static inline Ints sign_extended(const std::byte* from) {
        if constexpr (requires { Isa::sign_extended(from); }) {
            return Isa::sign_extended(from);
        } else {
            return (Isa::widened(from) ^ 0x80) - 0x80;
        }
    }

private:
    // code: with its sign extended.
    [[gnu::always_inline]] static inline Floats one(Ints code) {
        if constexpr (kind == CodeKind::integer) {
            return __builtin_convertvector(code, Floats);
        } else {
            // A subnormal gets an exponent of its own, and loses what that adds.
            const Ints shifted = code << 20;
            const Ints magnitude = shifted & (0x7F << 20);
            const Ints is_subnormal = magnitude < (8 << 20);
            const Ints bits = magnitude + (is_subnormal ? Ints{} + (121 << 23) : Ints{} + (120 << 23));
            Floats value;
            __builtin_memcpy(&value, &bits, sizeof bits);
            value -= is_subnormal ? Floats{} + 0x1p-6F : Floats{};
            Ints signed_bits;
            __builtin_memcpy(&signed_bits, &value, sizeof value);
            signed_bits |= shifted & INT32_MIN;
            __builtin_memcpy(&value, &signed_bits, sizeof value);
            return value;
        }
    }

    // 16 floats, looked up by the lowest 4 bits of lanes. Shuffles read no more bits than they need.
    struct Table {
        Floats parts[extent(16 / Isa::lanes > 0 ? 16 / Isa::lanes : 1)];
        [[gnu::always_inline]] inline void load(const float* from) { __builtin_memcpy(parts, from, sizeof parts); }
        [[gnu::always_inline]] inline Floats at(Ints index) const {
            Floats found = __builtin_shuffle(parts[0], index);
#pragma GCC unroll 4
            for (int part = 1; part < 16 / Isa::lanes; ++part) {
                const Floats other = __builtin_shuffle(parts[part], index);
                found = (index & 0xF) >= part * Isa::lanes ? other : found;
            }
            return found;
        }
    };
    Table table_;
};

// Inputs and sums of one kind. Numbers low and high (see CodedPanels) become what is multiplied.
template <class IsaOfInputs>
struct FloatInputs {
    using Isa = IsaOfInputs;
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int vectors = 2;
    static constexpr std::int64_t element_bytes = 4;
    // Where a panel of codes of 8 bits has a vector's numbers.
    static constexpr std::int64_t low_at(std::int64_t vector) { return vector * Isa::lanes; }
    static constexpr std::int64_t high_at(std::int64_t vector) { return (vectors + vector) * Isa::lanes; }
    // From what the first and the second inputs of a vector's outputs have to what low and high have.
    [[gnu::always_inline]] static inline void arrange(Floats&, Floats&) {}
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
    static constexpr std::int64_t low_at(std::int64_t vector) { return vector * 2 * Isa::lanes; }
    static constexpr std::int64_t high_at(std::int64_t vector) { return (vector * 2 + 1) * Isa::lanes; }
    [[gnu::always_inline]] static inline void arrange(Floats& first, Floats& second) {
        typename V::Ints low;
        for (int i = 0; i < Isa::lanes; ++i) low[i] = i / 2 + i % 2 * Isa::lanes;
        const Floats of_low = __builtin_shuffle(first, second, low);
        second = __builtin_shuffle(first, second, low + Isa::lanes / 2);
        first = of_low;
    }
    using Weights = typename Vectors<Isa::lanes>::Bits;
    [[gnu::always_inline]] static inline Weights weights(Floats low, Floats high) {
        if constexpr (requires { Isa::narrowed(low, high); }) {
            return Isa::narrowed(low, high);
        } else {
            const typename V::Halves halves[2] = {V::narrowed(low), V::narrowed(high)};
            Weights w;
            __builtin_memcpy(&w, halves, sizeof w);
            return w;
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

    // A panel's scales and zeros for the inputs of a run, of numbers low and high.
    template <bool has_zeros>
    struct Scales {
        struct Numbers {
            Floats low[extent(vectors)];
            Floats high[extent(vectors)];
        };
        Numbers scale;
        Numbers zero;
        // Not inlined: a run has many pairs, and each kernel would get a copy.
        [[gnu::noinline]] static void read(const CodedPanels& panels, std::int64_t panel, const CodeRun& run, Scales& out) {
            const std::int64_t even = (panel * panels.groups + run.even_group) * width;
            const std::int64_t odd = (panel * panels.groups + run.odd_group) * width;
            const auto* const zeros = reinterpret_cast<const std::byte*>(panels.zeros);
            for (int i = 0; i < vectors; ++i) {
                out.scale.low[i] = V::load(panels.scales + even + i * lanes);
                out.scale.high[i] = V::load(panels.scales + odd + i * lanes);
                Inputs::arrange(out.scale.low[i], out.scale.high[i]);
                if constexpr (has_zeros) {
                    using Integers = CodeMeaning<Isa, CodeKind::integer>;
                    out.zero.low[i] = __builtin_convertvector(Integers::sign_extended(zeros + even + i * lanes), Floats);
                    out.zero.high[i] = __builtin_convertvector(Integers::sign_extended(zeros + odd + i * lanes), Floats);
                    Inputs::arrange(out.zero.low[i], out.zero.high[i]);
                }
            }
        }
        [[gnu::always_inline]] inline void apply(Floats& low, Floats& high, int i) const {
            if constexpr (has_zeros) {
                low -= zero.low[i];
                high -= zero.high[i];
            }
            low *= scale.low[i];
            high *= scale.high[i];
        }
    };

    // Calls take(pair, weights) for each pair of inputs of a panel; weights(vector) decodes one vector of the pair's weights.
    template <CodeKind kind, bool has_zeros, class Take>
    [[gnu::always_inline]] static inline void each_pair(const CodedPanels& panels, std::int64_t panel, const Take& take) {
        const CodeMeaning<Isa, kind> meaning(panels.table);
        const std::byte* codes = panels.codes + panel * panels.panel_bytes;
        std::int64_t pair = 0;
        for (std::int64_t run = 0; run < panels.run_count; ++run) {
            const CodeRun& of_run = panels.runs[run];
            Scales<has_zeros> read;
            Scales<has_zeros>::read(panels, panel, of_run, read);
            const Scales<has_zeros> scales = read;  // which no other pointer refers to, so it stays in registers
            for (std::int32_t i = 0; i < of_run.pairs; ++i, ++pair) {
                take(
                    pair, [&](int vector) __attribute__((always_inline)) {
                        const bool is_apart = kind != CodeKind::table;
                        Floats low;
                        Floats high;
                        meaning.both(codes + (is_apart ? Inputs::low_at(vector) : vector * lanes), codes + Inputs::high_at(vector), low,
                                     high);
                        scales.apply(low, high, vector);
                        return Inputs::weights(low, high);
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
