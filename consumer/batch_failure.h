// Jobs that end without an answer of their own: cancelled, expired, or out of time. Used by the pipeline's intake for jobs that wait, by
// the generator for those that run, and by the publisher.
#pragma once

#include <optional>

#include "consumer/seams.h"
#include "schema/completion.h"
#include "schema/job.h"

namespace lorry::consumer {

// Whether the job must not begin now: it was cancelled, or its deadline has passed. Any thread.
std::optional<schema::BatchFailure> failure_before_start(const schema::Job& job, const CancelDirectory& cancels);

// What happened, for people.
const char* message_of(schema::BatchFailure failure);

// The completion of a job that ended so.
schema::Completion failed_completion(const schema::Job& job, schema::Run run, schema::BatchFailure failure);

}  // namespace lorry::consumer
