// Converts checkpoint formats and lays weights out in panels; see pack.h.
#include "kernels/cpu/pack.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/quantize.h"
#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

using Half = std::uint16_t;

float from_bfloat16(Half x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
Half to_bfloat16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return static_cast<Half>((bits >> 16) | 0x40U);
    return static_cast<Half>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits.
float from_float16(Half x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000U) << 16;
    const std::uint32_t exponent = (x >> 10) & 0x1FU;
    const std::uint32_t mantissa = x & 0x3FFU;
    if (exponent == 0) {  // subnormal: mantissa * 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112U;
    return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

struct ReadFloat32 {
    using Element = float;
    static float read(float x) { return x; }
};
struct ReadFloat16 {
    using Element = Half;
    static float read(Half x) { return from_float16(x); }
};
struct ReadBfloat16 {
    using Element = Half;
    static float read(Half x) { return from_bfloat16(x); }
};
struct WriteFloat32 {
    using Element = float;
    static float write(float x) { return x; }
};
struct WriteBfloat16 {
    using Element = Half;
    static Half write(float x) { return to_bfloat16(x); }
};

// 255 * 127 for each of them, in 31 bits.
constexpr std::int64_t int8_inputs_most = 66'311;

std::int64_t panel_bytes(const Panels& panels) {
    switch (panels.storage) {
        case Storage::float32: return panels.panel_elements() * 4;
        case Storage::bfloat16: return panels.panel_elements() * 2;
        case Storage::int8: return panels.panel_elements();
        case Storage::int4: return panels.stretches() * int4_stretch_bytes(panels.width);
    }
    return 0;
}

// Calls take(output, input, value) for all of a part.
template <class Read, class Take>
void read_part(const WeightPart& part, const Take& take) {
    const auto* from = static_cast<const typename Read::Element*>(part.data);
    // The source may lie in a mapped file: read it in order.
    if (part.transposed) {
        for (std::int64_t i = 0; i < part.in_features; ++i) {
            for (std::int64_t o = 0; o < part.out_features; ++o) take(o, i, Read::read(*from++));
        }
        return;
    }
    for (std::int64_t o = 0; o < part.out_features; ++o) {
        for (std::int64_t i = 0; i < part.in_features; ++i) take(o, i, Read::read(*from++));
    }
}

template <class Take>
void read_any_part(const WeightPart& part, const Take& take) {
    switch (part.format) {
        case Format::float32: return read_part<ReadFloat32>(part, take);
        case Format::float16: return read_part<ReadFloat16>(part, take);
        case Format::bfloat16: return read_part<ReadBfloat16>(part, take);
        case Format::int8_rows:
        case Format::fp8_rows: break;
    }
    CHECK(false, "a checkpoint's weights are floating-point numbers");
}

// Packs one part, whose first output has place `first` in the panels.
template <class Write>
void pack_part(const WeightPart& part, std::int64_t first, float scale, const Panels& panels) {
    auto* const to = reinterpret_cast<typename Write::Element*>(panels.memory.data());
    read_any_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        to[panels.at(first + output, input)] = Write::write(value * scale);
    });
}

// The largest weight of an output becomes 127 or -127.
void pack_int8_part(const WeightPart& part, std::int64_t first, float scale, Panels& panels) {
    std::vector<float> largest(static_cast<std::size_t>(part.out_features));
    read_any_part(part, [&](std::int64_t output, std::int64_t, float value) {
        float& most = largest[static_cast<std::size_t>(output)];
        most = std::max(most, std::abs(value * scale)) + (value - value);  // one that is not finite shows: all of the output is NaN
    });
    for (std::int64_t output = 0; output < part.out_features; ++output)
        panels.scales[static_cast<std::size_t>(first + output)] = largest[static_cast<std::size_t>(output)] / 127.0F;
    auto* const to = reinterpret_cast<std::int8_t*>(panels.memory.data());
    read_any_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        const float step = panels.scales[static_cast<std::size_t>(first + output)];
        const auto quantized = static_cast<std::int8_t>(step > 0.0F ? std::lrintf(value * scale / step) : 0);
        to[panels.at(first + output, input)] = quantized;
        panels.offsets[static_cast<std::size_t>(first + output)] -= 128 * quantized;
    });
}

void pack_int4_part(const WeightPart& part, std::int64_t first, float scale, Panels& panels) {
    // A transposed part has the weights of an output far from each other, and they are needed together: all are read before.
    const auto in_features = static_cast<std::size_t>(part.in_features);
    std::vector<float> weights(static_cast<std::size_t>(part.out_features) * in_features);
    read_any_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        weights[static_cast<std::size_t>(output) * in_features + static_cast<std::size_t>(input)] = value * scale;
    });
    std::vector<std::uint8_t> nibbles(in_features);
    std::vector<std::uint8_t> factors(static_cast<std::size_t>(panels.stretches()));
    auto* const to = reinterpret_cast<std::uint8_t*>(panels.memory.data());
    for (std::int64_t output = first; output < first + part.out_features; ++output) {
        const std::span row = std::span(weights).subspan(static_cast<std::size_t>(output - first) * in_features, in_features);
        panels.scales[static_cast<std::size_t>(output)] = quantize_int4(row, nibbles, factors);
        for (std::int64_t stretch = 0; stretch < panels.stretches(); ++stretch) {
            const std::int64_t begin = stretch * int4_stretch;
            const std::uint8_t own = factors[static_cast<std::size_t>(stretch)];
            to[panels.factors_at(output, begin)] = own;
            std::uint8_t* const first_nibble = to + panels.nibble_at(output, begin);
            for (std::int64_t i = 0; i < std::min(int4_stretch, part.in_features - begin); ++i) {
                const std::uint8_t nibble = nibbles[static_cast<std::size_t>(begin + i)];
                std::uint8_t& both = first_nibble[i / 8 * panels.width * 4 + i % 4];
                both = static_cast<std::uint8_t>(both | nibble << (i & 4));
                panels.offsets[static_cast<std::size_t>(output)] -= 128 * int4_value(nibble, own);
            }
        }
    }
}

// Elements of a token's values, as they lie in the KV cache.
std::int64_t value_stride_of(const KvShape& shape) { return (shape.head_dim + 15) / 16 * 16; }

// Of the layouts without scales.
std::int64_t element_bytes(KvLayout layout) { return layout == KvLayout::float32 ? 4 : 2; }

}  // namespace

Panels pack_panels(std::span<const WeightPart> parts, const PanelShape& shape, const PackOptions& options) {
    CHECK(!parts.empty(), "a weight has at least one part");
    Panels panels;
    panels.storage = shape.storage;
    panels.width = shape.width;
    panels.group = shape.group;
    panels.in_features = parts.front().in_features;
    for (const WeightPart& part : parts) {
        CHECK(part.in_features == panels.in_features, "parts of a weight have equal in_features");
        CHECK(part.in_features > 0 && part.out_features > 0 && part.data != nullptr, "a part of a weight holds something");
        CHECK(!options.apart || part.out_features == parts.front().out_features, "parts with panels of their own are of one size");
        panels.out_features += part.out_features;
    }
    if (options.apart) panels.parts = std::ssize(parts);
    const std::size_t outputs = static_cast<std::size_t>(panels.count() * panels.width);
    const auto bytes = static_cast<std::size_t>(panels.count() * panel_bytes(panels));
    panels.memory = options.place == nullptr ? Memory(bytes) : options.place->take_piece(bytes);
    if (panels.memory.data() == nullptr) return panels;
    if (shape.storage == Storage::int8 || shape.storage == Storage::int4) {
        CHECK(panels.in_features <= int8_inputs_most, "sums of int8 products fit into 32 bits");
        panels.scales.resize(outputs);
        panels.offsets.resize(outputs);
    }
    std::int64_t first = 0;
    for (const WeightPart& part : parts) {
        switch (shape.storage) {
            case Storage::float32: pack_part<WriteFloat32>(part, first, options.scale, panels); break;
            case Storage::bfloat16: pack_part<WriteBfloat16>(part, first, options.scale, panels); break;
            case Storage::int8: pack_int8_part(part, first, options.scale, panels); break;
            case Storage::int4: pack_int4_part(part, first, options.scale, panels); break;
        }
        first += options.apart ? panels.part_count() * panels.width : part.out_features;
    }
    return panels;
}

void unpack_row(const Panels& panels, std::int64_t output, float* to, bool accumulate) {
    const std::int64_t place = panels.place_of(output);
    const auto each_input = [&](auto read) {
        for (std::int64_t i = 0; i < panels.in_features; ++i) {
            const float value = read(i);
            to[i] = accumulate ? to[i] + value : value;
        }
    };
    const auto each = [&](auto* from, auto read) { each_input([&](std::int64_t i) { return read(from[panels.at(place, i)]); }); };
    switch (panels.storage) {
        case Storage::float32: return each(reinterpret_cast<const float*>(panels.memory.data()), ReadFloat32::read);
        case Storage::bfloat16: return each(reinterpret_cast<const Half*>(panels.memory.data()), ReadBfloat16::read);
        case Storage::int8: {
            const float scale = panels.scales[static_cast<std::size_t>(place)];
            return each(reinterpret_cast<const std::int8_t*>(panels.memory.data()),
                        [&](std::int8_t value) { return static_cast<float>(value) * scale; });
        }
        case Storage::int4: {
            const float scale = panels.scales[static_cast<std::size_t>(place)];
            const auto* const from = reinterpret_cast<const std::uint8_t*>(panels.memory.data());
            return each_input([&](std::int64_t i) {
                const auto nibble = static_cast<std::uint8_t>(from[panels.nibble_at(place, i)] >> (i & 4) & 0xF);
                return static_cast<float>(int4_value(nibble, from[panels.factors_at(place, i)])) * scale;
            });
        }
    }
}

CpuLora::CpuLora(std::span<const LoraPart> parts, const PanelShape& a, const PanelShape& b, Place& place) {
    CHECK(!parts.empty(), "an adapter adds at least one part to a projection");
    std::vector<WeightPart> a_parts;
    std::int64_t rank_begin = 0;
    for (const LoraPart& part : parts) {
        CHECK(part.a.out_features == part.b.in_features, "A and B of a part have the same rank");
        a_parts.push_back(part.a);
        parts_.push_back({part.out_begin, rank_begin, pack_panels({&part.b, 1}, b, {.scale = part.scale, .place = &place})});
        rank_begin += part.a.out_features;
    }
    // Parts are added by different threads at the same time.
    for (const Part& x : parts_) {
        for (const Part& y : parts_) {
            CHECK(&x == &y || x.out_begin + x.b.out_features <= y.out_begin || y.out_begin + y.b.out_features <= x.out_begin,
                  "parts of an adapter's projection do not overlap");
        }
    }
    a_ = pack_panels(a_parts, a, {.place = &place});
}

std::size_t CpuLora::bytes() const {
    std::size_t bytes = a_.bytes();
    for (const Part& part : parts_) bytes += part.b.bytes();
    return bytes;
}

CpuKvCache::CpuKvCache(const KvShape& shape, std::int64_t blocks, KvLayout layout, std::size_t slot_bytes)
    : shape_(shape),
      blocks_(blocks),
      layout_(layout),
      value_stride_(value_stride_of(shape)),
      slots_(slot_bytes / slot_alignment * slot_alignment) {
    CHECK(shape.layers > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && blocks > 0, "a KV cache has layers, heads and blocks");
    CHECK(layout != KvLayout::bfloat16_pairs || shape.head_dim % 2 == 0, "pairs of dimensions need an even number of them");
    memory_ = Memory(static_cast<std::size_t>(shape.layers * blocks * layer_block_bytes()));
}

std::int64_t CpuKvCache::value_offset() const {
    if (layout_ == KvLayout::int8) return int8_value_offset(shape_.head_dim);
    return kv_block_size * shape_.head_dim * element_bytes(layout_);
}

std::int64_t CpuKvCache::head_bytes(const KvShape& shape, KvLayout layout) {
    const std::int64_t value_stride = value_stride_of(shape);
    if (layout == KvLayout::int8) return int8_head_bytes(shape.head_dim, value_stride);
    return kv_block_size * (shape.head_dim + value_stride) * element_bytes(layout);
}

}  // namespace lorry::kernels::cpu
