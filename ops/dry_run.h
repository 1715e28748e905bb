// `lorry run --dry-run`: every job is read, checked and tokenized, one finished prompt is shown, and the time is estimated from a sample
// that does go through the engine. Nothing is written. Called by command_run.
#pragma once

#include <map>

#include "consumer/file_source.h"
#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct DryRunEstimate {
    std::chrono::duration<double> time{};
    bool at_most = false;  // jobs of the sample were stopped, and may end before they have drawn all that they may
};

struct DryRunReport {
    std::int64_t jobs = 0;
    std::int64_t refused = 0;
    std::map<std::string, std::int64_t> refused_by_code;  // "duplicate_custom_id": 12
    std::int64_t classifying = 0;                         // of the good ones: those whose choices are scored, for which nothing is drawn
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens_max = 0;      // what the jobs may draw at most
    std::int64_t request_tokens_max = 0;     // that, and the prompt of each of their requests, whoever has computed it
    std::vector<std::string> first_errors;   // "line 3 (custom_id): code: message"
    std::string prompt;                      // of the first good job, as it is tokenized
    std::int64_t sample = 0;                 // jobs that ran for the estimate
    std::int64_t sampled = 0;                // those of them that ended
    std::int64_t sampled_tokens = 0;         // computed and drawn by them
    std::int64_t sampled_cached_tokens = 0;  // of their prompts, that others of them had computed
    std::chrono::duration<double> sample_time{};
    // For all jobs; nullopt: no job is good.
    std::optional<DryRunEstimate> estimate() const;
};

DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const schema::ParseLimits& limits);

std::string show(const DryRunReport& report);
schema::Json json_of(const DryRunReport& report);

}  // namespace lorry::ops
