// What is computed for a job: its url, its fields and what its model can do decide. Used by the preparer, which makes the requests, and by
// reply.h, which makes the answer.
#pragma once

#include <cstdint>
#include <optional>

#include "consumer/seams.h"
#include "engine/model/model_config.h"
#include "engine/model/pooling.h"
#include "schema/job.h"

namespace lorry::consumer {

enum class Work : std::uint8_t {
    draw,                // tokens that continue each prompt, n times
    score_choices,       // the log-probability of each choice after each prompt
    embed,               // a vector of each text
    classify,            // a class of each text, by a head
    zero_shot,           // whether each text entails each choice's hypothesis, by the head of a model for inference (NLI)
    token_classify,      // a class of each token, by a head
    score_pairs,         // how well two texts match, by a head with one label: a cross-encoder
    compare_embeddings,  // the same, by the cosine of two embeddings
    fill_mask,           // the likeliest tokens where a text has the mask token
};

// What the engine computes from a text of such a job; nullopt: it draws or scores tokens.
constexpr std::optional<engine::PoolingTask> pooling_of(Work work) {
    switch (work) {
        case Work::draw:
        case Work::score_choices: return std::nullopt;
        case Work::embed:
        case Work::compare_embeddings: return engine::PoolingTask::embed;
        case Work::classify:
        case Work::zero_shot:
        case Work::score_pairs: return engine::PoolingTask::classify;
        case Work::token_classify: return engine::PoolingTask::token_classify;
        case Work::fill_mask: return engine::PoolingTask::fill_mask;
    }
    return std::nullopt;
}

// What the model can do, with the urls, for people: "makes embeddings (/v1/embeddings, /score, /rerank)".
std::string abilities_of(const engine::ModelConfig& config);

// The work of a job on a base model or an adapter of it. An adapter may bring a classification head of its own; if its registration does
// not say so, the engine, which reads adapters, finds out. The error says what the model can do and by which urls.
Expected<Work, schema::JobError> work_of(const schema::Job& job, const ModelName& model, const engine::ModelConfig& config);

// Whether a job's pairs are read through the model's chat template: by a reranker that answers yes or no. An adapter with a head of its own
// reads plain pairs.
bool renders_pairs(Work work, const ModelName& model, const engine::ModelConfig& config);

// Why this head cannot do a job's work; nullopt: it can.
std::optional<schema::JobError> error_of_head(Work work, const engine::Labels& labels);

// Of a head for inference, the label that says that the first text entails the second, found as transformers'
// ZeroShotClassificationPipeline does: its name starts with "entail" in any case.
std::optional<std::size_t> entailment_label(const engine::Labels& labels);

}  // namespace lorry::consumer
