// The text of /metrics: what the engine and the pipeline report, under the names that dashboards read.
#include "ops/metrics.h"

#include <gtest/gtest.h>

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;

// All numbers differ, so that a figure under the wrong name is noticed.
TEST(Metrics, HasWhatTheEngineSaysEachUnderItsName) {
    Metrics metrics("1.2.3", 400);
    engine::EngineStats stats;
    stats.steps = 101;
    stats.prompt_tokens = 102;
    stats.drawn_tokens = 103;
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
    for (const char* line : {"lorry_engine_steps_total 101\n",         "lorry_engine_prompt_tokens_total 102\n",
                             "lorry_engine_drawn_tokens_total 103\n",  "lorry_engine_cached_tokens_total 104\n",
                             "lorry_engine_preemptions_total 105\n",   "lorry_engine_running_sequences 100\n",
                             "lorry_engine_waiting_sequences 106\n",   "lorry_engine_batch_fill_ratio 0.25\n",
                             "lorry_engine_step_rows 107\n",           "lorry_engine_step_adapters 108\n",
                             "lorry_kv_blocks 1000\n",                 "lorry_kv_blocks_used 109\n",
                             "lorry_kv_blocks_lent 110\n",             "lorry_kv_usage_ratio 0.109\n",
                             "lorry_adapters_resident 111\n",          "lorry_adapters_resident_bytes 112\n",
                             "lorry_adapter_loads_total 114\n",        "lorry_adapter_evictions_total 115\n",
                             "lorry_adapter_failures_total 116\n"}) {
        EXPECT_NE(text.find(std::string("\n") + line), std::string::npos) << line << text;
    }
}

TEST(Metrics, AddsUpWhatThePipelineReports) {
    Metrics metrics("1.2.3", 8);
    const schema::Run run;
    metrics.on_admitted({});
    metrics.on_dead_letter({.error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = {}}});
    metrics.on_committed(7, 250ms);
    metrics.on_finished({.run = run,
                         .state = schema::JobState::completed,
                         .usage = {.prompt_tokens = 3, .completion_tokens = 1, .cached_tokens = 0},
                         .queued = 2ms,
                         .first_token = 30ms,
                         .total = 400ms,
                         .longest_output = 1});
    metrics.on_finished({.run = run,
                         .state = schema::JobState::failed,
                         .usage = {.prompt_tokens = 5, .completion_tokens = 0, .cached_tokens = 0}});
    const std::string text = metrics.text({});
    for (const char* line : {"# TYPE lorry_jobs_total counter\n", "lorry_jobs_total{state=\"completed\"} 1\n",
                             "lorry_jobs_total{state=\"failed\"} 1\n", "lorry_jobs_total{state=\"cancelled\"} 0\n",
                             "lorry_jobs_admitted_total 1\n", "lorry_dead_letters_total 1\n", "lorry_job_prompt_tokens_total 8\n",
                             "lorry_job_output_tokens_total 1\n", "lorry_commits_total 1\n", "lorry_committed_outcomes_total 7\n",
                             "# TYPE lorry_commit_seconds histogram\n", "lorry_commit_seconds_count 1\n", "lorry_commit_seconds_sum 0.25\n",
                             "lorry_commit_seconds_bucket{le=\"0.17783\"} 0\n", "lorry_commit_seconds_bucket{le=\"0.31623\"} 1\n",
                             "lorry_commit_seconds_bucket{le=\"1000\"} 1\n", "lorry_commit_seconds_bucket{le=\"+Inf\"} 1\n",
                             "lorry_job_queue_seconds_bucket{le=\"0.001\"} 0\n", "lorry_job_queue_seconds_count 1\n",
                             "lorry_time_to_first_token_seconds_sum 0.03\n", "lorry_job_seconds_sum 0.4\n",
                             "lorry_time_per_output_token_seconds_count 0\n"}) {
        EXPECT_NE(text.find(std::string("\n") + line), std::string::npos) << line << text;
    }
}

}  // namespace
}  // namespace lorry::ops
