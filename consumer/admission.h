// What a delivery is before anything of it runs: a job for a model that is there, or why not. The pipeline's intake and `run --dry-run` ask
// the same functions, so that a dry run says what a run will. Pure; any thread.
#pragma once

#include <optional>

#include "consumer/seams.h"
#include "schema/codec.h"

namespace lorry::consumer {

// The job in a delivery's record. What its source says against it comes before what the codec does.
Expected<schema::Job, schema::BadRecord> read_job(const Delivery& delivery, const schema::ParseLimits& limits);

// Why no job can run on what `job.model` was resolved to; nullopt: it can, now or once its adapter is registered (not_yet).
std::optional<schema::JobError> refusal_of_model(const schema::Job& job, const ModelName& model);

}  // namespace lorry::consumer
