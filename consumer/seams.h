// Where jobs come from and where their completions go: the seams between the pipeline (pipeline.cpp) and the world. Kafka implements them
// in kafka_source / kafka_sink, files (`lorry run`) in file_source / file_sink, tests in tests/support.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schema/codec.h"

namespace lorry::consumer {

using Clock = std::chrono::steady_clock;

// Counts the assignments of partitions to this member: what was polled under an older epoch must not be published.
using Epoch = std::uint64_t;

struct Delivery {
    schema::JobRecord record;
    Epoch epoch = 0;
    std::optional<schema::JobError> refusal;  // set: the source knows already that this is no job, and why
};

// How one delivery ended; exactly one per delivery unless it was abandoned.
struct Outcome {
    schema::Source source;
    Epoch epoch = 0;
    std::variant<schema::Completion, schema::DeadLetter> record;
};

struct PartitionEpoch {
    std::string topic;
    std::int32_t partition = 0;
    Epoch epoch = 0;
};

// What a source asks of the pipeline when partitions go. Called from within JobSource::poll or close, on the intake thread.
class RevocationHandler {
public:
    virtual ~RevocationHandler() = default;
    // Finish what can be finished of these partitions until the deadline, abandon the rest (never a completion) and publish what
    // finished; returns when that is done. Nothing of these epochs is published after the return.
    virtual void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) = 0;
    // The partitions belong to somebody else already: drop everything of them, publish nothing.
    virtual void lost(const std::vector<PartitionEpoch>& partitions) = 0;
};

// Calls come from one thread, the intake's.
class JobSource {
public:
    virtual ~JobSource() = default;
    // The next deliveries, at most `max`, in order within a partition; waits up to timeout, may return none, also for max = 0, which serves
    // the group without taking a job. Throws when the world is bad.
    virtual std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler& handler) = 0;
    // True when no more will come (the end of a file; never for Kafka).
    virtual bool exhausted() const = 0;
    // Jobs not yet polled, as far as known: for progress and the backlog metric.
    virtual std::optional<std::int64_t> backlog() = 0;
    // Leaves the group after draining; no poll afterwards.
    virtual void close(RevocationHandler& handler, Clock::time_point deadline) = 0;
    // After a failure, in place of close() or after one that threw: all epochs are over, so that a commit that is being tried again and
    // again, which the group would refuse sooner or later, ends.
    virtual void give_up() {}
};

// Calls come from one thread, the publisher's.
class CompletionSink {
public:
    virtual ~CompletionSink() = default;
    // Takes a result; it counts as published only after a commit() that returns. May block while its outbox is full.
    virtual void publish(Outcome outcome) = 0;
    virtual void publish(const schema::Chunk& chunk) = 0;
    virtual void publish(const schema::Status& status) = 0;
    // Makes everything taken so far durable and marks its sources finished; returns the number of outcomes. Throws when the world is bad.
    virtual std::size_t commit() = 0;
};

// What a job's `model` means right now.
struct ModelName {
    enum class Kind : std::uint8_t {
        base,
        adapter,
        not_yet,  // unknown, but the registrations were not yet read far enough to say so
        unknown,
        refused,  // there, and cannot be used
    };
    Kind kind = Kind::unknown;
    std::string hash;              // adapter: content hash
    std::filesystem::path folder;  // adapter
    std::string refusal = {};      // refused: what is wrong with it, and where
};

// Any thread.
class AdapterDirectory {
public:
    virtual ~AdapterDirectory() = default;
    // `name` or `name@hash`, asked by a job that was polled at `polled`.
    virtual ModelName resolve(std::string_view model, Clock::time_point polled) const = 0;
    // Names known now, for error messages and metrics.
    virtual std::vector<std::string> names() const = 0;
};

// Which jobs were cancelled. Any thread.
class CancelDirectory {
public:
    virtual ~CancelDirectory() = default;
    // A cancel for that job (or its batch) that is younger than the job.
    virtual bool is_cancelled(std::string_view job_id, std::string_view batch_id, std::optional<schema::Timestamp> submitted) const = 0;
    // Grows with every cancel: running jobs are looked up again when it changed.
    virtual std::uint64_t version() const = 0;
};

}  // namespace lorry::consumer
