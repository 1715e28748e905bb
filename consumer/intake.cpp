// Errors are found in one order: the source's, the codec's, the model's, then those of the prompt.
#include "consumer/intake.h"

#include <algorithm>
#include <utility>

#include "consumer/reply.h"

namespace lorry::consumer {
namespace {

std::int64_t micros_now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Why no job can run on what its model was resolved to; nullopt: it can.
std::optional<schema::JobError> error_of_model(const schema::Job& job, const ModelName& model) {
    switch (model.kind) {
        case ModelName::Kind::base:
        case ModelName::Kind::adapter: return std::nullopt;
        case ModelName::Kind::unknown:
            return schema::JobError{
                .code = schema::ErrorCode::model_not_found,
                .param = "model",
                .message = "'" + job.model +
                           "' is neither the base model nor a known adapter: a worker knows those that `lorry adapters add` registered, "
                           "`lorry run` the sub-folders of its --adapters"};
        case ModelName::Kind::refused:
            return schema::JobError{.code = schema::ErrorCode::adapter_refused, .param = "model", .message = model.refusal};
        case ModelName::Kind::not_yet: break;
    }
    CHECK(false, "a job waits until its model's name is known");
}

}  // namespace

Expected<schema::Job, schema::BadRecord> Intake::admit(const Delivery& delivery) const {
    auto job = schema::parse_job(delivery.record, options_.parse);
    if (!delivery.refusal) return job;
    if (!job) {
        job.error().error = *delivery.refusal;
        return job;
    }
    return unexpected(schema::BadRecord{.custom_id = std::move(job->custom_id),
                                        .job_id = std::move(job->id),
                                        .batch_id = std::move(job->batch_id),
                                        .model = std::move(job->model),
                                        .error = *delivery.refusal});
}

Refused Intake::refusal(Delivery delivery, schema::BadRecord bad) const {
    schema::JobRecord& record = delivery.record;
    if (bad.custom_id) {
        schema::Job job{.source = std::move(record.source), .custom_id = *std::move(bad.custom_id), .id = std::move(bad.job_id)};
        job.model = std::move(bad.model);
        job.batch_id = std::move(bad.batch_id);
        job.headers = std::move(record.headers);
        job.submitted = record.timestamp;
        return refused(job, delivery.epoch, std::move(bad.error));
    }
    return {.outcome = {.source = record.source,
                        .epoch = delivery.epoch,
                        .record = schema::DeadLetter{.source = record.source,
                                                     .key = std::move(record.key),
                                                     .value = std::move(record.value),
                                                     .headers = std::move(record.headers),
                                                     .error = bad.error}},
            .error = std::move(bad.error)};
}

Expected<Submission, Refused> Intake::prepare(AdmittedJob admitted, ModelName model) {
    if (auto error = error_of_model(admitted.job, model)) return unexpected(refused(admitted.job, admitted.epoch, *std::move(error)));
    schema::Run run = run_of(admitted.job);
    run.adapter = model.hash;
    auto prepared = preparer_.prepare(std::move(admitted.job), std::move(model));
    if (!prepared) return unexpected(refused(prepared.error().job, admitted.epoch, std::move(prepared.error().error)));
    return Submission{.job = {.key = next_key_++,
                              .epoch = admitted.epoch,
                              .plan = std::move(prepared->plan),
                              .run = std::move(run),
                              .delivered = admitted.delivered},
                      .requests = std::move(prepared->requests)};
}

AdmittedJob Intake::unpark() {
    CHECK(!parked_.empty(), "a job waits");
    AdmittedJob next = std::move(parked_.front());
    parked_.pop_front();
    return next;
}

void Intake::drop_parked(const std::vector<PartitionEpoch>& partitions) {
    std::erase_if(parked_, [&](const AdmittedJob& one) {
        return std::ranges::any_of(partitions, [&](const PartitionEpoch& partition) {
            return partition.topic == one.job.source.topic && partition.partition == one.job.source.partition &&
                   partition.epoch == one.epoch;
        });
    });
}

schema::Run Intake::run_of(const schema::Job& job) const {
    return {.job_id = job.id,
            .batch_id = job.batch_id,
            .model = job.model,
            .worker = options_.worker,
            .source = job.source,
            .attempt = micros_now(),
            .submitted = job.submitted};
}

Refused Intake::refused(const schema::Job& job, Epoch epoch, schema::JobError error) const {
    schema::Run run = run_of(job);
    run.finished = schema::Timestamp(std::chrono::milliseconds(run.attempt / 1000));
    return {.outcome = {.source = job.source, .epoch = epoch, .record = error_completion(job, std::move(run), error)},
            .error = std::move(error)};
}

}  // namespace lorry::consumer
