// Applies records of the keys topic to their view.
#include "consumer/kafka/follow/key_topic.h"

#include <utility>

#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"

namespace lorry::consumer {

namespace {

constexpr std::chrono::milliseconds check_interval{1'000};

}  // namespace

KeyTopic::KeyTopic(const KafkaConfig& config, std::string topic) : topic_(std::move(topic)) {
    follower_ = std::make_unique<TopicFollower>(
        config, topic_, [this](const std::vector<schema::JobRecord>& records) { apply(records); }, check_interval);
}

KeyTopic::~KeyTopic() = default;

void KeyTopic::wait_until_read(Clock::time_point deadline) { follower_->wait_until_read(deadline); }

void KeyTopic::check() const { follower_->check(); }

// A record that cannot be read takes the key away: it may be a revocation.
void KeyTopic::apply(const std::vector<schema::JobRecord>& records) {
    std::vector<schema::KeyChange> changes;
    std::uint64_t refused = 0;
    for (const schema::JobRecord& record : records) {
        const auto key = read_keyed(record, schema::parse_key);
        changes.push_back({.id = record.key.value_or(""), .text = key && *key ? record.value : std::nullopt});
        if (key) continue;
        ++refused;
        warn_of(record, "not a key: " + key.error());
    }
    const std::scoped_lock lock(mutex_);
    keys_.apply(changes);
    refused_ += refused;
}

std::optional<schema::KeyRecord> KeyTopic::find(std::string_view id) const {
    const std::scoped_lock lock(mutex_);
    return keys_.find(id);
}

bool KeyTopic::is_current() const { return follower_->is_current(patience); }

KeyTopic::Counters KeyTopic::counters() const {
    const std::scoped_lock lock(mutex_);
    return {.refused = refused_, .known = keys_.count()};
}

}  // namespace lorry::consumer
