// The arguments and launchers of the kernels, which are in one .cu file per op. CudaBackend calls them, with tables already on the device.
// All pointers are device memory; sizes and strides are in elements. Launches are queued on `stream` and depend on the task alone, so that
// equal tasks can be queued as a graph. What differs from one decoding step to the next is therefore not in a task but in a table that it
// points to.
#pragma once

#include <cstdint>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/shapes.h"
#include "kernels/tensor.h"

namespace lorry::kernels::cuda {

// One matrix in float32, bfloat16 or fp8 (fp8.h); a stride of fp8 is bytes.
struct View {
    void* data = nullptr;
    Format format = Format::float32;
    std::int64_t stride = 0;
    float* scales = nullptr;  // of rows of fp8
    bool operator==(const View&) const = default;

    constexpr std::size_t element_bytes() const { return format == Format::fp8_rows ? 1 : bytes_of(format); }
    constexpr std::size_t row_bytes() const { return static_cast<std::size_t>(stride) * element_bytes(); }
};

struct EmbedTask {
    View out;  // [rows, hidden] float32
    View tokens;
    View positions;  // data null: no learned positions
    const TokenId* token_of_row = nullptr;
    const std::int32_t* position_of_row = nullptr;
    int rows = 0;
    int hidden = 0;
    bool operator==(const EmbedTask&) const = default;
};
void run_embed(const EmbedTask& task, cudaStream_t stream);

struct NormTask {
    NormKind kind = NormKind::rms;
    View out;
    View in;                        // float32
    const float* weight = nullptr;  // null if the kind is none
    const float* bias = nullptr;    // null: no bias
    float epsilon = 0.0F;
    int rows = 0;
    int columns = 0;
    bool operator==(const NormTask&) const = default;
};
void run_norm(const NormTask& task, cudaStream_t stream);

// out (+)= in weight' + bias; weight [out_features, in_features], rows padded with zeros to in_features_multiple. Sums of fp8 are
// multiplied by the scales of their row and output.
struct MatmulTask {
    View out;  // float32
    View in;   // in weight's format
    View weight;
    const float* weight_scales = nullptr;  // fp8: [out_features]
    const float* bias = nullptr;           // null: no bias
    bool accumulate = false;
    int rows = 0;
    int in_features = 0;
    int out_features = 0;
    int spare_rows = 0;  // of memory after the last row of in and of out, which may be overwritten
    bool operator==(const MatmulTask&) const = default;
};
void run_matmul(const MatmulTask& task, cudaStream_t stream);

// out = sums + bias, after cuBLASLt has multiplied.
struct AddSumsTask {
    View out;                     // float32
    View sums;                    // float32; data null: out already holds the sums
    const float* bias = nullptr;  // null: no bias
    int rows = 0;
    int columns = 0;
};
void run_add_sums(const AddSumsTask& task, cudaStream_t stream);

// A LoraPiece and its adapter, as shrink and expand read them.
struct LoraTable {
    const void* a = nullptr;  // [rank_sum, a_stride]
    const void* b = nullptr;  // [out_features, rank rounded up to lora_multiple], scale included
    std::int32_t rank_sum = 0;
    std::int32_t rank_begin = 0;
    std::int32_t rank = 0;
    std::int32_t out_begin = 0;
    std::int32_t out_features = 0;
    std::int32_t row_begin = 0;
    std::int32_t row_count = 0;
    std::int32_t splits = 1;
    std::int64_t sums_begin = 0;
};
struct LoraWork {
    const LoraTable* shrink = nullptr;
    const LoraTable* expand = nullptr;
    std::int32_t shrink_count = 0;
    std::int32_t expand_count = 0;
    float* sums = nullptr;  // partial sums
};
struct LoraTask {
    View out;  // float32
    View in;
    Format weights = Format::float32;
    const LoraWork* work = nullptr;
    // The size that the grid is launched for. Blocks loop if there is more work, and exit if there is less. splits is never exceeded.
    LoraSize size;
    int in_features = 0;
    int a_stride = 0;
    int split_features = 0;  // lora_split_features(in_features)
    bool operator==(const LoraTask&) const = default;
};
void run_lora(const LoraTask& task, cudaStream_t stream);

struct BiasTable {
    const float* scale = nullptr;  // or none
    const float* bias = nullptr;   // or none
    std::int32_t row_begin = 0;
    std::int32_t row_count = 0;
};
struct GroupBiasTask {
    View out;  // float32
    const BiasTable* groups = nullptr;
    int group_count = 0;
    int columns = 0;
    bool operator==(const GroupBiasTask&) const = default;
};
void run_group_bias(const GroupBiasTask& task, cudaStream_t stream);

// A layer of the KV cache: blocks at distances of block_bytes, each [K | V][kv_head] with head_bytes per head (see kv_head_bytes).
struct KvLayer {
    std::byte* data = nullptr;
    Format format = Format::float32;  // or bfloat16, fp8_rows
    std::int64_t block_bytes = 0;
    int kv_heads = 0;
    int padded_head_dim = 0;
    std::int64_t head_bytes = 0;
    bool operator==(const KvLayer&) const = default;
};
struct RopeTask {
    View qkv;  // float32
    int rows = 0;
    int heads = 0;
    int head_dim = 0;
    const float* table = nullptr;  // null: no rotation
    std::int64_t table_stride = 0;
    const std::int32_t* table_row = nullptr;  // [rows]
    const float* q_norm = nullptr;            // null: no norm
    const float* k_norm = nullptr;
    float epsilon = 0.0F;
    KvLayer cache;
    const std::int32_t* block_of_row = nullptr;  // negative: the row does nothing
    const std::int32_t* slot_of_row = nullptr;
    bool operator==(const RopeTask&) const = default;
};
void run_rope(const RopeTask& task, cudaStream_t stream);

struct AttentionWork {
    const std::int32_t* blocks = nullptr;  // of all sequences, one after the other
    const AttentionPiece* narrow = nullptr;
    const AttentionPiece* wide = nullptr;
    const AttentionMerge* merges = nullptr;
    std::int32_t narrow_count = 0;
    std::int32_t wide_count = 0;
    std::int32_t merge_count = 0;
    float* workspace = nullptr;  // attention_workspace_bytes
};
// Shared by the blocks that compute parts of one row (joint_rows.h). Zero before and after a launch.
struct RowProgress {
    std::uint32_t parts = 0;    // stored so far
    std::uint32_t largest = 0;  // magnitude_bits of the largest element so far
};
struct JointRows {
    View rows;  // fp8, in the memory of the float32 rows; data null: rows stay float32
    RowProgress* progress = nullptr;
    int parts = 0;  // of a complete row
    int columns = 0;
    bool operator==(const JointRows&) const = default;
};
struct AttentionTask {
    View out;         // float32 or bfloat16
    JointRows joint;  // how rows of `out` become fp8; a part is a head
    View qkv;         // float32
    int heads = 0;
    int head_dim = 0;
    float scale = 0.0F;
    bool has_cap = false;  // a score x becomes cap * tanh(x / cap)
    float cap = 0.0F;
    std::int32_t window = 0;  // without a window: at least the longest context
    KvLayer cache;
    const AttentionWork* work = nullptr;
    AttentionSize size;  // that the grid is launched for, as LoraTask::size
    bool operator==(const AttentionTask&) const = default;
};
void run_attention(const AttentionTask& task, cudaStream_t stream);

struct ActivationTask {
    ActivationKind kind = ActivationKind::silu;
    bool gated = false;
    View out;
    View in;  // float32
    int rows = 0;
    int width = 0;
    bool operator==(const ActivationTask&) const = default;
};
void run_activation(const ActivationTask& task, cudaStream_t stream);

struct ScaleTask {
    View out;  // float32
    View in;   // float32
    float scale = 1.0F;
    bool has_cap = false;  // x becomes cap * tanh(x / cap)
    float cap = 0.0F;
    bool accumulate = false;
    int rows = 0;
    int columns = 0;
    bool operator==(const ScaleTask&) const = default;
};
void run_scale(const ScaleTask& task, cudaStream_t stream);

struct GatherTask {
    View out;
    View in;  // in the format of out
    const std::int32_t* row_of = nullptr;
    int rows = 0;
    int columns = 0;
    bool operator==(const GatherTask&) const = default;
};
void run_gather(const GatherTask& task, cudaStream_t stream);

// out = in, rounded once.
struct WidenTask {
    View out;  // float32 or bfloat16
    View in;   // fp8
    int rows = 0;
    int columns = 0;
    bool operator==(const WidenTask&) const = default;
};
void run_widen(const WidenTask& task, cudaStream_t stream);

// One SampleRow as the device reads it.
struct DrawTable {
    std::uint64_t seed = 0;
    std::uint64_t position = 0;
    std::int32_t vocabulary = 0;
    float temperature = 0.0F;
    float top_p = 1.0F;
    float min_p = 0.0F;
    std::int32_t top_k = 0;
    std::int32_t draw = 0;
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    std::int32_t change_begin = 0;
    std::int32_t change_count = 0;
    std::int32_t prompt_begin = 0;  // in `counted`, the tokens that penalties count: prompt, then output
    std::int32_t prompt_count = 0;
    std::int32_t output_count = 0;
    std::int32_t counts_own = 0;  // penalties also count the row's own token
    std::int32_t allowed_begin = 0;
    std::int32_t allowed_words = 0;  // 0: every token may be drawn
    std::int32_t target_begin = 0;
    std::int32_t target_count = 0;
    std::int32_t ranks = 0;  // of the targets are wanted
    std::int32_t top_begin = 0;
    std::int32_t top_count = 0;
    std::int32_t logprobs = 0;  // any log-probability is wanted
};
struct DrawResult {
    TokenId token = 0;
    std::int32_t is_finite = 0;
    float logprob = 0.0F;
};
struct SampleTask {
    View logits;  // float32
    int rows = 0;
    int vocabulary = 0;  // the largest of a row
    const DrawTable* draws = nullptr;
    const LogitChange* changes = nullptr;
    const TokenId* counted = nullptr;
    const std::uint32_t* allowed = nullptr;
    const TokenId* targets = nullptr;
    float* weights = nullptr;               // [rows, vocabulary] scratch
    const TokenId* token_of_row = nullptr;  // of the step
    const std::int32_t* row_of = nullptr;   // the step's row of each row of logits
    DrawResult* results = nullptr;
    TokenLogprob* tops = nullptr;
    float* target_logprobs = nullptr;
    std::int32_t* target_ranks = nullptr;
};
void run_sample(const SampleTask& task, cudaStream_t stream);

// tokens[row] = results[sample_row].token.
struct DrawnTable {
    std::int32_t row = 0;
    std::int32_t sample_row = 0;
};
struct TakeDrawnTask {
    TokenId* tokens = nullptr;
    const DrawnTable* drawn = nullptr;
    const DrawResult* results = nullptr;
    int count = 0;
};
void run_take_drawn(const TakeDrawnTask& task, cudaStream_t stream);

}  // namespace lorry::kernels::cuda
