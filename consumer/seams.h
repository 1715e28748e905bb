// The interfaces between the pipeline and the world: where jobs come from, where completions go, which adapters exist, which jobs were
// cancelled. Implemented by consumer/kafka (workers), consumer/file (`lorry run`) and tests/support.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/model/pooling.h"
#include "schema/codec.h"

namespace lorry::consumer {

using Clock = std::chrono::steady_clock;

// Counts the assignments of partitions to this member. Jobs that were polled under an older epoch must not be published.
using Epoch = std::uint64_t;

struct Delivery {
    schema::JobRecord record;
    Epoch epoch = 0;
    std::optional<schema::JobError> refusal;  // set: the source knows that this job cannot run, and why
};

// How a delivery ended. Each delivery has exactly one, unless it was forgotten.
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
// Whether the source's partition, in that epoch, is one of these.
bool is_of(const schema::Source& source, Epoch epoch, const std::vector<PartitionEpoch>& partitions);

// How a source tells the pipeline that partitions are revoked. Called from within JobSource::poll or close, on the intake thread.
class RevocationHandler {
public:
    virtual ~RevocationHandler() = default;
    // Finishes jobs of these partitions until the deadline, forgets the rest (they have no completion here), and returns when all that
    // finished is committed, or when the source has lost them. Nothing of these epochs is published after the return.
    virtual void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) = 0;
    // Another member owns the partitions already: drops all of their jobs and publishes nothing.
    virtual void lost(const std::vector<PartitionEpoch>& partitions) = 0;
};

// Called by the intake thread only.
class JobSource {
public:
    virtual ~JobSource() = default;
    // The next deliveries, in order within a partition: at most `max` that it reads now, and those that it read before and held back until
    // they may start. Waits up to timeout and may return none. With max = 0 it serves the group and reads none. Throws when the world is
    // bad.
    virtual std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler& handler) = 0;
    // A call is a job that somebody waits for: it has places of its own, runs before other jobs, and its result is committed at once. Any
    // thread.
    virtual bool is_call(const schema::Source&) const { return false; }
    // How many calls the next poll() may read, besides its `max` of other jobs.
    virtual void allow_calls(std::size_t) {}
    // True if no more jobs will come (the end of a file; never for Kafka).
    virtual bool exhausted() const = 0;
    // A delivered job waits for its adapter's registration or for room: it holds up no other job's start, and its own start does not count.
    // May be called again, also after may_go_on().
    virtual void waits(const schema::Source&, Epoch) {}
    // Whether a job that has waited, and now lacks nothing else, may run; asked again until it may. True for any other job. Not asked for a
    // job that is refused.
    virtual bool may_go_on(const schema::Source&, Epoch) { return true; }
    // Whether jobs that it has read are held back until they may start, and whether calls are among them. Each start takes commits: one
    // that lists it, and one that frees its place.
    enum class HeldBack { none, jobs, calls };
    virtual HeldBack held_back() const { return HeldBack::none; }
    // Jobs not yet polled, if known: for progress and the backlog metric.
    virtual std::optional<std::int64_t> backlog() = 0;
    // Whether this member has lost its partitions: others may have them, and nothing from them can be committed. Asked during a drain.
    virtual bool has_lost_partitions() const { return false; }
    // Drains, then leaves the group. No poll() afterwards.
    virtual void close(RevocationHandler& handler, Clock::time_point deadline) = 0;
    // After a failure, in place of close() or after a close() that threw: ends all epochs, so that a commit that is being retried, which
    // the group would refuse in the end, stops.
    virtual void give_up() {}
};

// Called by the publishing thread only.
class CompletionSink {
public:
    virtual ~CompletionSink() = default;
    // Takes a result; it counts as published only after a commit() that returns. May block while its outbox is full.
    virtual void publish(Outcome outcome) = 0;
    virtual void publish(const schema::Chunk& chunk) = 0;
    virtual void publish(const schema::Status& status) = 0;
    // Makes everything taken so far durable and marks its sources as finished; returns the number of outcomes. Throws when the world is
    // bad.
    virtual std::size_t commit() = 0;
    // The same for the outcomes of calls (JobSource::is_call), for which somebody waits. Others may be left for the next commit().
    virtual std::size_t commit_calls() { return commit(); }
};

// An adapter's own classification head.
struct AdapterHead {
    engine::PoolingTask task = engine::PoolingTask::classify;  // or token_classify
    std::int64_t labels = 0;
};

// What a job's `model` means now.
struct ModelName {
    enum class Kind : std::uint8_t {
        base,
        adapter,
        not_yet,  // unknown, but the registrations have not been read far enough to be sure
        unknown,
        refused,  // exists and cannot be used
    };
    Kind kind = Kind::unknown;
    std::string hash;              // adapter: content hash
    std::filesystem::path folder;  // adapter
    std::string refusal = {};      // refused: what is wrong, and where
    std::string text_hash = {};    // adapter: of its own tokenizer and chat template (engine::ModelText); empty: it uses the base's
    // adapter: nullopt if it has none, or if an earlier version registered it: then only the engine finds out.
    std::optional<AdapterHead> head = {};
    std::optional<std::int64_t> vocabulary = {};  // adapter: how many tokens it has; nullopt: as many as the base

    // Of what its jobs' texts are made into tokens with, and how many tokens there are; empty: as for the base.
    std::string text_key() const { return vocabulary ? text_hash + "/" + std::to_string(*vocabulary) : text_hash; }
    bool can_run() const { return kind == Kind::base || kind == Kind::adapter; }
};

// Any thread.
class AdapterDirectory {
public:
    virtual ~AdapterDirectory() = default;
    // model: `name` or `name@hash`; polled: when the job that asks was polled.
    virtual ModelName resolve(std::string_view model, Clock::time_point polled) const = 0;
    // The names known now, for error messages and metrics.
    virtual std::vector<std::string> names() const = 0;
};

// Which jobs were cancelled. Any thread.
class CancelDirectory {
public:
    virtual ~CancelDirectory() = default;
    // Whether that job or its batch was cancelled after the job was submitted.
    virtual bool is_cancelled(const schema::Job& job) const = 0;
    // Grows with every cancel: when it changes, running jobs are looked up again.
    virtual std::uint64_t version() const = 0;
};

}  // namespace lorry::consumer
