// Two lists of offsets per look, one for each kind of reader.
#include "consumer/stable_offsets.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <condition_variable>

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds turn{100};
constexpr milliseconds request_timeout{5'000};
constexpr std::chrono::seconds worth_a_line{30};

}  // namespace

StableOffsets::StableOffsets(const KafkaConnection& connection, Partitions partitions, milliseconds interval)
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

// The stable offsets first: what is written between the two answers makes a partition wait for one look, which is no stall yet.
void StableOffsets::look(const std::stop_token& stop) {
    const auto stable = ends(RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED, stop);
    const auto all = ends(RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, stop);
    if (stable && all) compare(*stable, *all);
}

void StableOffsets::compare(const std::map<Key, std::int64_t>& stable, const std::map<Key, std::int64_t>& ends) {
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
        if (stall.told || now - stall.since < worth_a_line) continue;
        stall.told = true;
        spdlog::warn(
            "{} [{}]: a transaction has been open for {} s at offset {}, and readers of committed records wait for it. It ends with its "
            "producer's transaction.timeout.ms; `kafka-transactions.sh find-hanging` shows one that does not",
            partition.first, partition.second, std::chrono::duration_cast<std::chrono::seconds>(now - stall.since).count(), offset);
    }
}

std::optional<std::map<StableOffsets::Key, std::int64_t>> StableOffsets::ends(rd_kafka_IsolationLevel_t level,
                                                                              const std::stop_token& stop) const {
    const PartitionListHandle list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions_.size())));
    for (const auto& [topic, partition] : partitions_) {
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = RD_KAFKA_OFFSET_SPEC_LATEST;
    }
    const AdminOptionsHandle options(rd_kafka_AdminOptions_new(connection_.handle(), RD_KAFKA_ADMIN_OP_LISTOFFSETS));
    std::array<char, 256> problem{};
    rd_kafka_AdminOptions_set_request_timeout(options.get(), static_cast<int>(request_timeout.count()), problem.data(), problem.size());
    const ErrorHandle refused(rd_kafka_AdminOptions_set_isolation_level(options.get(), level));
    CHECK(!refused, "both isolation levels are known");
    const QueueHandle queue(rd_kafka_queue_new(connection_.handle()));
    rd_kafka_ListOffsets(connection_.handle(), list.get(), options.get(), queue.get());
    EventHandle event;
    const auto deadline = Clock::now() + 2 * request_timeout;
    while (!event && !stop.stop_requested() && Clock::now() < deadline) {
        event.reset(rd_kafka_queue_poll(queue.get(), static_cast<int>(turn.count())));
    }
    if (!event || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    std::size_t count = 0;
    const auto* const* infos = rd_kafka_ListOffsets_result_infos(rd_kafka_event_ListOffsets_result(event.get()), &count);
    std::map<Key, std::int64_t> answer;
    for (std::size_t i = 0; i < count; ++i) {
        const rd_kafka_topic_partition_t* one = rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i]);
        if (one->err == RD_KAFKA_RESP_ERR_NO_ERROR) answer[{one->topic, one->partition}] = one->offset;
    }
    return answer;
}

}  // namespace lorry::consumer
