// The text of /metrics: what the engine and the pipeline report, under the names that dashboards read.
#include "ops/metrics.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;

// Each line ends with its '\n'.
void expect_lines(const std::string& text, std::initializer_list<std::string_view> lines) {
    for (const std::string_view line : lines) EXPECT_NE(text.find(fmt::format("\n{}", line)), std::string::npos) << line << text;
}

// All numbers differ, so that a figure under the wrong name is noticed.
TEST(Metrics, HasWhatTheEngineSaysEachUnderItsName) {
    Metrics metrics("1.2.3", 400);
    engine::EngineStats stats;
    stats.steps = 101;
    stats.prompt_tokens = 102;
    stats.drawn_tokens = 103;
    stats.forced_tokens = 99;
    stats.drafted_tokens = 98;
    stats.accepted_tokens = 97;
    stats.held_back = 96;
    stats.cached_tokens = 104;
    stats.preemptions = 105;
    stats.running = 100;
    stats.waiting = 106;
    stats.last_rows = 107;
    stats.last_adapters = 108;
    stats.kv_blocks = 1000;
    stats.kv_blocks_used = 109;
    stats.kv_blocks_lent = 110;
    stats.adapters = {.resident = 111, .resident_bytes = 112, .budget_bytes = 113, .loads = 114, .evictions = 115, .failures = 116};
    metrics.on_step(stats);
    const std::string text = metrics.text({});
    expect_lines(text, {"lorry_engine_steps_total 101\n",
                        "lorry_engine_prompt_tokens_total 102\n",
                        "lorry_engine_drawn_tokens_total 103\n",
                        "lorry_engine_forced_tokens_total 99\n",
                        "lorry_engine_drafted_tokens_total 98\n",
                        "lorry_engine_accepted_tokens_total 97\n",
                        "lorry_engine_rows_held_back_total 96\n",
                        "lorry_engine_cached_tokens_total 104\n",
                        "lorry_engine_preemptions_total 105\n",
                        "lorry_engine_running_sequences 100\n",
                        "lorry_engine_waiting_sequences 106\n",
                        "lorry_engine_batch_fill_ratio 0.25\n",
                        "lorry_engine_step_rows 107\n",
                        "lorry_engine_step_adapters 108\n",
                        "lorry_kv_blocks 1000\n",
                        "lorry_kv_blocks_used 109\n",
                        "lorry_kv_blocks_lent 110\n",
                        "lorry_kv_usage_ratio 0.109\n",
                        "lorry_adapters_resident 111\n",
                        "lorry_adapters_resident_bytes 112\n",
                        "lorry_adapter_loads_total 114\n",
                        "lorry_adapter_evictions_total 115\n",
                        "lorry_adapter_failures_total 116\n"});
}

TEST(Metrics, AddsUpWhatThePipelineReports) {
    Metrics metrics("1.2.3", 8);
    const schema::Run run;
    metrics.on_admitted({});
    metrics.on_dead_letter({.error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = {}}});
    metrics.on_compiled(3ms);
    metrics.on_committed(7, 250ms);
    metrics.on_finished({.run = run,
                         .state = schema::JobState::completed,
                         .usage = {.prompt_tokens = 3, .completion_tokens = 1, .cached_tokens = 0},
                         .queued = 2ms,
                         .first_token = 30ms,
                         .total = 400ms,
                         .longest_output = 1});
    metrics.on_finished(
        {.run = run, .state = schema::JobState::failed, .usage = {.prompt_tokens = 5, .completion_tokens = 0, .cached_tokens = 0}});
    const std::string text = metrics.text({});
    expect_lines(text, {"# TYPE lorry_jobs_total counter\n",
                        "lorry_jobs_total{state=\"completed\"} 1\n",
                        "lorry_jobs_total{state=\"failed\"} 1\n",
                        "lorry_jobs_total{state=\"cancelled\"} 0\n",
                        "lorry_jobs_admitted_total 1\n",
                        "lorry_dead_letters_total 1\n",
                        "lorry_job_prompt_tokens_total 8\n",
                        "lorry_job_output_tokens_total 1\n",
                        "lorry_commits_total 1\n",
                        "lorry_committed_outcomes_total 7\n",
                        "lorry_grammar_compile_seconds_count 1\n",
                        "lorry_grammar_compile_seconds_sum 0.003\n",
                        "# TYPE lorry_commit_seconds histogram\n",
                        "lorry_commit_seconds_count 1\n",
                        "lorry_commit_seconds_sum 0.25\n",
                        "lorry_commit_seconds_bucket{le=\"0.17783\"} 0\n",
                        "lorry_commit_seconds_bucket{le=\"0.31623\"} 1\n",
                        "lorry_commit_seconds_bucket{le=\"1000\"} 1\n",
                        "lorry_commit_seconds_bucket{le=\"+Inf\"} 1\n",
                        "lorry_job_queue_seconds_bucket{le=\"0.001\"} 0\n",
                        "lorry_job_queue_seconds_count 1\n",
                        "lorry_time_to_first_token_seconds_sum 0.03\n",
                        "lorry_job_seconds_sum 0.4\n",
                        "lorry_time_per_output_token_seconds_count 0\n"});
}

TEST(Metrics, BringsTheEngineSCountsUpToDateWithoutCountingTwice) {
    Metrics metrics("1.2.3", 8);
    engine::EngineStats stats;
    stats.steps = 5;
    stats.running = 4;
    stats.kv_blocks = 10;
    stats.kv_blocks_used = 1;
    metrics.on_step(stats);
    stats.steps = 7;
    metrics.on_step(stats);
    const std::string text = metrics.text({});
    expect_lines(text, {"lorry_engine_steps_total 7\n", "lorry_engine_batch_fill_ratio 0.5\n", "lorry_kv_usage_ratio 0.1\n",
                        "lorry_build_info{version=\"1.2.3\"} 1\n", "lorry_jobs_total{state=\"expired\"} 0\n"});
}

// All numbers differ, so that a figure under the wrong name is noticed.
TEST(Metrics, TellsParkedJobsFromThoseThatFillTheWindow) {
    Metrics metrics("1.2.3", 8);
    metrics.on_gauges({.in_flight = 101, .parked = 102, .in_flight_max = 103, .tokens = 104, .tokens_max = 105, .unpublished = 106});
    const std::string text = metrics.text({});
    expect_lines(text, {"lorry_jobs_in_flight 101\n", "lorry_jobs_parked 102\n", "lorry_jobs_in_flight_max 103\n",
                        "lorry_tokens_in_flight 104\n", "lorry_tokens_in_flight_max 105\n", "lorry_publications_waiting 106\n"});
}

TEST(Metrics, HasWhatMemberAndLedgerSayEachUnderItsName) {
    Metrics metrics("1.2.3", 8);
    const auto member = [] {
        return consumer::KafkaMember::Stats{
            .source = {.skipped = 102, .replayed = 103, .rebalances = 104, .lost = 105, .held = 107, .starting = 110},
            .sink = {.completions = 115,
                     .dead_letters = 116,
                     .chunks = 117,
                     .too_large = 118,
                     .rejected = 119,
                     .commits = 120,
                     .outbox_records = 121,
                     .outbox_bytes = 122},
            .commits = {.transactions = 111, .aborts = 112, .fences = 113, .unknown = 114},
            .partitions = 106,
            .jobs_incomplete = 108,
            .metadata_chars = 109,
            .stall_jobs = 123s,
            .stall_results = 124'500ms};
    };
    const auto ledger = [] { return consumer::Ledger::Stats{.applied = 125, .refused = 126, .behind = 127, .failing = true}; };
    const std::string text = metrics.text({.member = member, .ledger = ledger});
    expect_lines(text, {"lorry_jobs_skipped_total 102\n",
                        "lorry_jobs_replayed_total 103\n",
                        "lorry_rebalances_total 104\n",
                        "lorry_assignments_lost_total 105\n",
                        "lorry_partitions 106\n",
                        "lorry_partitions_held 107\n",
                        "lorry_commit_metadata_characters 109\n",
                        "lorry_jobs_starting 110\n",
                        "lorry_transactions_total 111\n",
                        "lorry_transactions_aborted_total 112\n",
                        "lorry_transactions_fenced_total 113\n",
                        "lorry_transactions_unknown_total 114\n",
                        "lorry_chunks_total 117\n",
                        "lorry_results_too_large_total 118\n",
                        "lorry_records_rejected_total 119\n",
                        "lorry_outbox_records 121\n",
                        "lorry_outbox_bytes 122\n",
                        "lorry_stable_offset_stall_seconds{topic=\"jobs\"} 123\n",
                        "lorry_stable_offset_stall_seconds{topic=\"results\"} 124.5\n",
                        "lorry_ledger_records_total 125\n",
                        "lorry_ledger_behind_records 127\n",
                        "lorry_ledger_failing 1\n"});
}

TEST(Metrics, HasWhatTheCallsOfAGatewaySayEachUnderItsName) {
    Metrics metrics("1.2.3", 0);
    const auto calls = [] {
        return consumer::KafkaCalls::Stats{
            .open = 201, .sent = 202, .refused = 203, .unsent = 204, .cancelled = 205, .restarted = 206, .broken = 207, .is_away = true};
    };
    expect_lines(metrics.text({.member = {}, .ledger = {}, .calls = calls}),
                 {"lorry_calls_open 201\n", "lorry_calls_sent_total 202\n", "lorry_calls_refused_total 203\n",
                  "lorry_calls_unsent_total 204\n", "lorry_calls_cancelled_total 205\n", "lorry_streams_restarted_total 206\n",
                  "lorry_streams_broken_total 207\n", "lorry_brokers_away 1\n"});
}

TEST(Metrics, HasWhatAGatewayKnowsOfFilesAndBatchesEachUnderItsName) {
    Metrics metrics("1.2.3", 0);
    metrics.on_upload(400);
    metrics.on_upload(2);
    metrics.on_files_failed();
    const auto batches = [] {
        using enum schema::BatchState;
        return consumer::BatchTopics::Stats{
            .batches = {{in_progress, 301}, {expired, 0}}, .lines_waiting = 302, .files = 303, .file_bytes = 304};
    };
    expect_lines(metrics.text({.member = {}, .ledger = {}, .batches = batches}),
                 {"lorry_batches{state=\"in_progress\"} 301\n", "lorry_batches{state=\"expired\"} 0\n", "lorry_batch_lines_waiting 302\n",
                  "lorry_files 303\n", "lorry_file_bytes 304\n", "lorry_uploads_total 2\n", "lorry_uploaded_bytes_total 402\n",
                  "lorry_files_failed_total 1\n"});
}

TEST(Metrics, NamesPartitionOffsetAndCodecOfRecordsThatCannotBeRead) {
    Metrics metrics("1.2.3", 8);
    const auto member = [] {
        return consumer::KafkaMember::Stats{
            .unreadable = {{.topic = "lorry.jobs", .partition = 4, .offset = 17, .batch = 10, .codec = "zstd", .reason = "damaged"},
                           {.topic = "lorry.calls", .partition = 4, .offset = 18, .batch = 18, .codec = "none", .reason = "CRC32C"}}};
    };
    expect_lines(metrics.text({.member = member, .ledger = {}}),
                 {"lorry_partition_unreadable_offset{topic=\"lorry.jobs\",partition=\"4\",codec=\"zstd\"} 17\n",
                  "lorry_partition_unreadable_offset{topic=\"lorry.calls\",partition=\"4\",codec=\"none\"} 18\n"});
}

TEST(Metrics, MeasuresTheTimePerTokenByTheLongestSequence) {
    Metrics metrics("1.2.3", 8);
    const schema::Run run;
    // Two samples of eleven tokens side by side: ten intervals in five seconds.
    metrics.on_finished({.run = run,
                         .state = schema::JobState::completed,
                         .usage = {.prompt_tokens = 3, .completion_tokens = 22, .cached_tokens = 0},
                         .first_token = 1s,
                         .total = 6s,
                         .longest_output = 11});
    EXPECT_NE(metrics.text({}).find("lorry_time_per_output_token_seconds_sum 0.5\n"), std::string::npos) << metrics.text({});
}

TEST(Metrics, ForgetsTheBacklogWhenNoPartitionsAreHeld) {
    Metrics metrics("1.2.3", 8);
    metrics.on_backlog(7);
    metrics.on_oldest(consumer::OldestJob{.source = {}, .job_id = "a", .age = 90s});
    EXPECT_NE(metrics.text({}).find("lorry_backlog_jobs 7\n"), std::string::npos);
    EXPECT_NE(metrics.text({}).find("lorry_oldest_job_seconds 90\n"), std::string::npos);
    metrics.on_backlog(std::nullopt);
    metrics.on_oldest(std::nullopt);
    EXPECT_NE(metrics.text({}).find("lorry_backlog_jobs 0\n"), std::string::npos);
    EXPECT_NE(metrics.text({}).find("lorry_oldest_job_seconds 0\n"), std::string::npos);
}

}  // namespace
}  // namespace lorry::ops
