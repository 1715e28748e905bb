// The names of a checkpoint's modules, one ModuleNames for each naming style, with the places of norms and heads. A family refers to one in
// model_families.h; model_layout.cpp spells the names out.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lorry::engine {

// The activation of a head's hidden layer: always the same, or what config.json says under a key.
enum class HeadActivation : std::uint8_t { tanh, gelu, relu, hidden_activation, classifier_activation, pooler_activation };

// A head: out = output(norm(activation(dense(x)))), where dense and its activation, and the norm, may be missing. Names are whole, or begin
// with the prefix of ModuleNames.
struct HeadNames {
    const char* output = nullptr;  // nullptr: the family has no such head
    const char* dense = nullptr;   // has a bias, unless the config says otherwise (ModernBERT's classifier_bias)
    HeadActivation activation = HeadActivation::tanh;
    const char* norm = nullptr;
    // Of the output layer; of a masked language model's head, whose weight is tied to the embedding, the bias has this name alone.
    bool output_bias = true;
    const char* bias = nullptr;
};

// Where a layer's two norms stand: before attention and MLP, or after the residual was added (as in the first transformer, and BERT).
enum class NormPlace : std::uint8_t { before, after };

// The start of names in files of older versions of transformers, and what it is now.
struct Renamed {
    const char* from;
    const char* to;
};

// Of a layer.
inline constexpr std::int64_t experts_max = 4096;

// The modules of a mixture of experts in place of a layer's MLP, relative to the layer. Each expert has modules of its own here and in the
// files of most releases. transformers 5 has the experts' weights in one tensor for gate and up, NEWER.experts.gate_up_proj
// [experts, gate | up, hidden], and one for down: a checkpoint's tensors are cut into those of each expert.
struct ExpertNames {
    const char* router = "mlp.gate";
    const char* list = "mlp.experts";  // the number of an expert follows
    std::array<const char*, 2> gate_up = {"gate_proj", "up_proj"};
    const char* down = "down_proj";
    const char* shared = nullptr;       // an expert for all tokens, with the names of an MLP; nullptr: none
    const char* shared_gate = nullptr;  // what scales its output by a sigmoid
    const char* newer = "mlp";          // where transformers 5 has "gate" and "experts"
    // The one tensor of gate and up is [experts, hidden, outputs], where they alternate, and that of down is [experts, intermediate,
    // hidden]; both have biases. An expert then has these as two modules.
    bool alternates = false;
    bool router_bias = false;
};

// Relative to the prefix or to a layer.
struct ModuleNames {
    const char* prefix;
    const char* tokens;
    const char* positions = nullptr;             // nullptr: none
    const char* types = nullptr;                 // nullptr: none
    const char* embedding_norm = nullptr;        // nullptr: none
    const char* embedding_projection = nullptr;  // from an embedding size of its own to the hidden size (ELECTRA)
    bool projects_first = false;                 // that projection has no bias and comes before the norm (DeBERTa)
    const char* distance_bias = nullptr;         // of attention scores, by buckets of distances (MPNet)
    const char* relative_positions = nullptr;    // embedding of relative positions (DeBERTa)
    const char* relative_norm = nullptr;         // its norm
    const char* convolution = nullptr;           // of the embeddings, added to the first layer's output (DeBERTa)
    const char* convolution_norm = nullptr;      // after that sum
    const char* layers;
    NormPlace norm_place = NormPlace::before;
    const char* attention_norm = nullptr;      // nullptr: attention reads the residual as it is
    const char* mlp_norm = nullptr;            // likewise
    const char* attention_out_norm = nullptr;  // of what attention adds to the residual; nullptr: none
    const char* mlp_out_norm = nullptr;
    const char* final_norm = nullptr;  // nullptr: the last layer's mlp_norm, which comes after the residual
    std::array<const char*, 3> qkv;    // one name: the checkpoint has them fused
    bool qkv_by_heads = false;         // fused: q, k and v of the first head, then those of the second, …
    const char* q_norm = nullptr;      // nullptr: none
    const char* k_norm = nullptr;
    const char* position_query = nullptr;  // queries and keys of relative positions, where they are not projected by the layer's own
    const char* position_key = nullptr;
    const char* output;
    std::array<const char*, 2> gate_up;  // one name: not gated, or fused
    bool gated = false;
    const char* down;
    const ExpertNames* experts = nullptr;  // nullptr: every layer has an MLP
    const char* sinks = nullptr;           // of attention, a tensor [heads]; nullptr: none
    const char* head = nullptr;            // of a causal language model, without the prefix
    bool transposed = false;               // linear modules are stored [in, out] (Conv1D)
    std::span<const Renamed> renamed = {};
    HeadNames sequence = {};     // …ForSequenceClassification
    HeadNames tokens_head = {};  // …ForTokenClassification
    HeadNames masked = {};       // …ForMaskedLM
};

inline constexpr HeadNames score_head{.output = "score", .output_bias = false};
inline constexpr HeadNames plain_head{.output = "classifier"};

inline constexpr ModuleNames gpt2_names{.prefix = "transformer.",
                                        .tokens = "wte",
                                        .positions = "wpe",
                                        .layers = "h",
                                        .attention_norm = "ln_1",
                                        .mlp_norm = "ln_2",
                                        .final_norm = "ln_f",
                                        .qkv = {"attn.c_attn"},
                                        .output = "attn.c_proj",
                                        .gate_up = {"mlp.c_fc"},
                                        .down = "mlp.c_proj",
                                        .head = "lm_head",
                                        .transposed = true,
                                        .sequence = score_head};
inline constexpr ModuleNames llama_names{.prefix = "model.",
                                         .tokens = "embed_tokens",
                                         .layers = "layers",
                                         .attention_norm = "input_layernorm",
                                         .mlp_norm = "post_attention_layernorm",
                                         .final_norm = "norm",
                                         .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                         .q_norm = "self_attn.q_norm",
                                         .k_norm = "self_attn.k_norm",
                                         .output = "self_attn.o_proj",
                                         .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
                                         .gated = true,
                                         .down = "mlp.down_proj",
                                         .head = "lm_head",
                                         .sequence = score_head,
                                         .tokens_head = {.output = "score"}};
inline constexpr ModuleNames gemma2_names = [] {
    ModuleNames names = llama_names;
    names.attention_out_norm = "post_attention_layernorm";
    names.mlp_norm = "pre_feedforward_layernorm";
    names.mlp_out_norm = "post_feedforward_layernorm";
    return names;
}();
inline constexpr ModuleNames gemma3_names = [] {
    ModuleNames names = gemma2_names;
    names.tokens_head = {};
    return names;
}();
inline constexpr std::array gemma3_renamed{Renamed{"language_model.model.", "model.language_model."},
                                           Renamed{"language_model.lm_head.", "lm_head."}};
inline constexpr ModuleNames gemma3_nested_names = [] {
    ModuleNames names = gemma3_names;
    names.prefix = "model.language_model.";
    names.renamed = gemma3_renamed;
    return names;
}();
inline constexpr ModuleNames phi3_names = [] {
    ModuleNames names = llama_names;
    names.qkv = {"self_attn.qkv_proj"};
    names.gate_up = {"mlp.gate_up_proj"};
    return names;
}();
inline constexpr ModuleNames olmo2_names = [] {
    ModuleNames names = gemma2_names;
    names.attention_norm = nullptr;
    names.mlp_norm = nullptr;
    names.tokens_head = {};
    return names;
}();
inline constexpr ModuleNames granite_names = [] {
    ModuleNames names = llama_names;
    names.sequence = {};
    names.tokens_head = {};
    return names;
}();
inline constexpr ModuleNames cohere_names = granite_names;
inline constexpr ModuleNames starcoder2_names = [] {
    ModuleNames names = llama_names;
    names.gate_up = {"mlp.c_fc"};
    names.gated = false;
    names.down = "mlp.c_proj";
    return names;
}();
inline constexpr ExpertNames mixtral_experts{
    .router = "block_sparse_moe.gate", .list = "block_sparse_moe.experts", .gate_up = {"w1", "w3"}, .down = "w2"};
inline constexpr ExpertNames plain_experts{};
inline constexpr ExpertNames qwen2_experts{.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"};
constexpr ModuleNames llama_with(const ExpertNames& experts) {
    ModuleNames names = llama_names;
    names.experts = &experts;
    return names;
}
inline constexpr ModuleNames mixtral_names = llama_with(mixtral_experts);
inline constexpr ModuleNames qwen2_moe_names = llama_with(qwen2_experts);
inline constexpr ModuleNames qwen3_moe_names = llama_with(plain_experts);
inline constexpr ModuleNames olmoe_names = [] {
    ModuleNames names = qwen3_moe_names;
    names.sequence = {};
    names.tokens_head = {};
    return names;
}();
inline constexpr ExpertNames gpt_oss_experts{.router = "mlp.router", .gate_up = {"gate_up_proj"}, .alternates = true, .router_bias = true};
inline constexpr ModuleNames gpt_oss_names = [] {
    ModuleNames names = llama_with(gpt_oss_experts);
    names.sinks = "self_attn.sinks";
    return names;
}();
inline constexpr std::array gpt_neox_renamed{Renamed{"embed_out.", "lm_head."}};
inline constexpr ModuleNames gpt_neox_names{.prefix = "gpt_neox.",
                                            .tokens = "embed_in",
                                            .layers = "layers",
                                            .attention_norm = "input_layernorm",
                                            .mlp_norm = "post_attention_layernorm",
                                            .final_norm = "final_layer_norm",
                                            .qkv = {"attention.query_key_value"},
                                            .qkv_by_heads = true,
                                            .output = "attention.dense",
                                            .gate_up = {"mlp.dense_h_to_4h"},
                                            .down = "mlp.dense_4h_to_h",
                                            .head = "lm_head",
                                            .renamed = gpt_neox_renamed,
                                            .sequence = score_head,
                                            .tokens_head = plain_head};

// BERT and the families whose layers have its names.
constexpr ModuleNames bert_layers(const char* prefix) {
    return {.prefix = prefix,
            .tokens = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layers = "encoder.layer",
            .norm_place = NormPlace::after,
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .qkv = {"attention.self.query", "attention.self.key", "attention.self.value"},
            .output = "attention.output.dense",
            .gate_up = {"intermediate.dense"},
            .down = "output.dense"};
}
inline constexpr HeadNames roberta_sequence{.output = "classifier.out_proj", .dense = "classifier.dense"};
inline constexpr HeadNames roberta_masked{.output = "lm_head.decoder",
                                          .dense = "lm_head.dense",
                                          .activation = HeadActivation::gelu,
                                          .norm = "lm_head.layer_norm",
                                          .bias = "lm_head.bias"};

inline constexpr ModuleNames bert_names = [] {
    ModuleNames names = bert_layers("bert.");
    names.sequence = {.output = "classifier", .dense = "bert.pooler.dense"};
    names.tokens_head = plain_head;
    names.masked = {.output = "cls.predictions.decoder",
                    .dense = "cls.predictions.transform.dense",
                    .activation = HeadActivation::hidden_activation,
                    .norm = "cls.predictions.transform.LayerNorm",
                    .bias = "cls.predictions.bias"};
    return names;
}();
inline constexpr ModuleNames roberta_names = [] {
    ModuleNames names = bert_layers("roberta.");
    names.sequence = roberta_sequence;
    names.tokens_head = plain_head;
    names.masked = roberta_masked;
    return names;
}();
inline constexpr ModuleNames electra_names = [] {
    ModuleNames names = bert_layers("electra.");
    names.embedding_projection = "embeddings_project";
    names.sequence = {.output = "classifier.out_proj", .dense = "classifier.dense", .activation = HeadActivation::gelu};
    names.tokens_head = plain_head;
    names.masked = {.output = "generator_lm_head",
                    .dense = "generator_predictions.dense",
                    .activation = HeadActivation::gelu,
                    .norm = "generator_predictions.LayerNorm",
                    .bias = "generator_lm_head.bias"};
    return names;
}();
inline constexpr ModuleNames mpnet_names = [] {
    ModuleNames names = bert_layers("mpnet.");
    names.types = nullptr;
    names.distance_bias = "encoder.relative_attention_bias";
    names.attention_norm = "attention.LayerNorm";
    names.qkv = {"attention.attn.q", "attention.attn.k", "attention.attn.v"};
    names.output = "attention.attn.o";
    names.sequence = roberta_sequence;
    names.tokens_head = plain_head;
    names.masked = roberta_masked;
    return names;
}();
inline constexpr ModuleNames deberta_names = [] {
    ModuleNames names = bert_layers("deberta.");
    names.embedding_projection = "embeddings.embed_proj";
    names.projects_first = true;
    names.relative_positions = "encoder.rel_embeddings";
    names.relative_norm = "encoder.LayerNorm";
    names.convolution = "encoder.conv.conv";
    names.convolution_norm = "encoder.conv.LayerNorm";
    names.qkv = {"attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"};
    names.position_query = "attention.self.pos_query_proj";
    names.position_key = "attention.self.pos_key_proj";
    names.sequence = {.output = "classifier", .dense = "pooler.dense", .activation = HeadActivation::pooler_activation};
    names.tokens_head = plain_head;
    names.masked = bert_names.masked;
    return names;
}();
// With legacy = false; the output is always the embedding's, and the checkpoint has no module for it.
inline constexpr ModuleNames new_deberta_names = [] {
    ModuleNames names = deberta_names;
    names.masked = {.output = "lm_predictions.lm_head.decoder",
                    .dense = "lm_predictions.lm_head.dense",
                    .activation = HeadActivation::hidden_activation,
                    .norm = "lm_predictions.lm_head.LayerNorm",
                    .bias = "lm_predictions.lm_head.bias"};
    return names;
}();
inline constexpr ModuleNames distilbert_names{
    .prefix = "distilbert.",
    .tokens = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .layers = "transformer.layer",
    .norm_place = NormPlace::after,
    .attention_norm = "sa_layer_norm",
    .mlp_norm = "output_layer_norm",
    .qkv = {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
    .output = "attention.out_lin",
    .gate_up = {"ffn.lin1"},
    .down = "ffn.lin2",
    .sequence = {.output = "classifier", .dense = "pre_classifier", .activation = HeadActivation::relu},
    .tokens_head = plain_head,
    .masked = {.output = "vocab_projector",
               .dense = "vocab_transform",
               .activation = HeadActivation::hidden_activation,
               .norm = "vocab_layer_norm",
               .bias = "vocab_projector.bias"}};
// The first layer's attention norm is that of the embeddings.
inline constexpr HeadNames modernbert_head{
    .output = "classifier", .dense = "head.dense", .activation = HeadActivation::classifier_activation, .norm = "head.norm"};
inline constexpr ModuleNames modernbert_names{.prefix = "model.",
                                              .tokens = "embeddings.tok_embeddings",
                                              .embedding_norm = "embeddings.norm",
                                              .layers = "layers",
                                              .attention_norm = "attn_norm",
                                              .mlp_norm = "mlp_norm",
                                              .final_norm = "final_norm",
                                              .qkv = {"attn.Wqkv"},
                                              .output = "attn.Wo",
                                              .gate_up = {"mlp.Wi"},
                                              .gated = true,
                                              .down = "mlp.Wo",
                                              .sequence = modernbert_head,
                                              .tokens_head = modernbert_head,
                                              .masked = {.output = "decoder",
                                                         .dense = "head.dense",
                                                         .activation = HeadActivation::classifier_activation,
                                                         .norm = "head.norm",
                                                         .bias = "decoder.bias"}};

}  // namespace lorry::engine
