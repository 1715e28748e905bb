// Converts checkpoint formats and lays weights out in panels; see pack.h.
#include "kernels/cpu/pack.h"

#include <bit>

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

// Packs one part, whose first output is output `first` of the panels.
template <class Read, class Write>
void pack_part(const WeightPart& part, std::int64_t first, float scale, const Panels& panels) {
    const auto* const from = static_cast<const typename Read::Element*>(part.data);
    auto* const to = reinterpret_cast<typename Write::Element*>(panels.memory.data());
    const std::int64_t width = panels.width;
    const auto at = [&](std::int64_t output, std::int64_t input) {
        return (output / width * panels.in_features + input) * width + output % width;
    };
    // The source may lie in a mapped file: read it in order.
    if (part.transposed) {
        for (std::int64_t i = 0; i < part.in_features; ++i) {
            for (std::int64_t o = 0; o < part.out_features; ++o) {
                to[at(first + o, i)] = Write::write(Read::read(from[i * part.out_features + o]) * scale);
            }
        }
        return;
    }
    for (std::int64_t o = 0; o < part.out_features; ++o) {
        auto* const column = to + at(first + o, 0);
        const auto* const row = from + o * part.in_features;
        for (std::int64_t i = 0; i < part.in_features; ++i) column[i * width] = Write::write(Read::read(row[i]) * scale);
    }
}

template <class Write>
void pack_part_as(const WeightPart& part, std::int64_t first, float scale, const Panels& panels) {
    switch (part.format) {
        case Format::float32: return pack_part<ReadFloat32, Write>(part, first, scale, panels);
        case Format::float16: return pack_part<ReadFloat16, Write>(part, first, scale, panels);
        case Format::bfloat16: return pack_part<ReadBfloat16, Write>(part, first, scale, panels);
    }
}

std::int64_t elements_per_head(const KvShape& shape, std::int64_t value_stride) { return kv_block_size * (shape.head_dim + value_stride); }

}  // namespace

Panels pack_panels(std::span<const WeightPart> parts, std::int64_t width, Format format, float scale) {
    CHECK(!parts.empty(), "a weight has at least one part");
    CHECK(format != Format::float16, "panels are float32 or bfloat16");
    Panels panels;
    panels.format = format;
    panels.width = width;
    panels.in_features = parts.front().in_features;
    for (const WeightPart& part : parts) {
        CHECK(part.in_features == panels.in_features, "parts of a weight have equal in_features");
        CHECK(part.in_features > 0 && part.out_features > 0 && part.data != nullptr, "a part of a weight holds something");
        panels.out_features += part.out_features;
    }
    panels.memory = Memory(static_cast<std::size_t>(panels.count() * panels.in_features * width) * bytes_of(format));
    std::int64_t first = 0;
    for (const WeightPart& part : parts) {
        if (format == Format::float32) {
            pack_part_as<WriteFloat32>(part, first, scale, panels);
        } else {
            pack_part_as<WriteBfloat16>(part, first, scale, panels);
        }
        first += part.out_features;
    }
    return panels;
}

void unpack_row(const Panels& panels, std::int64_t output, float* to, bool accumulate) {
    const std::int64_t offset = output / panels.width * panels.in_features * panels.width + output % panels.width;
    const auto each = [&](auto* from, auto read) {
        for (std::int64_t i = 0; i < panels.in_features; ++i) {
            const float value = read(from[offset + i * panels.width]);
            to[i] = accumulate ? to[i] + value : value;
        }
    };
    if (panels.format == Format::float32) {
        each(reinterpret_cast<const float*>(panels.memory.data()), ReadFloat32::read);
    } else {
        each(reinterpret_cast<const Half*>(panels.memory.data()), ReadBfloat16::read);
    }
}

CpuLora::CpuLora(std::span<const LoraPart> parts, const Kernels& kernels, Format format) {
    CHECK(!parts.empty(), "an adapter adds at least one part to a projection");
    std::vector<WeightPart> a;
    std::int64_t rank_begin = 0;
    for (const LoraPart& part : parts) {
        CHECK(part.a.out_features == part.b.in_features, "A and B of a part have the same rank");
        a.push_back(part.a);
        parts_.push_back({part.out_begin, rank_begin, pack_panels({&part.b, 1}, kernels.panel_width, format, part.scale)});
        rank_begin += part.a.out_features;
    }
    // Parts are added by different threads at the same time.
    for (const Part& x : parts_) {
        for (const Part& y : parts_) {
            CHECK(&x == &y || x.out_begin + x.b.out_features <= y.out_begin || y.out_begin + y.b.out_features <= x.out_begin,
                  "parts of an adapter's projection do not overlap");
        }
    }
    a_ = pack_panels(a, kernels.shrink_width, format);
}

std::size_t CpuLora::bytes() const {
    std::size_t bytes = a_.memory.bytes();
    for (const Part& part : parts_) bytes += part.b.memory.bytes();
    return bytes;
}

CpuKvCache::CpuKvCache(const KvShape& shape, std::int64_t blocks, Format format)
    : shape_(shape), blocks_(blocks), format_(format), value_stride_((shape.head_dim + 15) / 16 * 16) {
    CHECK(shape.layers > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && blocks > 0, "a KV cache has layers, heads and blocks");
    memory_ = Memory(static_cast<std::size_t>(shape.layers * blocks * layer_block_bytes()));
}

std::int64_t CpuKvCache::value_offset() const { return kv_block_size * shape_.head_dim * static_cast<std::int64_t>(bytes_of(format_)); }

std::int64_t CpuKvCache::head_bytes() const {
    return elements_per_head(shape_, value_stride_) * static_cast<std::int64_t>(bytes_of(format_));
}

}  // namespace lorry::kernels::cpu
