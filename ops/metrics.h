// The worker's metrics for Prometheus: an Observer of the pipeline that counts, and the text that /metrics serves. The rows are in
// metric_table.h. Made by `lorry worker`, `lorry serve` and `lorry up`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "ops/metric_table.h"

namespace lorry::ops {

// The parts that are asked when a page is served, on the server's threads. Empty where there is none: `lorry serve` has calls and perhaps
// batches, a worker the others, and `lorry up` all but a ledger.
struct MetricSources {
    std::function<consumer::KafkaMember::Stats()> member;
    std::function<consumer::Ledger::Stats()> ledger;
    std::function<consumer::KafkaCalls::Stats()> calls = {};
    std::function<consumer::BatchTopics::Stats()> batches = {};
};

class Metrics final : public consumer::Observer {
public:
    // sequences_max: of a batch.
    Metrics(const std::string& version, std::int64_t sequences_max);

    void on_admitted(const schema::Job& job) override;
    void on_compiled(std::chrono::microseconds took) override;
    void on_finished(const consumer::JobObservation& job) override;
    void on_dead_letter(const schema::DeadLetter& letter) override;
    void on_committed(std::size_t outcomes, std::chrono::microseconds took) override;
    void on_step(const engine::EngineStats& stats) override;
    void on_gauges(const consumer::PipelineGauges& gauges) override;
    void on_backlog(std::optional<std::int64_t> jobs) override;
    void on_oldest(const std::optional<consumer::OldestJob>& job) override;

    // A request over HTTP was answered with a status, 499 if its client went away before. Any thread.
    void on_request(const std::string& url, unsigned status, std::chrono::microseconds took);

    // A file of so many bytes was uploaded; a request for files or batches failed. Any thread.
    void on_upload(std::int64_t bytes);
    void on_files_failed();

    static constexpr const char* content_type = "text/plain; version=0.0.4; charset=utf-8";  // of text()
    // The exposition format, version 0.0.4. Any thread.
    std::string text(const MetricSources& sources) const;
    // When the pipeline last polled its source: for /healthz. Any thread.
    std::chrono::steady_clock::time_point last_poll() const;

private:
    Figures figures() const;

    std::atomic<std::chrono::steady_clock::rep> last_poll_;
    mutable std::mutex mutex_;
    Figures figures_;  // guarded by mutex_
};

}  // namespace lorry::ops
