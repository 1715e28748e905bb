// Writes the events to the log, the metrics and the ledger.
#include "ops/worker/worker_observer.h"

#include "ops/event_log.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {

using schema::Json;

namespace {

// Never the message, which may quote the job. A parameter is a field's name, and the job's own text if Lorry does not know the field.
void add_error(Json::Object& members, schema::ErrorCode code, const std::string& param) {
    members.emplace_back("error", name_of(code));
    if (!param.empty()) members.emplace_back("param", schema::shortened(schema::repair_utf8(param)));
}

}  // namespace

void WorkerObserver::on_admitted(const schema::Job& job) {
    metrics_.on_admitted(job);
    log_event("job_admitted", {{"job_id", schema::repair_utf8(job.id)},
                               {"model", schema::repair_utf8(job.model)},
                               {"partition", job.source.partition},
                               {"offset", job.source.offset}});
}

void WorkerObserver::on_finished(const consumer::JobObservation& job) {
    metrics_.on_finished(job);
    Json::Object members = {{"job_id", schema::repair_utf8(job.run.job_id)},
                            {"model", schema::repair_utf8(job.run.model)},
                            {"adapter", job.run.adapter},
                            {"state", schema::name_of(job.state)},
                            {"prompt_tokens", job.usage.prompt_tokens},
                            {"completion_tokens", job.usage.completion_tokens},
                            {"queued_seconds", seconds_of(job.queued)},
                            {"first_token_seconds", seconds_of(job.first_token)},
                            {"total_seconds", seconds_of(job.total)}};
    if (job.error) add_error(members, job.error->code, job.error->param);
    log_event("job_finished", std::move(members));
    record_adapter_state(job);
}

void WorkerObserver::on_dead_letter(const schema::DeadLetter& letter) {
    metrics_.on_dead_letter(letter);
    Json::Object members = {{"topic", letter.source.topic}, {"partition", letter.source.partition}, {"offset", letter.source.offset}};
    add_error(members, letter.error.code, letter.error.param);
    log_event("dead_letter", std::move(members));
}

void WorkerObserver::on_oldest(const std::optional<consumer::OldestJob>& job) {
    metrics_.on_oldest(job);
    if (!job || job->age < stuck_after || stuck_logged_ == job->source) return;
    stuck_logged_ = job->source;
    log_event("job_stuck", {{"job_id", schema::repair_utf8(job->job_id)},
                            {"partition", job->source.partition},
                            {"offset", job->source.offset},
                            {"seconds", seconds_of(job->age)}});
}

// Writes an adapter's state when it changes: at its first job, and when it fails or works again.
void WorkerObserver::record_adapter_state(const consumer::JobObservation& job) {
    if (ledger_ == nullptr || job.run.adapter.empty()) return;
    const bool failed = job.error && job.error->code == schema::ErrorCode::adapter_failed;
    if (!failed && job.state != schema::JobState::completed) return;
    const auto [place, is_new] = works_.try_emplace(job.run.adapter, !failed);
    if (!is_new && place->second == !failed) return;
    place->second = !failed;
    const std::string name = job.run.model.substr(0, job.run.model.find('@'));
    ledger_->set_adapter_state(name, job.run.adapter, failed ? "failed" : "ready", failed ? job.error->message : "");
}

}  // namespace lorry::ops
