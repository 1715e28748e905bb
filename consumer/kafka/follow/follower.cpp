// The follower's loop, which also records as of when it has read everything.
#include "consumer/kafka/follow/follower.h"

#include <fmt/format.h>

#include <utility>

#include "consumer/kafka/times.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds follow_turn{100};
constexpr std::size_t records_per_turn = 1000;

}  // namespace

TopicFollower::Apply TopicFollower::each(std::function<void(const schema::JobRecord&)> apply) {
    return [apply = std::move(apply)](const std::vector<schema::JobRecord>& records) {
        for (const schema::JobRecord& record : records) apply(record);
    };
}

TopicFollower::TopicFollower(const KafkaConfig& config, const std::string& topic, Apply apply,
                             std::optional<std::chrono::milliseconds> check_interval, const RecordReader::Start& start,
                             RecordReader::EndKind end)
    : topic_(topic),
      apply_(std::move(apply)),
      check_interval_(check_interval),
      end_(end),
      reader_(config, {.topics = {topic}, .start = start}),
      thread_([this](const std::stop_token& stop) {
          try {
              follow(stop);
          } catch (...) {
              const std::scoped_lock lock(mutex_);
              failure_ = std::current_exception();
          }
          changed_.notify_all();
      }) {}

TopicFollower::~TopicFollower() = default;

void TopicFollower::follow(const std::stop_token& stop) {
    auto refresh_next = Clock::now() + refresh_interval;
    CatchUp catch_up(reader_, end_);
    while (!stop.stop_requested()) {
        if (const auto records = reader_.poll(follow_turn, records_per_turn); !records.empty()) apply_(records);
        const auto now = Clock::now();
        if (now >= refresh_next) {
            reader_.refresh();
            refresh_next = now + refresh_interval;
        }
        bool ask = false;
        {
            const std::scoped_lock lock(mutex_);
            ask = wanted_ > as_of_ || (check_interval_ && now >= as_of_ + *check_interval_);
        }
        if (ask && catch_up.is_done()) {
            const std::scoped_lock lock(mutex_);
            as_of_ = catch_up.moment();
            catch_up.begin_again();
            changed_.notify_all();
        }
    }
}

void TopicFollower::rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
}

void TopicFollower::wait_until_read(Clock::time_point deadline) {
    const auto asked = Clock::now();
    std::unique_lock lock(mutex_);
    wanted_ = std::max(wanted_, asked);
    const bool read = changed_.wait_until(lock, deadline, [&] { return failure_ != nullptr || as_of_ >= asked; });
    rethrow_failure();
    if (read) return;
    throw KafkaError(
        fmt::format("topic {} could not be read to its end in time: check that its partitions have leaders, and that no "
                    "transaction on it was left open",
                    topic_));
}

void TopicFollower::check() const {
    const std::scoped_lock lock(mutex_);
    rethrow_failure();
}

bool TopicFollower::has_read_as_of(Clock::time_point time) const {
    const std::scoped_lock lock(mutex_);
    rethrow_failure();
    wanted_ = std::max(wanted_, time);
    return as_of_ >= time;
}

bool TopicFollower::is_current(std::chrono::milliseconds patience) const {
    const auto time = Clock::now() - patience;
    const std::scoped_lock lock(mutex_);
    wanted_ = std::max(wanted_, time);
    return failure_ == nullptr && as_of_ >= time;
}

}  // namespace lorry::consumer
