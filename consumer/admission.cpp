// Errors in the order in which a worker finds them.
#include "consumer/admission.h"

#include <utility>

namespace lorry::consumer {

Expected<schema::Job, schema::BadRecord> read_job(const Delivery& delivery, const schema::ParseLimits& limits) {
    auto job = schema::parse_job(delivery.record, limits);
    if (!delivery.refusal) return job;
    schema::BadRecord bad = job ? schema::BadRecord{job->custom_id, job->id, job->batch_id, job->model, {}} : std::move(job.error());
    bad.error = *delivery.refusal;
    return unexpected(std::move(bad));
}

std::optional<schema::JobError> refusal_of_model(const schema::Job& job, const ModelName& model) {
    if (model.kind == ModelName::Kind::unknown) {
        return schema::JobError{
            .code = schema::ErrorCode::model_not_found,
            .param = "model",
            .message = "'" + job.model +
                       "' is neither the base model nor a known adapter: a worker knows what `lorry adapters add` registered, a run "
                       "the sub-folders of its --adapters"};
    }
    if (model.kind == ModelName::Kind::refused) {
        return schema::JobError{.code = schema::ErrorCode::adapter_refused, .param = "model", .message = model.refusal};
    }
    return std::nullopt;
}

}  // namespace lorry::consumer
