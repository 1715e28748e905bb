// Converts checkpoint formats and lays weights out in panels, with one row for each way to store them; see pack.h.
#include "kernels/cpu/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/checkpoint_weights.h"
#include "kernels/cpu/quantize.h"
#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

struct WriteFloat32 {
    using Element = float;
    static float write(float x) { return x; }
};
struct WriteBfloat16 {
    using Element = Half;
    static Half write(float x) { return to_bfloat16(x); }
};

// The most inputs whose products of up to 255 * 127 fit into 31 bits.
constexpr std::int64_t int8_inputs_most = 66'311;

// The places of one part's outputs.
using Places = std::span<const std::int64_t>;

// The indices of the first weights at these places: dividing for each weight takes longer than converting it.
std::vector<std::int64_t> first_elements(const Panels& panels, Places places) {
    std::vector<std::int64_t> first;
    first.reserve(places.size());
    for (const std::int64_t place : places) first.push_back(panels.place_at(place));
    return first;
}

template <class Write>
void pack_part(const WeightPart& part, Places places, float scale, Panels& panels) {
    auto* const to = reinterpret_cast<typename Write::Element*>(panels.memory.data());
    const std::vector<std::int64_t> first = first_elements(panels, places);
    read_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        to[first[static_cast<std::size_t>(output)] + panels.input_at(input)] = Write::write(value * scale);
    });
}

// Integers that a checkpoint has with a scale for each output.
void copy_int8_part(const WeightPart& part, Places places, Panels& panels) {
    const CodedPart& from = *part.coded;
    CHECK(from.rounds_inputs && from.kind == CodeKind::integer && from.groups == 1 && from.zeros == nullptr,
          "codes that are multiplied with rounded inputs are integers with one scale for each output");
    auto* const to = reinterpret_cast<std::int8_t*>(panels.memory.data());
    const std::uint8_t* code = from.codes;
    for (std::size_t output = 0; output < places.size(); ++output) {
        const auto place = static_cast<std::size_t>(places[output]);
        panels.scales[place] = from.scales[output];
        const std::int64_t first = panels.place_at(places[output]);
        for (std::int64_t input = 0; input < part.in_features; ++input, ++code) {
            const auto value = static_cast<std::int8_t>(*code);
            to[first + panels.input_at(input)] = value;
            panels.offsets[place] -= 128 * value;
        }
    }
}

// The largest weight of an output becomes 127 or -127.
void pack_int8_part(const WeightPart& part, Places places, float scale, Panels& panels) {
    if (part.coded != nullptr) return copy_int8_part(part, places, panels);
    std::vector<float> largest(static_cast<std::size_t>(part.out_features));
    read_part(part, [&](std::int64_t output, std::int64_t, float value) {
        float& most = largest[static_cast<std::size_t>(output)];
        most = std::max(most, std::abs(value * scale)) + (value - value);  // a value that is not finite makes the whole output NaN
    });
    for (std::size_t output = 0; output < places.size(); ++output)
        panels.scales[static_cast<std::size_t>(places[output])] = largest[output] / 127.0F;
    auto* const to = reinterpret_cast<std::int8_t*>(panels.memory.data());
    const std::vector<std::int64_t> first = first_elements(panels, places);
    read_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        const std::int64_t place = places[static_cast<std::size_t>(output)];
        const float step = panels.scales[static_cast<std::size_t>(place)];
        const auto quantized = static_cast<std::int8_t>(step > 0.0F ? std::lrintf(value * scale / step) : 0);
        to[first[static_cast<std::size_t>(output)] + panels.input_at(input)] = quantized;
        panels.offsets[static_cast<std::size_t>(place)] -= 128 * quantized;
    });
}

void pack_int4_part(const WeightPart& part, Places places, float scale, Panels& panels) {
    // All weights of an output are needed together, but are far apart in a transposed part: read the whole part first.
    const auto in_features = static_cast<std::size_t>(part.in_features);
    std::vector<float> weights(static_cast<std::size_t>(part.out_features) * in_features);
    read_part(part, [&](std::int64_t output, std::int64_t input, float value) {
        weights[static_cast<std::size_t>(output) * in_features + static_cast<std::size_t>(input)] = value * scale;
    });
    std::vector<std::uint8_t> nibbles(in_features);
    std::vector<std::uint8_t> factors(static_cast<std::size_t>(panels.stretches()));
    auto* const to = reinterpret_cast<std::uint8_t*>(panels.memory.data());
    for (std::size_t output = 0; output < places.size(); ++output) {
        const std::int64_t place = places[output];
        const std::span row = std::span(weights).subspan(output * in_features, in_features);
        panels.scales[static_cast<std::size_t>(place)] = quantize_int4(row, nibbles, factors);
        for (std::int64_t stretch = 0; stretch < panels.stretches(); ++stretch) {
            const std::int64_t begin = stretch * int4_stretch;
            const std::uint8_t own = factors[static_cast<std::size_t>(stretch)];
            to[panels.factors_at(place, begin)] = own;
            std::uint8_t* const first_nibble = to + panels.nibble_at(place, begin);
            for (std::int64_t i = 0; i < std::min(int4_stretch, part.in_features - begin); ++i) {
                const std::uint8_t nibble = nibbles[static_cast<std::size_t>(begin + i)];
                std::uint8_t& both = first_nibble[i / 8 * panels.width * 4 + i % 4];
                both = static_cast<std::uint8_t>(both | nibble << (i & 4));
                panels.offsets[static_cast<std::size_t>(place)] -= 128 * int4_value(nibble, own);
            }
        }
    }
}

// Row `place` of panels of one storage: to[i] (+)= read(i).
void read_row(const Panels& panels, float* to, bool accumulate, auto read) {
    for (std::int64_t i = 0; i < panels.in_features; ++i) {
        const float value = read(i);
        to[i] = accumulate ? to[i] + value : value;
    }
}

template <class Read>
void unpack_row_as(const Panels& panels, std::int64_t place, float* to, bool accumulate) {
    const auto* const from = reinterpret_cast<const typename Read::Element*>(panels.memory.data()) + panels.place_at(place);
    read_row(panels, to, accumulate, [&](std::int64_t i) { return Read::read(from[panels.input_at(i)]); });
}

void unpack_int8_row(const Panels& panels, std::int64_t place, float* to, bool accumulate) {
    const float scale = panels.scales[static_cast<std::size_t>(place)];
    const auto* const from = reinterpret_cast<const std::int8_t*>(panels.memory.data()) + panels.place_at(place);
    read_row(panels, to, accumulate, [&](std::int64_t i) { return static_cast<float>(from[panels.input_at(i)]) * scale; });
}

void unpack_int4_row(const Panels& panels, std::int64_t place, float* to, bool accumulate) {
    const float scale = panels.scales[static_cast<std::size_t>(place)];
    const auto* const from = reinterpret_cast<const std::uint8_t*>(panels.memory.data());
    read_row(panels, to, accumulate, [&](std::int64_t i) {
        const auto nibble = static_cast<std::uint8_t>(from[panels.nibble_at(place, i)] >> (i & 4) & 0xF);
        return static_cast<float>(int4_value(nibble, from[panels.factors_at(place, i)])) * scale;
    });
}

std::int64_t coded_panel_bytes(const Panels& panels) { return panels.code_layout().panel_bytes(panels.in_features); }

// Whether groups consist of whole stretches, and are long enough: computing a table for fewer than 32 inputs takes longer than it saves.
bool suits_tables(std::span<const CodeRun> runs, std::int64_t in_features) {
    constexpr std::int64_t inputs_least = 32;
    if (std::ssize(runs) > (in_features + inputs_least - 1) / inputs_least) return false;
    std::int64_t pairs = 0;
    return std::ranges::all_of(runs, [&](const CodeRun& run) {
        const bool begins_stretch = pairs % (coded_stretch / 2) == 0;
        pairs += run.pairs;
        return begins_stretch && run.even_group == run.odd_group;
    });
}

// The scales of parts in codes, [out, groups].
std::span<const float> scales_of(const WeightPart& part) {
    return {part.coded->scales, static_cast<std::size_t>(part.out_features * part.coded->groups)};
}

bool all_scales(std::span<const WeightPart> parts, const auto& holds) {
    return std::ranges::all_of(parts, [&](const WeightPart& part) { return std::ranges::all_of(scales_of(part), holds); });
}

// Scales of groups in any order stay float32: kernels read them for each pair of inputs, and widening would take as long as it saves.
ScaleFormat scale_format_of(std::span<const WeightPart> parts, std::span<const CodeRun> runs) {
    if (std::ssize(runs) > parts.front().coded->groups) return ScaleFormat::float32;
    if (all_scales(parts, [](float scale) { return from_bfloat16(to_bfloat16(scale)) == scale; })) return ScaleFormat::bfloat16;
    if (all_scales(parts, [](float scale) { return exact_float16(scale).has_value(); })) return ScaleFormat::float16;
    return ScaleFormat::float32;
}

void store_scale(ScaleFormat format, float scale, std::byte* scales, std::size_t index) {
    const auto store = [&](const auto& value) { std::memcpy(scales + index * sizeof value, &value, sizeof value); };
    switch (format) {
        case ScaleFormat::float32: return store(scale);
        case ScaleFormat::bfloat16: return store(to_bfloat16(scale));
        case ScaleFormat::float16: return store(*exact_float16(scale));
    }
}

float load_scale(const Coding& coding, std::size_t index) {
    const auto load = [&](auto value) {
        std::memcpy(&value, coding.scales.data() + index * sizeof value, sizeof value);
        return value;
    };
    switch (coding.scale_format) {
        case ScaleFormat::float32: break;
        case ScaleFormat::bfloat16: return from_bfloat16(load(Half{}));
        case ScaleFormat::float16: return from_float16(load(Half{}));
    }
    return load(0.0F);
}

// Whether weights are numbers of the table with exponents added to theirs: see CodedPanels.
bool suits_exponents(std::span<const WeightPart> parts) {
    const CodedPart& first = *parts.front().coded;
    if (first.zeros != nullptr) return false;
    constexpr std::uint32_t exponent_bits = 0x7F80'0000;
    const auto exponent = [](float x) { return static_cast<int>((std::bit_cast<std::uint32_t>(x) & exponent_bits) >> 23U); };
    int low = 255;
    int high = 0;
    for (const float number : first.table) {
        if ((std::bit_cast<std::uint32_t>(number) & 0xFFFFU) != 0) return false;
        if (number == 0.0F) continue;
        if (exponent(number) == 0) return false;
        low = std::min(low, exponent(number));
        high = std::max(high, exponent(number));
    }
    constexpr int bias = 127;
    return all_scales(parts, [&](float scale) {
        const int added = exponent(scale) - bias;
        return scale > 0.0F && (std::bit_cast<std::uint32_t>(scale) & ~exponent_bits) == 0 && low + added > 0 && high + added < 255;
    });
}

CodeOrder order_of(std::span<const WeightPart> parts, const Panels& panels, std::span<const CodeRun> runs) {
    const bool reads_stretches = parts.front().coded->kind == CodeKind::table && panels.group == 2;
    if (!reads_stretches || !suits_tables(runs, panels.in_features)) return CodeOrder::pairs;
    return suits_exponents(parts) ? CodeOrder::exponents : CodeOrder::tables;
}

// Parts whose codes share panels. A zero point that is the same everywhere becomes part of what codes mean.
void begin_codes(std::span<const WeightPart> parts, std::int64_t lanes, Panels& panels) {
    const CodedPart& first = *parts.front().coded;
    Coding coding{.kind = first.kind, .lanes = lanes, .table = first.table, .groups = first.groups};
    coding.group_of.assign(first.group_of, first.group_of + panels.in_features);
    for (std::int64_t input = 0; input < panels.in_features; input += 2) {
        const std::int32_t even = first.group_of[input];
        const std::int32_t odd = input + 1 < panels.in_features ? first.group_of[input + 1] : even;
        if (coding.runs.empty() || coding.runs.back().even_group != even || coding.runs.back().odd_group != odd)
            coding.runs.push_back({.pairs = 0, .even_group = even, .odd_group = odd});
        ++coding.runs.back().pairs;
    }
    coding.order = order_of(parts, panels, coding.runs);
    coding.scale_format = scale_format_of(parts, coding.runs);
    const auto places = static_cast<std::size_t>(panels.count() * panels.width * coding.groups);
    coding.scales.resize(places * static_cast<std::size_t>(bytes_of(coding.scale_format)));
    if (first.zeros != nullptr) {
        const bool is_constant = std::ranges::all_of(parts, [&](const WeightPart& part) {
            const std::span zeros(part.coded->zeros, static_cast<std::size_t>(part.out_features * coding.groups));
            return std::ranges::all_of(zeros, [&](std::int8_t zero) { return zero == first.zeros[0]; });
        });
        if (is_constant && coding.kind == CodeKind::table) {
            for (float& value : coding.table) value -= static_cast<float>(first.zeros[0]);
        } else {
            coding.zeros.resize(places);
        }
    }
    panels.coding = std::move(coding);
}

void pack_coded_part(const WeightPart& part, Places places, float /*scale*/, Panels& panels) {
    const CodedPart& from = *part.coded;
    Coding& coding = *panels.coding;
    auto* const to = reinterpret_cast<std::uint8_t*>(panels.memory.data());
    const std::int64_t panel_bytes = coded_panel_bytes(panels);
    const CodeLayout layout = panels.code_layout();
    for (std::int64_t output = 0; output < part.out_features; ++output) {
        const std::int64_t place = places[static_cast<std::size_t>(output)];
        const std::int64_t panel = place / panels.width;
        const std::int64_t column = place % panels.width;
        const std::uint8_t* const codes = from.codes + output * part.in_features;
        for (std::int64_t i = 0; i < part.in_features; ++i) {
            const CodePlace at = layout.place_of(column, i);
            std::uint8_t& byte = to[panel * panel_bytes + at.byte];
            byte = static_cast<std::uint8_t>(byte | codes[i] << at.shift);
        }
        for (std::int64_t group = 0; group < coding.groups; ++group) {
            const auto at = static_cast<std::size_t>((panel * coding.groups + group) * panels.width + column);
            store_scale(coding.scale_format, from.scales[output * coding.groups + group], coding.scales.data(), at);
            if (!coding.zeros.empty()) coding.zeros[at] = from.zeros[output * coding.groups + group];
        }
    }
}

void unpack_coded_row(const Panels& panels, std::int64_t place, float* to, bool accumulate) {
    const Coding& coding = *panels.coding;
    const std::int64_t panel = place / panels.width;
    const std::int64_t column = place % panels.width;
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(panels.memory.data()) + panel * coded_panel_bytes(panels);
    const CodeLayout layout = panels.code_layout();
    read_row(panels, to, accumulate, [&](std::int64_t i) {
        const CodePlace place_of_code = layout.place_of(column, i);
        const auto code = static_cast<std::uint8_t>(codes[place_of_code.byte] >> place_of_code.shift);
        const auto at =
            static_cast<std::size_t>((panel * coding.groups + coding.group_of[static_cast<std::size_t>(i)]) * panels.width + column);
        const float zero = coding.zeros.empty() ? 0.0F : static_cast<float>(coding.zeros[at]);
        return (meaning_of(coding.kind, coding.table, code) - zero) * load_scale(coding, at);
    });
}

// How panels of one storage are sized, filled and read. A new storage is one row.
struct PanelFormat {
    Storage storage;
    bool has_scales;
    std::int64_t (*bytes)(const Panels&);  // of a panel
    void (*pack)(const WeightPart& part, Places places, float scale, Panels& panels);
    void (*unpack)(const Panels& panels, std::int64_t place, float* to, bool accumulate);
};

template <std::int64_t bytes>
std::int64_t element_panel_bytes(const Panels& panels) {
    return panels.panel_elements() * bytes;
}
std::int64_t int4_panel_bytes(const Panels& panels) { return panels.stretches() * int4_stretch_bytes(panels.width); }

constexpr std::array panel_formats = {
    PanelFormat{Storage::float32, false, element_panel_bytes<4>, pack_part<WriteFloat32>, unpack_row_as<ReadFloat32>},
    PanelFormat{Storage::bfloat16, false, element_panel_bytes<2>, pack_part<WriteBfloat16>, unpack_row_as<ReadBfloat16>},
    PanelFormat{Storage::int8, true, element_panel_bytes<1>, pack_int8_part, unpack_int8_row},
    PanelFormat{Storage::int4, true, int4_panel_bytes, pack_int4_part, unpack_int4_row},
    PanelFormat{Storage::codes, false, coded_panel_bytes, pack_coded_part, unpack_coded_row},
};

const PanelFormat& format_of(Storage storage) {
    const auto* const row = std::ranges::find(panel_formats, storage, &PanelFormat::storage);
    CHECK(row != panel_formats.end(), "every Storage has a row");
    return *row;
}

// Elements that a token's values take in the KV cache.
std::int64_t value_stride_of(const KvShape& shape) { return (shape.head_dim + 15) / 16 * 16; }

// For the layouts without scales.
std::int64_t element_bytes(KvLayout layout) { return layout == KvLayout::float32 ? 4 : 2; }

}  // namespace

Storage storage_of(Format weights) { return weights == Format::bfloat16 ? Storage::bfloat16 : Storage::float32; }

Panels pack_panels(std::span<const WeightPart> parts, const PanelShape& shape, const PackOptions& options) {
    const PanelFormat& format = format_of(shape.storage);
    Panels panels;
    panels.storage = shape.storage;
    panels.width = shape.width;
    panels.group = shape.group;
    panels.in_features = parts.front().in_features;
    for (const WeightPart& part : parts) panels.out_features += part.out_features;
    if (options.apart) panels.parts = std::ssize(parts);
    panels.pairs_parts = shape.pairs_parts && panels.parts == 2;
    if (panels.storage == Storage::codes) begin_codes(parts, shape.lanes, panels);
    const std::size_t outputs = static_cast<std::size_t>(panels.count() * panels.width);
    const auto bytes = static_cast<std::size_t>(panels.count() * format.bytes(panels));
    panels.memory = options.place == nullptr ? Memory(bytes) : options.place->take_piece(bytes);
    if (panels.memory.data() == nullptr) return panels;
    if (format.has_scales) {
        CHECK(panels.in_features <= int8_inputs_most, "sums of int8 products fit into 32 bits");
        panels.scales.resize(outputs);
        panels.offsets.resize(outputs);
    }
    std::vector<std::int64_t> places;
    std::int64_t output = 0;
    for (const WeightPart& part : parts) {
        places.clear();
        for (std::int64_t i = 0; i < part.out_features; ++i, ++output) places.push_back(panels.place_of(output));
        format.pack(part, places, options.scale, panels);
    }
    return panels;
}

bool share_codes(std::span<const WeightPart> parts) {
    const CodedPart* const first = parts.front().coded;
    return std::ranges::all_of(parts, [&](const WeightPart& part) {
        const CodedPart* const own = part.coded;
        if (first == nullptr || own == nullptr) return false;
        // Kernels multiply scales of e4m3 by 2^120.
        const auto can_scale = [](float scale) { return std::abs(scale) < 0x1p7F; };
        if (own->kind == CodeKind::e4m3 && !std::ranges::all_of(scales_of(part), can_scale)) return false;
        return own->kind == first->kind && own->table == first->table && own->groups == first->groups &&
               (own->zeros == nullptr) == (first->zeros == nullptr) && own->rounds_inputs == first->rounds_inputs &&
               std::equal(own->group_of, own->group_of + part.in_features, first->group_of);
    });
}

CodedPanels Panels::coded_from(std::int64_t index) const {
    const std::int64_t scales_before = index * coding->groups * width;
    return {.kind = coding->kind,
            .order = coding->order,
            .scale_format = coding->scale_format,
            .table = coding->table.data(),
            .codes = panel(index),
            .scales = coding->scales.data() + scales_before * bytes_of(coding->scale_format),
            .zeros = coding->zeros.empty() ? nullptr : coding->zeros.data() + scales_before,
            .runs = coding->runs.data(),
            .run_count = std::ssize(coding->runs),
            .groups = coding->groups,
            .in_features = in_features,
            .panel_bytes = coded_panel_bytes(*this)};
}

std::size_t Panels::bytes() const {
    std::size_t bytes = memory.bytes() + (scales.size() + offsets.size()) * 4;
    if (coding) {
        bytes += coding->scales.size() + coding->zeros.size() * sizeof(std::int8_t) + coding->group_of.size() * sizeof(std::int32_t) +
                 coding->runs.size() * sizeof(CodeRun);
    }
    return bytes;
}

void unpack_row(const Panels& panels, std::int64_t output, float* to, bool accumulate) {
    format_of(panels.storage).unpack(panels, panels.place_of(output), to, accumulate);
}

CpuLora::CpuLora(std::span<const LoraPart> parts, const PanelShape& a, const PanelShape& b, Place& place) {
    std::vector<WeightPart> a_parts;
    std::int64_t rank_begin = 0;
    for (const LoraPart& part : parts) {
        a_parts.push_back(part.a);
        parts_.push_back({part.out_begin, rank_begin, pack_panels({&part.b, 1}, b, {.scale = part.scale, .place = &place})});
        rank_begin += part.a.out_features;
    }
    a_ = pack_panels(a_parts, a, {.place = &place});
}

const CpuLora::Part* CpuLora::part_at(std::int64_t out_begin) const {
    const auto part = std::ranges::find(parts_, out_begin, &Part::out_begin);
    return part == parts_.end() ? nullptr : &*part;
}

std::int64_t CpuLora::out_end() const {
    std::int64_t end = 0;
    for (const Part& part : parts_) end = std::max(end, part.out_begin + part.b.out_features);
    return end;
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
    CHECK(layout != KvLayout::bfloat16_pairs || shape.head_dim % 2 == 0, "a KV cache of bfloat16 pairs has an even head_dim");
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
