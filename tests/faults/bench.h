// What the programs of the cost benchmark share: the driver (bench.cpp) starts itself again as the worker (bench_worker.cpp) of each run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "consumer/kafka/config.h"

namespace lorry::faults {

// One worker and its made-up engine.
struct BenchWork {
    std::string prefix;
    std::filesystem::path folder;  // for its tokenizer and ledger
    bool exactly_once = true;
    bool keeps_ledger = true;
    std::chrono::milliseconds commit_interval{200};
    std::size_t in_flight = 2048;
    std::size_t careful_starts = 0;
    std::size_t token_bytes = 5;        // of each token of an answer
    std::chrono::microseconds step{0};  // what a step of the engine takes at least
    std::uint64_t jobs = 0;             // ends when so many are committed; 0: at SIGTERM
};

// From the first commit to the last; jobs, commits and times of the first do not count.
struct BenchMeasures {
    std::uint64_t jobs = 0;
    std::uint64_t commits = 0;
    double seconds = 0;
    double cpu_seconds = 0;     // of the whole process
    double commit_seconds = 0;  // spent in commits
};

// Runs until its jobs are done. Throws what the pipeline throws.
BenchMeasures run_bench_worker(const consumer::KafkaConfig& kafka, const BenchWork& work);

}  // namespace lorry::faults
