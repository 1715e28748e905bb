// Applies records of the keys topic to a table.
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
        config, topic_, [this](const schema::JobRecord& record) { apply(record); }, check_interval);
}

KeyTopic::~KeyTopic() = default;

void KeyTopic::wait_until_read(Clock::time_point deadline) { follower_->wait_until_read(deadline); }

void KeyTopic::check() const { follower_->check(); }

// A record that cannot be read takes the key away: it may be a revocation.
void KeyTopic::apply(const schema::JobRecord& record) {
    const std::string id = record.key.value_or("");
    auto key = read_keyed(record, schema::parse_key);
    const std::scoped_lock lock(mutex_);
    if (key && *key) {
        keys_[id] = std::make_shared<const schema::KeyRecord>(**std::move(key));
        return;
    }
    keys_.erase(id);
    if (key) return;
    ++refused_;
    warn_of(record, "not a key: " + key.error());
}

std::shared_ptr<const schema::KeyRecord> KeyTopic::find(std::string_view id) const {
    const std::scoped_lock lock(mutex_);
    const auto place = keys_.find(id);
    return place == keys_.end() ? nullptr : place->second;
}

bool KeyTopic::is_current() const { return follower_->is_current(patience); }

KeyTopic::Counters KeyTopic::counters() const {
    const std::scoped_lock lock(mutex_);
    return {.refused = refused_, .known = keys_.size()};
}

}  // namespace lorry::consumer
