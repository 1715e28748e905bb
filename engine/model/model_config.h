// A checkpoint's config.json, read and checked: the one description of a model's shape. Used by everything that depends on the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/pooling.h"
#include "engine/model/quantized_config.h"
#include "kernels/ops.h"
#include "schema/job.h"

namespace lorry::engine {

struct ModuleNames;  // module_names.h

// Rotary position embedding as transformers' modeling_rope_utils defines the variants.
struct RopeConfig {
    enum class Kind : std::uint8_t { none, standard, linear, dynamic, llama3, yarn, longrope };
    Kind kind = Kind::none;
    double theta = 10000.0;
    double factor = 1.0;
    std::int64_t original_max_positions = 0;  // dynamic, llama3, yarn, longrope
    // longrope: the checkpoint's context, also where this machine has memory for less.
    std::int64_t configured_positions = std::numeric_limits<std::int64_t>::max();
    double low_freq_factor = 1.0;            // llama3
    double high_freq_factor = 4.0;           // llama3
    double beta_fast = 32.0;                 // yarn
    double beta_slow = 1.0;                  // yarn
    std::optional<double> attention_factor;  // yarn, longrope
    std::optional<double> mscale;            // yarn
    std::optional<double> mscale_all_dim;    // yarn
    bool truncate = true;                    // yarn
    // longrope: [rotated dimensions / 2] that frequencies are divided by, for requests within the original context and beyond it.
    std::vector<double> short_factors;
    std::vector<double> long_factors;
};

// A Dense module of sentence-transformers: activation(weight · x + bias).
struct DenseConfig {
    std::filesystem::path folder;  // of its config and weights
    std::int64_t in_features = 0;
    std::int64_t out_features = 0;
    bool bias = true;
    std::optional<kernels::ActivationKind> activation;  // nullopt: none
};

// How a model's texts become embeddings.
struct EmbedderConfig {
    PoolingMode pooling = PoolingMode::mean;
    std::string pooling_source = {};      // where the mode comes from, for people: "1_Pooling/config.json", "--pooling"
    bool normalized = false;              // scaled to length 1 unless a job says otherwise
    std::int64_t dimensions = 0;          // of an embedding
    std::vector<DenseConfig> dense = {};  // applied to the pooled vector, in this order
    // What is put before a text, by name (config_sentence_transformers.json), and the name for jobs that give none.
    std::vector<std::pair<std::string, std::string>> prompts = {};
    std::string default_prompt = {};
};

// A score that is read from the vocabulary's logits after a text: those of one token, or of one less another's. A sigmoid of the difference
// is the first's probability where no third is possible: "yes" rather than "no". sentence-transformers' LogitScore.
struct TokenScore {
    std::int32_t positive = 0;
    std::optional<std::int32_t> negative;
    std::string instruction = {};         // for pairs whose job gives none; empty: none
    bool adds_generation_prompt = false;  // the chat template is asked for it
};

// DeBERTa's disentangled attention: queries and keys of tokens also meet keys and queries of relative positions.
struct DisentangledConfig {
    bool has_keys = false;            // positions have keys: "c2p", content to position
    bool has_queries = false;         // positions have queries: "p2c"
    bool shares_projections = false;  // both are made by the layer's own projections
    bool has_norm = false;            // the embeddings of positions are normalized
    std::int64_t buckets = 0;         // of distances in one direction; 0: each distance has its own position
    std::int64_t distance_max = 0;    // farther tokens count as this far
    std::int64_t positions() const { return 2 * (buckets > 0 ? buckets : distance_max); }
};

// A convolution over the embeddings of neighbouring tokens, added to the first layer's output (DeBERTa).
struct ConvolutionConfig {
    std::int64_t width = 3;  // in tokens; odd
    kernels::ActivationKind activation = kernels::ActivationKind::tanh;
};

// The activation of gated MLPs that keep gate and up within a limit (GPT-OSS); see kernels::ClampedGateArgs.
struct ClampedGate {
    double alpha = 1.702;
    double limit = 7.0;
};

// A mixture of experts: in some layers a router chooses a few of many MLPs for each token: those with the largest scores, the lower index
// first among equals.
struct ExpertsConfig {
    std::int64_t count = 0;
    std::int64_t chosen = 0;               // of each token
    std::int64_t intermediate = 0;         // of an expert
    std::int64_t shared_intermediate = 0;  // of the expert for all tokens; 0: there is none
    bool normalized = false;               // the factors of those chosen add up to 1; false: those of all experts would
    std::vector<bool> sparse;              // [layers] that have experts; the others have an MLP
};

// Which RMSNorm queries and keys get: none, one of each head, or one of all heads together (OLMo 2).
enum class QkNorm : std::uint8_t { none, by_head, whole };

struct ModelConfig {
    std::string family;                  // model_type of config.json: "llama"
    const ModuleNames* names = nullptr;  // names of the checkpoint's modules; never null in a config that parse() returned
    std::int64_t hidden = 0;
    std::int64_t intermediate = 0;
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t vocabulary = 0;
    std::int64_t max_positions = 0;  // the context limit in tokens, with the scaling of rope
    double norm_epsilon = 1e-6;
    kernels::NormKind norm = kernels::NormKind::rms;
    kernels::ActivationKind activation = kernels::ActivationKind::silu;
    std::optional<ExpertsConfig> experts;
    std::optional<ClampedGate> clamped_gate;  // instead of `activation`
    bool gated = true;                        // the MLP computes gate · up; false: it has an up projection only
    bool norm_offset = false;                 // the weights of RMSNorms are stored less 1
    QkNorm qk_norm = QkNorm::none;
    bool attention_bias = false;  // q, k, v
    bool output_bias = false;     // o
    bool mlp_bias = false;
    bool learned_positions = false;
    std::optional<double> attention_scale;   // of scores; nullopt: 1/sqrt(head_dim · attention_terms)
    bool attention_scaled_by_layer = false;  // scores are also divided by layer + 1
    std::optional<double> attention_cap;     // scores stay within it, by tanh
    double embedding_scale = 1.0;
    double residual_scale = 1.0;  // of what attention and MLP add
    double logit_scale = 1.0;
    std::optional<double> logit_cap;
    bool is_parallel = false;  // attention and MLP of a layer read the same residual
    bool shares_norm = false;  // and the same norm of it
    bool tied_head = false;
    bool head_untied = false;  // config.json ties the head, but the checkpoint's own differs from the embedding: untie_own_head
    RopeConfig rope;
    std::optional<RopeConfig> window_rope;               // of layers with a window, if it is another
    std::optional<std::int64_t> rotary_dims;             // the first dimensions of a head, which are rotated; nullopt: all
    bool rotates_neighbours = false;                     // dimensions 2i and 2i + 1 turn together
    std::vector<bool> unrotated;                         // [layers] that have no rope; empty: all have it
    std::vector<std::optional<std::int64_t>> windows;    // [layers] sliding window in tokens; nullopt: full attention
    kernels::Format storage = kernels::Format::float32;  // the checkpoint's dtype
    std::optional<QuantizedConfig> quantized;            // nullopt: all weights are floating-point numbers
    std::vector<std::int32_t> eos_ids;                   // from generation_config.json, else from config.json
    std::optional<std::int32_t> bos_id;
    // From generation_config.json, for jobs that leave them out. As in vLLM, do_sample is not read, and only temperature, top_p, top_k,
    // min_p and repetition_penalty may be set.
    schema::Sampling sampling_defaults;
    std::optional<std::int64_t> max_new_tokens;

    // What the model does besides, or instead of, drawing tokens.
    bool generates = true;                   // it has a causal language model's head
    bool is_encoder = false;                 // each token sees the whole text; no KV cache
    std::int64_t token_types = 0;            // rows of the table of token types; 0: there is none
    std::int64_t embedding_size = 0;         // width of the tables of tokens, positions and types; 0: hidden
    std::int64_t first_position = 0;         // row of the checkpoint's table of positions that a text's first token has
    std::optional<std::int32_t> padding_id;  // a token that texts must not have, as it would have no position of its own
    std::int64_t distance_buckets = 0;       // of the bias by distance (MPNet); 0: there is none
    std::optional<DisentangledConfig> disentangled;
    std::int64_t attention_terms = 1;  // products that a score sums up: it is divided by sqrt(head_dim · terms)
    std::optional<ConvolutionConfig> convolution;
    bool norm_bias = false;
    std::optional<EmbedderConfig> embedder;    // nullopt: no embeddings
    std::shared_ptr<const Labels> labels;      // of its own classification head; nullptr: none
    std::optional<TokenScore> token_score;     // its head for classes, with one label, is made of the vocabulary's
    PoolingTask head = PoolingTask::classify;  // which head that is: classify or token_classify
    bool fills_masks = false;                  // it has a masked language model's head
    // How heads compute, also those of adapters.
    PoolingMode classifier_pooling = PoolingMode::last;
    bool classifier_bias = true;  // of a head's hidden layer
    kernels::ActivationKind sequence_activation = kernels::ActivationKind::tanh;
    kernels::ActivationKind tokens_activation = kernels::ActivationKind::tanh;
    kernels::ActivationKind masked_activation = kernels::ActivationKind::gelu;

    std::vector<std::string> skipped_parts;    // keys of config.json that describe parts for images, which are left out
    std::optional<std::int64_t> max_sequence;  // of a text in tokens, if that is less than max_positions (sentence_bert_config.json)

    // The most tokens of a text.
    std::int64_t context_limit() const { return std::min(max_positions, max_sequence.value_or(max_positions)); }
    bool has_vocabulary_head() const { return generates || fills_masks; }
    std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden; }

    bool has_experts(std::int64_t layer) const { return experts && experts->sparse[static_cast<std::size_t>(layer)]; }
    // Of the layer's MLP or of the expert for all tokens; 0: it has neither.
    std::int64_t intermediate_of(std::int64_t layer) const { return has_experts(layer) ? experts->shared_intermediate : intermediate; }

    std::int64_t rotated() const { return rotary_dims.value_or(head_dim); }
    // Whether the dimensions of a head have another order in memory than in the checkpoint, so that i and i + head_dim / 2 turn together.
    bool reorders_heads() const { return rotates_neighbours || rotated() != head_dim; }
    bool rotates(std::int64_t layer) const { return unrotated.empty() || !unrotated[static_cast<std::size_t>(layer)]; }

    // Reads config.json (both generations of the rope and dtype keys) and generation_config.json. Throws std::runtime_error that names
    // file, key, value, and what is supported.
    // pooling: how texts are pooled, whatever the folder says; see sentence_config.h.
    static ModelConfig load(const std::filesystem::path& folder, std::optional<PoolingMode> pooling = std::nullopt);
    // The same from texts; an empty generation_config_json means that the file does not exist. `file` is for messages.
    static ModelConfig parse(std::string_view config_json, std::string_view generation_config_json, const std::string& file);
};

}  // namespace lorry::engine
