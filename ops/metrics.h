// The worker in figures, for Prometheus: an Observer of the pipeline that counts, and the text that /metrics serves. Base units, totals end
// in _total. Made by command_worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/member.h"
#include "consumer/observer.h"

namespace lorry::ops {

// What the worker's parts say of themselves when they are asked; either may be empty.
struct MetricSources {
    std::function<consumer::KafkaMember::Stats()> member;
    std::function<consumer::Ledger::Stats()> ledger;
};

class Metrics final : public consumer::Observer {
public:
    // sequences_max: of a batch, for its fill.
    Metrics(const std::string& version, std::int64_t sequences_max);
    ~Metrics() override;

    void on_admitted(const schema::Job& job) override;
    void on_finished(const consumer::JobObservation& job) override;
    void on_dead_letter(const schema::DeadLetter& letter) override;
    void on_committed(std::size_t outcomes, std::chrono::microseconds took) override;
    void on_step(const engine::EngineStats& stats) override;
    void on_gauges(const consumer::PipelineGauges& gauges) override;
    void on_backlog(std::optional<std::int64_t> jobs) override;
    void on_oldest(const std::optional<consumer::OldestJob>& job) override;

    // The exposition format, version 0.0.4. Any thread.
    std::string text(const MetricSources& sources);
    // When the pipeline last polled its source: for /healthz. Any thread.
    std::chrono::steady_clock::time_point last_poll() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::ops
