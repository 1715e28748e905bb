// Finds where a batch that cannot be read ends. The client does not say, so it is asked to read from offsets further on.
#include "consumer/kafka/unreadable.h"

#include <fmt/format.h>

#include "consumer/kafka/reader.h"

namespace lorry::consumer {

namespace {

// What blocks a reader that starts at `from`; nullopt: nothing.
std::optional<UnreadableRecord> blocks_at(const KafkaConfig& config, const TopicOffset& from) {
    constexpr std::chrono::milliseconds turn{100};
    RecordReader reader(config, {.positions = {from}, .positions_only = true, .is_quiet = true});
    for (;;) {
        if (!reader.poll(turn, 1).empty() || reader.at_end()) return std::nullopt;
        if (auto unreadable = reader.unreadable()) return unreadable;
    }
}

}  // namespace

std::string advice_for(const UnreadableRecord& record) {
    return fmt::format(
        "If it stays unreadable, stop the group's workers and give it up with `lorry offsets skip{} --partition {} --offset {}`",
        record.topic.ends_with(".calls") ? " --calls" : "", record.partition, record.offset);
}

std::optional<UnreadableBatch> unreadable_batch_at(const KafkaConfig& config, const std::string& topic, std::int32_t partition,
                                                   std::int64_t offset, std::int64_t log_end) {
    // A reader that starts at the log's end or beyond would start at its beginning, or wait.
    if (offset >= log_end) return std::nullopt;
    const auto first = blocks_at(config, {.topic = topic, .partition = partition, .next = offset});
    if (!first) return std::nullopt;
    const auto is_in_batch = [&](std::int64_t place) {
        if (place >= log_end) return false;
        const auto found = blocks_at(config, {.topic = topic, .partition = partition, .next = place});
        return found && found->batch == first->batch;
    };
    std::int64_t inside = first->offset;
    std::int64_t step = 1;
    for (; is_in_batch(inside + step); step *= 2) inside += step;
    std::int64_t outside = inside + step;
    while (outside - inside > 1) {
        const std::int64_t middle = inside + (outside - inside) / 2;
        (is_in_batch(middle) ? inside : outside) = middle;
    }
    return UnreadableBatch{.partition = partition, .first = first->offset, .end = outside, .reason = first->reason};
}

}  // namespace lorry::consumer
