// Looks, waits, and ends by aborting.
#include "consumer/kafka_leftovers.h"

#include <spdlog/spdlog.h>

#include <thread>

#include "consumer/backoff.h"

namespace lorry::consumer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds backoff_first{20};
constexpr milliseconds backoff_max{500};
constexpr milliseconds committed_timeout{500};

// False while a transaction holds them undecided. A missing right is told where offsets are needed.
bool are_offsets_decided(const KafkaConnection& consumer, const TopicPartitions& partitions) {
    const PartitionListHandle list = list_of(partitions);
    auto error = rd_kafka_committed(consumer.handle(), list.get(), static_cast<int>(committed_timeout.count()));
    for (int i = 0; i < list->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; ++i) error = list->elems[i].err;
    return error == RD_KAFKA_RESP_ERR_NO_ERROR || is_configuration_error(error);
}

EndOffsets require_ends(const KafkaConnection& consumer, const TopicPartitions& partitions, rd_kafka_IsolationLevel_t level,
                        const LeftoverOptions& options) {
    const auto start = Clock::now();
    for (Backoff backoff(backoff_first, backoff_max);;) {
        if (auto ends = end_offsets(consumer, partitions, level, {})) return *std::move(ends);
        if (Clock::now() - start > options.deadline) throw consumer.away("looking for open transactions", options.deadline);
        std::this_thread::sleep_for(backoff.next());
    }
}

// Its end is written to every partition that it touched, whatever stood open there.
StepResult abort_over(TransactionalProducer& producer, const KafkaConnection& consumer, const EndOffsets& open,
                      const LeftoverOptions& options) {
    if (auto begun = producer.begin(1); begun.end != StepEnd::done) return begun;
    for (const auto& [partition, end] : open) {
        producer.send(
            {.topic = partition.first, .partition = partition.second, .key = std::nullopt, .value = std::nullopt, .headers = {}, .tag = 0});
    }
    if (auto sent = producer.finish_sending(); sent.end == StepEnd::unknown || sent.end == StepEnd::fenced) return sent;
    if (!options.inputs.empty()) {
        const PartitionListHandle offsets = list_of({options.inputs.front()});
        offsets->elems[0].offset = 0;
        const GroupMetadataHandle group(rd_kafka_consumer_group_metadata(consumer.handle()));
        // That the offsets' partition is part of the transaction is enough; a group that does not know us yet refuses the offset. Should
        // it ever count, then as one without metadata, after which a take-over asks the results.
        if (auto sent = producer.send_offsets(group.get(), offsets.get()); sent.end == StepEnd::unknown || sent.end == StepEnd::fenced) {
            return sent;
        }
    }
    return producer.abort();
}

}  // namespace

StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options) {
    const auto until = Clock::now() + options.patience;
    const auto stable_ends = [&] { return require_ends(consumer, options.outputs, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED, options); };
    const EndOffsets stable = stable_ends();
    EndOffsets open = require_ends(consumer, options.outputs, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, options);
    const auto leave_out_passed = [&](const EndOffsets& passed) {
        std::erase_if(open, [&](const auto& one) { return passed.at(one.first) >= one.second; });
    };
    leave_out_passed(stable);
    TopicPartitions undecided = options.inputs;
    if (!undecided.empty() && are_offsets_decided(consumer, undecided)) undecided.clear();
    // Mostly these are transactions of other workers, about to end.
    for (Backoff backoff(backoff_first, backoff_max); (!open.empty() || !undecided.empty()) && Clock::now() < until;) {
        std::this_thread::sleep_for(backoff.next());
        leave_out_passed(stable_ends());
        // One by one: in a large group some are always about to be decided.
        std::erase_if(undecided, [&](const auto& partition) { return are_offsets_decided(consumer, {partition}); });
    }
    if (open.empty() && undecided.empty()) return {};
    spdlog::warn("{} partitions and the offsets of {} hold a transaction that does not end by itself: ending it, in case it is ours",
                 open.size(), undecided.size());
    return abort_over(producer, consumer, open, options);
}

}  // namespace lorry::consumer
