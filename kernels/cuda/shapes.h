// The host's arithmetic for the kernels: launch shapes, padded sizes and work lists. Pure functions, tested without a device. Called by
// CudaBackend, the kernels' launchers and the benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace lorry::kernels::cuda {

constexpr std::int64_t kv_block_size = 64;
// Tokens whose attention is one sum; the sums of a context are merged in order. Fixed, so that a row's result does not depend on how spans
// are assigned to blocks.
constexpr std::int64_t kv_span = 256;
constexpr std::int64_t in_features_multiple = 64;  // of a weight's rows in memory, padded with zeros

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// Threads of a block that walks rows of this many columns: a multiple of 32, at most `most`; depends on the columns alone.
int threads_for(std::int64_t columns, int most);

// Ops over rows move fours of neighbours, one per thread at a time. A row has one block if the op computes something of the whole row, else
// several blocks; both depend on the columns alone.
constexpr std::int64_t row_four = 4;
constexpr int row_threads_max = 1024;
int row_threads(std::int64_t columns);
struct RowParts {
    int blocks = 1;
    int threads = 0;
};
RowParts row_parts(std::int64_t columns);

// The width to which the attention kernels pad a head: the next one that is compiled. nullopt: the head is too wide.
std::optional<int> padded_head_dim(std::int64_t head_dim);

// Bytes of the keys, or of the values, of one kv head in a block: [kv_block_size][padded_head_dim] elements; for fp8_rows, elements of one
// byte, followed by a float32 scale for each token. A multiple of 16, as is the offset of each token's elements.
constexpr std::int64_t kv_scales_offset(std::int64_t padded_head_dim) { return kv_block_size * padded_head_dim; }
constexpr std::int64_t kv_head_bytes(Format format, std::int64_t padded_head_dim) {
    if (format != Format::fp8_rows) return kv_block_size * padded_head_dim * static_cast<std::int64_t>(bytes_of(format));
    return kv_scales_offset(padded_head_dim) + kv_block_size * static_cast<std::int64_t>(sizeof(float));
}
// Bytes of one block of one layer. Throws std::runtime_error if heads are wider than the kernels support.
std::size_t kv_layer_block_bytes(const KvShape& shape, Format format);

// The rows that cuBLASLt computes for a matmul: rows are padded to the next of a few sizes, each of which was tried with the algorithms of
// the table. Sizes are multiples of 16 up to 128, then four per doubling, so that less than a fifth of a larger matmul is padding.
constexpr std::int64_t matmul_rows_max = 2048;  // of one call; more rows are divided into pieces of this size
std::int64_t matmul_bucket(std::int64_t rows);  // 0 < rows <= matmul_rows_max
std::vector<std::int64_t> matmul_buckets();     // all of them, ascending
// The rows of the decoding steps that get graphs: the sizes below rows_max, and rows_max itself; descending.
std::vector<std::int64_t> graph_rows(std::int64_t rows_max);

// Attention packs rows: row r of a sequence's packed rows is query token r / group, query head r % group of the kv head's group. One block
// of the kernel computes up to narrow_rows or wide_rows packed rows over the spans [span_begin, span_end), one span after the other.
struct AttentionPiece {
    std::int32_t row_begin = 0;     // the sequence's first row of the step
    std::int32_t position = 0;      // of that row
    std::int32_t packed_begin = 0;  // first packed row
    std::int32_t packed_count = 0;
    std::int32_t blocks_begin = 0;  // the sequence's first entry of the step's block table
    std::int32_t span_begin = 0;
    std::int32_t span_end = 0;
    std::int32_t slot = 0;  // narrow: for the first packed row's partial result; one slot per packed row
};
// Merges the partial results of the same packed rows, which are in `spans` * packed_count slots from `slot` on, in order.
struct AttentionMerge {
    std::int32_t row_begin = 0;
    std::int32_t packed_begin = 0;
    std::int32_t packed_count = 0;
    std::int32_t slot = 0;
    std::int32_t spans = 0;
};
constexpr std::int64_t narrow_rows = 16;  // packed rows of a block for decoding, by one warp, or two if heads are wider than 128
// Packed rows of a block for prefill, by eight warps.
constexpr std::int64_t wide_rows(std::int64_t padded_head_dim) { return padded_head_dim <= 128 ? 128 : 64; }
struct AttentionPlan {
    std::vector<AttentionPiece> narrow;  // of one span each
    std::vector<AttentionPiece> wide;    // of all spans that their rows see, the longest first; they need no merge
    std::vector<AttentionMerge> merges;
    std::int64_t slots = 0;
};
struct AttentionHeads {
    std::int64_t group = 0;  // query heads per kv head
    std::int64_t kv_heads = 0;
    int padded_head_dim = 0;
    bool operator==(const AttentionHeads&) const = default;
};
// With few rows, each span gets its own block, as long as partial results fit into attention_workspace_most. Otherwise a block walks all of
// its rows' spans.
void plan_attention(std::span<const StepSequence> sequences, const AttentionHeads& heads, std::optional<std::int64_t> window,
                    AttentionPlan& plan);

// The blocks to launch per kv head for the pieces and merges of a plan; 0: the plan has no such pieces.
struct AttentionSize {
    int narrow = 0;
    int wide = 0;
    int merges = 0;
    bool operator==(const AttentionSize&) const = default;
};
// For any plan of up to `rows` sequences of one row each, on a chip with this number of processors.
AttentionSize attention_size(std::int64_t rows, const AttentionHeads& heads, int processors);

// Bytes of attention's partial results: a sum per dimension, the largest score and the sum of weights for each slot and kv head.
std::size_t attention_workspace_bytes(std::int64_t slots, const AttentionHeads& heads);
// Enough for a decoding step over two million tokens of context, with eight kv heads of 128 dimensions and four query heads each.
constexpr std::size_t attention_workspace_most = std::size_t{128} << 20;
// The most slots of any plan for `sequences` sequences of up to `context` tokens.
std::int64_t attention_slots_most(std::int64_t sequences, std::int64_t context, const AttentionHeads& heads);

// Low-rank updates. A row's A x is divided over the input features into splits at fixed positions; each split is one sum, and splits are
// added in order. The plan decides whether one block of shrink computes all splits (many rows) or each split has a block (few rows); the
// result is the same.
constexpr std::int64_t lora_rows = 32;      // rows of a block
constexpr std::int64_t lora_ranks = 64;     // ranks of a block of shrink, and of a step of expand
constexpr std::int64_t lora_outputs = 256;  // outputs of a block of expand
constexpr std::int64_t lora_depth = 64;     // input features of a step of shrink
constexpr std::int64_t lora_multiple = 8;   // elements: rows of A and B begin at multiples of 16 bytes

// Input features per split: a multiple of lora_depth, chosen so that a row has at most 16 splits.
std::int64_t lora_split_features(std::int64_t in_features);

// What the plan needs of a group's adapter; parts == 0: the group has no adapter.
struct LoraShape {
    std::int64_t rank_sum = 0;
    std::int64_t parts = 0;
};
// Up to lora_rows consecutive rows of one group; shrink computes all ranks of its adapter, expand one of its parts. The partial sums of row
// r and split s, one per rank, begin at sums_begin + (s * row_count + r) * rank_sum.
struct LoraPiece {
    std::int32_t group = 0;  // index into LoraArgs::groups
    std::int32_t part = 0;
    std::int32_t row_begin = 0;
    std::int32_t row_count = 0;
    std::int64_t sums_begin = 0;
    std::int32_t splits = 1;  // blocks of shrink, and partial sums of a row
};
struct LoraPlan {
    std::vector<LoraPiece> shrink;  // one per run of rows
    std::vector<LoraPiece> expand;  // one per run of rows and part
    std::int64_t sums = 0;
};
// shapes: of each group's adapter. splits: of in_features; 1 for a kernel that does not split.
// fixed_grid: shrink's grid does not grow with the pieces, so each split always has its own block.
void plan_lora(std::span<const LoraGroup> groups, std::span<const LoraShape> shapes, std::int64_t splits, bool fixed_grid, LoraPlan& plan);

// The most partial sums of any plan for up to `rows` rows with adapters of up to rank_sum ranks; plans of a fixed grid have at most
// fixed_grid_rows rows.
std::int64_t lora_sums_most(std::int64_t rows, std::int64_t fixed_grid_rows, std::int64_t rank_sum);

// The sizes that shrink and expand are launched for: pieces, and the ranks, outputs and splits of each.
struct LoraSize {
    int shrink = 0;
    int expand = 0;
    int rank_sum = 0;
    int out_features = 0;
    int splits = 1;
    bool operator==(const LoraSize&) const = default;
};
// For any adapters of up to `rows` rows with up to `splits` splits each.
LoraSize lora_size(std::int64_t rows, std::int64_t out_features, std::int64_t splits);

// The least work of a low-rank update: it reads each adapter's matrices once and its rows once in `format`, and reads and writes the
// outputs that change in float32.
struct LoraFloor {
    std::int64_t weight_bytes = 0;
    std::int64_t row_bytes = 0;
    std::int64_t flops = 0;
};
// For one adapter's part of a projection and `rows` rows; the floor of a launch is the sum over its parts.
LoraFloor lora_floor(std::int64_t rows, std::int64_t in_features, std::int64_t out_features, std::int64_t rank, Format format);

// A row's change of one token's logit: a bias, or a ban.
struct LogitChange {
    TokenId token = 0;
    float bias = 0.0F;
    std::int32_t banned = 0;
};
// Appends one change per token that the row biases or bans.
void append_logit_changes(const SampleRow& row, std::vector<LogitChange>& changes);

}  // namespace lorry::kernels::cuda
