// Lists all modules of a checkpoint: the name and shape of each, and its place in Lorry's fused projections. Each naming style is one
// ModuleNames. Called by model loading, check-model and adapters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/coded_tensors.h"
#include "engine/model/model_config.h"
#include "engine/model/module_names.h"
#include "engine/model/weights.h"

namespace lorry::engine {

// The matrices of the forward pass. q|k|v, gate|up and the q|k of relative positions are one matrix each. The head (of the vocabulary) and
// the embedding's projection are outside the layers. gate_up and down are those of an MLP, of an expert, or of the expert for all tokens,
// whose output shared_gate scales.
enum class Projection : std::uint8_t { qkv, output, gate_up, down, head, embedding, positions, router, shared_gate };
inline constexpr std::size_t projections = 9;
// The norms before q|k|v, before gate|up and before the head, that of embeddings which are projected, that of the first layer's output
// before a convolution is added, and those of what attention and MLP add to the residual.
enum class NormSite : std::uint8_t { attention, mlp, final, embedding, convolution, attention_out, mlp_out };
inline constexpr std::size_t norm_sites = 7;

// A linear module of the checkpoint: rows [out_begin, out_begin + out_features) of a projection.
struct LinearModule {
    std::string path;                      // "model.layers.3.self_attn.q_proj"
    std::int64_t layer = 0;                // 0 for the head
    std::optional<std::int64_t> expert{};  // whose it is; nullopt: it is not one expert's
    Projection projection = Projection::qkv;
    std::int64_t out_begin = 0;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    std::int64_t projection_out = 0;  // outputs of the whole projection
    bool transposed = false;          // stored [in, out] (Conv1D)
    bool bias = false;
    bool reordered = false;  // its outputs have another order than in the checkpoint: stored_outputs()
};

// For each output of a reordered module which output it is in the checkpoint: where rope turns other pairs of dimensions than i and
// i + head_dim / 2, heads are stored so that it turns those; q, k and v of fused heads come apart, and so do gate and up that alternate.
std::vector<std::int64_t> stored_outputs(const ModelConfig& config, const LinearModule& module);

struct NormModule {
    std::string path;
    std::int64_t layer = 0;  // 0 for those outside the layers
    NormSite site = NormSite::attention;
    bool bias = false;
    bool in_place = false;  // its output is the residual from there on
    std::int64_t size = 0;
};

// A head that is not the vocabulary's, or the hidden layer of that one: output(norm(activation(dense(x)))), see HeadNames. Paths that are
// empty name nothing. The output layer has as many outputs as there are labels.
struct HeadModule {
    std::string output;
    bool output_bias = false;
    std::string dense;  // [dense_size, hidden]
    bool dense_bias = false;
    std::int64_t dense_size = 0;
    kernels::ActivationKind activation = kernels::ActivationKind::tanh;
    std::string norm;  // [dense_size]
    bool norm_bias = false;
};

struct HeadNormModule {  // q_norm and k_norm of Qwen3, Gemma 3 and OLMo 2
    std::string path;
    std::int64_t layer = 0;
    bool of_keys = false;
    std::int64_t size = 0;
};

struct ModelLayout {
    std::string prefix;                 // of all modules except the head; some files lack it
    std::string layer_list;             // "model.layers"; the number of a layer follows
    std::string tokens;                 // embedding [vocabulary, hidden]
    std::string positions;              // embedding [max_positions, hidden] or empty
    std::string types;                  // embedding [token types, hidden] or empty
    std::string distance_bias;          // embedding [buckets, heads] or empty
    std::string relative_positions;     // embedding [positions, hidden] or empty
    std::string relative_norm;          // of that embedding, or empty
    std::string convolution;            // [hidden, hidden, width] with a bias, or empty
    std::vector<LinearModule> linears;  // by layer, then in the order of Projection, then of out_begin; the head last, also when tied
    std::vector<NormModule> norms;
    std::vector<HeadNormModule> head_norms;
    std::vector<std::string> sinks;         // [layers] of attention, or none
    std::optional<HeadModule> sequence;     // of …ForSequenceClassification, whether the checkpoint has one or only adapters
    std::optional<HeadModule> tokens_head;  // of …ForTokenClassification, likewise
    std::optional<HeadModule> masked;       // the hidden layer before the vocabulary's head, where the checkpoint has it
    std::string head_bias;                  // the vector [vocabulary] that is added to logits, or empty

    // The vocabulary's head, also when tied; nullptr: the model has none.
    const LinearModule* head() const;
    // The head for a task: classify or token_classify; nullptr: the family has none.
    const HeadModule* head_for(PoolingTask task) const;
};

ModelLayout layout_of(const ModelConfig& config);

// What a tensor of a checkpoint is used for.
enum class TensorRole : std::uint8_t { embedding, projection, norm, head_output, vector };
struct LayoutTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    TensorRole role = TensorRole::vector;
    std::int64_t elements() const;
};
// All tensors that every checkpoint of this config has. CheckedTensors says what else some have.
std::vector<LayoutTensor> tensors_of(const ModelConfig& config, const ModelLayout& layout);

// Whether two modules are parts of one projection. Such modules are adjacent in a layout.
bool are_of_one_projection(const LinearModule& a, const LinearModule& b);

// Width of a projection's output, the sum over its modules; of gate_up in a layer with an MLP. LinearModule::projection_out has that of
// each module.
std::int64_t out_features_of(const ModelConfig& config, Projection projection);

// Unties a tied head if the checkpoint has one that differs from the embedding, as transformers does. Reads both if there are two.
void untie_own_head(ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

// The tensor that is added to logits: a tied masked language model's has a name of its own, an untied one's is the head's bias. Empty:
// none.
std::string head_bias_of(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

// Whether the checkpoint has the hidden layer of a sequence classifier, with which adapters may classify (BERT's pooler).
bool has_hidden_layer(const ModelLayout& layout, const Checkpoint& checkpoint);

// What a model makes of a checkpoint's tensors.
struct CheckedTensors {
    // tensors_of(), the bias of a masked language model's head, and the hidden layer that only adapters use.
    std::vector<LayoutTensor> used;
    std::vector<CodedModule> coded;   // linear modules whose weight is in codes, which is not in `used`
    std::vector<std::string> unused;  // names, without those of buffers that transformers ignores, too
};
// Checks that the checkpoint has every tensor of the layout in the right shape and a float dtype. Throws std::runtime_error that names
// file, tensor and both shapes.
CheckedTensors check_checkpoint(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

}  // namespace lorry::engine
