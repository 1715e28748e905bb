// Lays weights out as the kernels read them and copies them to the device; see pack.h. Formats are converted as for the CPU.
#include "kernels/cuda/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/pack.h"
#include "kernels/cuda/fp8.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// Panels of width 1 are a row-major matrix [out, in].
cpu::Storage storage_of(Format format) { return format == Format::bfloat16 ? cpu::Storage::bfloat16 : cpu::Storage::float32; }
cpu::Panels row_major(std::span<const WeightPart> parts, Format format, float scale = 1.0F) {
    return cpu::pack_panels(parts, {.storage = storage_of(format), .width = 1, .group = 1}, {.scale = scale});
}

// Rows of `row` bytes, each filled up with zeros to `stride`, behind what `image` holds; returns where they begin.
std::size_t append_rows(std::vector<std::byte>& image, std::span<const std::byte> rows, std::size_t row, std::size_t stride) {
    const std::size_t begin = image.size();
    const std::size_t count = rows.size() / row;
    image.resize(begin + count * stride);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(image.data() + begin + i * stride, rows.data() + i * row, row);
    return begin;
}

// One output's weights [in_features]; returns their scale.
float quantize_fp8(std::span<const float> weights, Fp8* codes) {
    std::uint32_t largest = 0;
    for (const float weight : weights) largest = std::max(largest, magnitude_bits(weight));
    const float scale = fp8_scale(largest);
    const float inverse = 1.0F / scale;
    for (std::size_t i = 0; i < weights.size(); ++i) codes[i] = fp8_of(weights[i] * inverse);
    return scale;
}

}  // namespace

CudaWeight::CudaWeight(std::span<const WeightPart> parts, Format format, DevicePool& pool) : format_(format) {
    const cpu::Panels panels = row_major(parts, format);
    out_features_ = panels.out_features;
    in_features_ = panels.in_features;
    if (format != Format::fp8_rows) {
        const std::size_t bytes = static_cast<std::size_t>(out_features_ * in_features_) * bytes_of(format);
        upload_rows({panels.memory.data(), bytes}, bytes_of(format), pool);
        return;
    }
    const auto* const weights = reinterpret_cast<const float*>(panels.memory.data());
    std::vector<Fp8> codes(static_cast<std::size_t>(out_features_ * in_features_));
    std::vector<float> scales(static_cast<std::size_t>(out_features_));
    for (std::size_t i = 0; i < scales.size(); ++i) {
        const auto row = i * static_cast<std::size_t>(in_features_);
        scales[i] = quantize_fp8({weights + row, static_cast<std::size_t>(in_features_)}, codes.data() + row);
    }
    scales_ = pool.allocate(scales.size() * sizeof(float));
    pool.upload(scales_.data(), std::as_bytes(std::span(scales)));
    upload_rows(std::as_bytes(std::span(codes)), sizeof(Fp8), pool);
}

void CudaWeight::upload_rows(std::span<const std::byte> rows, std::size_t element_bytes, DevicePool& pool) {
    const auto row = static_cast<std::size_t>(in_features_) * element_bytes;
    const auto stride = static_cast<std::size_t>(view().stride) * element_bytes;
    memory_ = pool.allocate(static_cast<std::size_t>(out_features_) * stride);
    if (row == stride) return pool.upload(memory_.data(), rows);
    std::vector<std::byte> image;
    append_rows(image, rows, row, stride);
    pool.upload(memory_.data(), image);
}

CudaLora::CudaLora(std::span<const LoraPart> parts, Format format, DevicePool& pool) {
    CHECK(!parts.empty(), "an adapter adds at least one part to a projection");
    // All matrices as the device will hold them, rows filled up with zeros to lora_multiple, so that they come in one copy.
    std::vector<std::byte> image;
    const auto append = [&](const cpu::Panels& matrix) {
        const std::size_t row = static_cast<std::size_t>(matrix.in_features) * bytes_of(format);
        const std::size_t stride = static_cast<std::size_t>(round_up(matrix.in_features, lora_multiple)) * bytes_of(format);
        return append_rows(image, {matrix.memory.data(), static_cast<std::size_t>(matrix.out_features) * row}, row, stride);
    };
    std::vector<WeightPart> a;
    for (const LoraPart& part : parts) {
        CHECK(part.a.out_features == part.b.in_features, "A and B of a part have the same rank");
        a.push_back(part.a);
        parts_.push_back({.out_begin = part.out_begin,
                          .out_features = part.b.out_features,
                          .rank_begin = rank_sum_,
                          .rank = part.a.out_features,
                          .b_offset = append(row_major({&part.b, 1}, format, part.scale))});
        rank_sum_ += part.a.out_features;
    }
    // Parts are added by different blocks at the same time.
    for (const Part& x : parts_) {
        for (const Part& y : parts_) {
            CHECK(&x == &y || x.out_begin + x.out_features <= y.out_begin || y.out_begin + y.out_features <= x.out_begin,
                  "parts of an adapter's projection do not overlap");
        }
    }
    const cpu::Panels stacked = row_major(a, format);
    in_features_ = stacked.in_features;
    a_offset_ = append(stacked);
    memory_ = pool.allocate(image.size());
    pool.upload(memory_.data(), image);
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

CudaKvCache::CudaKvCache(const KvShape& shape, std::int64_t blocks, Format format, const Stream& stream)
    : shape_(shape), blocks_(blocks), format_(format), layer_block_bytes_(kv_layer_block_bytes(shape, format)) {
    CHECK(shape.layers > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && blocks > 0, "a KV cache has layers, heads and blocks");
    memory_ = DeviceMemory(static_cast<std::size_t>(shape.layers * blocks) * layer_block_bytes_);
    check(cudaMemsetAsync(memory_.data(), 0, memory_.bytes(), stream.get()), "clearing the KV cache");
    stream.wait();
}

KvLayer CudaKvCache::layer(std::int64_t index) const {
    return {.data = memory_.data() + static_cast<std::size_t>(index * blocks_) * layer_block_bytes_,
            .format = format_,
            .kv_heads = static_cast<int>(shape_.kv_heads),
            .padded_head_dim = padded_head_dim(shape_.head_dim).value(),
            .head_bytes = static_cast<std::int64_t>(layer_block_bytes_) / (2 * shape_.kv_heads)};
}

}  // namespace lorry::kernels::cuda
