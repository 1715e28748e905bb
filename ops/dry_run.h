// `lorry run --dry-run`: every job is read, checked and tokenized, one finished prompt is shown, and the time is estimated from
// a sample that
// does go through the engine. Nothing is written. Called by command_run.
#pragma once

#include "consumer/file_source.h"
#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct DryRunReport {
    std::int64_t jobs = 0;
    std::int64_t refused = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens_max = 0;     // what the jobs may draw at most
    std::vector<std::string> first_errors;  // "line 3 (custom_id): code: message"
    std::string prompt;                     // of the first good job, as it is tokenized
    std::int64_t sampled = 0;               // jobs that ran for the estimate
    std::int64_t sampled_tokens = 0;        // computed and drawn by them
    std::chrono::milliseconds sample_time{};
    std::optional<std::chrono::milliseconds> estimate;  // for all jobs; nullopt: no job is good
};

DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const schema::ParseLimits& limits);

std::string show(const DryRunReport& report);
schema::Json json_of(const DryRunReport& report);

}  // namespace lorry::ops
