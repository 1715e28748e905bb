// Events become figures, and figures the families that prometheus-cpp writes.
#include "ops/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>

#include "ops/machine.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using prometheus::ClientMetric;

prometheus::MetricType type_of(Metric::Type type) {
    switch (type) {
        case Metric::Type::counter: return prometheus::MetricType::Counter;
        case Metric::Type::gauge: return prometheus::MetricType::Gauge;
        case Metric::Type::histogram: return prometheus::MetricType::Histogram;
    }
    CHECK(false, "every type of metric is one of Prometheus'");
}

// A row's metrics: one, or one for each combination of its labels' values.
struct Collector {
    const Metric& row;
    const Figures& figures;

    ClientMetric metric(double value) const {
        ClientMetric metric;
        (row.type == Metric::Type::counter ? metric.counter.value : metric.gauge.value) = value;
        return metric;
    }
    std::vector<ClientMetric> operator()(Metric::Number number) const { return {metric(number(figures))}; }
    std::vector<ClientMetric> operator()(Metric::Samples samples) const {
        std::vector<ClientMetric> metrics;
        const auto names = std::ranges::count_if(row.labels, [](const char* name) { return name != nullptr; });
        for (const auto& [labels, value] : samples(figures)) {
            CHECK(labels.size() == static_cast<std::size_t>(names), "a sample has a value for each label of its row");
            metrics.push_back(metric(value));
            for (std::size_t i = 0; i < labels.size(); ++i) metrics.back().label.push_back({row.labels[i], labels[i]});
        }
        return metrics;
    }
    std::vector<ClientMetric> operator()(Metric::Times times) const {
        const TimeHistogram& histogram = figures.*times;
        ClientMetric metric;
        for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
            const auto bounds = TimeHistogram::bounds();
            const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
            metric.histogram.sample_count += histogram.counts[i];
            metric.histogram.bucket.push_back({metric.histogram.sample_count, bound});
        }
        metric.histogram.sample_sum = histogram.sum;
        return {metric};
    }
};

}  // namespace

Metrics::Metrics(const std::string& version, std::int64_t sequences_max)
    : last_poll_(std::chrono::steady_clock::now().time_since_epoch().count()) {
    figures_.version = version;
    figures_.sequences_max = sequences_max;
    using enum schema::JobState;
    for (const auto state : {completed, failed, expired, cancelled}) figures_.jobs[state] = 0;
}

void Metrics::on_admitted(const schema::Job&) {
    const std::lock_guard lock(mutex_);
    ++figures_.jobs_admitted;
}

void Metrics::on_compiled(std::chrono::microseconds took) {
    const std::lock_guard lock(mutex_);
    figures_.compile_time.observe(seconds_of(took));
}

void Metrics::on_finished(const consumer::JobObservation& job) {
    const std::lock_guard lock(mutex_);
    ++figures_.jobs[job.state];
    if (job.error) ++figures_.job_errors[job.error->code];
    figures_.job_prompt_tokens += static_cast<std::uint64_t>(job.usage.prompt_tokens);
    figures_.job_output_tokens += static_cast<std::uint64_t>(job.usage.completion_tokens);
    if (job.state != schema::JobState::completed) return;
    figures_.queue_time.observe(seconds_of(job.queued));
    figures_.job_time.observe(seconds_of(job.total));
    if (job.first_token.count() == 0) return;
    figures_.first_token_time.observe(seconds_of(job.first_token));
    if (job.longest_output > 1) figures_.output_token_time.observe(seconds_of(job.total - job.first_token) / real(job.longest_output - 1));
}

void Metrics::on_dead_letter(const schema::DeadLetter&) {
    const std::lock_guard lock(mutex_);
    ++figures_.dead_letters;
}

void Metrics::on_committed(std::size_t outcomes, std::chrono::microseconds took) {
    const std::lock_guard lock(mutex_);
    ++figures_.commits;
    figures_.committed_outcomes += outcomes;
    figures_.commit_time.observe(seconds_of(took));
}

void Metrics::on_request(const std::string& url, unsigned status, std::chrono::microseconds took) {
    const std::lock_guard lock(mutex_);
    ++figures_.requests[{url, status}];
    figures_.request_time.observe(seconds_of(took));
}

void Metrics::on_upload(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    ++figures_.uploads;
    figures_.uploaded_bytes += static_cast<std::uint64_t>(bytes);
}

void Metrics::on_files_failed() {
    const std::lock_guard lock(mutex_);
    ++figures_.files_failed;
}

void Metrics::on_step(const engine::EngineStats& stats) {
    const std::lock_guard lock(mutex_);
    figures_.engine = stats;
}

void Metrics::on_gauges(const consumer::PipelineGauges& gauges) {
    last_poll_ = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::lock_guard lock(mutex_);
    figures_.pipeline = gauges;
}

// Without partitions there is nothing that this worker will read.
void Metrics::on_backlog(std::optional<std::int64_t> jobs) {
    const std::lock_guard lock(mutex_);
    figures_.backlog = jobs.value_or(0);
}

void Metrics::on_oldest(const std::optional<consumer::OldestJob>& job) {
    const std::lock_guard lock(mutex_);
    figures_.oldest_job = job ? job->age : std::chrono::milliseconds(0);
}

Figures Metrics::figures() const {
    const std::lock_guard lock(mutex_);
    return figures_;
}

std::string Metrics::text(const MetricSources& sources) const {
    Figures now = figures();
    if (sources.member) now.kafka = sources.member();
    if (sources.ledger) now.ledger = sources.ledger();
    if (sources.calls) now.calls = sources.calls();
    if (sources.batches) now.batches = sources.batches();
    now.memory_peak = memory_peak();
    std::vector<prometheus::MetricFamily> families;
    for (const MetricGroup& group : metric_table()) {
        for (const Metric& row : group.rows) {
            families.push_back({row.name, row.help, type_of(row.type), std::visit(Collector{row, now}, row.value)});
        }
    }
    return prometheus::TextSerializer().Serialize(families);
}

std::chrono::steady_clock::time_point Metrics::last_poll() const {
    return std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(last_poll_.load()));
}

}  // namespace lorry::ops
