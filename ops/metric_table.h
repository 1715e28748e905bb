// The worker's metrics, one row each: name, type, unit, meaning, and where the value comes from. Metrics serves them at /metrics and
// `lorry docs metrics` prints the rows.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "consumer/kafka/batches/batch_topics.h"
#include "consumer/kafka/calls/kafka_calls.h"
#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/member.h"
#include "consumer/observer.h"

namespace lorry::ops {

// How often something took how long: from 1 ms to about 17 min, four buckets to a decade.
struct TimeHistogram {
    static std::span<const double> bounds();  // upper ones, in seconds; the last bucket has none
    std::array<std::uint64_t, 26> counts{};   // by bucket
    double sum = 0.0;                         // seconds

    void observe(double seconds);
};

// What the rows take their values from. A plain value: Metrics copies one for each page.
struct Figures {
    std::string version;
    std::int64_t sequences_max = 0;  // of a batch

    // What the pipeline's events add up to.
    std::map<schema::JobState, std::uint64_t> jobs;  // by how they ended
    std::map<schema::ErrorCode, std::uint64_t> job_errors;
    std::uint64_t jobs_admitted = 0;
    std::uint64_t dead_letters = 0;
    std::uint64_t job_prompt_tokens = 0;
    std::uint64_t job_output_tokens = 0;
    std::uint64_t commits = 0;
    std::uint64_t committed_outcomes = 0;
    TimeHistogram commit_time;
    TimeHistogram compile_time;
    TimeHistogram queue_time;
    TimeHistogram first_token_time;
    TimeHistogram output_token_time;
    TimeHistogram job_time;
    std::map<std::pair<std::string, unsigned>, std::uint64_t> requests;  // over HTTP, by url and status
    TimeHistogram request_time;
    std::uint64_t uploads = 0;
    std::uint64_t uploaded_bytes = 0;
    std::uint64_t files_failed = 0;

    // What the worker's parts last said of themselves.
    engine::EngineStats engine;
    consumer::PipelineGauges pipeline;
    std::int64_t backlog = 0;
    std::chrono::milliseconds oldest_job{0};
    consumer::KafkaMember::Stats kafka;
    consumer::Ledger::Stats ledger;
    consumer::KafkaCalls::Stats calls;
    consumer::BatchTopics::Stats batches;
    std::size_t memory_peak = 0;  // bytes
};

struct Metric {
    enum class Type : std::uint8_t { counter, gauge, histogram };
    struct Sample {
        std::vector<std::string> labels;  // the values of the row's labels, in their order
        double value = 0.0;
    };
    using Number = double (*)(const Figures&);
    using Samples = std::vector<Sample> (*)(const Figures&);  // of a metric with labels
    using Times = TimeHistogram Figures::*;

    const char* name;  // base units; a counter's ends in _total
    Type type;
    const char* unit;                     // "jobs"
    std::array<const char*, 3> labels{};  // their names: "state"; those beyond the last are null
    std::variant<Number, Samples, Times> value;
    const char* help;        // a sentence, for /metrics and docs/metrics.md
    const char* watch = "";  // sentences for docs/metrics.md: what a value means for whoever operates the worker
};

// A count or size as the value of a row.
template <typename T>
double as_number(const T& value) {
    return static_cast<double>(value);
}

struct MetricGroup {
    const char* title;
    std::span<const Metric> rows;
};

// In the order in which /metrics and docs/metrics.md show them.
std::span<const MetricGroup> metric_table();
const char* name_of(Metric::Type type);

}  // namespace lorry::ops
