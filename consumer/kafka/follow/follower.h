// Follows one topic on a thread of its own. Used by AdapterTopic, BatchTopics, ControlTopic, KeyTopic, StatusTopic, RepeatableCalls and
// LiveGateways.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "consumer/kafka/config.h"
#include "consumer/kafka/reader.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class TopicFollower {
public:
    // Gets what was read together: at least one record, in order within a partition, and up to 1,000 where many are there.
    using Apply = std::function<void(const std::vector<schema::JobRecord>&)>;
    // One after the other.
    static Apply each(std::function<void(const schema::JobRecord&)> apply);

    // `apply` is called on the follower's thread. The topic must exist. With `check_interval`, the thread looks that often whether it has
    // read everything; without, when it is asked. `start`: where it begins to read. `end`: what counts as everything; `written` also waits
    // for records after the start of an open transaction, for a topic that is also written to without transactions.
    TopicFollower(const KafkaConfig& config, const std::string& topic, Apply apply,
                  std::optional<std::chrono::milliseconds> check_interval = {},
                  const RecordReader::Start& start = RecordReader::Beginning{},
                  RecordReader::EndKind end = RecordReader::EndKind::readable);
    ~TopicFollower();
    TopicFollower(const TopicFollower&) = delete;
    TopicFollower& operator=(const TopicFollower&) = delete;

    // Waits until every record that was in the topic at the time of this call was applied. Throws KafkaError at the deadline, or the
    // exception that ended the thread.
    void wait_until_read(Clock::time_point deadline);
    // True if every record that was in the topic at that time was applied. If not, the thread soon checks. Throws the exception that ended
    // the thread.
    bool has_read_as_of(Clock::time_point time) const;
    // Whether every record was applied that was in the topic `patience` ago. False once the thread has ended: check() says why.
    bool is_current(std::chrono::milliseconds patience) const;
    // Throws the exception that ended the thread, if any.
    void check() const;

private:
    void follow(const std::stop_token& stop);
    void rethrow_failure() const;  // with mutex_ held

    const std::string topic_;
    const Apply apply_;
    const std::optional<std::chrono::milliseconds> check_interval_;
    const RecordReader::EndKind end_;
    RecordReader reader_;  // the thread's
    mutable std::mutex mutex_;
    mutable std::condition_variable_any changed_;
    mutable Clock::time_point wanted_{};  // guarded by mutex_
    Clock::time_point as_of_{};           // guarded by mutex_
    std::exception_ptr failure_;          // guarded by mutex_
    std::jthread thread_;                 // last: it uses all of the above
};

}  // namespace lorry::consumer
