// Asks for two lists of end offsets per interval, one for each isolation level, and compares them.
#include "consumer/kafka/stable_offsets.h"

#include <algorithm>
#include <condition_variable>

#include "consumer/log.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds worth_a_line{30};

}  // namespace

StableOffsets::StableOffsets(const KafkaConnection& connection, TopicPartitions partitions, milliseconds interval)
    : connection_(connection), partitions_(std::move(partitions)), interval_(interval), thread_([this](const std::stop_token& stop) {
          std::condition_variable_any stopped;
          std::mutex mutex;
          while (!stop.stop_requested()) {
              look(stop);
              std::unique_lock lock(mutex);
              stopped.wait_for(lock, stop, interval_, [] { return false; });
          }
      }) {}

milliseconds StableOffsets::stall(const std::string& topic) const {
    const auto now = Clock::now();
    milliseconds longest{0};
    const std::scoped_lock lock(mutex_);
    for (const auto& [partition, stall] : stalls_) {
        if (partition.first == topic) longest = std::max(longest, std::chrono::duration_cast<milliseconds>(now - stall.since));
    }
    return longest;
}

// Asks for the stable offsets first. A record that is written between the two answers makes a partition look as if it waits; one such
// observation does not count as a stall.
void StableOffsets::look(const std::stop_token& stop) {
    const auto stable = end_offsets(connection_, partitions_, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED, stop);
    const auto all = end_offsets(connection_, partitions_, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, stop);
    if (stable && all) compare(*stable, *all);
}

void StableOffsets::compare(const EndOffsets& stable, const EndOffsets& ends) {
    const auto now = Clock::now();
    const std::scoped_lock lock(mutex_);
    for (const auto& [partition, offset] : stable) {
        const auto end = ends.find(partition);
        if (end == ends.end()) continue;
        if (end->second <= offset) {
            stalls_.erase(partition);
            continue;
        }
        Stall& stall = stalls_.try_emplace(partition, Stall{.offset = offset, .since = now}).first->second;
        if (stall.offset != offset) stall = {.offset = offset, .since = now};
        if (stall.is_logged || now - stall.since < worth_a_line) continue;
        stall.is_logged = true;
        log_warning(
            "{} [{}]: a transaction has been open for {} s at offset {}, and readers of committed records wait for it. It ends with its "
            "producer's transaction.timeout.ms; `kafka-transactions.sh find-hanging` shows one that does not",
            partition.first, partition.second, std::chrono::duration_cast<std::chrono::seconds>(now - stall.since).count(), offset);
    }
}

}  // namespace lorry::consumer
