// Texts and states of batch failures.
#include "consumer/batch_failure.h"

#include <chrono>
#include <utility>

#include "consumer/reply.h"

namespace lorry::consumer {
namespace {

schema::JobState state_of(schema::BatchFailure failure) {
    switch (failure) {
        case schema::BatchFailure::expired: return schema::JobState::expired;
        case schema::BatchFailure::cancelled: return schema::JobState::cancelled;
        case schema::BatchFailure::request_timeout: return schema::JobState::failed;
    }
    CHECK(false, "every batch failure has a state");
}

}  // namespace

std::optional<schema::BatchFailure> failure_before_start(const schema::Job& job, const CancelDirectory& cancels) {
    if (cancels.is_cancelled(job)) return schema::BatchFailure::cancelled;
    if (job.deadline && std::chrono::system_clock::now() >= *job.deadline) return schema::BatchFailure::expired;
    return std::nullopt;
}

const char* message_of(schema::BatchFailure failure) {
    switch (failure) {
        case schema::BatchFailure::expired: return "the job's deadline passed before it was finished";
        case schema::BatchFailure::cancelled: return "the job was cancelled";
        case schema::BatchFailure::request_timeout: return "the job ran longer than the worker's job_timeout";
    }
    CHECK(false, "every batch failure is explained");
}

schema::Completion failed_completion(const schema::Job& job, schema::Run run, schema::BatchFailure failure) {
    schema::Completion completion = completion_for(job, std::move(run));
    completion.failure = failure;
    completion.failure_message = message_of(failure);
    completion.state = state_of(failure);
    return completion;
}

}  // namespace lorry::consumer
