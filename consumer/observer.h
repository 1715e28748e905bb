// The pipeline's events, for the metrics, the event log and the progress bars in ops/. The pipeline's threads call an observer, one at a
// time for each method; it must not block.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "schema/completion.h"

namespace lorry::consumer {

// Why a job did not complete. The log takes code and param only.
struct ObservedError {
    schema::ErrorCode code;
    std::string param;    // the field at fault, may be empty
    std::string message;  // may quote the job
};

// A finished job in figures.
struct JobObservation {
    const schema::Run& run;
    schema::JobState state;
    std::optional<ObservedError> error;  // nullopt if it completed
    schema::Usage usage;
    std::chrono::microseconds queued{};       // from delivery to its first step
    std::chrono::microseconds first_token{};  // from delivery; zero when nothing was drawn
    std::chrono::microseconds total{};        // from delivery to its end in the engine
    std::int64_t longest_output = 0;          // tokens of its longest sequence: n samples are drawn at the same time
    bool cut = false;                         // as schema::was_cut() says
};

struct PipelineGauges {
    std::size_t in_flight = 0;  // delivered, not yet committed
    std::size_t parked = 0;     // of these, those that wait for an adapter or for room; they do not count towards in_flight_max
    std::size_t in_flight_max = 0;
    std::int64_t tokens = 0;  // that the jobs in flight may come to hold
    std::int64_t tokens_max = 0;
    std::int64_t bytes = 0;  // of memory that they may come to take
    std::int64_t bytes_max = 0;
    std::size_t unpublished = 0;  // publications that the publisher has not taken yet
};

// The job in flight that was delivered first.
struct OldestJob {
    schema::Source source;
    std::string job_id;  // empty if the record names none
    std::chrono::milliseconds age{};
};

class Observer {
public:
    virtual ~Observer() = default;
    virtual void on_admitted(const schema::Job&) {}                                             // intake thread
    virtual void on_compiled(std::chrono::microseconds /*took*/) {}                             // grammar thread
    virtual void on_finished(const JobObservation&) {}                                          // publishing thread
    virtual void on_dead_letter(const schema::DeadLetter&) {}                                   // publishing thread
    virtual void on_committed(std::size_t /*outcomes*/, std::chrono::microseconds /*took*/) {}  // publishing thread
    virtual void on_step(const engine::EngineStats&) {}                                         // engine thread, after each step
    virtual void on_gauges(const PipelineGauges&) {}                                            // intake thread, after each poll
    // Intake thread, every few seconds. Without a value: no partitions are held, or the backlog is not known; nothing is in flight.
    virtual void on_backlog(std::optional<std::int64_t>) {}
    virtual void on_oldest(const std::optional<OldestJob>&) {}
};

}  // namespace lorry::consumer
