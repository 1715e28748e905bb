// Matmul with weights that are stored as codes (CodedPanels). Few rows decode them in registers; for more rows a panel is decoded once, and
// the kernels for its inputs multiply it. Instantiated by table.h, for float32 inputs and for pairs of bfloat16.
//
// An output is the same chain of multiply-adds as in matmul.h and dot_matmul.h, so results do not depend on which of the two ways is taken.
#pragma once

#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

// The scales of a vector's outputs. index: of the first, in panels.scales.
template <class Isa>
[[gnu::always_inline]] inline typename Simd<Isa>::Floats scales_at(const CodedPanels& panels, std::int64_t index) {
    using V = Simd<Isa>;
    switch (panels.scale_format) {
        case ScaleFormat::float32: return V::load(reinterpret_cast<const float*>(panels.scales) + index);
        case ScaleFormat::bfloat16: return V::load(reinterpret_cast<const Bf16*>(panels.scales) + index);
        case ScaleFormat::float16: break;
    }
    const std::byte* const from = panels.scales + index * 2;
    if constexpr (requires { Isa::load_float16(from); }) {
        return Isa::load_float16(from);
    } else {
        // The bits at their places in a float32, whose exponent is 112 higher.
        typename Vectors<Isa::lanes>::Words halves;
        __builtin_memcpy(&halves, from, sizeof halves);
        const typename V::Ints bits = __builtin_convertvector(halves, typename V::Ints) << 13 & static_cast<std::int32_t>(0x8FFF'FFFF);
        return __builtin_bit_cast(typename V::Floats, bits) * 0x1p112F;
    }
}

// What codes of one kind mean, in lanes.
template <class Isa, CodeKind kind>
struct CodeMeaning {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Ints = typename V::Ints;
    static constexpr bool is_e4m3_scaled = kind == CodeKind::e4m3 && requires { Isa::multiplies_subnormals; };
    // Numbers times this are what codes mean. A power of two, with which scales are multiplied instead.
    static constexpr float unit = is_e4m3_scaled ? 0x1p120F : 1.0F;

    explicit CodeMeaning(const float* table) {
        if constexpr (kind == CodeKind::table) table_.load(table);
    }

    // Numbers low and high of a vector of codes.
    [[gnu::always_inline]] inline void both(const std::byte* from, Floats& low, Floats& high) const {
        if constexpr (kind == CodeKind::table) {
            const Ints octets = Isa::widened(from);
            low = table_.at(octets);
            high = table_.at(octets >> 4);
        } else if constexpr (kind == CodeKind::integer) {
            low = __builtin_convertvector(sign_extended(from), Floats);
            high = __builtin_convertvector(sign_extended(from + Isa::lanes), Floats);
        } else if constexpr (is_e4m3_scaled) {
            // The bits of a code at their places in a bfloat16. A subnormal code becomes a subnormal number.
            const auto words = (sign_extended_words(from) << 4) & static_cast<std::int16_t>(0x87F0);
            Ints pairs;
            __builtin_memcpy(&pairs, &words, sizeof words);
            low = as_floats(pairs << 16);
            high = as_floats(pairs & static_cast<std::int32_t>(0xFFFF0000));
        } else {
            const Floats pairs = V::load(reinterpret_cast<const Bf16*>(from));  // a high in the upper 8 bits, a low in the next
            const Ints bits = as_ints(pairs);
            low = e4m3((bits << 8) >> 4);
            high = e4m3(bits >> 4);
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
    [[gnu::always_inline]] static inline Floats as_floats(Ints bits) {
        Floats x;
        __builtin_memcpy(&x, &bits, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline Ints as_ints(Floats x) {
        Ints bits;
        __builtin_memcpy(&bits, &x, sizeof x);
        return bits;
    }
    [[gnu::always_inline]] static inline auto sign_extended_words(const std::byte* from) {
        if constexpr (requires { Isa::sign_extended_words(from); }) {
            return Isa::sign_extended_words(from);
        } else {
            typename Vectors<Isa::lanes * 2>::Bytes bytes;
            __builtin_memcpy(&bytes, from, sizeof bytes);
            return __builtin_convertvector(bytes, typename Vectors<Isa::lanes * 2>::Words);
        }
    }
    // shifted: a code in bits 20 to 27, with its sign extended; lower bits are not read.
    [[gnu::always_inline]] static inline Floats e4m3(Ints shifted) {
        // A subnormal gets an exponent of its own, and loses what that adds.
        const Ints magnitude = shifted & (0x7F << 20);
        const Ints is_subnormal = magnitude < (8 << 20);
        Floats value = as_floats(magnitude + (is_subnormal ? Ints{} + (121 << 23) : Ints{} + (120 << 23)));
        value -= is_subnormal ? Floats{} + 0x1p-6F : Floats{};
        return as_floats(as_ints(value) | (shifted & INT32_MIN));
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
    static constexpr bool reads_stretches = false;
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
    static constexpr bool reads_stretches = true;
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

// The tables of a vector's outputs for one group of inputs, and the weights that codes look up in them. A number is computed once for the
// whole group: a weight costs a lookup, and neither a product nor a rounding.
template <class Inputs>
struct CodeTables {
    using Isa = typename Inputs::Isa;
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Weights = typename Inputs::Weights;
    using Words = typename Vectors<Isa::lanes * 2>::Halves;
    static_assert(Isa::lanes == 16, "two vectors of bfloat16 have the tables of four outputs, which one lookup reads");
    static constexpr int lookups = 4;
    static constexpr int pairs = static_cast<int>(coded_stretch / 2);

    // Of the vector's outputs, for one group.
    template <bool has_zeros>
    struct Scales {
        float scale[extent(Isa::lanes)];
        float zero[extent(has_zeros ? Isa::lanes : 1)];
        // index: of the first output, in the panels' scales and zeros.
        [[gnu::always_inline]] inline void read(const CodedPanels& panels, std::int64_t index) {
            V::store(scale, scales_at<Isa>(panels, index));
            if constexpr (has_zeros) {
                const auto* const zeros = reinterpret_cast<const std::byte*>(panels.zeros + index);
                V::store(zero, __builtin_convertvector(CodeMeaning<Isa, CodeKind::integer>::sign_extended(zeros), Floats));
            }
        }
    };

    template <bool has_zeros>
    [[gnu::always_inline]] inline void make(const CodedPanels& panels, const Scales<has_zeros>& scales) {
        const Floats table = V::load(panels.table);
#pragma GCC unroll 4
        for (int lookup = 0; lookup < lookups; ++lookup) {
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                Floats of_output[2];
#pragma GCC unroll 2
                for (int i = 0; i < 2; ++i) {
                    const int output = (half * 2 + i) * lookups + lookup;
                    of_output[i] = table;
                    if constexpr (has_zeros) of_output[i] -= V::all(scales.zero[output]);
                    of_output[i] *= V::all(scales.scale[output]);
                }
                tables_[lookup][half] = __builtin_bit_cast(Words, Inputs::weights(of_output[0], of_output[1]));
            }
        }
    }

    // The weights of a stretch, pair of inputs by pair.
    [[gnu::always_inline]] inline void weights(const std::byte* from, Weights (&out)[extent(pairs)]) const {
        Words codes;
        __builtin_memcpy(&codes, from, sizeof codes);
        Words table;  // what selects an output's table, in both bytes of a word
        for (int i = 0; i < Isa::lanes * 2; ++i) table[i] = static_cast<Bf16>(i / coded_stretch * 0x1010);
        // A lookup reads the lowest 6 bits of a word, so bytes that select tables serve two lookups.
        const Words even = (codes & 0x0F0F) | table;
        const Words odd = (codes >> 4 & 0x0F0F) | table;
        const Words indices[lookups] = {even, odd, even >> 8, odd >> 8};
        Lanes found[extent(lookups)];  // of 4 outputs each, all pairs of one output side by side
#pragma GCC unroll 4
        for (int lookup = 0; lookup < lookups; ++lookup) {
            found[lookup] = __builtin_bit_cast(Lanes, looked_up(tables_[lookup], indices[lookup]));
        }
        const Lanes low[2] = {interleaved<0>(found[0], found[1]), interleaved<0>(found[2], found[3])};
        const Lanes high[2] = {interleaved<1>(found[0], found[1]), interleaved<1>(found[2], found[3])};
        out[0] = interleaved_pairs<0>(low);
        out[1] = interleaved_pairs<1>(low);
        out[2] = interleaved_pairs<0>(high);
        out[3] = interleaved_pairs<1>(high);
    }

private:
    using Lanes = typename V::Ints;
    using LanePairs = typename Vectors<Isa::lanes / 2>::Longs;

    [[gnu::always_inline]] static inline Words looked_up(const Words (&tables)[2], Words index) {
        if constexpr (requires { Isa::looked_up(tables, index); }) {
            return Isa::looked_up(tables, index);
        } else {
            return __builtin_shuffle(tables[0], tables[1], index);
        }
    }
    // Of each 16 bytes of a and of b, the elements of the lower or the upper half in turn.
    template <int half, class Vector>
    [[gnu::always_inline]] static inline Vector interleaved(Vector a, Vector b) {
        constexpr int size = static_cast<int>(sizeof a[0]);
        constexpr int count = static_cast<int>(sizeof(Vector)) / size;
        constexpr int quarter = 16 / size;
        Vector order;
        for (int i = 0; i < count; ++i) order[i] = i / quarter * quarter + half * quarter / 2 + i % quarter / 2 + i % 2 * count;
        return __builtin_shuffle(a, b, order);
    }
    template <int half>
    [[gnu::always_inline]] static inline Weights interleaved_pairs(const Lanes (&lanes)[2]) {
        const auto a = __builtin_bit_cast(LanePairs, lanes[0]);
        return __builtin_bit_cast(Weights, interleaved<half>(a, __builtin_bit_cast(LanePairs, lanes[1])));
    }

    Words tables_[extent(lookups)][2];  // [lookup]: those of outputs lookup and 4 + lookup; 8 + lookup and 12 + lookup
};

// The same for CodeOrder::exponents.
template <class Inputs>
struct CodeExponents {
    using Isa = typename Inputs::Isa;
    using V = Simd<Isa>;
    using Weights = typename Inputs::Weights;
    using Words = typename Vectors<Isa::lanes * 2>::Halves;
    static constexpr int pairs = static_cast<int>(coded_stretch / 2);
    static_assert(Isa::lanes == 16, "a vector of words has the numbers of all codes twice, so that a lookup need not clear the fifth bit");

    template <bool>
    struct Scales {
        Words added;  // to numbers other than zero
        [[gnu::always_inline]] inline void read(const CodedPanels& panels, std::int64_t index) {
            constexpr Bf16 one = 127U << 7U;
            typename V::Halves scales;
            __builtin_memcpy(&scales, panels.scales + index * 2, sizeof scales);
            const auto lower = __builtin_convertvector(scales, typename V::Bits);
            added = __builtin_bit_cast(Words, lower | lower << 16) - one;
        }
    };

    [[gnu::always_inline]] inline void make(const CodedPanels& panels, const Scales<false>& scales) {
        const typename V::Halves numbers = V::narrowed(V::load(panels.table));  // exact
        const typename V::Halves twice[2] = {numbers, numbers};
        numbers_ = __builtin_bit_cast(Words, twice);
        added_ = scales.added;
    }

    [[gnu::always_inline]] inline void weights(const std::byte* from, Weights (&out)[extent(pairs)]) const {
        Words codes;
        __builtin_memcpy(&codes, from, sizeof codes);
#pragma GCC unroll 4
        for (int pair = 0; pair < pairs; ++pair) {
            const Words numbers = looked_up(numbers_, codes >> (pair * 4));
            out[pair] = __builtin_bit_cast(Weights, added_unless_zero(numbers, added_));
        }
    }

private:
    [[gnu::always_inline]] static inline Words looked_up(Words table, Words index) {
        if constexpr (requires { Isa::looked_up(table, index); }) {
            return Isa::looked_up(table, index);
        } else {
            return __builtin_shuffle(table, index);
        }
    }
    [[gnu::always_inline]] static inline Words added_unless_zero(Words numbers, Words added) {
        if constexpr (requires { Isa::added_where(numbers, added, 0x7FFF); }) {
            return Isa::added_where(numbers, added, 0x7FFF);
        } else {
            return (numbers & 0x7FFF) != 0 ? numbers + added : numbers;
        }
    }

    Words numbers_;
    Words added_;
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
    template <CodeKind kind, bool has_zeros>
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
                out.scale.low[i] = scales_at<Isa>(panels, even + i * lanes);
                out.scale.high[i] = scales_at<Isa>(panels, odd + i * lanes);
                Inputs::arrange(out.scale.low[i], out.scale.high[i]);
                out.scale.low[i] *= CodeMeaning<Isa, kind>::unit;
                out.scale.high[i] *= CodeMeaning<Isa, kind>::unit;
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

    // Calls take(pair, has_second, vector, weights) for each pair of inputs of a panel and each vector of outputs. has_second: false for
    // the last of an odd number of inputs.
    template <CodeKind kind, bool has_zeros, class Take>
    [[gnu::always_inline]] static inline void each_pair(const CodedPanels& panels, std::int64_t panel, const Take& take) {
        const CodeMeaning<Isa, kind> meaning(panels.table);
        const std::byte* codes = panels.codes + panel * panels.panel_bytes;
        const std::int64_t whole = panels.in_features / 2;
        std::int64_t pair = 0;
        for (std::int64_t run = 0; run < panels.run_count; ++run) {
            const CodeRun& of_run = panels.runs[run];
            Scales<kind, has_zeros> read;
            Scales<kind, has_zeros>::read(panels, panel, of_run, read);
            const Scales<kind, has_zeros> scales = read;  // which no other pointer refers to, so it stays in registers
            for (std::int32_t i = 0; i < of_run.pairs; ++i, ++pair) {
                const bool has_second = pair < whole;
#pragma GCC unroll 4
                for (int vector = 0; vector < vectors; ++vector) {
                    Floats low;
                    Floats high;
                    meaning.both(codes + vector * lanes * coded_pair_bytes(kind), low, high);
                    scales.apply(low, high, vector);
                    take(pair, has_second, vector, Inputs::weights(low, high));
                }
                codes += width * coded_pair_bytes(kind);
            }
        }
    }

    // The same for panels in stretches. Tables: CodeTables or CodeExponents.
    template <class Tables, bool has_zeros, class Take>
    [[gnu::always_inline]] static inline void each_of_stretches(const CodedPanels& panels, std::int64_t panel, const Take& take) {
        constexpr int pairs = Tables::pairs;
        const std::byte* codes = panels.codes + panel * panels.panel_bytes;
        const std::int64_t whole = panels.in_features / 2;
        std::int64_t pair = 0;
        // Scales are read a group ahead: a processor stalls if it stores a vector and soon loads parts of it.
        typename Tables::template Scales<has_zeros> scales[2][extent(vectors)];
        const auto read = [&](std::int64_t run) __attribute__((always_inline)) {
            const std::int64_t first = (panel * panels.groups + panels.runs[run].even_group) * width;
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) scales[run % 2][i].read(panels, first + i * lanes);
        };
        read(0);
        for (std::int64_t run = 0; run < panels.run_count; ++run) {
            Tables tables[extent(vectors)];
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) tables[i].make(panels, scales[run % 2][i]);
            if (run + 1 < panels.run_count) read(run + 1);
            const std::int64_t end = pair + panels.runs[run].pairs;
            typename Inputs::Weights weights[extent(pairs)];
            for (; pair + pairs <= end && pair + pairs <= whole; pair += pairs) {
#pragma GCC unroll 4
                for (int vector = 0; vector < vectors; ++vector) {
                    tables[vector].weights(codes + vector * lanes * pairs, weights);
#pragma GCC unroll 4
                    for (int i = 0; i < pairs; ++i) take(pair + i, true, vector, weights[i]);
                }
                codes += width * pairs;
            }
            if (pair == end) continue;  // otherwise the panel's last stretch, which is not complete, is left
#pragma GCC unroll 4
            for (int vector = 0; vector < vectors; ++vector) {
                tables[vector].weights(codes + vector * lanes * pairs, weights);
#pragma GCC unroll 4
                for (int i = 0; i < pairs; ++i) {
                    if (pair + i < end) take(pair + i, pair + i < whole, vector, weights[i]);
                }
            }
        }
    }

    template <CodeKind kind, bool has_zeros, CodeOrder order, class Take>
    [[gnu::always_inline]] static inline void each_weights(const CodedPanels& panels, std::int64_t panel, const Take& take) {
        if constexpr (order == CodeOrder::pairs) {
            each_pair<kind, has_zeros>(panels, panel, take);
        } else {
            using Tables = std::conditional_t<order == CodeOrder::tables, CodeTables<Inputs>, CodeExponents<Inputs>>;
            each_of_stretches<Tables, has_zeros>(panels, panel, take);
        }
    }

    template <CodeKind kind, bool has_zeros, CodeOrder order>
    static void decode_as(const CodedPanels& panels, std::byte* to) {
        constexpr std::int64_t pair_bytes = width * 2 * Inputs::element_bytes;
        each_weights<kind, has_zeros, order>(
            panels, 0, [&](std::int64_t pair, bool, int vector, const auto& weights) __attribute__((always_inline)) {
                Inputs::store(to + pair * pair_bytes, vector, weights);
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

    template <CodeKind kind, bool has_zeros, CodeOrder order, int rows>
    [[gnu::noinline]] static void tile(const CodedTask& of_all, std::int64_t panel_begin, std::int64_t panel_end) {
        const CodedTask task = of_all;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
            }
            each_weights<kind, has_zeros, order>(
                task.panels,
                panel, [&](std::int64_t pair, bool has_second, int vector, const auto& weights) __attribute__((always_inline)) {
                    const std::byte* const in = task.in + pair * 2 * Inputs::element_bytes;
#pragma GCC unroll 4
                    for (int r = 0; r < rows; ++r) {
                        const auto x = Inputs::load(in + r * task.in_stride, has_second);
                        sums[r][vector] = Inputs::add(sums[r][vector], weights, x, has_second);
                    }
                });
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) MatmulOutput<Isa>::template finish<vectors>(task, r, panel * width, sums[r]);
        }
    }

    template <CodeKind kind, bool has_zeros, CodeOrder order, int rows>
    static void tile_of(const CodedTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.rows == rows) {
            tile<kind, has_zeros, order, rows>(task, panel_begin, panel_end);
        } else if constexpr (rows > 1) {
            tile_of<kind, has_zeros, order, rows - 1>(task, panel_begin, panel_end);
        }
    }

    // Calls with<kind, has_zeros, order>() for what the panels have.
    template <class With>
    static void choose(const CodedPanels& panels, const With& with) {
        switch (panels.kind) {
            case CodeKind::table:
                if constexpr (Inputs::reads_stretches) {
                    if (panels.order == CodeOrder::exponents)
                        return with.template operator()<CodeKind::table, false, CodeOrder::exponents>();
                    if (panels.order == CodeOrder::tables) return choose_zeros<CodeKind::table, CodeOrder::tables>(panels, with);
                }
                return choose_zeros<CodeKind::table, CodeOrder::pairs>(panels, with);
            case CodeKind::integer: return choose_zeros<CodeKind::integer, CodeOrder::pairs>(panels, with);
            case CodeKind::e4m3: return with.template operator()<CodeKind::e4m3, false, CodeOrder::pairs>();
        }
    }
    template <CodeKind kind, CodeOrder order, class With>
    static void choose_zeros(const CodedPanels& panels, const With& with) {
        if (panels.zeros != nullptr) return with.template operator()<kind, true, order>();
        with.template operator()<kind, false, order>();
    }

    static void matmul(const CodedTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        choose(task.panels, [&]<CodeKind kind, bool has_zeros, CodeOrder order>() {
            tile_of<kind, has_zeros, order, static_cast<int>(coded_rows_max)>(task, panel_begin, panel_end);
        });
    }

    static void decode(const CodedPanels& panels, std::byte* to) {
        choose(panels, [&]<CodeKind kind, bool has_zeros, CodeOrder order>() { decode_as<kind, has_zeros, order>(panels, to); });
    }
};

}  // namespace lorry::kernels::cpu
