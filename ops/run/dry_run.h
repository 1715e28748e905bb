// `lorry run --dry-run`: reads, checks and tokenizes every job, shows one finished prompt, and estimates the time from a sample that runs
// through the pipeline (sample.h). Writes nothing. Called by run.cpp.
#pragma once

#include <map>

#include "consumer/file/source.h"
#include "ops/run/sample.h"

namespace lorry::ops {

struct DryRunEstimate {
    Seconds time{};
    bool at_most = false;  // jobs of the sample were stopped, and might have ended before their max_tokens
    double spread = 0.0;   // the share by which the time may differ; without meaning if at_most
};

struct DryRunReport {
    std::int64_t jobs = 0;
    std::int64_t refused = 0;
    std::map<std::string, std::int64_t> refused_by_code;  // "duplicate_custom_id": 12
    std::int64_t classifying = 0;                         // good jobs whose choices are scored, for which nothing is drawn
    std::int64_t pooling = 0;                             // good jobs for embeddings, classes or scores, for which nothing is drawn
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens_max = 0;     // the most tokens that the jobs may draw
    std::int64_t request_tokens_max = 0;    // the same, plus the prompt of each of their requests, cached or not
    std::vector<std::string> first_errors;  // "line 3 (custom_id): code: message"
    std::string prompt;                     // of the first good job, as tokenized
    Sample sample;
    // The time of all jobs; nullopt: no job is good, or the sample computed nothing in its time.
    std::optional<DryRunEstimate> estimate() const;
};

// Shows a progress bar.
DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings);

std::string show(const DryRunReport& report);
schema::Json json_of(const DryRunReport& report);

}  // namespace lorry::ops
