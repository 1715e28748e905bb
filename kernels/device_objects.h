// What a backend keeps on its device for its callers: buffers, packed weights, packed adapters and the KV cache. Made by Packer and Backend
// (backend.h), read by the ops (ops.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace lorry::kernels {

struct CodedPart;  // coded_weight.h

using TokenId = std::int32_t;
using BlockId = std::int32_t;

// Device memory, zeroed, aligned to 64 bytes; freed with its owner.
class Buffer {
public:
    virtual ~Buffer() = default;
    virtual void* data() = 0;
    virtual std::size_t bytes() const = 0;
};

// One part of a weight as a checkpoint stores it, in host memory.
struct WeightPart {
    const void* data = nullptr;
    Format format = Format::float32;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    bool transposed = false;           // false: [out, in] as nn.Linear; true: [in, out] as GPT-2's Conv1D and PEFT's fan_in_fan_out
    const CodedPart* coded = nullptr;  // not null: the weight is stored as codes, and data, format and transposed are not used
};

// What a weight is used for, where that decides how it is stored.
// gate_up: two parts of equal size, which a gated activated_matmul reads side by side.
// embedding: a table of tokens or positions, or the head, which may be the same table. Its errors show in every token, so formats may store
// it in more bits than projections (WeightFormat::embeddings).
// exact: float32, whatever the storage format, such as a classifier's few outputs.
enum class WeightRole : std::uint8_t { projection, gate_up, embedding, exact };

// y = W x with W [out_features, in_features], in the layout and format that the backend's matmul reads; made by Packer::pack_weight.
class PackedWeight {
public:
    virtual ~PackedWeight() = default;
    virtual std::int64_t out_features() const = 0;
    virtual std::int64_t in_features() const = 0;
    virtual std::size_t bytes() const = 0;
    virtual Format input_format() const = 0;  // of matmul's `in`; the op that produces `in` writes it
};

// The low-rank update of one output slice of a fused projection: out[:, out_begin : out_begin + out_features] += scale * B (A x).
struct LoraPart {
    WeightPart a;  // [rank, in_features]
    WeightPart b;  // [out_features, rank]
    float scale = 1.0F;
    std::int64_t out_begin = 0;
};

// All slices that one adapter adds to one (fused) projection; made by Packer::pack_lora.
class PackedLora {
public:
    virtual ~PackedLora() = default;
    virtual std::int64_t in_features() const = 0;
    virtual std::int64_t out_end() const = 0;   // one past the last output that any slice adds to
    virtual std::int64_t rank_sum() const = 0;  // of all slices, without padding
    virtual std::size_t bytes() const = 0;
};

// The shape of the KV cache. Layout and block size are the backend's.
struct KvShape {
    std::int64_t layers = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    bool operator==(const KvShape&) const = default;
};

inline constexpr std::size_t slot_alignment = 256;
constexpr std::size_t slot_aligned(std::size_t bytes) { return (bytes + slot_alignment - 1) / slot_alignment * slot_alignment; }
// Bytes [begin, end) of a KV cache's memory, both slot_aligned. Where blocks are lent, block b begins at b * kv_block_bytes().
struct SlotRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const SlotRange&) const = default;
};

// One piece of memory: `blocks` blocks of block_size() tokens for all layers, followed by the memory for adapters' slots. Made by
// Backend::make_kv_cache.
class KvCache {
public:
    virtual ~KvCache() = default;
    virtual const KvShape& shape() const = 0;
    virtual std::int64_t blocks() const = 0;
    virtual std::size_t bytes() const = 0;  // blocks and slots
    virtual SlotRange slots() const = 0;    // the memory after the blocks
    // Whether a slot may also cover blocks. The blocks it covers must not be used meanwhile.
    virtual bool lends_blocks() const { return false; }
};

}  // namespace lorry::kernels
