// Measures how fast a run would be: runs a sample of its jobs through the same pipeline, without output, and observes it while its batch is
// full. Called by dry_run.cpp.
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

// A uniform random sample of a stream of jobs (reservoir sampling).
class Reservoir {
public:
    Reservoir(std::size_t jobs_max, std::size_t bytes_max) : jobs_max_(jobs_max), bytes_max_(bytes_max) {}
    void offer(consumer::Delivery delivery);
    // The sample, in random order, so that it is not sorted as the file is.
    std::vector<consumer::Delivery> take();

private:
    std::size_t jobs_max_;  // shrinks when the jobs exceed bytes_max
    const std::size_t bytes_max_;
    std::mt19937_64 random_{1};
    std::vector<consumer::Delivery> kept_;
    std::size_t bytes_ = 0;
    std::uint64_t seen_ = 0;
};

// A job of the sample that ended; times since the sample's start.
struct SampledJob {
    std::int64_t place = 0;  // in the sample, from 0
    Seconds started{};       // its first step
    Seconds ended{};
    std::int64_t tokens = 0;  // in and out
};

// What was observed of a sample.
struct Sample {
    std::int64_t jobs = 0;  // in it
    std::int64_t sequences_max = 0;
    std::vector<SampledJob> ended;  // within its time
    std::int64_t tokens = 0;        // in and out, of all jobs, ended or not
    Seconds time{};

    bool has_ended() const { return static_cast<std::int64_t>(ended.size()) == jobs; }
};

// The sample's speed between the end of its first batch, when adapters are loaded, shared prompts are cached and long jobs run beside short
// ones, and the start of its last job, after which the batch empties.
struct FullBatch {
    Seconds time{};
    double jobs_per_second = 0.0;
    double tokens_per_second = 0.0;
    double spread = 0.0;  // of both speeds, as a share: two standard errors
};
// nullopt: the batch was full for too short a time.
std::optional<FullBatch> full_batch(const Sample& sample);

// Runs until the batch has been full for long enough, all jobs have ended, or ten seconds are over; drops what still runs then.
Sample run_sample(std::vector<consumer::Delivery> jobs, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings);

}  // namespace lorry::ops
