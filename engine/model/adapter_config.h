// adapter_config.json of a PEFT LoRA: which modules it targets, and with which rank and scale. Module names match as in PEFT.
// Called by adapter.cpp and adapter_match.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/pattern.h"
#include "engine/model/pooling.h"
#include "schema/check.h"

namespace lorry::engine {

// Tokens whose rows of an embedding, or of the head, the adapter replaces.
struct TrainedTokens {
    std::optional<std::string> module;  // ends its path; nullopt: the embedding of tokens
    std::vector<std::int64_t> tokens;   // in the order of the rows
};

struct AdapterConfig {
    enum class Biases : std::uint8_t { none, all, lora_only };

    std::string base;
    std::optional<PoolingTask> classifies;  // by its task_type, SEQ_CLS or TOKEN_CLS: with a head of its own
    std::int64_t rank = 8;
    double alpha = 8.0;
    bool rank_stabilized = false;  // scale alpha / sqrt(rank) instead of alpha / rank
    bool lora_bias = false;
    bool has_magnitudes = false;  // use_dora
    Biases biases = Biases::none;
    bool all_linear = false;
    std::optional<Pattern> target_pattern;  // target_modules, if it is one string
    std::vector<std::string> targets;       // target_modules, if it is a list
    std::string target_text;                // target_modules as JSON, shortened for messages
    std::vector<std::string> parameters;    // target_parameters: tensors with the weights of all experts, such as "experts.down_proj"
    std::optional<Pattern> exclude_pattern;
    std::vector<std::string> excludes;
    std::vector<std::string> saved;                       // modules_to_save
    std::vector<TrainedTokens> tokens;                    // trainable_token_indices
    std::vector<std::int64_t> layers;                     // layers_to_transform; empty: all
    std::vector<std::string> layer_lists;                 // layers_pattern; empty: any
    std::vector<std::pair<Pattern, std::int64_t>> ranks;  // rank_pattern; the first match counts
    std::vector<std::pair<Pattern, double>> alphas;

    // The error names key and value. Unknown keys are refused, unless their value requests nothing (null, false, {}, [], ""), and so are
    // lists of more than 10,000 elements and patterns of more than 200,000 instructions together.
    static Expected<AdapterConfig, std::string> parse(std::string_view text);

    // `path` is the path of a linear module without base_model.model: "model.layers.0.self_attn.q_proj". all_linear never includes the
    // head: the caller leaves it out. Answers are valid unless the steps are used up.
    bool targets_module(const std::string& path, MatchSteps& steps) const;
    bool targets_parameter(const std::string& path) const;  // "model.layers.0.mlp.experts.down_proj"
    bool saves_module(const std::string& path) const;       // the adapter has a trained copy that replaces it
    std::int64_t rank_of(const std::string& path, MatchSteps& steps) const;
    // The scale of a module that has this rank.
    float scale_of(const std::string& path, std::int64_t module_rank, MatchSteps& steps) const;
};

}  // namespace lorry::engine
