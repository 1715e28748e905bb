// Brokers in memory, as far as a worker can tell them from Kafka: logs with transactions and stable offsets, transaction coordinators with
// epochs, one consumer group with generations and offsets. Requests come from rdkafka.h in simulated time; world.h breaks things here. Used
// by tests/simulation.
#pragma once

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/machine.h"
#include "tests/simulation/plants.h"

namespace lorry::simulation {

using Error = rd_kafka_resp_err_t;
using TopicPartition = std::pair<std::string, std::int32_t>;

struct Record {
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;
};

struct Entry {
    enum class Fate : std::uint8_t { open, committed, aborted, marker };
    Record record;
    Fate fate = Fate::committed;
    bool is_promised = false;  // its transaction was committed, though the marker may be missing
    std::int64_t producer = -1;
    Time time = 0;
};

// One partition of a topic.
struct Log {
    std::vector<Entry> entries;                     // by offset
    std::map<std::int64_t, std::int64_t> open;      // producer -> first offset of its open transaction
    std::map<std::int64_t, std::int16_t> epochs;    // of the producers that wrote here
    std::map<std::uint64_t, std::int64_t> batches;  // batches that were written -> first offset: a repeated one is not written again

    std::int64_t end() const { return static_cast<std::int64_t>(entries.size()); }
    // Where readers of committed records stop (KIP-98).
    std::int64_t stable_end() const;
};

struct ProducerId {
    std::int64_t id = -1;
    std::int16_t epoch = -1;
};

struct Committed {
    std::int64_t offset = -1;
    std::string metadata;
};
using Offsets = std::map<std::int32_t, Committed>;  // by partition of the jobs topic

struct Generation {
    std::int32_t number = -1;
    std::vector<std::int32_t> assigned;  // partitions of the jobs topic
};

// How requests fare; the share of requests for each misfortune.
struct Weather {
    double lost_request = 0;  // the connection breaks; the request may arrive later, as a copy that nobody waits for
    double lost_reply = 0;    // the request is carried out, and the connection breaks
    double refused = 0;       // the broker asks to try again
    double slow = 0;          // takes up to `slowest`
    Time slowest = 2 * second;
};

class Cluster {
public:
    // The cluster of the machine that plays now.
    static Cluster& current();

    Cluster(Machine& machine, std::string jobs_topic);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    Machine& machine() { return machine_; }
    void add_topic(const std::string& name, std::int32_t partitions);
    const std::vector<Log>* find(const std::string& topic) const;
    Log* log(const TopicPartition& place);
    const std::string& jobs_topic() const { return jobs_topic_; }
    std::int64_t append(const TopicPartition& place, Record record);

    // Clients and the world look at these before each request.
    Weather weather;
    Time down_until = 0;
    bool is_down() const { return machine_.now() < down_until; }

    // Transactions. Errors are the protocol's.
    // last: the caller's own id and epoch, if it asks for the next epoch (KIP-360).
    Error init_producer(const std::string& id, Time timeout, std::optional<ProducerId> last);
    ProducerId producer_of(const std::string& id) const { return transactions_.at(id).producer; }
    Error add_partition(const std::string& id, ProducerId producer, const TopicPartition& place);
    Error add_offsets(const std::string& id, ProducerId producer);
    Error end(const std::string& id, ProducerId producer, bool commit);
    // producer: nullptr without a transaction. `batch` is the same in each copy of a request; Log::batches says where its records are.
    Error produce(const std::string& id, const ProducerId* producer, const TopicPartition& place, std::uint64_t batch,
                  const std::vector<Record>& records);
    struct Sender {
        std::string instance;
        std::string member;
        std::int32_t generation = -1;
    };
    Error commit_offsets(const std::string& id, ProducerId producer, const Sender& sender, const Offsets& offsets);

    // The group.
    Error join(const std::string& instance, std::string& member, std::vector<std::int32_t> owned, Time session);
    // The member's part of the current generation; nullopt while the group waits for others.
    std::optional<Generation> generation_of(const std::string& instance, const std::string& member) const;
    Error heartbeat(const Sender& sender);
    bool is_member(const std::string& instance, const std::string& member) const;
    const void* group_news() const { return &members_; }  // woken when a generation begins
    Error validate(const Sender& sender) const;
    const Offsets& offsets() const { return offsets_; }
    bool is_undecided(std::int32_t partition) const;
    bool has_undecided() const { return !pending_.empty(); }

    // Faults.
    void expire_sessions();
    void forget_offsets(std::int32_t partition) { offsets_.erase(partition); }
    void restore_offsets(std::size_t commits_ago);
    // Drops the markers that are still to be written, as if the transactions had ended everywhere; returns how many transactions these are.
    std::size_t lose_markers();
    // Called once, while the markers of the next transaction that is committed are written.
    std::function<void()> on_next_end;
    bool has_markers_to_write() const;

    // Which jobs count as ended: those with a record that is committed, or will be once its marker is written.
    static bool counts_as_committed(const Entry& entry) {
        return entry.fate == Entry::Fate::committed || (entry.fate == Entry::Fate::open && entry.is_promised);
    }

    Plant plant = Plant::none;

    // Called when readers of that topic may have news.
    std::function<void(const std::string& topic)> on_news;
    // Called whenever the group's offsets have changed.
    std::function<void()> on_offsets;

private:
    struct Transaction {
        enum class State : std::uint8_t { empty, ongoing, committing, aborting };
        ProducerId producer;
        std::optional<std::int16_t> raised_from;  // the epoch whose owner asked for the current one
        State state = State::empty;
        std::optional<bool> last_committed;
        std::set<TopicPartition> partitions;
        bool offsets = false;
        Time timeout = 0;
        std::uint64_t number = 0;  // of the transactions of this id
        std::size_t markers = 0;   // to be written
    };
    struct Member {
        std::string id;
        Time session = 0;
        Time deadline = 0;
        bool joined = false;
        std::vector<std::int32_t> owned;     // as it said when it joined
        std::vector<std::int32_t> assigned;  // in this generation
    };
    Error check(const std::string& id, ProducerId producer) const;
    void begin_end(const std::string& id, bool commit);
    void end_part(const std::string& id, std::uint64_t number, const std::optional<TopicPartition>& place, ProducerId producer,
                  bool commit);
    void write_marker(const TopicPartition& place, ProducerId producer, bool commit);
    void end_offsets(std::int64_t producer, bool commit);
    void set_offsets(const Offsets& offsets);
    void begin_rebalance();
    void maybe_complete();
    void complete();

    Machine& machine_;
    const std::string jobs_topic_;
    std::map<std::string, std::vector<Log>> topics_;
    std::map<std::string, Transaction> transactions_;
    std::int64_t next_producer_ = 1;
    std::int32_t generation_ = 0;
    bool preparing_ = false;
    Time complete_after_ = 0;
    std::map<std::string, Member> members_;  // by group.instance.id
    std::int64_t next_member_ = 1;
    Offsets offsets_;
    std::vector<Offsets> past_offsets_;
    std::map<std::int64_t, Offsets> pending_;  // by producer: of open transactions
};

}  // namespace lorry::simulation
