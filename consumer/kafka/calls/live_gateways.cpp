// Writes on one thread, reads on the follower's.
#include "consumer/kafka/calls/live_gateways.h"

#include <algorithm>
#include <condition_variable>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "consumer/log.h"

namespace lorry::consumer {
namespace {

std::string draw_gateway_key() {
    std::random_device random;
    return fmt::format("{}{:08x}{:08x}", LiveGateways::key_begin, random(), random());
}

// What is older counts for nothing. Clocks may differ by a little.
schema::Timestamp first_of_interest(std::chrono::milliseconds alive) {
    return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()) - 2 * alive;
}

}  // namespace

LiveGateways::LiveGateways(const KafkaConfig& config, Options options)
    : options_(std::move(options)),
      key_(draw_gateway_key()),
      writer_(config),
      follower_(config, options_.topic, TopicFollower::each([this](const schema::JobRecord& record) { apply(record); }), std::nullopt,
                first_of_interest(options_.alive)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

LiveGateways::~LiveGateways() {
    thread_ = {};
    if (!is_away_) write(true);
}

void LiveGateways::apply(const schema::JobRecord& record) {
    if (!record.key || !record.key->starts_with(key_begin)) return;
    const std::lock_guard lock(mutex_);
    if (record.value)
        seen_[*record.key] = Clock::now();
    else
        seen_.erase(*record.key);
}

void LiveGateways::run(const std::stop_token& stop) {
    std::mutex waiting;
    std::condition_variable_any never;
    std::unique_lock lock(waiting);
    while (!stop.stop_requested()) {
        is_away_ = !write(false);
        never.wait_for(lock, stop, options_.beat, [] { return false; });
    }
}

bool LiveGateways::write(bool has_ended) {
    try {
        writer_.write({.topic = options_.topic,
                       .partition = std::nullopt,
                       .key = key_,
                       .value = has_ended ? std::nullopt : std::optional<std::string>("{}")});
        return true;
    } catch (const KafkaError& error) {
        if (!is_away_) log_warning("{}: no heartbeat was written: {}", options_.topic, error.what());
        return false;
    }
}

std::int64_t LiveGateways::count() const {
    const std::lock_guard lock(mutex_);
    if (is_away_) return count_;
    const Clock::time_point oldest = Clock::now() - options_.alive;
    std::erase_if(seen_, [&](const auto& each) { return each.second < oldest; });
    count_ = std::max<std::int64_t>(1, std::ssize(seen_));
    return count_;
}

}  // namespace lorry::consumer
