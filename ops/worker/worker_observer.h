// Logs and counts the pipeline's events, and records in the ledger which adapters work. Made by `lorry worker`.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "consumer/kafka/follow/ledger.h"
#include "consumer/observer.h"
#include "ops/metrics.h"

namespace lorry::ops {

// A job that is in flight for longer than this is named in the log, once.
inline constexpr std::chrono::minutes stuck_after{10};

class WorkerObserver final : public consumer::Observer {
public:
    // ledger: nullptr when another process keeps it.
    WorkerObserver(Metrics& metrics, consumer::Ledger* ledger) : metrics_(metrics), ledger_(ledger) {}

    void on_admitted(const schema::Job& job) override;
    void on_finished(const consumer::JobObservation& job) override;
    void on_dead_letter(const schema::DeadLetter& letter) override;
    void on_compiled(std::chrono::microseconds took) override { metrics_.on_compiled(took); }
    void on_committed(std::size_t outcomes, std::chrono::microseconds took) override { metrics_.on_committed(outcomes, took); }
    void on_step(const engine::EngineStats& stats) override { metrics_.on_step(stats); }
    void on_gauges(const consumer::PipelineGauges& gauges) override { metrics_.on_gauges(gauges); }
    void on_backlog(std::optional<std::int64_t> jobs) override { metrics_.on_backlog(jobs); }
    void on_oldest(const std::optional<consumer::OldestJob>& job) override;

private:
    void record_adapter_state(const consumer::JobObservation& job);

    Metrics& metrics_;
    consumer::Ledger* ledger_;
    std::map<std::string, bool> works_;           // by hash: whether the adapter works; publishing thread
    std::optional<schema::Source> stuck_logged_;  // the last one that the log named; intake thread
};

}  // namespace lorry::ops
