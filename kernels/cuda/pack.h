// Weights, adapters and the KV cache in the layouts that the CUDA kernels read. Made by the backend, possibly on a loader's thread: nothing
// here is shared.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/place.h"

namespace lorry::kernels::cuda {

// [out_features, in_features] row-major, rows padded with zeros to in_features_multiple. Format fp8_rows: elements of fp8.h, with the
// scales of all outputs in a vector of their own.
class CudaWeight final : public PackedWeight {
public:
    CudaWeight(std::span<const WeightPart> parts, Format format, Place& place);
    std::int64_t out_features() const override { return out_features_; }
    std::int64_t in_features() const override { return in_features_; }
    std::size_t bytes() const override { return memory_.bytes() + scales_.bytes(); }
    Format input_format() const override { return format_; }
    View view() const { return {memory_.data(), format_, round_up(in_features_, in_features_multiple)}; }
    const float* scales() const { return reinterpret_cast<const float*>(scales_.data()); }  // null if not fp8

private:
    Format format_;
    std::int64_t out_features_ = 0;
    std::int64_t in_features_ = 0;
    Piece memory_;
    Piece scales_;
};

// One piece of memory with the A matrices of all parts as the rows of one matrix, without padding between their ranks, and the B of each
// part, as LoraTable describes.
class CudaLora final : public PackedLora {
public:
    struct Part {
        std::int64_t out_begin = 0;
        std::int64_t out_features = 0;
        std::int64_t rank_begin = 0;
        std::int64_t rank = 0;
        std::size_t b_offset = 0;  // bytes into the memory
    };
    CudaLora(std::span<const LoraPart> parts, Format format, Place& place);
    std::int64_t in_features() const override { return in_features_; }
    std::int64_t out_end() const override;
    std::int64_t rank_sum() const override { return rank_sum_; }
    std::size_t bytes() const override { return memory_.bytes(); }
    std::span<const Part> parts() const { return parts_; }
    LoraTable table(const Part& part) const;

private:
    std::int64_t rank_sum_ = 0;
    std::int64_t in_features_ = 0;
    std::size_t a_offset_ = 0;
    Piece memory_;
    std::vector<Part> parts_;
};

// [block][layer] of KvLayer, so that a block is contiguous and a slot may cover it. Throws std::runtime_error if heads are wider than the
// kernels support.
class CudaKvCache final : public KvCache {
public:
    CudaKvCache(const KvShape& shape, std::int64_t blocks, Format format, std::size_t slot_bytes);
    const KvShape& shape() const override { return shape_; }
    std::int64_t blocks() const override { return blocks_; }
    std::size_t bytes() const override { return memory_.bytes(); }
    SlotRange slots() const override { return {slot_aligned(static_cast<std::size_t>(blocks_) * block_bytes()), memory_.bytes()}; }
    bool lends_blocks() const override { return true; }

    std::byte* data() const { return memory_.data(); }
    std::size_t block_bytes() const { return static_cast<std::size_t>(shape_.layers) * layer_block_bytes_; }
    std::byte* block(std::int64_t index) const { return memory_.data() + static_cast<std::size_t>(index) * block_bytes(); }
    KvLayer layer(std::int64_t index) const;

private:
    KvShape shape_;
    std::int64_t blocks_ = 0;
    Format format_;
    std::size_t layer_block_bytes_ = 0;
    DeviceMemory memory_;
};

}  // namespace lorry::kernels::cuda
