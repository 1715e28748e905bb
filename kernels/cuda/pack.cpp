// Lays weights out as the kernels read them and copies them to the device; see pack.h. Rows are converted on all processors; a part
// that the checkpoint already stores in the device's format is copied as it is.
#include "kernels/cuda/pack.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/checkpoint_weights.h"
#include "kernels/cuda/fp8.h"
#include "kernels/processors.h"
#include "kernels/thread_pool.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// The part as rows [out_features, in_features], multiplied by `scale`, in bfloat16 or, for any other format, in float32.
std::unique_ptr<std::byte[]> row_major(const WeightPart& part, Format format, float scale = 1.0F) {
    auto rows =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(part.out_features * part.in_features) * bytes_of(format));
    const auto fill = [&](auto* to, const auto& round) {
        read_part(part, [&](std::int64_t output, std::int64_t input, float value) {
            to[output * part.in_features + input] = round(value * scale);
        });
    };
    if (format == Format::bfloat16) {
        fill(reinterpret_cast<Half*>(rows.get()), [](float value) { return kernels::to_bfloat16(value); });
    } else {
        fill(reinterpret_cast<float*>(rows.get()), [](float value) { return value; });
    }
    return rows;
}

// Whether the checkpoint's bytes are the rows as the device needs them.
bool is_row_major(const WeightPart& part, Format format) { return part.format == format && !part.transposed; }

std::span<const std::byte> bytes_of_rows(const void* rows, const WeightPart& part, Format format) {
    return {static_cast<const std::byte*>(rows), static_cast<std::size_t>(part.out_features * part.in_features) * bytes_of(format)};
}

// Quantizes one output's weights [in_features]; returns their scale.
float quantize_fp8(std::span<const float> weights, Fp8* codes) {
    std::uint32_t largest = 0;
    for (const float weight : weights) largest = std::max(largest, magnitude_bits(weight));
    const float scale = fp8_scale(largest);
    const float inverse = 1.0F / scale;
    for (std::size_t i = 0; i < weights.size(); ++i) codes[i] = fp8_of(weights[i] * inverse);
    return scale;
}

// Some rows of a part, and their first row in the weight.
struct SomeRows {
    WeightPart rows;
    std::int64_t first = 0;
};

// A transposed part is not divided, because its rows are interleaved in memory.
std::vector<SomeRows> pieces_of(std::span<const WeightPart> parts) {
    constexpr std::int64_t rows_at_once = 64;
    std::vector<SomeRows> pieces;
    std::int64_t first = 0;
    for (const WeightPart& part : parts) {
        const std::int64_t step = part.transposed ? part.out_features : rows_at_once;
        for (std::int64_t begin = 0; begin < part.out_features; begin += step) {
            WeightPart rows = part;
            rows.data =
                static_cast<const std::byte*>(part.data) + static_cast<std::size_t>(begin * part.in_features) * bytes_of(part.format);
            rows.out_features = std::min(step, part.out_features - begin);
            pieces.push_back({rows, first + begin});
        }
        first += part.out_features;
    }
    return pieces;
}

}  // namespace

CudaWeight::CudaWeight(std::span<const WeightPart> parts, Format format, Place& place) : format_(format) {
    in_features_ = parts.front().in_features;
    for (const WeightPart& part : parts) out_features_ += part.out_features;
    const std::size_t element_bytes = format == Format::fp8_rows ? sizeof(Fp8) : bytes_of(format);
    const std::size_t row = static_cast<std::size_t>(in_features_) * element_bytes;
    const std::size_t stride = static_cast<std::size_t>(view().stride) * element_bytes;
    memory_ = place.take_piece(static_cast<std::size_t>(out_features_) * stride);
    if (format == Format::fp8_rows) scales_ = place.take_piece(static_cast<std::size_t>(out_features_) * sizeof(float));
    if (memory_.data() == nullptr) return;
    if (row == stride && std::ranges::all_of(parts, [&](const WeightPart& part) { return is_row_major(part, format); })) {
        std::byte* to = memory_.data();
        for (const WeightPart& part : parts) {
            const auto rows = bytes_of_rows(part.data, part, format);
            place.uploads().copy(to, rows);
            to += rows.size();
        }
        return;
    }
    const auto image = std::make_unique_for_overwrite<std::byte[]>(memory_.bytes());
    std::vector<float> scales(format == Format::fp8_rows ? static_cast<std::size_t>(out_features_) : 0);
    const auto convert = [&](const SomeRows& piece) {
        const auto rows = row_major(piece.rows, format);
        for (std::int64_t i = 0; i < piece.rows.out_features; ++i) {
            const auto output = static_cast<std::size_t>(piece.first + i);
            std::byte* const to = image.get() + output * stride;
            const std::byte* const from = rows.get() + static_cast<std::size_t>(i * in_features_) * bytes_of(format);
            if (scales.empty()) {
                std::memcpy(to, from, row);
            } else {
                scales[output] = quantize_fp8({reinterpret_cast<const float*>(from), static_cast<std::size_t>(in_features_)},
                                              reinterpret_cast<Fp8*>(to));
            }
            std::memset(to + row, 0, stride - row);
        }
    };
    constexpr std::size_t bytes_of_one_thread = std::size_t{1} << 20;  // for less, starting threads takes as long as converting
    const std::vector<SomeRows> pieces = pieces_of(parts);
    ThreadPool threads(memory_.bytes() > bytes_of_one_thread ? usable_processors() : 1);
    threads.each(std::ssize(pieces), [&](std::int64_t i) { convert(pieces[static_cast<std::size_t>(i)]); });
    place.uploads().copy(memory_.data(), {image.get(), memory_.bytes()});
    place.uploads().copy(scales_.data(), std::as_bytes(std::span(scales)));
}

CudaLora::CudaLora(std::span<const LoraPart> parts, Format format, Place& place) {
    in_features_ = parts.front().a.in_features;
    // Rows are padded with zeros to lora_multiple.
    const auto stride_of = [&](const WeightPart& part) {
        return static_cast<std::size_t>(round_up(part.in_features, lora_multiple)) * bytes_of(format);
    };
    std::size_t bytes = 0;
    const auto place_behind = [&](const WeightPart& part) {
        return std::exchange(bytes, bytes + static_cast<std::size_t>(part.out_features) * stride_of(part));
    };
    for (const LoraPart& part : parts) {
        parts_.push_back({.out_begin = part.out_begin,
                          .out_features = part.b.out_features,
                          .rank_begin = rank_sum_,
                          .rank = part.a.out_features,
                          .b_offset = place_behind(part.b)});
        rank_sum_ += part.a.out_features;
    }
    a_offset_ = bytes;
    for (const LoraPart& part : parts) place_behind(part.a);
    memory_ = place.take_piece(bytes);
    if (memory_.data() == nullptr) return;

    // All matrices in the device's layout, so that one copy uploads them.
    std::vector<std::byte> image(bytes);
    std::byte* to = image.data();
    const auto append = [&](const WeightPart& part, float scale) {
        const bool as_it_is = scale == 1.0F && is_row_major(part, format);
        const auto converted = as_it_is ? nullptr : row_major(part, format, scale);
        const auto* from = as_it_is ? static_cast<const std::byte*>(part.data) : converted.get();
        const std::size_t row = static_cast<std::size_t>(part.in_features) * bytes_of(format);
        for (std::int64_t i = 0; i < part.out_features; ++i, from += row, to += stride_of(part)) std::memcpy(to, from, row);
    };
    for (const LoraPart& part : parts) append(part.b, part.scale);
    for (const LoraPart& part : parts) append(part.a, 1.0F);
    place.uploads().copy(memory_.data(), image);
}

std::int64_t CudaLora::out_end() const {
    std::int64_t end = 0;
    for (const Part& part : parts_) end = std::max(end, part.out_begin + part.out_features);
    return end;
}

LoraTable CudaLora::table(const Part& part) const {
    return {.a = memory_.data() + a_offset_,
            .b = memory_.data() + part.b_offset,
            .rank_sum = static_cast<std::int32_t>(rank_sum_),
            .rank_begin = static_cast<std::int32_t>(part.rank_begin),
            .rank = static_cast<std::int32_t>(part.rank),
            .out_begin = static_cast<std::int32_t>(part.out_begin),
            .out_features = static_cast<std::int32_t>(part.out_features)};
}

CudaKvCache::CudaKvCache(const KvShape& shape, std::int64_t blocks, Format format, std::size_t slot_bytes)
    : shape_(shape), blocks_(blocks), format_(format), layer_block_bytes_(kv_layer_block_bytes(shape, format)) {
    memory_ = DeviceMemory(slot_aligned(static_cast<std::size_t>(blocks) * block_bytes()) + slot_bytes / slot_alignment * slot_alignment);
}

KvLayer CudaKvCache::layer(std::int64_t index) const {
    return {.data = memory_.data() + static_cast<std::size_t>(index) * layer_block_bytes_,
            .format = format_,
            .block_bytes = static_cast<std::int64_t>(block_bytes()),
            .kv_heads = static_cast<int>(shape_.kv_heads),
            .padded_head_dim = padded_head_dim(shape_.head_dim).value(),
            .head_bytes = static_cast<std::int64_t>(layer_block_bytes_) / (2 * shape_.kv_heads)};
}

}  // namespace lorry::kernels::cuda
