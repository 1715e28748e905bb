// How far readers in this process have read topics, so that its producers do not get ahead of them: the embedded broker drops the oldest
// records of a partition that has more than 5 MiB, whether they were read or not. Made by `lorry up`, and named by its KafkaConfig: each
// KafkaProducer waits for each RecordReader with `is_waited_for`. With other brokers there is no ReadingPace. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace lorry::consumer {

class ReadingPace {
public:
    // What a producer may write without knowing that it was read, in bytes; and one record more. The broker
    // holds 5 MiB of a partition, so up to four producers may write to one.
    static constexpr std::size_t bytes_ahead = std::size_t{1} << 20;
    // By topic and partition: the offset after the last record.
    using Offsets = std::map<std::pair<std::string, std::int32_t>, std::int64_t>;

    // The reader has everything before these offsets. The first call makes it one that producers wait for.
    void note(const void* reader, Offsets offsets);
    void forget(const void* reader);
    // Waits until no reader that has some of these partitions is behind these offsets. False: one still is after `patience`.
    bool wait_until_read(const Offsets& ends, std::chrono::milliseconds patience);

private:
    bool is_read(const Offsets& ends) const;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<const void*, Offsets> readers_;  // guarded by mutex_
};

}  // namespace lorry::consumer
