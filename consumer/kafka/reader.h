// Reads whole topics by assignment, without a group. Used for the adapters and control topics, the ledger, past results, and by `collect`,
// `tail` and other commands. Sees only committed records, unless asked for all. One thread.
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
#include "consumer/kafka/unreadable.h"
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
    struct End {};  // records that exist when the reader is made are not read
    using Start = std::variant<Beginning, End, schema::Timestamp>;
    struct Options {
        std::vector<std::string> topics = {};
        Start start = Beginning{};
        // Where these partitions start, instead of `start`. A position that retention has deleted moves to the log's start.
        std::vector<TopicOffset> positions = {};
        bool positions_only = false;     // read only these partitions; `topics` must be empty
        bool uncommitted = false;        // also read records of open and aborted transactions
        bool is_quiet = false;           // does not log records that cannot be read
        bool passes_unreadable = false;  // goes on after a batch that cannot be read; by default, poll() keeps retrying
        bool is_waited_for = false;      // with a pace (reading_pace.h), producers wait for it: it is polled until it ends
    };

    // Throws KafkaError when the brokers do not answer by deadline_start or a topic does not exist. With positions_only, sends nothing yet.
    RecordReader(const KafkaConfig& config, Options options);
    ~RecordReader();
    RecordReader(RecordReader&&) noexcept;
    RecordReader& operator=(RecordReader&&) noexcept;

    // The next records, ascending within a partition, without fillers. Waits up to `timeout` for the first. Throws KafkaError when the
    // brokers have been away for longer than deadline_later, or a right is missing. Waits without limit for a topic that goes missing.
    std::vector<schema::JobRecord> poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(100), std::size_t max = 2000);

    // An offset for each partition.
    using Ends = std::map<std::pair<std::string, std::int32_t>, std::int64_t>;
    // A partition that was not yet read to its end.
    struct Behind {
        TopicOffset position;
        std::int64_t end = 0;
        std::chrono::milliseconds quiet{0};  // how long no position has moved while brokers could be reached
    };
    // Polls until each position has reached its end; `ends` must contain all partitions. Passes records to `take`. Between polls it calls
    // `may_go_on` with one partition that is behind; that may return false to stop, or throw when the partition was quiet for too long.
    // Throws like poll(), and when a record that cannot be read blocks a partition for more than ten seconds.
    bool read_to(const Ends& ends, const std::function<bool(const Behind&)>& may_go_on,
                 const std::function<void(const schema::JobRecord&)>& take);

    // True if no broker could be reached at the last poll(), which throws when that has lasted too long.
    bool is_away() const;
    // True when everything was read that existed when the brokers were last asked (a moment ago).
    bool at_end() const;
    // A record that cannot be read and blocks its partition: damaged, or of an unknown codec. nullopt: none does.
    std::optional<UnreadableRecord> unreadable() const;
    // Where the partitions end now. One request to each leader. nullopt when they do not answer within a second. readable: for this reader,
    // which sees no record after an open transaction unless it reads uncommitted ones; written: with all records that were written.
    enum class EndKind : std::uint8_t { readable, written };
    std::optional<Ends> ends_now(EndKind kind) const;
    bool has_read(const Ends& ends) const;
    // Number of records left to read, as far as known; 0 at the end.
    std::int64_t remaining() const;
    std::vector<TopicOffset> positions() const;
    // Start and end of each partition's log, as the brokers report them now.
    struct Bounds {
        std::string topic;
        std::int32_t partition = 0;
        std::int64_t first = 0;
        std::int64_t end = 0;
        std::int64_t begun = 0;  // where this reader started
    };
    std::vector<Bounds> bounds();
    // Where each partition ended when reading started. Sends no request.
    std::vector<TopicOffset> ends_at_start() const;
    std::string cluster_id() const;
    // Each topic's id; empty if the broker has none.
    std::vector<std::pair<std::string, std::string>> topic_ids() const;
    // Adds partitions that were created since (read from their start). Those of which brokers do not answer within a second are left for
    // the next call.
    void refresh();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Reports when a reader has read everything that was in its topics at one moment, however much others write meanwhile.
class CatchUp {
public:
    // With `written`, it also waits for transactions that are open at that moment.
    explicit CatchUp(const RecordReader& reader, RecordReader::EndKind kind = RecordReader::EndKind::readable)
        : reader_(reader), kind_(kind) {}
    // The first call sets the moment: it asks the brokers where the topics end. Later calls ask only if they did not answer.
    bool is_done();
    // The next call of is_done() sets another moment.
    void begin_again() { ends_.reset(); }
    std::chrono::steady_clock::time_point moment() const { return moment_; }

private:
    const RecordReader& reader_;
    const RecordReader::EndKind kind_;
    std::chrono::steady_clock::time_point moment_{};
    std::optional<RecordReader::Ends> ends_;
};

}  // namespace lorry::consumer
