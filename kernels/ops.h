// The ops of a backend: a struct of arguments for each, and Op, the list of all. engine/model/model.cpp calls them through Backend's
// functions of the same names; kernels/contract.cpp says which shapes they accept; kernels/cpu and kernels/cuda implement them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/device_objects.h"
#include "kernels/tensor.h"

namespace lorry::kernels {

// Consecutive rows of one sequence in this step. Row i has position `position + i` and sees positions 0 … position + i.
struct StepSequence {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    std::int64_t position = 0;          // tokens of this sequence that were computed before this step
    std::span<const BlockId> blocks{};  // enough for position + row_count tokens
};

// A row whose token the step before this one draws, from row sample_row of its logits; the host need not know the token yet.
struct DrawnRow {
    std::int64_t row = 0;
    std::int64_t sample_row = 0;
};

// One step's rows; begin_step uploads them once and ops refer to them. The spans must stay valid until the step's last op was called.
struct StepInputs {
    std::int64_t rows = 0;
    std::span<const TokenId> tokens{};            // [rows]; any token for rows in `drawn`
    std::span<const DrawnRow> drawn{};            // empty unless steps_queued_max() > 1
    std::span<const std::int32_t> positions{};    // [rows]
    std::span<const std::int32_t> token_types{};  // [rows], or empty: all 0
    std::span<const std::int32_t> rope_rows{};    // [rows] row of the rope table for that token
    std::span<const StepSequence> sequences{};    // in row order, covering all rows
    std::span<const std::int32_t> sample_rows{};  // rows whose logits are wanted, ascending
};

// A row whose token has a vector of an adapter's own.
struct OwnEmbedding {
    std::int64_t row = 0;
    const PackedWeight* table = nullptr;  // [.., hidden]
    std::int64_t index = 0;               // of the vector in `table`
};
struct EmbedArgs {
    static constexpr const char* op_name = "embed";
    Matrix out;                               // [rows, hidden] float32
    const PackedWeight& tokens;               // [vocabulary, hidden]; the same object as a tied head
    const PackedWeight* positions = nullptr;  // [positions, hidden], learned positions (GPT-2)
    const PackedWeight* types = nullptr;      // [token types, hidden] (BERT)
    std::span<const OwnEmbedding> own{};      // rows, ascending, whose token is not looked up in `tokens` and may be beyond its rows
    const StepInputs& step;
};

enum class NormKind : std::uint8_t { rms, layer, none };
struct NormArgs {
    static constexpr const char* op_name = "norm";
    NormKind kind = NormKind::rms;  // none: the rows are only converted to the format of `out`
    Matrix out;                     // [rows, hidden]; may be `in`, unless in_place
    Matrix in;                      // [rows, hidden] float32
    Vector weight;                  // [hidden]; empty for none
    Vector bias;                    // [hidden] or empty
    float epsilon = 0.0F;
    bool in_place = false;  // the normalized rows replace those of `in`, too (norms after the residual, as in BERT)
};

struct MatmulArgs {
    static constexpr const char* op_name = "matmul";
    Matrix out;  // [rows, out_features] float32
    Matrix in;   // [rows, in_features] in weight.input_format()
    const PackedWeight& weight;
    Vector bias;                         // [out_features] or empty
    bool accumulate = false;             // out += instead of out =
    const PackedWeight* next = nullptr;  // the weight multiplied after this one, if known: a hint to prefetch it
};

// A row group: consecutive rows that share an adapter. Rows outside all groups have no adapter.
struct LoraGroup {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    const PackedLora* lora = nullptr;
};
struct LoraArgs {
    static constexpr const char* op_name = "lora";
    Matrix out;                           // [rows, out_features] float32, added to
    Matrix in;                            // [rows, in_features] as matmul's
    std::span<const LoraGroup> groups{};  // ascending, not overlapping
};

// out[row] = out[row] * scale + bias for the rows of each group (what adapters do to a projection's outputs besides low-rank updates).
struct BiasGroup {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    Vector scale;  // [columns] or empty
    Vector bias;   // [columns] or empty
};
struct GroupBiasArgs {
    static constexpr const char* op_name = "group_bias";
    Matrix out;  // [rows, columns] float32
    std::span<const BiasGroup> groups{};
};

// Splits qkv rows, normalizes q and k per head if asked (Qwen3), rotates them and writes k and v to the cache. q stays in place.
struct RopeStoreArgs {
    static constexpr const char* op_name = "rope_store";
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

// Which tokens of its sequence a token sees: itself and those before it, or all of this step's.
enum class AttentionMask : std::uint8_t { causal, full };

// The bias of disentangled attention (DeBERTa): out[row i, head, token j] = (q_i · keys[p] + k_j · queries[p]) * scale, where p is the
// relative position of the distance i - j. All tokens of a sequence are rows of this step. Tokens after a sequence's last are not written.
struct DisentangledBiasArgs {
    static constexpr const char* op_name = "disentangled_bias";
    Matrix out;  // [rows, heads * context] as AttentionArgs::bias_by_token
    Matrix qkv;  // [rows, 3 * heads * head_dim] float32: q | k | v
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0.0F;
    // For each distance its relative position, from -(distances - 1) to distances - 1 where there are 2 * distances - 1; never descending.
    std::span<const std::int32_t> position_of_distance{};
    Matrix keys;                                // [positions, heads * head_dim] float32; no rows: there is no such term
    Matrix queries;                             // the same
    std::span<const StepSequence> sequences{};  // those of the step whose rows are computed
    const StepInputs& step;
};

// softmax(q k' * scale + bias) v over the cached blocks, grouped queries: query head h reads kv head h / (heads / kv_heads).
struct AttentionArgs {
    static constexpr const char* op_name = "attention";
    Matrix out;  // [rows, heads * head_dim]
    Matrix qkv;  // as rope_store's; only q is read
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0.0F;
    AttentionMask mask = AttentionMask::causal;
    std::optional<float> cap;            // a score x becomes cap * tanh(x / cap) before a bias is added; nullopt: it stays
    std::optional<std::int64_t> window;  // a token sees itself, the window - 1 before it and, if the mask is full, as many after it
    // For each head a score of no token: it takes its part of the softmax's weights, and nothing gets it (GPT-OSS). Empty: none.
    Vector sinks;  // [heads]
    // For each head a bias of each distance from a token to one that it sees (MPNet): column d + `context` - 1 is of distance d, from
    // -(context - 1) to context - 1, where columns = 2 * context - 1. No rows: no bias.
    Matrix bias_by_distance;  // [heads, 2 * context - 1] float32, with a stride of at least `columns` + one block of tokens
    // Or, for each row and head, a bias of each token of the row's sequence (disentangled_bias). No rows: no bias.
    Matrix bias_by_token;  // [rows, heads * context] float32, where `context` is whole blocks of tokens and no sequence is longer
    const KvCache& cache;
    std::int64_t layer = 0;
    const StepInputs& step;
};

enum class ActivationKind : std::uint8_t { silu, gelu, gelu_tanh, relu, tanh };
struct ActivationArgs {
    static constexpr const char* op_name = "activation";
    ActivationKind kind = ActivationKind::silu;
    bool gated = false;       // in is [gate | up]: out = act(gate) * up
    Matrix out;               // [rows, width]
    Matrix in;                // [rows, gated ? 2 * width : width] float32
    bool accumulate = false;  // out += instead of out =; float32 only
};

// The gate of GPT-OSS: in is [gate | up]: out = g * sigmoid(alpha * g) * (u + 1), where g is the gate, at most `limit`, and u is up, within
// `limit`.
struct ClampedGateArgs {
    static constexpr const char* op_name = "clamped_gate";
    Matrix out;  // [rows, width]
    Matrix in;   // [rows, 2 * width] float32
    float alpha = 1.0F;
    float limit = 0.0F;
};

// Rows multiplied by a number and, if a cap is given, kept within it: x becomes cap * tanh(x / cap). For embeddings, what a layer adds to
// the residual, and logits.
struct ScaleArgs {
    static constexpr const char* op_name = "scale";
    Matrix out;  // [rows, columns] float32; may be `in`, unless accumulate
    Matrix in;   // the same
    float scale = 1.0F;
    std::optional<float> cap;
    bool accumulate = false;  // out += instead of out =
};

// The inputs of a convolution over tokens as those of a matmul: each row's neighbours, from width / 2 rows before it to as many after it,
// side by side. Where its sequence has none, there are zeros. All tokens of a sequence are rows of this step.
struct UnfoldArgs {
    static constexpr const char* op_name = "unfold";
    std::int64_t width = 1;  // odd
    Matrix out;              // [rows, width * columns]
    Matrix in;               // [rows, columns] float32
    const StepInputs& step;
};

// A matmul into `sums` and an activation of `sums` into `out`, with the same bits as the two ops. Afterwards the contents of `sums` are
// undefined.
struct ActivatedMatmulArgs {
    static constexpr const char* op_name = "activated_matmul";
    ActivationKind kind = ActivationKind::silu;
    bool gated = false;
    Matrix out;   // [rows, width]
    Matrix sums;  // [rows, gated ? 2 * width : width] float32
    Matrix in;    // [rows, in_features] in weight.input_format()
    const PackedWeight& weight;
    Vector bias;                          // as matmul's
    std::span<const LoraGroup> groups{};  // as lora's, added before the activation
    const PackedWeight* next = nullptr;   // as matmul's
};

struct GatherRowsArgs {
    static constexpr const char* op_name = "gather_rows";
    Matrix out;  // [step.sample_rows.size(), columns]
    Matrix in;   // [rows, columns], in the format of out
    const StepInputs& step;
};

// Copies rows, in any order and any number of times: the inputs of experts, grouped by expert.
struct PickRowsArgs {
    static constexpr const char* op_name = "pick_rows";
    Matrix out;  // [rows.size(), columns]
    Matrix in;   // [.., columns], in the format of out
    std::span<const std::int32_t> rows{};
};

// out[row] += sum over j of factors[row, j] * in[places[row, j]], added up in the order of j, then what all rows share: the row of `shared`
// times the sigmoid of its score.
struct MixRowsArgs {
    static constexpr const char* op_name = "mix_rows";
    Matrix out;                              // [rows, columns] float32
    Matrix in;                               // [.., columns] float32
    std::span<const std::int32_t> places{};  // [rows, experts of a row] rows of `in`
    std::span<const float> factors{};        // the same
    Matrix shared;                           // [rows, columns] float32; no rows: nothing is shared
    Matrix shared_scores;                    // [rows, 1] float32, if `shared` has rows
};

// Consecutive rows that become one: the rows of a text, or some of them.
struct PoolSegment {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;  // at least 1
};
// sum: of the rows, in their order; weighted_sum: row i (from 1) counts i times; max: the largest of each column.
enum class PoolKind : std::uint8_t { sum, weighted_sum, max };
struct PoolArgs {
    static constexpr const char* op_name = "pool";
    PoolKind kind = PoolKind::sum;
    Matrix out;  // [segments, columns] float32
    Matrix in;   // [rows, columns] float32
    std::span<const PoolSegment> segments{};
    std::span<const float> factors{};  // [segments] that each pooled row is multiplied by
};

struct TokenBias {
    TokenId token = 0;
    float bias = 0.0F;
};

// How the next token is drawn from one row of logits, and which log-probabilities are wanted. The draw is a pure function of the
// logits and these fields: random numbers come from Philox4x32-10 keyed by (seed, position).
// Order: logit bias, banned and not allowed tokens, repetition / presence / frequency penalties, temperature, top_k, top_p, min_p, draw.
struct SampleRow {
    bool draw = true;  // false: only log-probabilities are wanted
    // The tokens are [0, vocabulary): what is in columns after these counts nowhere. nullopt: each column is a token's.
    std::optional<std::int64_t> vocabulary{};
    float temperature = 1.0F;  // 0: the largest logit, the lowest id among equals
    std::int32_t top_k = 0;    // 0: off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;  // over prompt and output, as Hugging Face and vLLM
    float presence_penalty = 0.0F;    // over output only, as OpenAI and vLLM
    float frequency_penalty = 0.0F;
    std::span<const TokenId> prompt{};  // read only if a penalty is on
    std::span<const TokenId> output{};
    bool ends_with_drawn = false;  // the output has one more token: this row's own, which is one of StepInputs::drawn
    std::span<const TokenBias> logit_bias{};
    std::span<const TokenId> banned{};  // never drawn (end tokens before min_tokens)
    // A grammar's mask: bit t % 32 of word t / 32 says whether token t may be drawn; at least one may. Empty: all may. Words missing at the
    // end count as zero.
    std::span<const std::uint32_t> allowed{};
    std::uint64_t seed = 0;
    std::uint64_t position = 0;  // position of the token to be drawn in its sequence
    bool want_logprob = false;   // of the drawn token
    std::int32_t top_logprobs = 0;
    std::span<const TokenId> targets{};  // tokens whose log-probability is always wanted
    bool want_ranks = false;             // of the targets

    bool has_output_penalty() const { return presence_penalty != 0.0F || frequency_penalty != 0.0F; }
    bool has_repetition_penalty() const { return repetition_penalty != 1.0F; }
};

struct TokenLogprob {
    TokenId token = 0;
    float logprob = 0.0F;
};

// Log-probabilities are log_softmax of the model's own logits: before bias, penalties and temperature (as vLLM).
struct SampleResult {
    TokenId token = 0;              // valid if draw
    bool is_finite = true;          // false: the logits overflowed, and no other field is valid
    float logprob = 0.0F;           // valid if want_logprob
    std::vector<TokenLogprob> top;  // top_logprobs entries, descending, lower id first among equals
    std::vector<float> targets;     // as SampleRow::targets
    // [targets] each one's place among all tokens in the order of `top`, from 1; empty unless want_ranks.
    std::vector<std::int32_t> ranks;
};

struct SampleArgs {
    static constexpr const char* op_name = "sample";
    Matrix logits;  // [rows, the largest vocabulary] float32
    std::span<const SampleRow> rows{};
    std::span<SampleResult> results{};  // [rows], valid once finish_step returns; vectors keep their capacity between steps
};

// One call of an op. A new op is a struct above, an alternative here and a function of Backend.
using Op = std::variant<const EmbedArgs*, const NormArgs*, const MatmulArgs*, const LoraArgs*, const GroupBiasArgs*, const RopeStoreArgs*,
                        const DisentangledBiasArgs*, const AttentionArgs*, const ActivationArgs*, const ClampedGateArgs*, const ScaleArgs*,
                        const UnfoldArgs*, const ActivatedMatmulArgs*, const GatherRowsArgs*, const PickRowsArgs*, const MixRowsArgs*,
                        const PoolArgs*, const SampleArgs*>;
inline const char* name_of(const Op& op) {
    return std::visit([](const auto* args) { return args->op_name; }, op);
}

}  // namespace lorry::kernels
