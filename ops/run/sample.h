// How fast the jobs of a run would go: a sample of them through the same pipeline, to no output, and what is seen while its batch is full.
// Called by dry_run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "consumer/seams.h"
#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

using Seconds = std::chrono::duration<double>;

// Jobs as they come by, each as likely to be kept as any other.
class Reservoir {
public:
    Reservoir(std::size_t jobs_max, std::size_t bytes_max) : jobs_max_(jobs_max), bytes_max_(bytes_max) {}
    void offer(consumer::Delivery delivery);
    // What was kept, in random order: no part of a file comes first.
    std::vector<consumer::Delivery> take();

private:
    std::size_t jobs_max_;  // less once they were too large
    const std::size_t bytes_max_;
    std::mt19937_64 random_{1};
    std::vector<consumer::Delivery> kept_;
    std::size_t bytes_ = 0;
    std::uint64_t seen_ = 0;
};

// A job of a sample that ended, by the sample's own clock.
struct SampledJob {
    std::int64_t place = 0;  // in the sample, from 0
    Seconds started{};       // its first step
    Seconds ended{};
    std::int64_t tokens = 0;  // in and out
};

// What was seen of a sample.
struct Sample {
    std::int64_t jobs = 0;  // in it
    std::int64_t sequences_max = 0;
    std::vector<SampledJob> ended;  // in the time that there was
    std::int64_t tokens = 0;        // in and out of all, ended or not
    Seconds time{};

    bool has_ended() const { return static_cast<std::int64_t>(ended.size()) == jobs; }
};

// What the sample did between its first batch's end, when adapters are loaded, shared prompts are cached and long jobs run beside short
// ones, and the start of its last job, after which the batch runs empty.
struct FullBatch {
    Seconds time{};
    double jobs_per_second = 0.0;
    double tokens_per_second = 0.0;
    double spread = 0.0;  // of these, as a share: two standard errors
};
// nullopt: too little of it was seen.
std::optional<FullBatch> full_batch(const Sample& sample);

// Until there has been a full batch for long enough, or all jobs have ended, or ten seconds are over; what still runs then is dropped.
Sample run_sample(std::vector<consumer::Delivery> jobs, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings);

}  // namespace lorry::ops
