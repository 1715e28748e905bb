// Prometheus families; counters that the engine and the member keep themselves are brought up to date, not counted twice.
#include "ops/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <cmath>
#include <mutex>

#include "ops/machine.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

// 1 ms to about 18 min by steps of 1.78 (four to a decade).
Histogram::BucketBoundaries time_buckets() {
    Histogram::BucketBoundaries bounds;
    for (int step = 0; step <= 24; ++step) bounds.push_back(std::round(std::pow(10.0, -3.0 + step / 4.0) * 1e5) / 1e5);
    return bounds;
}

void raise_to(Counter& counter, std::uint64_t value) {
    const double more = static_cast<double>(value) - counter.Value();
    if (more > 0.0) counter.Increment(more);
}

}  // namespace

struct Metrics::State {
    prometheus::Registry registry;
    std::int64_t sequences_max = 0;
    std::atomic<std::chrono::steady_clock::rep> last_poll{std::chrono::steady_clock::now().time_since_epoch().count()};
    std::mutex text_mutex;  // one reader at a time brings the pulled figures up to date

    Counter& counter(const char* name, const char* help) {
        return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
    }
    Gauge& gauge(const char* name, const char* help) { return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({}); }
    Histogram& histogram(const char* name, const char* help) {
        return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, time_buckets());
    }

    prometheus::Family<Counter>& jobs =
        prometheus::BuildCounter().Name("lorry_jobs_total").Help("Jobs that ended, by state").Register(registry);
    Counter& admitted = counter("lorry_jobs_admitted_total", "Jobs that were read and are well formed");
    Counter& dead_letters = counter("lorry_dead_letters_total", "Records that name no job");
    Counter& job_prompt_tokens = counter("lorry_job_prompt_tokens_total", "Prompt tokens of jobs that ended");
    Counter& job_output_tokens = counter("lorry_job_output_tokens_total", "Tokens drawn for jobs that ended");
    Counter& commits = counter("lorry_commits_total", "Commits that held results");
    Counter& committed = counter("lorry_committed_outcomes_total", "Results and dead letters that were committed");
    Histogram& commit_time = histogram("lorry_commit_seconds", "Time of a commit");
    Histogram& queue_time = histogram("lorry_job_queue_seconds", "From a job's delivery to its first step");
    Histogram& first_token_time = histogram("lorry_time_to_first_token_seconds", "From a job's delivery to its first token");
    Histogram& token_time = histogram("lorry_time_per_output_token_seconds", "Mean time between the tokens of a job's longest sequence");
    Histogram& job_time = histogram("lorry_job_seconds", "From a job's delivery to its end in the engine");

    Counter& steps = counter("lorry_engine_steps_total", "Engine steps");
    Counter& prompt_tokens = counter("lorry_engine_prompt_tokens_total", "Prompt tokens that were computed, recomputed ones included");
    Counter& drawn_tokens = counter("lorry_engine_drawn_tokens_total", "Tokens that were drawn");
    Counter& cached_tokens = counter("lorry_engine_cached_tokens_total", "Prompt tokens taken from the prefix index");
    Counter& preemptions = counter("lorry_engine_preemptions_total", "Sequences that gave up their blocks and were computed again");
    Gauge& running = gauge("lorry_engine_running_sequences", "Sequences in the batch");
    Gauge& waiting = gauge("lorry_engine_waiting_sequences", "Sequences that wait for a place in the batch");
    Gauge& fill = gauge("lorry_engine_batch_fill_ratio", "Sequences in the batch, of those it may hold");
    Gauge& rows = gauge("lorry_engine_step_rows", "Tokens in the last step");
    Gauge& step_adapters = gauge("lorry_engine_step_adapters", "Different adapters in the last step");
    Gauge& kv_blocks = gauge("lorry_kv_blocks", "Blocks of the KV cache");
    Gauge& kv_blocks_used = gauge("lorry_kv_blocks_used", "Blocks that sequences hold");
    Gauge& kv_blocks_lent = gauge("lorry_kv_blocks_lent", "Blocks that adapters lie in, on a GPU");
    Gauge& kv_ratio = gauge("lorry_kv_usage_ratio", "Blocks that sequences hold, of all");
    Gauge& adapters = gauge("lorry_adapters_resident", "Adapters in the device's memory");
    Gauge& adapter_bytes = gauge("lorry_adapters_resident_bytes", "Memory that they take");
    Counter& adapter_loads = counter("lorry_adapter_loads_total", "Adapters that were loaded");
    Counter& adapter_evictions = counter("lorry_adapter_evictions_total", "Adapters that made room for others");
    Counter& adapter_failures = counter("lorry_adapter_failures_total", "Adapters that could not be loaded");

    Gauge& in_flight = gauge("lorry_jobs_in_flight", "Jobs that were read and are not yet committed, parked ones included");
    Gauge& parked = gauge("lorry_jobs_parked", "Of them, wait for their adapter's registration or for tokens' room");
    Gauge& in_flight_max = gauge("lorry_jobs_in_flight_max", "The most of them that are not parked: then reading pauses");
    Gauge& in_flight_tokens = gauge("lorry_tokens_in_flight", "Prompt and output tokens that they may come to hold");
    Gauge& in_flight_tokens_max = gauge("lorry_tokens_in_flight_max", "The most of them: then reading pauses");
    Gauge& oldest = gauge("lorry_oldest_job_seconds", "How long the oldest job in flight has been here");
    Gauge& unpublished = gauge("lorry_publications_waiting", "What the engine has said and the publisher not yet taken");
    Gauge& backlog = gauge("lorry_backlog_jobs", "Jobs in this worker's partitions that were not read yet");

    Gauge& partitions = gauge("lorry_partitions", "Partitions of the jobs topic that this worker reads");
    Gauge& partitions_held = gauge("lorry_partitions_held", "Of those, the ones that wait because their commit metadata is full");
    Gauge& metadata = gauge("lorry_commit_metadata_characters", "The longest commit metadata of a partition");
    Counter& skipped = counter("lorry_jobs_skipped_total", "Jobs that an earlier owner of their partition had finished");
    Counter& replayed = counter("lorry_jobs_replayed_total", "Jobs that an earlier owner of their partition had taken and not finished");
    Gauge& starting = gauge("lorry_jobs_starting", "Jobs of new partitions that wait for the commit of their start, or for suspects");
    Counter& transactions = counter("lorry_transactions_total", "Transactions that were committed");
    Counter& aborts = counter("lorry_transactions_aborted_total", "Transactions that were aborted and tried again");
    Counter& fences = counter("lorry_transactions_fenced_total", "Times that the transactional id was opened elsewhere or timed out");
    Counter& unknown = counter("lorry_transactions_unknown_total", "Commits whose outcome had to be asked for");
    prometheus::Family<Gauge>& stall =
        prometheus::BuildGauge()
            .Name("lorry_stable_offset_stall_seconds")
            .Help("The longest that readers of committed records wait in a partition of this topic for a transaction to end")
            .Register(registry);
    Gauge& stall_jobs = stall.Add({{"topic", "jobs"}});
    Gauge& stall_results = stall.Add({{"topic", "results"}});
    Counter& rebalances = counter("lorry_rebalances_total", "Times that partitions came or went");
    Counter& lost = counter("lorry_assignments_lost_total", "Times that partitions were taken away without notice");
    Counter& too_large = counter("lorry_results_too_large_total", "Results that no topic takes, replaced by an error");
    Counter& rejected = counter("lorry_records_rejected_total", "Records that a broker refused");
    Counter& chunks = counter("lorry_chunks_total", "Streamed chunks");
    Gauge& outbox = gauge("lorry_outbox_records", "Finished jobs that are not yet committed");
    Gauge& outbox_bytes = gauge("lorry_outbox_bytes", "Memory that they take");

    Counter& ledger_applied = counter("lorry_ledger_records_total", "Records that the ledger took");
    Gauge& ledger_behind = gauge("lorry_ledger_behind_records", "Records that the ledger has not read yet");
    Gauge& ledger_failing = gauge("lorry_ledger_failing", "1 while the ledger cannot be written");
    Gauge& memory_peak_bytes = gauge("process_peak_resident_memory_bytes", "The most memory this process held");
};

Metrics::Metrics(const std::string& version, std::int64_t sequences_max) : state_(std::make_unique<State>()) {
    state_->sequences_max = sequences_max;
    prometheus::BuildGauge()
        .Name("lorry_build_info")
        .Help("The program's version")
        .Register(state_->registry)
        .Add({{"version", version}})
        .Set(1);
    for (const auto state :
         {schema::JobState::completed, schema::JobState::failed, schema::JobState::expired, schema::JobState::cancelled}) {
        state_->jobs.Add({{"state", schema::name_of(state)}});
    }
}

Metrics::~Metrics() = default;

void Metrics::on_admitted(const schema::Job&) { state_->admitted.Increment(); }

void Metrics::on_finished(const consumer::JobObservation& job) {
    State& state = *state_;
    state.jobs.Add({{"state", schema::name_of(job.state)}}).Increment();
    state.job_prompt_tokens.Increment(static_cast<double>(job.usage.prompt_tokens));
    state.job_output_tokens.Increment(static_cast<double>(job.usage.completion_tokens));
    if (job.state != schema::JobState::completed) return;
    state.queue_time.Observe(seconds_of(job.queued));
    state.job_time.Observe(seconds_of(job.total));
    if (job.first_token.count() == 0) return;
    state.first_token_time.Observe(seconds_of(job.first_token));
    if (job.longest_output > 1) {
        state.token_time.Observe(seconds_of(job.total - job.first_token) / static_cast<double>(job.longest_output - 1));
    }
}

void Metrics::on_dead_letter(const schema::DeadLetter&) { state_->dead_letters.Increment(); }

void Metrics::on_committed(std::size_t outcomes, std::chrono::microseconds took) {
    state_->commits.Increment();
    state_->committed.Increment(static_cast<double>(outcomes));
    state_->commit_time.Observe(seconds_of(took));
}

void Metrics::on_step(const engine::EngineStats& stats) {
    State& state = *state_;
    raise_to(state.steps, stats.steps);
    raise_to(state.prompt_tokens, stats.prompt_tokens);
    raise_to(state.drawn_tokens, stats.drawn_tokens);
    raise_to(state.cached_tokens, stats.cached_tokens);
    raise_to(state.preemptions, stats.preemptions);
    state.running.Set(static_cast<double>(stats.running));
    state.waiting.Set(static_cast<double>(stats.waiting));
    state.fill.Set(static_cast<double>(stats.running) / static_cast<double>(state.sequences_max));
    state.rows.Set(static_cast<double>(stats.last_rows));
    state.step_adapters.Set(static_cast<double>(stats.last_adapters));
    state.kv_blocks.Set(static_cast<double>(stats.kv_blocks));
    state.kv_blocks_used.Set(static_cast<double>(stats.kv_blocks_used));
    state.kv_blocks_lent.Set(static_cast<double>(stats.kv_blocks_lent));
    if (stats.kv_blocks > 0) state.kv_ratio.Set(static_cast<double>(stats.kv_blocks_used) / static_cast<double>(stats.kv_blocks));
    state.adapters.Set(static_cast<double>(stats.adapters.resident));
    state.adapter_bytes.Set(static_cast<double>(stats.adapters.resident_bytes));
    raise_to(state.adapter_loads, stats.adapters.loads);
    raise_to(state.adapter_evictions, stats.adapters.evictions);
    raise_to(state.adapter_failures, stats.adapters.failures);
}

void Metrics::on_gauges(const consumer::PipelineGauges& gauges) {
    state_->last_poll = std::chrono::steady_clock::now().time_since_epoch().count();
    state_->in_flight.Set(static_cast<double>(gauges.in_flight));
    state_->parked.Set(static_cast<double>(gauges.parked));
    state_->in_flight_max.Set(static_cast<double>(gauges.in_flight_max));
    state_->in_flight_tokens.Set(static_cast<double>(gauges.tokens));
    state_->in_flight_tokens_max.Set(static_cast<double>(gauges.tokens_max));
    state_->unpublished.Set(static_cast<double>(gauges.unpublished));
}

// Without partitions there is nothing that this worker will read.
void Metrics::on_backlog(std::optional<std::int64_t> jobs) { state_->backlog.Set(static_cast<double>(jobs.value_or(0))); }

void Metrics::on_oldest(const std::optional<consumer::OldestJob>& job) { state_->oldest.Set(job ? seconds_of(job->age) : 0.0); }

std::string Metrics::text(const MetricSources& sources) {
    State& state = *state_;
    const std::lock_guard lock(state.text_mutex);
    if (sources.member) {
        const consumer::KafkaMember::Stats stats = sources.member();
        state.partitions.Set(static_cast<double>(stats.partitions));
        state.partitions_held.Set(static_cast<double>(stats.partitions_held));
        state.metadata.Set(static_cast<double>(stats.metadata_chars));
        raise_to(state.skipped, stats.jobs_skipped);
        raise_to(state.replayed, stats.jobs_replayed);
        state.stall_jobs.Set(seconds_of(stats.stall_jobs));
        state.stall_results.Set(seconds_of(stats.stall_results));
        state.starting.Set(static_cast<double>(stats.jobs_starting));
        raise_to(state.transactions, stats.transactions);
        raise_to(state.aborts, stats.aborts);
        raise_to(state.fences, stats.fences);
        raise_to(state.unknown, stats.unknown_outcomes);
        raise_to(state.rebalances, stats.rebalances);
        raise_to(state.lost, stats.assignments_lost);
        raise_to(state.too_large, stats.results_too_large);
        raise_to(state.rejected, stats.records_rejected);
        raise_to(state.chunks, stats.chunks);
        state.outbox.Set(static_cast<double>(stats.outbox_records));
        state.outbox_bytes.Set(static_cast<double>(stats.outbox_bytes));
    }
    if (sources.ledger) {
        const consumer::Ledger::Stats stats = sources.ledger();
        raise_to(state.ledger_applied, stats.applied);
        state.ledger_behind.Set(static_cast<double>(stats.behind));
        state.ledger_failing.Set(stats.failing ? 1.0 : 0.0);
    }
    state.memory_peak_bytes.Set(static_cast<double>(memory_peak()));
    return prometheus::TextSerializer().Serialize(state.registry.Collect());
}

std::chrono::steady_clock::time_point Metrics::last_poll() const {
    return std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(state_->last_poll.load()));
}

}  // namespace lorry::ops
