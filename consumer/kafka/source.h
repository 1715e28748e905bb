// Reads jobs from Kafka as one member of the consumer group. Made by KafkaMember; the intake thread runs its poll loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "consumer/careful_starts.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/counters.h"
#include "consumer/kafka/partition_queue.h"
#include "consumer/kafka/takeover.h"
#include "consumer/kafka/unreadable.h"
#include "consumer/log.h"
#include "consumer/offset_tracker.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// How often a member of the classic protocol asks the group whether it still belongs to it.
std::chrono::milliseconds heartbeat_interval(std::chrono::milliseconds session_timeout);

// Partitions arrive in two steps: librdkafka reports an assignment, TakeOver finds out where to resume, and only then are the partitions
// assigned and read. They leave in one step: revoked partitions are drained and given up before poll() returns. All calls come from one
// thread, except where noted.
class KafkaSource : public JobSource {
public:
    struct Options {
        schema::Topics topics;
        std::string group;
        std::string member;  // group.instance.id with the classic protocol: the same after a restart
        GroupProtocol protocol = GroupProtocol::classic;
        std::chrono::milliseconds session_timeout{20'000};
        std::chrono::milliseconds poll_interval_max{300'000};
        // Time for finishing jobs when partitions are revoked; all of this member's partitions pause meanwhile.
        std::chrono::milliseconds drain_budget{2'000};
        CarefulStarts::Options careful_starts;
    };

    // Sends nothing yet. `tracker` must outlive this.
    KafkaSource(const KafkaConfig& config, Options options, OffsetTracker& tracker);
    ~KafkaSource() override = default;

    std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler& handler) override;
    bool is_call(const schema::Source& source) const override { return source.topic == options_.topics.calls(); }
    void allow_calls(std::size_t max) override { calls_max_ = max; }
    HeldBack held_back() const override;
    void waits(const schema::Source& source, Epoch epoch) override { careful_.waits(source, epoch); }
    bool may_go_on(const schema::Source& source, Epoch epoch) override { return careful_.may_go_on(source, epoch); }
    bool exhausted() const override { return false; }
    std::optional<std::int64_t> backlog() override;
    bool has_lost_partitions() const override { return rd_kafka_assignment_lost(connection_.handle()) != 0; }
    void close(RevocationHandler& handler, Clock::time_point deadline) override;
    void give_up() override;

    // The sink commits through this connection; its commit calls are safe from any thread.
    KafkaConnection& connection() { return connection_; }
    PastResults& past_results() { return past_results_; }

    // Any thread.
    SourceCounters counters() const { return counters_; }
    // As of the last poll, by partition. Any thread.
    std::vector<UnreadableRecord> unreadable() const;

private:
    using Key = std::pair<std::string, std::int32_t>;
    struct Rebalance {
        enum class Kind : std::uint8_t { assign, revoke, lost };
        Kind kind = Kind::assign;
        PartitionListHandle list;
    };

    // A partition that is being read. Its records stay in librdkafka, in a queue of the partition's own, until they are requested; while
    // there is no room for a job, none are requested. (Pausing the partition instead would discard what was fetched and cost up to a
    // second.)
    struct Reading {
        Epoch epoch = 0;
        std::int64_t end = 0;          // end of the log, as known at takeover
        std::int64_t taken_below = 0;  // an earlier owner is known to have taken all jobs below this offset
        PartitionQueue queue;
        std::optional<schema::JobRecord> held;  // requested, but not polled: the commit metadata is full, or too many jobs are starting
        LogPace hold_log;
        std::optional<UnreadableRecord> unreadable;  // blocks the partition
        LogPace unreadable_log;
    };

    static void on_rebalance(rd_kafka_t* client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* list, void* opaque);
    void subscribe();
    void serve_rebalances(RevocationHandler& handler);
    void serve_undecided();
    bool may_change_assignment() const;
    void revoke(const Rebalance& rebalance, RevocationHandler& handler, Clock::time_point deadline);
    void leave(const std::vector<PartitionEpoch>& partitions, RevocationHandler& handler, Clock::time_point deadline);
    void answer_assign();
    void begin_take_over(TopicPartitions partitions);
    void finish_take_over();
    void say_undecided();
    void begin_reading(const std::vector<TakenOver>& partitions);
    void go_on_after_resets();
    void read(const std::string& topic, std::size_t max, std::vector<Delivery>& deliveries);
    std::optional<std::int64_t> read_one(const Key& key, Reading& reading, std::vector<Delivery>& deliveries);
    void note_unreadable(Reading& reading, UnreadableRecord record);
    void publish_unreadable();
    void take_error(const rd_kafka_message_t& message);
    void deliver(schema::JobRecord record, const Reading& reading, std::vector<Delivery>& deliveries);
    std::optional<Epoch> epoch_of(const Key& key) const;
    void check(rd_kafka_error_t* error, const char* what) const;
    bool may_deliver(const schema::Source& source) const;
    // The longest wait of a poll before it looks again.
    std::chrono::milliseconds turn() const;

    const Options options_;
    OffsetTracker& tracker_;
    CarefulStarts careful_;
    bool subscribed_ = false;
    bool closing_ = false;
    std::deque<Rebalance> rebalances_;  // reported by librdkafka, not yet answered
    bool is_arriving_ = false;          // an assignment is not answered yet: its partitions are being taken over
    std::vector<Key> undecided_;        // assigned, but not read yet because a transaction holds their offsets undecided
    // Partitions whose position is out of range and must be found anew, with the log's bounds once known.
    std::map<Key, std::optional<KafkaConnection::Watermarks>> resets_;
    TopicPartitions asked_;             // partitions of the takeover in progress
    Clock::time_point next_take_over_;  // for undecided_
    Clock::time_point next_resets_;
    LogPace undecided_log_;
    SourceCounters counters_;
    KafkaConnection connection_;  // its callbacks write to the members above
    std::map<Key, Reading> readings_;
    std::size_t calls_max_ = 0;                      // allow_calls()
    std::map<std::string, std::int32_t> read_last_;  // by topic: the partition that read() visited last
    mutable std::mutex unreadable_mutex_;
    std::vector<UnreadableRecord> unreadable_;  // those of readings_ after the last poll; guarded by unreadable_mutex_
    PastResults past_results_;
    TakeOver take_over_;  // last: its thread uses the connection
};

}  // namespace lorry::consumer
