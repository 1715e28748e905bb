// The device's arithmetic: memory, weight packing and about a dozen ops, as large as the largest fusion any backend makes.
// engine/model.cpp is written once over this interface; kernels/cpu and kernels/cuda implement it with the same file names.
//
// Contract of all ops:
// - Batch invariance: a row's result depends on its own inputs, the weights and the chip, never on which or how many rows run
//   beside it, nor on how a sequence was cut into steps.
// - Launchers check shapes (CHECK), kernels compute. Ops may run asynchronously, in the order of the calls; read_back() and finish_step()
//   wait. Having a later op write to memory, or freeing it behind a step's ops, never takes it from ops that were called before.
// - A step is begin_step, its ops, sample if rows of logits are wanted, and finish_step. Up to steps_in_flight_max() steps may be begun
//   and not finished; they finish in order.
// - One thread, the engine's, calls everything, except that any one other thread may meanwhile pack into slots.
// - Running out of device memory throws std::bad_alloc or std::runtime_error saying what was asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace lorry::kernels {

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
    bool transposed = false;  // false: [out, in] as nn.Linear; true: [in, out] as GPT-2's Conv1D and PEFT's fan_in_fan_out
};

// What a weight is for, where that decides how it is stored. gate_up: two parts of one size, which a gated activated_matmul reads side by
// side. embedding: a table of tokens or positions, or the head, which may be one: what it loses shows in every token, so that int4 leaves
// it int8.
enum class WeightRole : std::uint8_t { projection, gate_up, embedding };

// y = W x with W [out_features, in_features], in the layout and format the backend's matmul reads; made by pack_weight.
class PackedWeight {
public:
    virtual ~PackedWeight() = default;
    virtual std::int64_t out_features() const = 0;
    virtual std::int64_t in_features() const = 0;
    virtual std::size_t bytes() const = 0;
    virtual Format input_format() const = 0;  // what matmul's `in` must be; the producing op writes it
};

// The low-rank update of one output slice of a fused projection: out[:, out_begin : out_begin + out_features] += scale * B (A x).
struct LoraPart {
    WeightPart a;  // [rank, in_features]
    WeightPart b;  // [out_features, rank]
    float scale = 1.0F;
    std::int64_t out_begin = 0;
};

// All slices that one adapter adds to one (fused) projection; made by pack_lora. Ranks are true ranks.
class PackedLora {
public:
    virtual ~PackedLora() = default;
    virtual std::int64_t rank_sum() const = 0;
    virtual std::size_t bytes() const = 0;
};

// The shape of the KV cache. Layout and block size are the backend's.
struct KvShape {
    std::int64_t layers = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
};

inline constexpr std::size_t slot_alignment = 256;
constexpr std::size_t slot_aligned(std::size_t bytes) { return (bytes + slot_alignment - 1) / slot_alignment * slot_alignment; }
// Bytes [begin, end) of a KV cache's memory, both slot_aligned. Block b lies from b * kv_block_bytes() on, where blocks are lent.
struct SlotRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const SlotRange&) const = default;
};

// One piece of memory: `blocks` blocks of block_size() tokens for all layers, and behind them the memory for adapters' slots. Made by
// make_kv_cache.
class KvCache {
public:
    virtual ~KvCache() = default;
    virtual std::int64_t blocks() const = 0;
    virtual std::size_t bytes() const = 0;  // of all of it
    virtual SlotRange slots() const = 0;    // what lies behind the blocks
    // Whether a slot may lie over blocks as well: they are then as good as not there.
    virtual bool lends_blocks() const { return false; }
};

// Puts weights into device memory, laid out as ops read them.
class Packer {
public:
    virtual ~Packer() = default;
    virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
    virtual void upload(void* to, std::span<const std::byte> from) = 0;
    // Concatenates the parts along out_features (all of equal in_features) and packs them.
    virtual std::unique_ptr<PackedWeight> pack_weight(std::span<const WeightPart> parts, WeightRole role) = 0;
    virtual std::unique_ptr<PackedLora> pack_lora(std::span<const LoraPart> parts) = 0;
};

// Packs one piece behind the other into an adapter's own part of a KV cache's memory, which outlives what was packed. A slot that only
// measures puts nothing anywhere.
class Slot : public Packer {
public:
    virtual std::size_t used() const = 0;  // bytes, what aligns the next piece included
};

// Consecutive rows of one sequence in this step. Row i stands at position `position + i` and sees positions 0 … position + i.
struct StepSequence {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    std::int64_t position = 0;          // tokens of this sequence that were computed before this step
    std::span<const BlockId> blocks{};  // enough for position + row_count tokens
};

// A row whose token the step before this one draws, from this row of its logits; the host need not know it yet.
struct DrawnRow {
    std::int64_t row = 0;
    std::int64_t sample_row = 0;
};

// What the host tells the device about one step's rows; uploaded once by begin_step and referred to by ops. Spans outlive the step's calls.
struct StepInputs {
    std::int64_t rows = 0;
    std::span<const TokenId> tokens{};            // [rows]; any token for rows in `drawn`
    std::span<const DrawnRow> drawn{};            // empty unless steps_in_flight_max() > 1
    std::span<const std::int32_t> positions{};    // [rows]
    std::span<const std::int32_t> rope_rows{};    // [rows] row of the rope table for that token
    std::span<const StepSequence> sequences{};    // in row order, covering all rows
    std::span<const std::int32_t> sample_rows{};  // rows whose logits are wanted, ascending
};

struct EmbedArgs {
    Matrix out;                               // [rows, hidden] float32
    const PackedWeight& tokens;               // [vocabulary, hidden]; the same object as a tied head
    const PackedWeight* positions = nullptr;  // [positions, hidden], learned positions (GPT-2)
    const StepInputs& step;
};

enum class NormKind : std::uint8_t { rms, layer };
struct NormArgs {
    NormKind kind = NormKind::rms;
    Matrix out;     // [rows, hidden]
    Matrix in;      // [rows, hidden] float32
    Vector weight;  // [hidden]
    Vector bias;    // [hidden] or empty
    float epsilon = 0.0F;
};

struct MatmulArgs {
    Matrix out;  // [rows, out_features] float32
    Matrix in;   // [rows, in_features] in weight.input_format()
    const PackedWeight& weight;
    Vector bias;                         // [out_features] or empty
    bool accumulate = false;             // out += instead of out =
    const PackedWeight* next = nullptr;  // multiplied after this one, where that is known: a hint, to ask memory for it early
};

// A row group: consecutive rows that share an adapter. Rows of no group have none.
struct LoraGroup {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    const PackedLora* lora = nullptr;
};
struct LoraArgs {
    Matrix out;                           // [rows, out_features] float32, added to
    Matrix in;                            // [rows, in_features] as matmul's
    std::span<const LoraGroup> groups{};  // ascending, not overlapping
};

// out[row] += bias for the rows of each group (biases trained with an adapter, stored as the difference to the base's).
struct BiasGroup {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    Vector bias;  // [columns]
};
struct GroupBiasArgs {
    Matrix out;
    std::span<const BiasGroup> groups{};
};

// Splits qkv rows, normalizes q and k per head when asked (Qwen3), rotates them and writes k and v to the cache. q stays in place.
struct RopeStoreArgs {
    Matrix qkv;  // [rows, (heads + 2 * kv_heads) * head_dim] float32: q | k | v
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    Matrix rope_table;  // [entries, head_dim] float32: cos[head_dim / 2] | sin[head_dim / 2]; rows == 0: no rope
    Vector q_norm;      // [head_dim] RMSNorm weights or empty
    Vector k_norm;
    float norm_epsilon = 0.0F;
    KvCache& cache;
    std::int64_t layer = 0;
    const StepInputs& step;
};

// Causal softmax(q k' * scale) v over the cached blocks, grouped queries: query head h reads kv head h / (heads / kv_heads).
struct AttentionArgs {
    Matrix out;  // [rows, heads * head_dim]
    Matrix qkv;  // as above; only q is read
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0.0F;
    std::optional<std::int64_t> window;  // a token sees itself and the window - 1 before it
    const KvCache& cache;
    std::int64_t layer = 0;
    const StepInputs& step;
};

enum class ActivationKind : std::uint8_t { silu, gelu, gelu_tanh, relu };
struct ActivationArgs {
    ActivationKind kind = ActivationKind::silu;
    bool gated = false;  // in is [gate | up]: out = act(gate) * up
    Matrix out;          // [rows, width]
    Matrix in;           // [rows, gated ? 2 * width : width] float32
};

// matmul into `sums`, then activation of that into `out`: the same bits, with or without anything left in `sums`.
struct ActivatedMatmulArgs {
    ActivationKind kind = ActivationKind::silu;
    bool gated = false;
    Matrix out;   // [rows, width]
    Matrix sums;  // [rows, gated ? 2 * width : width] float32
    Matrix in;    // [rows, in_features] in weight.input_format()
    const PackedWeight& weight;
    Vector bias;                         // as matmul's
    const PackedWeight* next = nullptr;  // multiplied after this one, where that is known: a hint, to ask memory for it early
};

struct GatherRowsArgs {
    Matrix out;  // [step.sample_rows.size(), columns]
    Matrix in;   // [rows, columns], in the format of out
    const StepInputs& step;
};

struct TokenBias {
    TokenId token = 0;
    float bias = 0.0F;
};

// How the next token is drawn from one row of logits, and which log-probabilities are wanted. The draw is a pure function of the
// logits and these fields: random numbers come from Philox4x32-10 keyed by (seed, position).
// Order: logit bias, banned and not allowed tokens, repetition / presence / frequency penalties, temperature, top_k, top_p, min_p, draw.
struct SampleRow {
    bool draw = true;          // false: only log-probabilities are wanted
    float temperature = 1.0F;  // 0: the largest logit, the lowest id among equals
    std::int32_t top_k = 0;    // 0: off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;  // over prompt and output, as Hugging Face and vLLM
    float presence_penalty = 0.0F;    // over output only, as OpenAI and vLLM
    float frequency_penalty = 0.0F;
    std::span<const TokenId> prompt{};  // read only when a penalty is on
    std::span<const TokenId> output{};
    bool ends_with_drawn = false;  // the output has one token more: this row's own, which is one of StepInputs::drawn
    std::span<const TokenBias> logit_bias{};
    std::span<const TokenId> banned{};  // never drawn (end tokens before min_tokens)
    // A grammar's mask: bit t % 32 of word t / 32 tells whether token t may be drawn, at least one may. Empty: all may. Words that are
    // missing at the end are zero.
    std::span<const std::uint32_t> allowed{};
    std::uint64_t seed = 0;
    std::uint64_t position = 0;  // position of the token to be drawn in its sequence
    bool want_logprob = false;   // of the drawn token
    std::int32_t top_logprobs = 0;
    std::span<const TokenId> targets{};  // tokens whose log-probability is wanted in any case
};

struct TokenLogprob {
    TokenId token = 0;
    float logprob = 0.0F;
};

// Log-probabilities are log_softmax of the logits as the model gave them: before bias, penalties and temperature (as vLLM).
struct SampleResult {
    TokenId token = 0;              // meaningful if draw
    bool is_finite = true;          // false: the logits overflowed, nothing else here means anything
    float logprob = 0.0F;           // meaningful if want_logprob
    std::vector<TokenLogprob> top;  // top_logprobs entries, descending, lower id first among equals
    std::vector<float> targets;     // as SampleRow::targets
};

struct SampleArgs {
    Matrix logits;  // [rows, vocabulary] float32
    std::span<const SampleRow> rows{};
    std::span<SampleResult> results{};  // [rows], written when finish_step returns; vectors keep their capacity between steps
};

// What a step comes to at most.
struct LargestStep {
    std::int64_t rows = 0;
    std::int64_t sample_rows = 0;
    std::int64_t sequences = 0;
    std::int64_t context = 0;  // tokens of a sequence
    std::int64_t vocabulary = 0;
};
struct ReserveArgs {
    LargestStep largest;
    std::function<void(const StepInputs&)> ops{};  // as GraphArgs's, and a cache of one block will do
};

// Decoding steps - one row for each sequence, all of which sample - that are to be launched as graphs.
struct GraphArgs {
    std::int64_t rows_max = 0;  // of such a step
    std::size_t bytes = 0;      // of device memory, at most
    // Calls the ops of a step of these rows, but for sample, and lora wherever an adapter might want it. Their results are nobody's, and
    // nothing is stored in a KV cache.
    std::function<void(const StepInputs&)> ops{};
};

struct DeviceInfo {
    std::string name;              // "cpu (avx512bf16, int8 matmuls, 2 threads)"
    std::string fingerprint;       // kernels and chip kind: part of system_fingerprint
    std::string matmuls;           // what multiplies and why, for people; empty: there is no choice
    bool wants_library = false;    // for lack of a library, or of rows for it, our own kernel multiplies what one could
    bool has_own_memory = false;   // a GPU; else it uses the machine's
    std::size_t memory_total = 0;  // bytes of its own
    std::size_t memory_free = 0;   // bytes of them, now
    double idle_seconds = 0.0;     // so far, in which a GPU had no work between steps whose results were read
    std::int64_t graphs = 0;
    std::size_t graph_bytes = 0;    // of device memory that they take
    std::uint64_t graph_steps = 0;  // so far, that were launched as one of them
};

// As a Packer it gives each piece memory of its own.
class Backend : public Packer {
public:
    virtual DeviceInfo info() const = 0;
    virtual void read_back(std::span<std::byte> to, const void* from) = 0;

    // Sets aside what ops of such steps compute with, where it would be allocated when they first need it. Called at start, with no step
    // begun.
    virtual void reserve_steps(const ReserveArgs& /*args*/) {}

    virtual std::int64_t block_size() const = 0;  // tokens
    virtual std::size_t kv_block_bytes(const KvShape& shape) const = 0;
    virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) = 0;
    virtual void copy_block(KvCache& cache, BlockId from, BlockId to) = 0;  // all layers
    // The range is of the cache's slots() or of lent blocks. Ops that were called before may still read what lay there.
    virtual std::unique_ptr<Slot> make_slot(KvCache& cache, const SlotRange& range) = 0;
    virtual std::unique_ptr<Slot> make_measuring_slot() = 0;

    virtual std::int64_t steps_in_flight_max() const { return 1; }
    virtual void begin_step(const StepInputs& step) = 0;
    // Waits for the oldest step that is not finished.
    virtual void finish_step() = 0;
    virtual void embed(const EmbedArgs& args) = 0;
    virtual void norm(const NormArgs& args) = 0;
    virtual void matmul(const MatmulArgs& args) = 0;
    virtual void lora(const LoraArgs& args) = 0;
    virtual void group_bias(const GroupBiasArgs& args) = 0;
    virtual void rope_store(const RopeStoreArgs& args) = 0;
    virtual void attention(const AttentionArgs& args) = 0;
    virtual void activation(const ActivationArgs& args) = 0;
    virtual void gather_rows(const GatherRowsArgs& args) = 0;
    virtual void sample(const SampleArgs& args) = 0;
    virtual void activated_matmul(const ActivatedMatmulArgs& args) {
        matmul({.out = args.sums, .in = args.in, .weight = args.weight, .bias = args.bias, .next = args.next});
        activation({.kind = args.kind, .gated = args.gated, .out = args.out, .in = args.sums});
    }

    // Called at start, with no step begun; takes the place of earlier ones. From then on a step that launches what a graph does is launched
    // as that, with the same results, bit for bit.
    virtual void make_graphs(const GraphArgs& /*args*/) {}
};

// Which instruction set the CPU kernels use; each must be supported by the machine (else std::runtime_error).
// avx512amx: as avx512, and matrix tiles for what is multiplied in bfloat16, int8 or int4.
enum class CpuIsa : std::uint8_t { scalar, avx2, avx512, avx512bf16, avx512amx };

// int8: matmul weights as int8 with a scale per output, and their inputs as int8 with a scale per row, made as they come.
// int4: the same, but those int8 are themselves stored in 4.5 bits; embeddings stay int8.
// fp8: as int8 with e4m3 (1 sign, 4 exponent, 3 fraction bits: Micikevicius et al. 2022) in place of the integers; embeddings stay wide.
// The CPU has int8 and int4, the GPU fp8.
enum class Quantization : std::uint8_t { none, int8, int4, fp8 };
constexpr const char* name_of(Quantization quantization) {
    switch (quantization) {
        case Quantization::none: return "none";
        case Quantization::int8: return "int8";
        case Quantization::int4: return "int4";
        case Quantization::fp8: return "fp8";
    }
    return "";
}

// How keys and values are cached: as wide as the weights' storage, or as int8 or e4m3 with a scale for each token of each head. The CPU has
// int8, the GPU fp8.
enum class KvFormat : std::uint8_t { as_weights, int8, fp8 };
constexpr const char* name_of(KvFormat format) {
    switch (format) {
        case KvFormat::as_weights: return "auto";
        case KvFormat::int8: return "int8";
        case KvFormat::fp8: return "fp8";
    }
    return "";
}

struct CpuOptions {
    int threads = 0;                    // 0: the cores this process may use
    std::optional<CpuIsa> isa;          // nullopt: by the chip (kernels/cpu/isa.cpp's table)
    Format weights = Format::bfloat16;  // storage of packed weights, adapters and KV; float32 is strict parity
    Quantization quantize = Quantization::none;
    KvFormat kv = KvFormat::as_weights;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

struct CudaOptions {
    Format weights = Format::bfloat16;  // storage of packed weights, adapters and KV; float32 is strict parity
    Quantization quantize = Quantization::none;
    KvFormat kv = KvFormat::as_weights;
    // A file of rows (kernels/cuda/cublaslt/matmul_table.h) that replaces the committed ones; empty: the committed ones.
    std::string matmul_table = {};
};

// What stands in the way of using a GPU, for people (built without CUDA, no driver, no device); nullopt when one can be used.
std::optional<std::string> cuda_obstacle();

// The first GPU. Throws std::runtime_error with the obstacle when there is none, what to choose instead of options it lacks, or what is
// wrong with the table.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace lorry::kernels
