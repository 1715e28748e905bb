// The table of CPU kernels of one instruction set, and the plain arguments they take. Filled by simd/kernels_*.cpp; called by the launchers
// in attention.cpp, backend.cpp, lora.cpp, matmul.cpp and sample.cpp, which divide the work among threads.
// Plain data only: files compiled for different instruction sets share this header (simd/simd.h explains why that matters).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/coded_weight.h"

namespace lorry::kernels::cpu {

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu, tanh };

// How the elements of a weight's panels are stored; pack.cpp has a row for each.
enum class Storage : std::uint8_t { float32, bfloat16, int8, int4, codes };

// Columns [panel * width, …) of out (+)= in W' + bias. A panel holds `width` outputs: a row of their weights for each input feature.
struct MatmulTask {
    const float* in = nullptr;  // [rows, in_features]
    std::int64_t in_stride = 0;
    const void* panels = nullptr;  // [panels][in_features][width] float32 or bfloat16
    bool bfloat16 = false;
    const float* bias = nullptr;  // [out_features] or null
    float* out = nullptr;         // [rows, out_features]
    std::int64_t out_stride = 0;
    bool accumulate = false;
    std::int64_t rows = 0;
    std::int64_t in_features = 0;
    std::int64_t out_features = 0;
};

// The same with bfloat16 or int8 inputs. A panel holds, for each group of input features, a group of weights of each output; int4 panels
// are described below.
struct DotTask {
    const std::byte* in = nullptr;          // [rows] of bfloat16, or of int8 plus 128 followed by the row's scale
    std::int64_t in_stride = 0;             // bytes
    const std::byte* panels = nullptr;      // [panels][groups][width][group] bfloat16 or int8, [panels][stretches] int4; zero-padded
    const std::byte* next = nullptr;        // what is read after the last panel, for prefetching; null: the memory after it
    const float* scales = nullptr;          // int8, int4: [panels * width] of the outputs' weights
    const std::int32_t* offsets = nullptr;  // int8, int4: [panels * width] minus what the inputs' 128 adds to an output
    std::byte* scratch = nullptr;           // this thread's; int4, wide: [stretches * int4_stretch][width] weights of 1 byte, of 2
    // This thread's: [DotKernels::panel_group][row_chunk][width] sums of 4 bytes that wait for the next inputs. Null: each panel
    // reads all inputs before the next begins.
    std::byte* parked = nullptr;
    const float* bias = nullptr;  // [out_features of all parts] or null
    float* out = nullptr;         // [rows, out_features of all parts]
    std::int64_t out_stride = 0;  // elements
    // If panels hold two parts: the number of outputs from a column of the first part to the same column of the second. 0: one part.
    std::int64_t part_stride = 0;
    bool accumulate = false;
    std::int64_t rows = 0;  // at most DotKernels::row_chunk
    std::int64_t in_features = 0;
    std::int64_t out_features = 0;  // of one part, if panels hold two
};

// A DotTask whose outputs are activated and, if panels hold two parts, multiplied by the second part's. `accumulate` is not used.
struct ActivatedDotTask : DotTask {
    Activation kind = Activation::silu;
    std::byte* out_bfloat16 = nullptr;  // not null: bfloat16, instead of out
    // Not null: added to the outputs before they are activated: [rows, outputs of one part], those of the second part `addend_part` later.
    const float* addend = nullptr;
    std::int64_t addend_stride = 0;
    std::int64_t addend_part = 0;
};

// The offset in bytes of the float32 scale in an int8 row of `size` elements.
constexpr std::int64_t int8_scale_offset(std::int64_t size) { return (size + 3) / 4 * 4; }

// int4 weights are int8 weights in less memory: within a stretch of 16 inputs, each int8 of an output is (nibble - zero) * factor, where
// factor and zero have 4 bits and belong to the stretch. Sums are therefore integers too, and a kernel gives the same bits whether it reads
// nibbles or the int8s unpacked from them. A stretch of a panel is `width` bytes of factors (with the zeros in their high halves), then,
// twice, 4 bytes per output for 8 inputs: byte i has input i in its low half and input 4 + i in its high half.
inline constexpr std::int64_t int4_stretch = 16;
constexpr std::int64_t int4_stretch_bytes(std::int64_t width) { return width * (1 + int4_stretch / 2); }

// Consecutive pairs of inputs whose scales are the same.
struct CodeRun {
    std::int32_t pairs = 0;
    std::int32_t even_group = 0;  // of the pairs' first inputs
    std::int32_t odd_group = 0;
};

// Inputs whose codes of 4 bits lie together, in words: see CodedPanels.
inline constexpr std::int64_t coded_stretch = 8;

// How panels store scales. 16 bits only if all scales of a weight are exactly such numbers.
enum class ScaleFormat : std::uint8_t { float32, float16, bfloat16 };
constexpr std::int64_t bytes_of(ScaleFormat format) { return format == ScaleFormat::float32 ? 4 : 2; }

// The order of a panel's codes; see CodedPanels.
enum class CodeOrder : std::uint8_t { pairs, tables, exponents };

// Panels of codes, as checkpoints store them, in one of three orders.
//
// pairs: coded_pair_bytes() for each output of a panel, pair of inputs by pair; the last is padded. A vector of codes is two vectors of
// numbers, low and high. For float32 inputs, low has the first input of each output and high the second. For pairs of bfloat16, low has
// both inputs of the first half of the outputs, side by side, and high those of the second half, so that rounding both gives pairs. Codes
// of 4 bits are halves of a byte. Integers have the lows of a vector before its highs; e4m3 has each high after its low.
//
// The others are for codes of 4 bits, pairs of bfloat16 and groups of whole stretches: stretch by stretch, the last of which is padded, 4
// bytes for each output. A vector of codes consists of words of 4 bits times 4.
//
// tables: a group of an output has a table, the 16 numbers that its codes mean, and one lookup reads the tables of a quarter of a vector's
// outputs. So word (output / 4) * 8 + input has, from the lowest bits on, the codes of the outputs for lookups 0 to 3:
// output / 4 * 4 + lookup.
//
// exponents: scales are powers of two, stored as bfloat16, and the table's numbers are exactly bfloat16. A weight is the number with the
// scale's exponent added to its own, which is normal if the number is not zero. Word output * 2 + input % 2 has, from the lowest bits on,
// the codes of that output's input in each of the stretch's pairs. There are no zero points.
struct CodedPanels {
    CodeKind kind = CodeKind::table;
    CodeOrder order = CodeOrder::pairs;
    ScaleFormat scale_format = ScaleFormat::float32;
    const float* table = nullptr;        // [16]
    const std::byte* codes = nullptr;    // of the first panel
    const std::byte* scales = nullptr;   // [panels][groups][width]
    const std::int8_t* zeros = nullptr;  // the same, or null
    const CodeRun* runs = nullptr;       // of all pairs of inputs
    std::int64_t run_count = 0;
    std::int64_t groups = 0;
    std::int64_t in_features = 0;
    std::int64_t panel_bytes = 0;
};
constexpr std::int64_t coded_pair_bytes(CodeKind kind) { return kind == CodeKind::table ? 1 : 2; }  // of an output

// Where a panel has a code.
struct CodePlace {
    std::int64_t byte = 0;
    int shift = 0;  // of 4 bits within the byte
};
struct CodeLayout {
    CodeKind kind = CodeKind::table;
    CodeOrder order = CodeOrder::pairs;
    bool pairs = false;  // of bfloat16
    std::int64_t width = 0;
    std::int64_t lanes = 0;  // of a vector

    constexpr std::int64_t panel_bytes(std::int64_t in_features) const {
        if (order == CodeOrder::pairs) return (in_features + 1) / 2 * coded_pair_bytes(kind) * width;
        return (in_features + coded_stretch - 1) / coded_stretch * (coded_stretch / 2) * width;
    }
    constexpr CodePlace place_of(std::int64_t column, std::int64_t input) const {
        switch (order) {
            case CodeOrder::pairs: break;
            case CodeOrder::tables:
                return place_in_words(column, input, column % lanes / 4 * coded_stretch + input % coded_stretch, column % 4);
            case CodeOrder::exponents: return place_in_words(column, input, column % lanes * 2 + input % 2, input % coded_stretch / 2);
        }
        const std::int64_t within = column % lanes;
        const std::int64_t second = input % 2;
        const std::int64_t vector = (input / 2 * width + column - within) * coded_pair_bytes(kind);
        const std::int64_t half = lanes / 2;
        const std::int64_t high = pairs ? within / half : second;
        const std::int64_t lane = pairs ? within % half * 2 + second : within;
        switch (kind) {
            case CodeKind::table: return {vector + lane, static_cast<int>(high * 4)};
            case CodeKind::integer: return {vector + high * lanes + lane, 0};
            case CodeKind::e4m3: break;
        }
        return {vector + lane * 2 + high, 0};
    }
    // part: which 4 bits of the word.
    constexpr CodePlace place_in_words(std::int64_t column, std::int64_t input, std::int64_t word, std::int64_t part) const {
        const std::int64_t vector = (input / coded_stretch * width + column / lanes * lanes) * (coded_stretch / 2);
        return {vector + word * 2 + part / 2, static_cast<int>(part % 2 * 4)};
    }
};

// Few rows with panels of codes, which are decoded in registers.
struct CodedTask {
    CodedPanels panels;
    const std::byte* in = nullptr;  // [rows, in_features] float32, or bfloat16 for kernels of pairs
    std::int64_t in_stride = 0;     // bytes
    const float* bias = nullptr;    // [out_features] or null
    float* out = nullptr;           // [rows, out_features]
    std::int64_t out_stride = 0;    // elements
    bool accumulate = false;
    std::int64_t rows = 0;  // at most coded_rows_max
    std::int64_t out_features = 0;
};
inline constexpr std::int64_t coded_rows_max = 4;

// For one kind of inputs. Both give the same results, and those of the same weights decoded beforehand.
struct CodedKernels {
    // Null: few rows, too, multiply decoded panels.
    void (*matmul)(const CodedTask& task, std::int64_t panel_begin, std::int64_t panel_end) = nullptr;
    // Writes the first panel as the kernels for its inputs read it: float32, or bfloat16 in pairs, rounded to nearest.
    void (*decode)(const CodedPanels& panels, std::byte* to) = nullptr;
};

// As Kernels::matmul.
using ActivatedDotKernel = void (*)(const ActivatedDotTask&, std::int64_t panel_begin, std::int64_t panel_end);
using DotMatmulKernel = void (*)(const DotTask&, std::int64_t panel_begin, std::int64_t panel_end);

// The product of some rows with one panel of bfloat16, an adapter's B.
struct UpdateTask {
    const std::byte* in = nullptr;  // [rows, in_features] bfloat16
    std::int64_t in_stride = 0;     // bytes
    const std::byte* panel = nullptr;
    std::int64_t rows = 0;
    std::int64_t in_features = 0;
    float* out = nullptr;  // [rows, width of a panel]
    std::int64_t out_stride = 0;
};
using UpdateKernel = void (*)(std::span<const UpdateTask> tasks);

// Kernels for many rows over int8 or int4 panels: the same results from 16-bit inputs and weights, which are widened in `scratch`.
struct WideKernels {
    std::int64_t rows_least = 0;  // for fewer rows, widening a panel does not pay off
    // Converts an int8 row of `size` elements to what these kernels read: 16-bit elements, padded to a multiple of 4, then the scale.
    void (*widen)(const std::byte* from, std::byte* to, std::int64_t size) = nullptr;
    DotMatmulKernel matmul = nullptr;
};

// The most rows of a task, unless kernels say otherwise. Its inputs stay in the second-level cache while all panels pass.
inline constexpr std::int64_t common_row_chunk = 240;

struct DotKernels {
    const char* name = nullptr;
    Storage storage = Storage::int8;
    std::int64_t group = 0;  // elements that one instruction multiplies and adds up: 2 bfloat16 or 4 int8
    std::int64_t panel_width = 0;
    const DotKernels* unpacked = nullptr;  // int4: the int8 kernels for the weights after unpacking, with panels of the same width
    const WideKernels* wide = nullptr;     // null: the processor multiplies bytes directly
    std::int64_t row_chunk = common_row_chunk;
    std::int64_t panel_group = 1;    // how many panels at most share each pass over a few inputs, if rows do not fit into the cache
    std::int64_t whole_rows = 64;    // how many rows of activations that become int8 a thread computes from end to end at a time
    std::int64_t rows_together = 8;  // how many rows share each load of a weight
    DotMatmulKernel matmul = nullptr;
    // Null: an activation is an op of its own. Otherwise the two parts of a weight share panels: the first half of a panel's places belongs
    // to one, the second to the other.
    ActivatedDotKernel activated = nullptr;
    UpdateKernel updates = nullptr;  // bfloat16 by tiles only
    // As Kernels::multiply_adds.
    double (*operations)(std::int64_t turns) = nullptr;
};

// The layout of keys and values in the cache: see CpuKvCache.
enum class KvLayout : std::uint8_t { float32, bfloat16, bfloat16_pairs, int8 };

// Bytes of one head in a block of an int8 cache. The keys are followed by the float32 scales and the int32 offsets of their 16 tokens, like
// those of an int8 weight's outputs; the values are followed by their scales.
constexpr std::int64_t int8_keys_bytes(std::int64_t head_dim) { return (head_dim + 3) / 4 * 64; }
constexpr std::int64_t int8_value_offset(std::int64_t head_dim) { return int8_keys_bytes(head_dim) + 128; }
constexpr std::int64_t int8_head_bytes(std::int64_t head_dim, std::int64_t value_stride) {
    return int8_value_offset(head_dim) + 16 * value_stride + 64;
}
// Bytes of a query for an int8 cache, which is an int8 row.
constexpr std::int64_t int8_query_bytes(std::int64_t head_dim) { return int8_scale_offset(head_dim) + 4; }

// The query heads of one kv head, for consecutive positions of one sequence.
struct AttentionTask {
    const float* q = nullptr;  // [positions, group * head_dim]
    std::int64_t q_stride = 0;
    const std::byte* keys = nullptr;  // of this layer and kv head, in block 0
    std::int64_t value_offset = 0;    // bytes from a block's keys to its values
    std::int64_t block_bytes = 0;     // bytes from one block to the next
    KvLayout layout = KvLayout::float32;
    const std::int32_t* blocks = nullptr;
    std::int64_t position = 0;  // of the first row
    std::int64_t positions = 0;
    std::int64_t tokens = 0;  // of the sequence: those from here on are not seen
    std::int64_t window = 0;  // tokens a position sees up to and including itself; a full context has position + 1
    std::int64_t ahead = 0;   // tokens after its own that a position sees; 0: causal
    std::int64_t group = 0;   // query heads per kv head
    std::int64_t head_dim = 0;
    std::int64_t value_stride = 0;  // elements per token in the values
    float scale = 0.0F;
    bool has_cap = false;  // a score x becomes cap * tanh(x / cap)
    float cap = 0.0F;
    const float* sinks = nullptr;       // null, or of the first head: a score that takes weight and has no value
    const float* bias = nullptr;        // null, or of the first position and head: added to its scores of tokens 0, 1, …
    std::int64_t bias_stride = 0;       // from a head to the next
    std::int64_t bias_of_position = 0;  // from a position to the next
    float* out = nullptr;               // [positions, group * head_dim]
    std::int64_t out_stride = 0;
    std::byte* out_bfloat16 = nullptr;  // not null: bfloat16, instead of out; only if the kernel can (attention_writes_bfloat16)
    float* scores = nullptr;            // scratch: [positions * group, score_stride]
    std::int64_t score_stride = 0;
    std::byte* queries = nullptr;  // scratch: [positions * group] of bfloat16 for pairs, of int8 rows for int8
};

// Computes the tasks one after another. They share their scratch, and have one layout.
using AttentionKernel = void (*)(std::span<const AttentionTask> tasks);
inline constexpr std::int64_t attention_tasks_max = 8;

struct NormTask {
    bool subtract_mean = false;  // LayerNorm; otherwise RMSNorm
    const float* in = nullptr;
    std::int64_t in_stride = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;
    const float* weight = nullptr;  // [columns]
    const float* bias = nullptr;    // [columns] or null
    float epsilon = 0.0F;
    std::int64_t columns = 0;
};

struct RopeTask {
    float* qkv = nullptr;  // [rows, (heads + 2 * kv_heads) * head_dim]
    std::int64_t stride = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    const float* table = nullptr;  // [entries, head_dim] or null
    std::int64_t table_stride = 0;
    const std::int32_t* table_rows = nullptr;
    const float* q_norm = nullptr;  // [head_dim] or null
    const float* k_norm = nullptr;
    float epsilon = 0.0F;
    std::byte* keys = nullptr;  // of this layer, in block 0
    std::int64_t block_bytes = 0;
    std::int64_t head_bytes = 0;  // bytes from one kv head to the next in a block
    std::int64_t value_offset = 0;
    std::int64_t value_stride = 0;
    KvLayout layout = KvLayout::float32;
    const std::int32_t* row_blocks = nullptr;  // [rows] the block each row is stored in
    const std::int32_t* row_slots = nullptr;   // [rows] its position in that block
};

struct ActivationTask {
    Activation kind = Activation::silu;
    bool gated = false;  // out = act(in[:, :width]) * in[:, width:]
    const float* in = nullptr;
    std::int64_t in_stride = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;
    std::int64_t width = 0;
    bool accumulate = false;  // out += instead of out =
};

struct Largest {
    float value = 0.0F;
    std::int32_t index = 0;  // the lowest among equals
};

// Tokens per KV block, on every instruction set.
inline constexpr std::int64_t kv_block_size = 16;
// weights() adds up exp() over pieces of this many elements.
inline constexpr std::int64_t weight_piece = 1024;

struct Kernels {
    const char* name = nullptr;
    std::int64_t panel_width = 0;   // of matmul's panels
    std::int64_t shrink_width = 0;  // of shrink's panels

    // Panels [panel_begin, panel_end) of the task. Each output is one chain of multiply-adds in the order of in_features.
    void (*matmul)(const MatmulTask&, std::int64_t panel_begin, std::int64_t panel_end) = nullptr;
    // The same over narrow panels, with four interleaved chains per output: for few outputs of many inputs, such as LoRA's A.
    void (*shrink)(const MatmulTask&, std::int64_t panel_begin, std::int64_t panel_end) = nullptr;
    AttentionKernel attention = nullptr;     // any layout except int8; bfloat16_pairs only if attends_pairs
    bool attends_pairs = false;              // bfloat16_pairs are supported, and faster than plain bfloat16
    bool attention_writes_bfloat16 = false;  // if the cache holds bfloat16_pairs
    std::int64_t step_rows = 512;            // as DeviceInfo::step_rows
    std::int64_t attention_rows = 24;        // query rows per task that make good use of each loaded KV block
    std::int64_t attention_tasks = 1;        // per call of `attention`, where there are many tasks; at most attention_tasks_max
    void (*norm)(const NormTask&, std::int64_t row_begin, std::int64_t row_end) = nullptr;
    void (*rope)(const RopeTask&, std::int64_t row_begin, std::int64_t row_end) = nullptr;
    void (*activation)(const ActivationTask&, std::int64_t row_begin, std::int64_t row_end) = nullptr;

    // The largest of x[0, size); NaN counts as smaller than all; index 0 if nothing is larger than -inf.
    Largest (*largest)(const float* x, std::int64_t size) = nullptr;
    // sums[piece] = sum of exp((x[i] - largest) * scale) over each piece of weight_piece elements; out[i] = that exp, unless out is null.
    // NaN and -inf weigh 0.
    void (*weights)(const float* x, std::int64_t size, float largest, float scale, float* out, double* sums) = nullptr;
    // Writes the indices of x[i] >= bound, ascending; returns how many.
    std::int64_t (*at_least)(const float* x, std::int64_t size, float bound, std::int32_t* indices) = nullptr;

    // Convert rows of `size` elements to and from the input formats of the dot kernels.
    void (*to_bfloat16)(const float* from, std::byte* to, std::int64_t size) = nullptr;
    void (*from_bfloat16)(const std::byte* from, float* to, std::int64_t size) = nullptr;
    void (*to_int8)(const float* from, std::byte* to, std::int64_t size) = nullptr;
    void (*from_int8)(const std::byte* from, float* to, std::int64_t size) = nullptr;

    // Null: bfloat16 is widened to float32 and multiplied as that.
    const DotKernels* bfloat16_dot = nullptr;
    const DotKernels* bfloat16_shrink = nullptr;  // over narrow panels, as shrink
    // Converts the integers of an int8 row, which bfloat16 represents exactly; the row's scale is not applied.
    void (*int8_to_bfloat16)(const std::byte* from, std::byte* to, std::int64_t size) = nullptr;

    CodedKernels coded;        // for weights in codes and float32 inputs, in panels of panel_width
    CodedKernels coded_pairs;  // for bfloat16 inputs, in panels of bfloat16_dot; only if there is that

    // Runs `turns` rounds of float32 multiply-adds in registers; returns the number of operations.
    double (*multiply_adds)(std::int64_t turns) = nullptr;
    // The sum of x[0, size) in any order, to measure how fast memory is read. size: a multiple of 64.
    float (*sum)(const float* x, std::int64_t size) = nullptr;
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& avx512amx_kernels();

// All give the same results. The int8 kernels are their `unpacked`.
const DotKernels& scalar_int4_kernels();
const DotKernels& avx2_int4_kernels();
const DotKernels& avx512vnni_int4_kernels();
const DotKernels& avx512amx_int4_kernels();

// Attention over an int8 cache. Scores and weighted values are exact; the softmax's weights are added up in `lanes` partial sums.
struct Int8AttentionKernel {
    int lanes = 0;
    AttentionKernel run = nullptr;
};
const Int8AttentionKernel& scalar_int8_attention();
const Int8AttentionKernel& avx2_int8_attention();
const Int8AttentionKernel& avx512vnni_int8_attention();

}  // namespace lorry::kernels::cpu
