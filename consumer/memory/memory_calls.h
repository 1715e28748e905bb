// Calls that are run by a pipeline in the same process, for `lorry up`: a queue in memory takes the place of Kafka's topics. It keeps
// nothing: a call that runs when the process ends is lost, and its client sees an error.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "consumer/call_backend.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class MemoryCalls final : public CallBackend, public JobSource, public CompletionSink, public CancelDirectory {
public:
    struct Limits {
        std::size_t calls = 4096;                            // that wait or run
        std::size_t waiting_bytes = std::size_t{256} << 20;  // of bodies that no worker has taken
    };
    explicit MemoryCalls(Limits limits) : limits_(limits) {}

    // CallBackend: any thread.
    std::optional<CallRefusal> submit(Call call, CallListener& listener) override;
    void cancel(const std::string& id) override;

    // JobSource: the intake thread. Calls are the jobs of partition 0 of topic "calls".
    std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler& handler) override;
    bool exhausted() const override { return false; }
    std::optional<std::int64_t> backlog() override;
    // Drains, ends the calls that are left as unavailable, and takes no more.
    void close(RevocationHandler& handler, Clock::time_point deadline) override;
    void give_up() override { end_all(); }

    // Refuses new calls from now on as unavailable; those that it has go on. Any thread.
    void refuse_more();

    // CompletionSink: the publishing thread. Nothing is kept, so that a result leaves at once and not with the commit.
    void publish(Outcome outcome) override;
    void publish(const schema::Chunk& chunk) override;
    void publish(const schema::Status&) override {}
    std::size_t commit() override { return std::exchange(uncommitted_, 0); }

    // CancelDirectory: any thread.
    bool is_cancelled(const schema::Job& job) const override;
    std::uint64_t version() const override;

private:
    struct OpenCall {
        CallListener& listener;
        bool is_cancelled = false;
    };
    void end(const std::string& id, CallEnd end);
    void end_all();

    const Limits limits_;
    std::int64_t next_offset_ = 0;  // the intake thread's
    std::size_t uncommitted_ = 0;   // the publishing thread's

    mutable std::mutex mutex_;
    std::condition_variable has_calls_;
    // Guarded by mutex_.
    std::deque<Call> waiting_;
    std::size_t waiting_bytes_ = 0;
    std::unordered_map<std::string, OpenCall> open_;  // by id: those that wait or run
    std::uint64_t cancels_ = 0;
    bool is_closed_ = false;
};

}  // namespace lorry::consumer
