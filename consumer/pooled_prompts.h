// The prompts of jobs that draw nothing but ask for embeddings, classes, scores or filled masks. Called by the preparer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "consumer/pair_template.h"
#include "consumer/plan.h"
#include "consumer/text/text_encoder.h"
#include "engine/model/model_config.h"

namespace lorry::consumer {

// One prompt for each of the job's requests. plan has its job and its work, one with a PoolingTask; what the reply needs beside the prompts
// is added to it. text_max: the most tokens of a text. pairs: of a model whose config has a token_score. chat: the job's chat, rendered, if
// it has one in place of texts.
Expected<std::vector<TokenizedPrompt>, schema::JobError> pooled_prompts(const TextEncoder& encoder, const engine::ModelConfig& config,
                                                                        std::int64_t text_max, const std::optional<PairTemplate>& pairs,
                                                                        std::optional<std::string> chat, ReplyPlan& plan);

// Why the model cannot make such embeddings: it has fewer dimensions, or no prompt of that name. nullopt: it can.
std::optional<schema::JobError> error_of_embedding(const schema::PoolingFields& fields, const engine::EmbedderConfig& embedder);

// The prompt's part of the job's weight.
JobWeight pooled_weight_of(const ReplyPlan& plan, const engine::ModelConfig& config, const TokenizedPrompt& prompt);

// Adds the requests of the job's prompts. common: what all of them share.
void add_pooling(PreparedJob& prepared, const engine::Request& common, std::vector<TokenizedPrompt> prompts);

}  // namespace lorry::consumer
