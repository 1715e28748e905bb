// Shared by the two roles of lorry_kafka_bench: the driver (bench.cpp) starts its own program as the worker of each run (bench_worker.cpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "consumer/kafka/config.h"

namespace lorry::faults {

// One worker and its fake engine.
struct BenchWork {
    std::string prefix;
    std::filesystem::path folder;  // for its tokenizer and ledger
    bool exactly_once = true;
    bool keeps_ledger = true;
    std::chrono::milliseconds commit_interval{200};
    std::size_t in_flight = 2048;
    std::size_t careful_starts = 0;
    std::size_t token_bytes = 5;        // bytes of each token of an answer
    std::chrono::microseconds step{0};  // minimum time of an engine step
    std::uint64_t jobs = 0;             // the worker ends once this many are committed; 0: at SIGTERM
};

// Measured from the end of the first commit to the end of the last; the first commit itself does not count.
struct BenchMeasures {
    std::uint64_t jobs = 0;
    std::uint64_t commits = 0;
    double seconds = 0;
    double cpu_seconds = 0;     // of the whole process
    double commit_seconds = 0;  // spent in commits
};

// Runs until the jobs are done. Throws what the pipeline throws.
BenchMeasures run_bench_worker(const consumer::KafkaConfig& kafka, const BenchWork& work);

}  // namespace lorry::faults
