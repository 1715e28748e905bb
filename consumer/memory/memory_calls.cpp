// A queue for calls that wait, and a table of those that are open.
#include "consumer/memory/memory_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "consumer/call_record.h"

namespace lorry::consumer {
namespace {

constexpr const char* topic = "calls";
constexpr std::chrono::milliseconds full_pause{5};  // of a pipeline that has no room: between two looks at what has ended

constexpr CallRefusal stopped{.kind = CallRefusal::Kind::unavailable, .retry_after = std::chrono::seconds(5)};

schema::JobRecord record_of(Call call, std::int64_t offset) {
    std::string value = job_line_of(call);
    schema::JobRecord record{.source = {.topic = topic, .partition = 0, .offset = offset},
                             .key = call.id,
                             .value = std::move(value),
                             .headers = {},
                             .timestamp = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now())};
    if (!call.tenant.empty()) record.headers.emplace_back(schema::tenant_header, std::move(call.tenant));
    if (!call.key.empty()) record.headers.emplace_back(schema::api_key_id_header, std::move(call.key));
    std::ranges::move(call.trace, std::back_inserter(record.headers));
    return record;
}

CallEnd end_of(const schema::Completion& completion) {
    if (completion.failure) return *completion.failure;
    return CallResult{.status = completion.status_code, .body = completion.body.dump()};
}

}  // namespace

std::optional<CallRefusal> MemoryCalls::submit(Call call, CallListener& listener) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return stopped;
    if (open_.size() >= limits_.calls || waiting_bytes_ + call.body.size() > limits_.waiting_bytes) return CallRefusal{};
    const bool is_new = open_.emplace(call.id, OpenCall{.listener = listener}).second;
    CHECK(is_new, "each call has an id of its own");
    waiting_bytes_ += call.body.size();
    waiting_.push_back(std::move(call));
    has_calls_.notify_one();
    return std::nullopt;
}

// A call that still waits stays in the queue, so that it ends as every other: the pipeline looks at cancels before it computes.
void MemoryCalls::cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto place = open_.find(id);
    if (place == open_.end()) return;
    place->second.is_cancelled = true;
    ++cancels_;
}

std::vector<Delivery> MemoryCalls::poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler&) {
    std::vector<Delivery> deliveries;
    std::unique_lock lock(mutex_);
    has_calls_.wait_for(lock, max == 0 ? full_pause : timeout, [&] { return max > 0 && !waiting_.empty(); });
    while (deliveries.size() < max && !waiting_.empty()) {
        Call call = std::move(waiting_.front());
        waiting_.pop_front();
        waiting_bytes_ -= call.body.size();
        deliveries.push_back({.record = record_of(std::move(call), next_offset_++)});
    }
    return deliveries;
}

std::optional<std::int64_t> MemoryCalls::backlog() {
    const std::lock_guard lock(mutex_);
    return std::ssize(waiting_);
}

void MemoryCalls::close(RevocationHandler& handler, Clock::time_point deadline) {
    handler.drain({{.topic = topic, .partition = 0, .epoch = 0}}, deadline);
    end_all();
}

void MemoryCalls::refuse_more() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
}

void MemoryCalls::publish(Outcome outcome) {
    ++uncommitted_;
    if (const auto* letter = std::get_if<schema::DeadLetter>(&outcome.record)) {
        end(letter->key.value(), CallResult{.status = letter->error.status_code(), .body = schema::error_body(letter->error).dump()});
        return;
    }
    const auto& completion = std::get<schema::Completion>(outcome.record);
    end(completion.custom_id, end_of(completion));
}

void MemoryCalls::publish(const schema::Chunk& chunk) {
    std::unique_lock lock(mutex_);
    const auto call = open_.find(chunk.custom_id);
    if (call == open_.end() || call->second.is_cancelled) return;
    CallListener& listener = call->second.listener;
    lock.unlock();
    listener.on_chunk(chunk.custom_id, chunk.chunk.dump());
}

void MemoryCalls::end(const std::string& id, CallEnd end) {
    std::unique_lock lock(mutex_);
    const auto call = open_.find(id);
    if (call == open_.end()) return;
    const OpenCall ended = call->second;
    open_.erase(call);
    lock.unlock();
    if (!ended.is_cancelled) ended.listener.on_end(id, std::move(end));
}

void MemoryCalls::end_all() {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    waiting_.clear();
    waiting_bytes_ = 0;
    const auto left = std::exchange(open_, {});
    lock.unlock();
    for (const auto& [id, call] : left) {
        if (!call.is_cancelled) call.listener.on_end(id, stopped);
    }
}

bool MemoryCalls::is_cancelled(const schema::Job& job) const {
    const std::lock_guard lock(mutex_);
    const auto call = open_.find(job.custom_id);
    return call != open_.end() && call->second.is_cancelled;
}

std::uint64_t MemoryCalls::version() const {
    const std::lock_guard lock(mutex_);
    return cancels_;
}

}  // namespace lorry::consumer
