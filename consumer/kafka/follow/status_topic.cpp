// Adds up the tokens of statuses.
#include "consumer/kafka/follow/status_topic.h"

#include <algorithm>
#include <iterator>

#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

constexpr std::chrono::milliseconds look_interval{1'000};

std::chrono::sys_days today() { return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()); }

// Most statuses are not parsed: those of jobs without a key, and those of jobs that still run. In a text within a status, these quotes have
// a backslash.
bool may_count(std::string_view status) {
    return status.find(R"("key":")") != std::string_view::npos && status.find(R"("state":"running")") == std::string_view::npos;
}

}  // namespace

bool StatusTopic::Offsets::has(std::int64_t offset) const {
    const auto after = ends_.upper_bound(offset);
    return after != ends_.begin() && std::prev(after)->second > offset;
}

void StatusTopic::Offsets::add(std::int64_t offset) {
    const auto after = ends_.upper_bound(offset);
    const bool joins_before = after != ends_.begin() && std::prev(after)->second == offset;
    auto range = joins_before ? std::prev(after) : ends_.emplace_hint(after, offset, offset);
    range->second = offset + 1;
    if (after == ends_.end() || after->first != range->second) return;
    range->second = after->second;
    ends_.erase(after);
}

StatusTopic::StatusTopic(const KafkaConfig& config, const std::string& topic) {
    follower_ =
        std::make_unique<TopicFollower>(config, topic, TopicFollower::each([this](const schema::JobRecord& record) { apply(record); }),
                                        look_interval, schema::Timestamp(today()));
}

StatusTopic::~StatusTopic() = default;

void StatusTopic::check() const { follower_->check(); }

// Each job counts once, on the day on which it ended.
void StatusTopic::apply(const schema::JobRecord& record) {
    if (!record.value || !may_count(*record.value)) return;
    const auto status = schema::parse_status(*record.value);
    if (!status) return warn_of(record, status.error());
    if (status->run.key.empty() || !schema::is_terminal(status->state) || !status->run.finished) return;
    const auto day = std::chrono::floor<std::chrono::days>(*status->run.finished);
    const auto yesterday = today() - std::chrono::days(1);
    if (day < yesterday) return;
    const schema::Source& source = status->run.source;
    const std::pair place(source.topic, source.partition);
    const std::scoped_lock lock(mutex_);
    std::erase_if(days_, [&](const auto& entry) { return entry.first < yesterday; });
    for (const auto& [other, counts] : days_) {
        const auto counted = counts.counted.find(place);
        if (counted != counts.counted.end() && counted->second.has(source.offset)) return;
    }
    Day& counts = days_[day];
    counts.counted[place].add(source.offset);
    counts.tokens[status->run.key] += status->usage.prompt_tokens + status->usage.completion_tokens;
}

std::optional<std::int64_t> StatusTopic::used(std::string_view key, std::chrono::sys_days day) const {
    if (!follower_->is_current(patience)) return std::nullopt;
    const std::scoped_lock lock(mutex_);
    const auto counts = days_.find(day);
    if (counts == days_.end()) return 0;
    const auto tokens = counts->second.tokens.find(key);
    return tokens == counts->second.tokens.end() ? 0 : tokens->second;
}

}  // namespace lorry::consumer
