// What others may want to see of the pipeline: metrics, the event log, progress bars (ops/). Calls come from the pipeline's threads,
// one at a time per method; an observer must not block.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
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
    std::int64_t longest_output = 0;          // tokens of the longest of its sequences: n samples are drawn beside each other
};

struct PipelineGauges {
    std::size_t in_flight = 0;  // delivered, not yet committed
    std::size_t parked = 0;     // of these, wait for an adapter or for room; they do not count towards in_flight_max
    std::size_t in_flight_max = 0;
    std::int64_t tokens = 0;  // that they may come to take
    std::int64_t tokens_max = 0;
    std::size_t unpublished = 0;  // publications that the publisher has not taken yet
};

// The job in flight that was delivered first.
struct OldestJob {
    schema::Source source;
    std::string job_id;  // empty where the record named none
    std::chrono::milliseconds age{};
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
    // Intake thread, every few seconds. nullopt: it is not known, or no partitions are held; nothing is in flight.
    virtual void on_backlog(std::optional<std::int64_t>) {}
    virtual void on_oldest(const std::optional<OldestJob>&) {}
};

}  // namespace lorry::consumer
