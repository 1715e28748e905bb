// Errors are found in one order: the source's, the codec's, the model's, then those of the prompt.
#include "consumer/intake.h"

#include <utility>

#include "consumer/batch_failure.h"
#include "consumer/reply.h"
#include "schema/codec.h"
#include "schema/secret.h"

namespace lorry::consumer {
namespace {

std::int64_t micros_now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The id of the API key that a gateway names; empty: there is none, or it is not one.
std::string key_of(const schema::Job& job) {
    const std::string* id = schema::find_header(job.headers, schema::api_key_id_header);
    return id != nullptr && schema::is_key_id(*id) ? *id : std::string();
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
                           "`lorry run` and `lorry up` the sub-folders of their --adapters"};
        case ModelName::Kind::refused:
            return schema::JobError{.code = schema::ErrorCode::adapter_refused, .param = "model", .message = model.refusal};
        case ModelName::Kind::not_yet: break;
    }
    CHECK(false, "a job waits until its model's name is known");
}

}  // namespace

Expected<AdmittedJob, schema::BadRecord> Intake::admit(const Delivery& delivery, Clock::time_point delivered) const {
    const schema::JobRecord& record = delivery.record;
    auto job = schema::parse_job(record, options_.parse);
    if (!job) {
        if (delivery.refusal) job.error().error = *delivery.refusal;
        return unexpected(std::move(job.error()));
    }
    if (delivery.refusal) {
        return unexpected(schema::BadRecord{.custom_id = std::move(job->custom_id),
                                            .job_id = std::move(job->id),
                                            .batch_id = std::move(job->batch_id),
                                            .model = std::move(job->model),
                                            .error = *delivery.refusal});
    }
    return AdmittedJob{.job = std::move(*job), .epoch = delivery.epoch, .delivered = delivered, .bytes = schema::memory_bytes(record)};
}

Refused Intake::refusal(Delivery delivery, schema::BadRecord bad) const {
    schema::JobRecord& record = delivery.record;
    if (record.headers.size() > schema::job_headers_max) record.headers.clear();  // incomplete: record_of() stops reading
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

Refused Intake::ended(const AdmittedJob& admitted, schema::BatchFailure failure) const {
    return {.outcome = {.source = admitted.job.source,
                        .epoch = admitted.epoch,
                        .record = failed_completion(admitted.job, ended_run_of(admitted.job), failure)},
            .error = {.code = schema::code_of(failure), .param = {}, .message = message_of(failure)}};
}

Expected<WeighedJob, Refused> Intake::weigh(AdmittedJob admitted, ModelName model, const engine::GrammarThread::Ordered& grammar) const {
    if (auto error = error_of_model(admitted.job, model)) return unexpected(refused(admitted.job, admitted.epoch, *std::move(error)));
    auto tokenized = preparer_.tokenize(std::move(admitted.job), std::move(model), grammar);
    if (!tokenized) return unexpected(refused(tokenized.error().job, admitted.epoch, std::move(tokenized.error().error)));
    tokenized->weight.bytes += admitted.bytes * record_bytes_factor;
    if (auto error = error_of_weight(tokenized->weight)) {
        return unexpected(refused(tokenized->plan.job, admitted.epoch, *std::move(error)));
    }
    return WeighedJob{
        .tokenized = std::move(*tokenized), .epoch = admitted.epoch, .delivered = admitted.delivered, .bytes = admitted.bytes};
}

std::optional<schema::JobError> Intake::error_of_weight(const JobWeight& weight) const {
    const JobWeight most = options_.limits.heaviest();
    if (!weight.exceeds(most)) return std::nullopt;
    const bool tokens = weight.tokens > most.tokens;
    return schema::JobError{
        .code = schema::ErrorCode::job_too_large,
        .param = {},
        .message = "the job's " + std::to_string(weight.requests) + " sequences may come to hold " +
                   std::to_string(tokens ? weight.tokens : weight.bytes) + (tokens ? " tokens" : " bytes") + "; one job may take " +
                   std::to_string(tokens ? most.tokens : most.bytes) + ", half of " + (tokens ? "in_flight_tokens" : "in_flight_bytes") +
                   ": ask for fewer samples, prompts, tokens or log-probabilities, split the job, or raise the setting"};
}

Submission Intake::expand(WeighedJob weighed, bool is_call) {
    schema::Run run = run_of(weighed.tokenized.plan.job);
    run.adapter = weighed.tokenized.plan.model.hash;
    const bool large = weighed.tokenized.weight.exceeds(options_.limits.large());
    PreparedJob prepared = preparer_.expand(std::move(weighed.tokenized), large);
    for (engine::Request& request : prepared.requests) request.is_call = is_call;
    return Submission{.job = {.key = next_key_++,
                              .epoch = weighed.epoch,
                              .plan = std::move(prepared.plan),
                              .run = std::move(run),
                              .delivered = weighed.delivered},
                      .requests = std::move(prepared.requests)};
}

AdmittedJob WeighedJob::untokenized() && {
    return {.job = std::move(tokenized.plan.job), .epoch = epoch, .delivered = delivered, .bytes = bytes, .weight = tokenized.weight};
}

schema::Run Intake::run_of(const schema::Job& job) const {
    return {.job_id = job.id,
            .batch_id = job.batch_id,
            .tenant = job.tenant,
            .key = key_of(job),
            .model = job.model,
            .worker = options_.worker,
            .source = job.source,
            .attempt = micros_now(),
            .submitted = job.submitted};
}

schema::Run Intake::ended_run_of(const schema::Job& job) const {
    schema::Run run = run_of(job);
    run.finished = schema::Timestamp(std::chrono::milliseconds(run.attempt / 1000));
    return run;
}

Refused Intake::refused(const schema::Job& job, Epoch epoch, schema::JobError error) const {
    return {.outcome = {.source = job.source, .epoch = epoch, .record = error_completion(job, ended_run_of(job), error)},
            .error = std::move(error)};
}

}  // namespace lorry::consumer
