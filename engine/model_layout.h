// Lists all modules of a checkpoint: the name and shape of each, and its place in Lorry's fused projections. Each naming style is one
// ModuleNames. Called by model loading, check-model and adapters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "engine/weights.h"

namespace lorry::engine {

// Names of a checkpoint's modules, relative to the prefix or to a layer. A family refers to one in model_config.cpp.
struct ModuleNames {
    const char* prefix;
    const char* tokens;
    const char* positions;  // nullptr: none
    const char* layers;
    const char* attention_norm;
    const char* mlp_norm;
    const char* final_norm;
    std::array<const char*, 3> qkv;  // one name: the checkpoint has them fused
    const char* q_norm;              // nullptr: none
    const char* k_norm;
    const char* output;
    std::array<const char*, 2> gate_up;  // one name: not gated
    const char* down;
    const char* head;  // without the prefix
    bool transposed;   // linear modules are stored [in, out] (Conv1D)
};
inline constexpr ModuleNames gpt2_names{.prefix = "transformer.",
                                        .tokens = "wte",
                                        .positions = "wpe",
                                        .layers = "h",
                                        .attention_norm = "ln_1",
                                        .mlp_norm = "ln_2",
                                        .final_norm = "ln_f",
                                        .qkv = {"attn.c_attn"},
                                        .q_norm = nullptr,
                                        .k_norm = nullptr,
                                        .output = "attn.c_proj",
                                        .gate_up = {"mlp.c_fc"},
                                        .down = "mlp.c_proj",
                                        .head = "lm_head",
                                        .transposed = true};
inline constexpr ModuleNames llama_names{.prefix = "model.",
                                         .tokens = "embed_tokens",
                                         .positions = nullptr,
                                         .layers = "layers",
                                         .attention_norm = "input_layernorm",
                                         .mlp_norm = "post_attention_layernorm",
                                         .final_norm = "norm",
                                         .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                         .q_norm = "self_attn.q_norm",
                                         .k_norm = "self_attn.k_norm",
                                         .output = "self_attn.o_proj",
                                         .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
                                         .down = "mlp.down_proj",
                                         .head = "lm_head",
                                         .transposed = false};

// The matrices of the forward pass. q|k|v and gate|up are one matrix each. The head is outside the layers.
enum class Projection : std::uint8_t { qkv, output, gate_up, down, head };
inline constexpr std::size_t projections = 5;
enum class NormSite : std::uint8_t { attention, mlp, final };
inline constexpr std::size_t norm_sites = 3;

// A linear module of the checkpoint: rows [out_begin, out_begin + out_features) of a projection.
struct LinearModule {
    std::string path;        // "model.layers.3.self_attn.q_proj"
    std::int64_t layer = 0;  // 0 for the head
    Projection projection = Projection::qkv;
    std::int64_t out_begin = 0;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    bool transposed = false;  // stored [in, out] (Conv1D)
    bool bias = false;
};

struct NormModule {
    std::string path;
    std::int64_t layer = 0;  // 0 for the final norm
    NormSite site = NormSite::attention;
    bool bias = false;
};

struct HeadNormModule {  // Qwen3's q_norm and k_norm
    std::string path;
    std::int64_t layer = 0;
    bool of_keys = false;
};

struct ModelLayout {
    std::string prefix;                 // of all modules except the head; some files lack it
    std::string layer_list;             // "model.layers"; the number of a layer follows
    std::string tokens;                 // embedding [vocabulary, hidden]
    std::string positions;              // embedding [max_positions, hidden] or empty
    std::vector<LinearModule> linears;  // by layer, then in the order of Projection, then of out_begin; the head last, also when tied
    std::vector<NormModule> norms;
    std::vector<HeadNormModule> head_norms;
};

ModelLayout layout_of(const ModelConfig& config);

// Width of a projection's output: the sum over its modules.
std::int64_t out_features_of(const ModelConfig& config, Projection projection);

// Unties a tied head if the checkpoint has one that differs from the embedding, as transformers does. Reads both if there are two.
void untie_own_head(ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

// Checks that the checkpoint has every tensor of the layout in the right shape and a float dtype. Throws std::runtime_error that names
// file, tensor and both shapes. Returns the names of unused tensors, except buffers that transformers ignores, too.
std::vector<std::string> check_checkpoint(const ModelConfig& config, const ModelLayout& layout, const Checkpoint& checkpoint);

}  // namespace lorry::engine
