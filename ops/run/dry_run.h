// `lorry run --dry-run`: every job is read, checked and tokenized, one finished prompt is shown, and the time is estimated from a sample
// that does go through the pipeline (sample.h). Nothing is written. Called by command_run.
#pragma once

#include <map>

#include "consumer/file/source.h"
#include "ops/run/sample.h"

namespace lorry::ops {

struct DryRunEstimate {
    Seconds time{};
    bool at_most = false;  // jobs of the sample were stopped, and may end before they have drawn all that they may
    double spread = 0.0;   // the share by which it may well be less or more; of no meaning with at_most
};

struct DryRunReport {
    std::int64_t jobs = 0;
    std::int64_t refused = 0;
    std::map<std::string, std::int64_t> refused_by_code;  // "duplicate_custom_id": 12
    std::int64_t classifying = 0;                         // of the good ones: those whose choices are scored, for which nothing is drawn
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens_max = 0;     // what the jobs may draw at most
    std::int64_t request_tokens_max = 0;    // that, and the prompt of each of their requests, whoever has computed it
    std::vector<std::string> first_errors;  // "line 3 (custom_id): code: message"
    std::string prompt;                     // of the first good job, as it is tokenized
    Sample sample;
    // For all jobs; nullopt: no job is good, or the sample computed nothing in its time.
    std::optional<DryRunEstimate> estimate() const;
};

// Shows how far it is.
DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings);

std::string show(const DryRunReport& report);
schema::Json json_of(const DryRunReport& report);

}  // namespace lorry::ops
