// Weights, adapters and KV cache as the CPU kernels read them. Made by the backend, possibly on a loader's thread: nothing here is shared.
//
// A weight is cut into panels of `width` outputs; a panel holds, for each input feature, one row of its outputs' weights. The last panel is
// filled up with zeros.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/memory.h"

namespace lorry::kernels::cpu {

// Weights in panels: outputs [0, out_features) of in_features inputs each, stored as float32 or bfloat16.
struct Panels {
    Memory memory;
    Format format = Format::float32;
    std::int64_t width = 0;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;

    std::int64_t count() const { return (out_features + width - 1) / width; }
};

// Concatenates the parts along out_features, each multiplied by `scale`.
Panels pack_panels(std::span<const WeightPart> parts, std::int64_t width, Format format, float scale = 1.0F);

// Row `output` of the weight, as float32: to[i] (+)= W[output, i] for all in_features.
void unpack_row(const Panels& panels, std::int64_t output, float* to, bool accumulate);

class CpuWeight final : public PackedWeight {
public:
    explicit CpuWeight(Panels panels) : panels_(std::move(panels)) {}
    std::int64_t out_features() const override { return panels_.out_features; }
    std::int64_t in_features() const override { return panels_.in_features; }
    std::size_t bytes() const override { return panels_.memory.bytes(); }
    Format input_format() const override { return Format::float32; }
    const Panels& panels() const { return panels_; }

private:
    Panels panels_;
};

// The A matrices of all parts stand side by side in one narrow weight, each true rank after the other; each part has its B.
class CpuLora final : public PackedLora {
public:
    struct Part {
        std::int64_t out_begin = 0;
        std::int64_t rank_begin = 0;  // of its rows in `a`
        Panels b;                     // [out_features, rank], scale included
    };

    CpuLora(std::span<const LoraPart> parts, const Kernels& kernels, Format format);
    std::int64_t rank_sum() const override { return a_.out_features; }
    std::size_t bytes() const override;
    const Panels& a() const { return a_; }
    std::span<const Part> parts() const { return parts_; }

private:
    Panels a_;
    std::vector<Part> parts_;
};

// [layer][block][kv_head][K | V] with K [head_dim][16 tokens] and V [16 tokens][head_dim rounded up to 16].
class CpuKvCache final : public KvCache {
public:
    CpuKvCache(const KvShape& shape, std::int64_t blocks, Format format);
    std::int64_t blocks() const override { return blocks_; }
    std::size_t bytes() const override { return memory_.bytes(); }

    const KvShape& shape() const { return shape_; }
    Format format() const { return format_; }
    std::int64_t value_stride() const { return value_stride_; }  // elements
    std::int64_t value_offset() const;                           // bytes from a head's keys to its values
    std::int64_t head_bytes() const;
    std::int64_t layer_block_bytes() const { return head_bytes() * shape_.kv_heads; }
    std::byte* layer(std::int64_t index) const { return memory_.data() + index * blocks_ * layer_block_bytes(); }

private:
    KvShape shape_;
    std::int64_t blocks_ = 0;
    Format format_ = Format::float32;
    std::int64_t value_stride_ = 0;
    Memory memory_;
};

}  // namespace lorry::kernels::cpu
