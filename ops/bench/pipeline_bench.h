// Measures what a worker does beside the model: reads jobs, tokenizes them, keeps the engine's books, samples, and writes results. The
// device computes nothing but samples, so a job's answer is always the longest that it allows, and means nothing. Used by `lorry bench
// pipeline`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "consumer/seams.h"
#include "kernels/backend.h"
#include "ops/engine_setup.h"
#include "ops/settings.h"

namespace lorry::ops {

// Wraps a backend in one that only samples, from logits that are all zero. For SetupWishes.
std::unique_ptr<kernels::Backend> only_sample(std::unique_ptr<kernels::Backend> backend);

// Processor time of one run, by thread, and what it did.
struct PipelineCost {
    double intake_seconds = 0.0;
    double engine_seconds = 0.0;
    double publishing_seconds = 0.0;
    double seconds = 0.0;  // of the whole run, by the clock
    std::int64_t jobs = 0;
    std::int64_t failed = 0;
    std::string first_error;  // of a failed job
    std::int64_t tokens = 0;  // of prompts and outputs
    std::int64_t steps = 0;

    // Of the thread that is busy for the longest time.
    double busiest_seconds() const;
};

// Runs the jobs of the file through the pipeline of `lorry run`, `repeat` times, and returns the run whose busiest thread took the least
// time. Results go to a temporary file. Throws std::runtime_error as FileSource and Pipeline do, or if the file has no jobs.
PipelineCost run_pipeline(EngineSetup& setup, const consumer::AdapterDirectory& adapters, const Settings& settings,
                          const std::filesystem::path& jobs, std::int64_t repeat);

}  // namespace lorry::ops
