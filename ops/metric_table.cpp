// The rows of the worker's metrics.
#include "ops/metric_table.h"

#include <algorithm>
#include <cmath>

#include "ops/gateway_metrics.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using enum Metric::Type;

constexpr std::array job_rows = {
    Metric{.name = "lorry_jobs_total",
           .type = counter,
           .unit = "jobs",
           .labels = {"state"},
           .value =
               [](const Figures& f) {
                   std::vector<Metric::Sample> samples;
                   for (const auto& [state, count] : f.jobs) samples.push_back({{schema::name_of(state)}, as_number(count)});
                   return samples;
               },
           .help = "Jobs that ended, by how: completed, failed, expired or cancelled",
           .watch = "Rises while there is work. A growing share of `failed` means jobs or adapters that are wrong: "
                    "`lorry_job_errors_total` has the errors' codes."},
    Metric{.name = "lorry_job_errors_total",
           .type = counter,
           .unit = "jobs",
           .labels = {"code"},
           .value =
               [](const Figures& f) {
                   std::vector<Metric::Sample> samples;
                   for (const auto& [code, count] : f.job_errors) samples.push_back({{std::string(name_of(code))}, as_number(count)});
                   return samples;
               },
           .help = "Jobs that ended with an error, by its code",
           .watch = "Absent until there is one. [errors.md](errors.md) says what to do; the log's `job_finished` events name the jobs."},
    Metric{.name = "lorry_jobs_admitted_total",
           .type = counter,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.jobs_admitted); },
           .help = "Jobs that were read and are well formed"},
    Metric{.name = "lorry_dead_letters_total",
           .type = counter,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.dead_letters); },
           .help = "Records of the jobs topic that name no custom_id and went to the dead letter topic",
           .watch = "Should stay 0. If it rises, a producer writes something other than jobs: read PREFIX.dlq."},
    Metric{.name = "lorry_job_prompt_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.job_prompt_tokens); },
           .help = "Prompt tokens of jobs that ended"},
    Metric{.name = "lorry_job_output_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.job_output_tokens); },
           .help = "Tokens generated for jobs that ended"},
    Metric{.name = "lorry_job_queue_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::queue_time,
           .help = "Time of completed jobs from their delivery to their first step",
           .watch = "Long times mean that this worker has more jobs than it can run, which is normal while a backlog is worked off."},
    Metric{.name = "lorry_time_to_first_token_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::first_token_time,
           .help = "Time of completed jobs from their delivery to their first token"},
    Metric{.name = "lorry_time_per_output_token_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::output_token_time,
           .help = "Mean time between the tokens of a completed job's longest sequence"},
    Metric{.name = "lorry_job_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::job_time,
           .help = "Time of completed jobs from their delivery to their last token"},
};

constexpr std::array window_rows = {
    Metric{.name = "lorry_backlog_jobs",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.backlog); },
           .help = "Jobs in this worker's partitions that were not read yet",
           .watch = "The sum over all workers is what is left to do. If it grows for hours, start more workers."},
    Metric{.name = "lorry_jobs_in_flight",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.pipeline.in_flight); },
           .help = "Jobs that were read and are not yet committed, parked ones included"},
    Metric{.name = "lorry_jobs_parked",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.pipeline.parked); },
           .help = "Jobs in flight that wait for the registration of their adapter, for the grammar of their answers or for room in the "
                   "window",
           .watch = "Jobs for an adapter that nobody registered are parked for ten seconds and then fail."},
    Metric{.name = "lorry_grammar_compile_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::compile_time,
           .help = "Time to compile what answers must match, for jobs that waited for it",
           .watch = "Mostly milliseconds, and at most about a second. Jobs with a structure that is new to the worker wait for each other; "
                    "all others pass them."},
    Metric{.name = "lorry_jobs_in_flight_max",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.pipeline.in_flight_max); },
           .help = "Number of jobs in flight, not counting parked ones, at which reading pauses: the setting in_flight"},
    Metric{.name = "lorry_tokens_in_flight",
           .type = gauge,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.pipeline.tokens); },
           .help = "Prompt and output tokens that the jobs in flight may come to hold"},
    Metric{.name = "lorry_tokens_in_flight_max",
           .type = gauge,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.pipeline.tokens_max); },
           .help = "Number of tokens in flight at which reading pauses: the setting in_flight_tokens"},
    Metric{.name = "lorry_bytes_in_flight",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.pipeline.bytes); },
           .help = "Memory that the jobs in flight may come to take, as estimated before they run"},
    Metric{.name = "lorry_bytes_in_flight_max",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.pipeline.bytes_max); },
           .help = "Number of these bytes at which reading pauses: the setting in_flight_bytes"},
    Metric{.name = "lorry_oldest_job_seconds",
           .type = gauge,
           .unit = "seconds",
           .value = [](const Figures& f) { return seconds_of(f.oldest_job); },
           .help = "How long ago the oldest job in flight was delivered",
           .watch = "A job in flight for more than ten minutes is named in the log (`job_stuck`). Offsets below it cannot be "
                    "committed; the setting `job_timeout` bounds how long a job runs."},
    Metric{.name = "lorry_publications_waiting",
           .type = gauge,
           .unit = "publications",
           .value = [](const Figures& f) { return as_number(f.pipeline.unpublished); },
           .help = "What the engine has handed over and the publisher has not yet taken",
           .watch = "Stays near 0. If it grows, the brokers take results too slowly or not at all."},
};

constexpr std::array engine_rows = {
    Metric{.name = "lorry_engine_steps_total",
           .type = counter,
           .unit = "steps",
           .value = [](const Figures& f) { return as_number(f.engine.steps); },
           .help = "Steps of the engine"},
    Metric{.name = "lorry_engine_prompt_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.prompt_tokens); },
           .help = "Prompt tokens that were computed, recomputed ones included"},
    Metric{.name = "lorry_engine_drawn_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.drawn_tokens); },
           .help = "Tokens that were drawn",
           .watch = "Its rate and that of the forced tokens are the worker's output in tokens per second."},
    Metric{.name = "lorry_engine_forced_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.forced_tokens); },
           .help = "Tokens of structured answers that were not drawn, as the structure allowed no others"},
    Metric{.name = "lorry_engine_rows_held_back_total",
           .type = counter,
           .unit = "rows",
           .value = [](const Figures& f) { return as_number(f.engine.held_back); },
           .help = "Rows that a later step computed again, as it took too long to find out what their structure allows",
           .watch = "If it grows as fast as the drawn tokens, the structures of some jobs are too complex; simplify them."},
    Metric{.name = "lorry_engine_drafted_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.drafted_tokens); },
           .help = "Guesses of next tokens that were computed (setting `speculation`)"},
    Metric{.name = "lorry_engine_accepted_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.accepted_tokens); },
           .help = "Guesses that were right, so that a step gave several tokens of one sequence",
           .watch = "Over the guesses that were computed, it is the share of rows that were not wasted."},
    Metric{.name = "lorry_engine_cached_tokens_total",
           .type = counter,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.cached_tokens); },
           .help = "Prompt tokens that were taken from the prefix cache instead of being computed"},
    Metric{.name = "lorry_engine_preemptions_total",
           .type = counter,
           .unit = "sequences",
           .value = [](const Figures& f) { return as_number(f.engine.preemptions); },
           .help = "Sequences that gave up their KV cache to others and were computed again",
           .watch = "If it rises often, the KV cache is too small for the batch: raise `kv_memory` or lower `max_batch`."},
    Metric{.name = "lorry_engine_running_sequences",
           .type = gauge,
           .unit = "sequences",
           .value = [](const Figures& f) { return as_number(f.engine.running); },
           .help = "Sequences in the batch"},
    Metric{.name = "lorry_engine_waiting_sequences",
           .type = gauge,
           .unit = "sequences",
           .value = [](const Figures& f) { return as_number(f.engine.waiting); },
           .help = "Sequences that wait for a place in the batch"},
    Metric{.name = "lorry_engine_batch_fill_ratio",
           .type = gauge,
           .unit = "ratio",
           .value = [](const Figures& f) { return as_number(f.engine.running) / as_number(f.sequences_max); },
           .help = "Sequences in the batch, as a share of max_batch",
           .watch = "Below 1 with a backlog: memory is short (`lorry_kv_usage_ratio`), or adapters are being loaded."},
    Metric{.name = "lorry_engine_step_rows",
           .type = gauge,
           .unit = "tokens",
           .value = [](const Figures& f) { return as_number(f.engine.last_rows); },
           .help = "Tokens computed in the last step"},
    Metric{.name = "lorry_engine_step_adapters",
           .type = gauge,
           .unit = "adapters",
           .value = [](const Figures& f) { return as_number(f.engine.last_adapters); },
           .help = "Different adapters in the last step"},
    Metric{.name = "lorry_kv_blocks",
           .type = gauge,
           .unit = "blocks",
           .value = [](const Figures& f) { return as_number(f.engine.kv_blocks); },
           .help = "Blocks of the KV cache"},
    Metric{.name = "lorry_kv_blocks_used",
           .type = gauge,
           .unit = "blocks",
           .value = [](const Figures& f) { return as_number(f.engine.kv_blocks_used); },
           .help = "Blocks of the KV cache that sequences hold"},
    Metric{.name = "lorry_kv_blocks_lent",
           .type = gauge,
           .unit = "blocks",
           .value = [](const Figures& f) { return as_number(f.engine.kv_blocks_lent); },
           .help = "Blocks of the KV cache that hold adapters, on a GPU"},
    Metric{.name = "lorry_kv_usage_ratio",
           .type = gauge,
           .unit = "ratio",
           .value =
               [](const Figures& f) {
                   return f.engine.kv_blocks > 0 ? as_number(f.engine.kv_blocks_used) / as_number(f.engine.kv_blocks) : 0.0;
               },
           .help = "Blocks that sequences hold, as a share of the KV cache",
           .watch = "Near 1 the batch cannot grow: raise `kv_memory`, or store the cache in a narrower format (`kv_dtype`)."},
    Metric{.name = "lorry_adapters_resident",
           .type = gauge,
           .unit = "adapters",
           .value = [](const Figures& f) { return as_number(f.engine.adapters.resident); },
           .help = "Adapters in the device's memory"},
    Metric{.name = "lorry_adapters_resident_bytes",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.engine.adapters.resident_bytes); },
           .help = "Memory that these adapters take"},
    Metric{.name = "lorry_adapter_loads_total",
           .type = counter,
           .unit = "adapters",
           .value = [](const Figures& f) { return as_number(f.engine.adapters.loads); },
           .help = "Adapters that were loaded"},
    Metric{.name = "lorry_adapter_evictions_total",
           .type = counter,
           .unit = "adapters",
           .value = [](const Figures& f) { return as_number(f.engine.adapters.evictions); },
           .help = "Adapters that made room for others",
           .watch = "If it rises with every job, adapters are loaded again and again: raise `adapter_memory`."},
    Metric{.name = "lorry_adapter_failures_total",
           .type = counter,
           .unit = "adapters",
           .value = [](const Figures& f) { return as_number(f.engine.adapters.failures); },
           .help = "Adapters that could not be loaded",
           .watch = "Should stay 0. `lorry adapters list` shows which adapter failed and why."},
};

constexpr std::array kafka_rows = {
    Metric{.name = "lorry_partitions",
           .type = gauge,
           .unit = "partitions",
           .value = [](const Figures& f) { return as_number(f.kafka.partitions); },
           .help = "Partitions of jobs and calls that this worker reads",
           .watch = "0 for longer than a rebalance: there are more workers than partitions."},
    Metric{.name = "lorry_partitions_held",
           .type = gauge,
           .unit = "partitions",
           .value = [](const Figures& f) { return as_number(f.kafka.source.held); },
           .help = "Partitions that wait because their commit metadata is full",
           .watch = "An unfinished job holds the offset while thousands after it have finished. See `lorry_oldest_job_seconds`."},
    Metric{.name = "lorry_partition_unreadable_offset",
           .type = gauge,
           .unit = "offset",
           .labels = {"topic", "partition", "codec"},
           .value =
               [](const Figures& f) {
                   std::vector<Metric::Sample> samples;
                   for (const auto& record : f.kafka.unreadable)
                       samples.push_back({{record.topic, std::to_string(record.partition), record.codec}, as_number(record.offset)});
                   return samples;
               },
           .help = "Offset of a record that cannot be read, at which its partition is blocked",
           .watch =
               "Absent while all records can be read. `codec` is the one that failed (`gzip`, `snappy`, `lz4`, `zstd`), `unknown` if Kafka "
               "does not define it, and `none` if the batch is damaged otherwise. The log (`kafka`) and /healthz name the reason; "
               "[operate.md](operate.md#a-record-that-cannot-be-read-poison-record) describes the recovery."},
    Metric{.name = "lorry_commit_metadata_characters",
           .type = gauge,
           .unit = "characters",
           .value = [](const Figures& f) { return as_number(f.kafka.metadata_chars); },
           .help = "Length of the longest commit metadata of a partition"},
    Metric{.name = "lorry_jobs_skipped_total",
           .type = counter,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.kafka.source.skipped); },
           .help = "Jobs that were skipped because an earlier owner of their partition had finished them",
           .watch = "Rises after partitions have moved. No work is lost."},
    Metric{.name = "lorry_jobs_replayed_total",
           .type = counter,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.kafka.source.replayed); },
           .help = "Jobs that an earlier owner of their partition had taken and not finished",
           .watch = "Rises after a worker crashed. These jobs run again and end once."},
    Metric{.name = "lorry_jobs_starting",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.kafka.source.starting); },
           .help = "Jobs of new partitions that wait for the commit of their start, or until jobs that may have crashed a worker have run"},
    Metric{.name = "lorry_rebalances_total",
           .type = counter,
           .unit = "rebalances",
           .value = [](const Figures& f) { return as_number(f.kafka.source.rebalances); },
           .help = "How often partitions were assigned or taken away",
           .watch = "Steady growth without starts and ends of workers: workers lose their sessions, because the machine or the network "
                    "stalls."},
    Metric{.name = "lorry_assignments_lost_total",
           .type = counter,
           .unit = "times",
           .value = [](const Figures& f) { return as_number(f.kafka.source.lost); },
           .help = "How often partitions were taken away without notice",
           .watch = "Should stay 0. The worker was cut off from the brokers, or stopped, for longer than its session; its running jobs are "
                    "dropped and run again."},
    Metric{.name = "lorry_commits_total",
           .type = counter,
           .unit = "commits",
           .value = [](const Figures& f) { return as_number(f.commits); },
           .help = "Commits that held results"},
    Metric{.name = "lorry_committed_outcomes_total",
           .type = counter,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.committed_outcomes); },
           .help = "Results and dead letters that were committed"},
    Metric{.name = "lorry_commit_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::commit_time,
           .help = "Time of a commit",
           .watch = "Milliseconds with brokers nearby. Seconds mean that brokers are slow, or were away."},
    Metric{.name = "lorry_transactions_total",
           .type = counter,
           .unit = "transactions",
           .value = [](const Figures& f) { return as_number(f.kafka.commits.transactions); },
           .help = "Transactions that were committed"},
    Metric{.name = "lorry_transactions_aborted_total",
           .type = counter,
           .unit = "transactions",
           .value = [](const Figures& f) { return as_number(f.kafka.commits.aborts); },
           .help = "Transactions that were aborted and tried again",
           .watch = "A few during rebalances and broker restarts are normal."},
    Metric{.name = "lorry_transactions_fenced_total",
           .type = counter,
           .unit = "times",
           .value = [](const Figures& f) { return as_number(f.kafka.commits.fences); },
           .help = "How often the transactional id was opened elsewhere or timed out",
           .watch = "Should stay 0. If it rises, two workers have the same `member` name; at the third time in a minute the worker ends."},
    Metric{.name = "lorry_transactions_unknown_total",
           .type = counter,
           .unit = "transactions",
           .value = [](const Figures& f) { return as_number(f.kafka.commits.unknown); },
           .help = "Commits whose outcome was lost with a connection and had to be looked up"},
    Metric{.name = "lorry_stable_offset_stall_seconds",
           .type = gauge,
           .unit = "seconds",
           .labels = {"topic"},
           .value =
               [](const Figures& f) {
                   return std::vector<Metric::Sample>{{{"jobs"}, seconds_of(f.kafka.stall_jobs)},
                                                      {{"results"}, seconds_of(f.kafka.stall_results)}};
               },
           .help = "The longest that readers of committed records have waited in a partition of this topic for a transaction to end",
           .watch = "More than a minute: a worker died with an open transaction and did not come back. Start a worker under its "
                    "`member` name."},
    Metric{.name = "lorry_results_too_large_total",
           .type = counter,
           .unit = "results",
           .value = [](const Figures& f) { return as_number(f.kafka.sink.too_large); },
           .help = "Results that are larger than the results topic allows and were replaced by an error",
           .watch = "Raise `max.message.bytes` of the results topic, or ask for fewer tokens or logprobs."},
    Metric{.name = "lorry_records_rejected_total",
           .type = counter,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.kafka.sink.rejected); },
           .help = "Records that a broker refused",
           .watch = "Should stay 0. The log has the broker's reason."},
    Metric{.name = "lorry_chunks_total",
           .type = counter,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.kafka.sink.chunks); },
           .help = "Streamed chunks that were sent"},
    Metric{.name = "lorry_outbox_records",
           .type = gauge,
           .unit = "jobs",
           .value = [](const Figures& f) { return as_number(f.kafka.sink.outbox_records); },
           .help = "Finished jobs that are not yet committed",
           .watch = "Falls to 0 with each commit. If it only grows, commits fail: the brokers are away."},
    Metric{.name = "lorry_outbox_bytes",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.kafka.sink.outbox_bytes); },
           .help = "Memory that the finished jobs take until they are committed"},
};

constexpr std::array ledger_rows = {
    Metric{.name = "lorry_ledger_records_total",
           .type = counter,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.ledger.applied); },
           .help = "Records that the ledger has applied"},
    Metric{.name = "lorry_ledger_behind_records",
           .type = gauge,
           .unit = "records",
           .value = [](const Figures& f) { return as_number(f.ledger.behind); },
           .help = "Records that the ledger has not read yet",
           .watch = "Until it is back at 0, `lorry jobs` shows an older state. Jobs and results do not wait for the ledger."},
    Metric{.name = "lorry_ledger_failing",
           .type = gauge,
           .unit = "0 or 1",
           .value = [](const Figures& f) { return f.ledger.failing ? 1.0 : 0.0; },
           .help = "1 while the ledger cannot be read or written",
           .watch = "Check the disk of the ledger (setting `ledger`). The worker tries again by itself."},
};

constexpr std::array process_rows = {
    Metric{.name = "lorry_build_info",
           .type = gauge,
           .unit = "1",
           .labels = {"version"},
           .value =
               [](const Figures& f) {
                   return std::vector<Metric::Sample>{{{f.version}, 1.0}};
               },
           .help = "The program's version, as a label"},
    Metric{.name = "process_peak_resident_memory_bytes",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.memory_peak); },
           .help = "The most memory that this process has held"},
};

const std::array groups = {
    MetricGroup{"Jobs", job_rows},
    MetricGroup{"Jobs in flight", window_rows},
    MetricGroup{"Engine, KV cache and adapters", engine_rows},
    MetricGroup{"Kafka", kafka_rows},
    MetricGroup{"Ledger", ledger_rows},
    MetricGroup{"Requests over HTTP (`lorry serve`, `lorry up`)", request_metrics()},
    MetricGroup{"Calls of a gateway (`lorry serve`)", call_metrics()},
    MetricGroup{"Files and batches of a gateway (`lorry serve --files`)", file_metrics()},
    MetricGroup{"Process", process_rows},
};

}  // namespace

std::span<const double> TimeHistogram::bounds() {
    static const auto values = [] {
        std::array<double, std::tuple_size_v<decltype(counts)> - 1> bounds{};
        for (std::size_t i = 0; i < bounds.size(); ++i)
            bounds[i] = std::round(std::pow(10.0, -3.0 + static_cast<double>(i) / 4.0) * 1e5) / 1e5;
        return bounds;
    }();
    return values;
}

void TimeHistogram::observe(double seconds) {
    const auto bucket = std::ranges::lower_bound(bounds(), seconds) - bounds().begin();
    ++counts[static_cast<std::size_t>(bucket)];
    sum += seconds;
}

std::span<const MetricGroup> metric_table() { return groups; }

const char* name_of(Metric::Type type) {
    switch (type) {
        case counter: return "counter";
        case gauge: return "gauge";
        case histogram: return "histogram";
    }
    CHECK(false, "every type of metric has a name");
}

}  // namespace lorry::ops
