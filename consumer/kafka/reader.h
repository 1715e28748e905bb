// Reads whole topics by assignment, without a group: adapters and control topics of a worker, the ledger, and `collect`, `tail` and the
// like. Sees only committed records. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "consumer/kafka/config.h"
#include "schema/codec.h"

namespace lorry::consumer {

struct TopicOffset {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t next = 0;
    bool operator==(const TopicOffset&) const = default;
};

class RecordReader {
public:
    struct Beginning {};
    struct End {};  // what is there when the reader is made is not read
    using Start = std::variant<Beginning, End, schema::Timestamp>;
    struct Options {
        std::vector<std::string> topics = {};
        Start start = Beginning{};
        // Where these partitions go on, instead of `start`; a position that retention has passed goes on at the log's start.
        std::vector<TopicOffset> positions = {};
        bool positions_only = false;  // these partitions and no others: `topics` is left empty
        bool uncommitted = false;     // also what transactions wrote that are open or were aborted
    };

    // Throws KafkaError when the brokers do not answer by deadline_start or a topic does not exist; with positions_only, asks nothing yet.
    RecordReader(const KafkaConfig& config, Options options);
    ~RecordReader();
    RecordReader(RecordReader&&) noexcept;
    RecordReader& operator=(RecordReader&&) noexcept;

    // The next records, ascending within a partition, without fillers; waits up to `timeout` for the first. Throws KafkaError when the
    // brokers were away for longer than deadline_later, or a right is missing. A topic that goes missing is waited for without end.
    std::vector<schema::JobRecord> poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(100), std::size_t max = 2000);

    // A partition that has not reached its end yet.
    struct Behind {
        TopicOffset position;
        std::int64_t end = 0;
        std::chrono::milliseconds quiet{0};  // for so long no position has moved, though brokers could be reached
    };
    // Polls until each position has reached its end, which `ends` has for all partitions; what comes goes to `take`. Between polls
    // `may_go_on` is asked, about one partition that is behind: it may end this (false), or throw when it was quiet for too long. Throws
    // as poll().
    bool read_to(const std::map<std::pair<std::string, std::int32_t>, std::int64_t>& ends,
                 const std::function<bool(const Behind&)>& may_go_on, const std::function<void(const schema::JobRecord&)>& take);

    // No broker could be reached when poll() looked last; it throws when that has lasted too long.
    bool is_away() const;
    // True when everything was read that was there when the brokers were last asked (a moment ago).
    bool at_end() const;
    // True when everything was read that was in the topics at the time of this call; asks the brokers, so not for each record.
    // False when they do not answer at once.
    bool has_read_all();
    // How much is left to read as far as known; 0 at the end.
    std::int64_t remaining() const;
    std::vector<TopicOffset> positions() const;
    // Log start and end of each partition, as the brokers say now.
    struct Bounds {
        std::string topic;
        std::int32_t partition = 0;
        std::int64_t first = 0;
        std::int64_t end = 0;
        std::int64_t begun = 0;  // where this reader began
    };
    std::vector<Bounds> bounds();
    // Where each partition ended when reading it began. Asks nobody.
    std::vector<TopicOffset> ends_at_start() const;
    std::string cluster_id() const;
    // Each topic's id; empty where the broker gives none.
    std::vector<std::pair<std::string, std::string>> topic_ids() const;
    // Takes in partitions that were added meanwhile (read from their start), if the brokers answer at once.
    void refresh();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
