// What others may want to see of the pipeline: metrics, the event log, progress bars (ops/). Calls come from the pipeline's threads,
// one at a time per method; an observer must not block.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "schema/completion.h"

namespace lorry::consumer {

// A finished job in figures.
struct JobObservation {
    const schema::Run& run;
    schema::JobState state;
    std::string error;  // code: message; empty when completed
    schema::Usage usage;
    std::chrono::microseconds queued{};       // from delivery to its first step
    std::chrono::microseconds first_token{};  // from delivery; zero when nothing was drawn
    std::chrono::microseconds total{};        // from delivery to its end in the engine
};

struct PipelineGauges {
    std::size_t in_flight = 0;  // delivered, not yet committed
    std::size_t in_flight_max = 0;
    std::size_t unpublished = 0;  // finished, not yet committed
};

class Observer {
public:
    virtual ~Observer() = default;
    virtual void on_admitted(const schema::Job&) {}                                             // intake thread
    virtual void on_finished(const JobObservation&) {}                                          // publishing thread
    virtual void on_dead_letter(const schema::DeadLetter&) {}                                   // publishing thread
    virtual void on_committed(std::size_t /*outcomes*/, std::chrono::microseconds /*took*/) {}  // publishing thread
    virtual void on_step(const engine::EngineStats&) {}                                         // engine thread, after each step
    virtual void on_gauges(const PipelineGauges&) {}                                            // intake thread, after each poll
    virtual void on_backlog(std::int64_t) {}                                                    // intake thread, now and then
};

}  // namespace lorry::consumer
