// The answers of jobs that draw nothing: embeddings, classes, entities, scores and filled masks, in the shapes of OpenAI's API, of vLLM's,
// of Jina's and Cohere's rerankers, and of transformers' pipelines. Called by reply.cpp and the publisher. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "consumer/plan.h"
#include "engine/request.h"
#include "schema/json.h"

namespace lorry::consumer {

// The entries of the reply's list, for a plan whose work has a PoolingTask. results: in the order of plan.places, without an error.
schema::Json::Array pooled_entries(const engine::Tokenizer& tokenizer, const ReplyPlan& plan, std::span<const engine::Result> results);

// About how many bytes they have as JSON text.
std::int64_t pooled_bytes_of(const ReplyPlan& plan, std::span<const engine::Result> results);

// Why these results are no answer; nullopt: they are. An adapter's head may lack the label that the job needs, which only its results show,
// and a vector may have overflowed.
std::optional<schema::JobError> error_of_results(const ReplyPlan& plan, std::span<const engine::Result> results);

}  // namespace lorry::consumer
