// The brokers' side of each request; see cluster.h. Follows Kafka's protocol: KIP-98 and KIP-447 (transactions), KIP-345 and KIP-429 (the
// group), KIP-890's check that a transaction is open where it writes.
#include "tests/simulation/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/check.h"

namespace lorry::simulation {

namespace {

Cluster* current_cluster = nullptr;  // NOLINT: rdkafka.cpp implements a C interface

constexpr Time marker_slowest = 15 * millisecond;
constexpr Time cleanup_interval = 2 * second;  // transactions that time out are ended within this time
constexpr Time first_join_wait = 100 * millisecond;

}  // namespace

std::int64_t Log::stable_end() const {
    std::int64_t stable = end();
    for (const auto& [producer, first] : open) stable = std::min(stable, first);
    return stable;
}

Cluster& Cluster::current() {
    CHECK(current_cluster != nullptr, "a client lives in a simulated cluster");
    return *current_cluster;
}

Cluster::Cluster(Machine& machine, std::string jobs_topic) : machine_(machine), jobs_topic_(std::move(jobs_topic)) {
    current_cluster = this;
}
Cluster::~Cluster() { current_cluster = nullptr; }

void Cluster::add_topic(const std::string& name, std::int32_t partitions) { topics_[name].resize(static_cast<std::size_t>(partitions)); }

const std::vector<Log>* Cluster::find(const std::string& topic) const {
    const auto found = topics_.find(topic);
    return found == topics_.end() ? nullptr : &found->second;
}

Log* Cluster::log(const TopicPartition& place) {
    const auto found = topics_.find(place.first);
    const auto index = static_cast<std::size_t>(place.second);
    return found == topics_.end() || index >= found->second.size() ? nullptr : &found->second[index];
}

std::int64_t Cluster::append(const TopicPartition& place, Record record) {
    Log* log = this->log(place);
    CHECK(log != nullptr, "the topic exists");
    log->entries.push_back({.record = std::move(record), .time = machine_.now()});
    if (on_news) on_news(place.first);
    return log->end() - 1;
}

Error Cluster::init_producer(const std::string& id, Time timeout, std::optional<ProducerId> last) {
    Transaction& transaction = transactions_[id];
    using State = Transaction::State;
    ProducerId& producer = transaction.producer;
    if (last && producer.epoch != last->epoch && transaction.raised_from != last->epoch) return RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
    if (transaction.state == State::committing || transaction.state == State::aborting) return RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS;
    if (producer.id < 0) producer.id = next_producer_++;
    if (!last || transaction.raised_from != last->epoch) {
        transaction.raised_from.reset();
        if (last) transaction.raised_from = last->epoch;
        ++producer.epoch;
    }
    transaction.timeout = timeout;
    if (transaction.state == State::ongoing) {
        begin_end(id, false);
        return RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS;
    }
    transaction.last_committed.reset();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

Error Cluster::check(const std::string& id, ProducerId producer) const {
    const auto found = transactions_.find(id);
    if (found == transactions_.end() || found->second.producer.id != producer.id) return RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING;
    if (found->second.producer.epoch != producer.epoch) return RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
    using State = Transaction::State;
    const State state = found->second.state;
    return state == State::committing || state == State::aborting ? RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS : RD_KAFKA_RESP_ERR_NO_ERROR;
}

Error Cluster::add_partition(const std::string& id, ProducerId producer, const TopicPartition& place) {
    if (const Error error = check(id, producer); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    Transaction& transaction = transactions_[id];
    if (transaction.state == Transaction::State::empty) {
        transaction.state = Transaction::State::ongoing;
        transaction.number += 1;
        const std::uint64_t number = transaction.number;
        machine_.at(machine_.now() + transaction.timeout + machine_.draw(0, cleanup_interval), world, [this, id, number] {
            Transaction& late = transactions_[id];
            if (late.number != number || late.state != Transaction::State::ongoing) return;
            ++late.producer.epoch;
            begin_end(id, false);
        });
    }
    if (!place.first.empty()) transaction.partitions.insert(place);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

Error Cluster::add_offsets(const std::string& id, ProducerId producer) {
    const Error error = add_partition(id, producer, {});
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) transactions_[id].offsets = true;
    return error;
}

Error Cluster::end(const std::string& id, ProducerId producer, bool commit) {
    if (const Error error = check(id, producer); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    Transaction& transaction = transactions_[id];
    if (transaction.state == Transaction::State::empty) {
        return transaction.last_committed == commit ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR_INVALID_TXN_STATE;
    }
    begin_end(id, commit);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

// The end is decided now; the partitions learn of it one after the other.
void Cluster::begin_end(const std::string& id, bool commit) {
    Transaction& transaction = transactions_[id];
    transaction.state = commit ? Transaction::State::committing : Transaction::State::aborting;
    transaction.markers = transaction.partitions.size() + (transaction.offsets ? 1 : 0);
    for (const TopicPartition& place : transaction.partitions) {
        for (Entry& entry : log(place)->entries) {
            if (entry.fate == Entry::Fate::open && entry.producer == transaction.producer.id) entry.is_promised = commit;
        }
    }
    const auto schedule = [&](std::optional<TopicPartition> place) {
        machine_.at(machine_.now() + machine_.draw(0, marker_slowest), world,
                    [this, id, number = transaction.number, place, producer = transaction.producer, commit] {
                        end_part(id, number, place, producer, commit);
                    });
    };
    for (const TopicPartition& place : transaction.partitions) schedule(place);
    if (transaction.offsets) schedule(std::nullopt);
    if (transaction.markers == 0) transaction.state = Transaction::State::empty;
    transaction.last_committed = commit;
    if (!commit || transaction.markers == 0 || !on_next_end) return;
    machine_.at(machine_.now() + machine_.draw(0, marker_slowest), world, std::exchange(on_next_end, nullptr));
}

void Cluster::end_part(const std::string& id, std::uint64_t number, const std::optional<TopicPartition>& place, ProducerId producer,
                       bool commit) {
    Transaction& transaction = transactions_[id];
    const bool is_lost = transaction.number != number || transaction.markers == 0;
    if (is_lost) return;
    if (place) {
        write_marker(*place, producer, commit);
    } else {
        end_offsets(producer.id, commit);
    }
    if (--transaction.markers > 0) return;
    transaction.state = Transaction::State::empty;
    transaction.partitions.clear();
    transaction.offsets = false;
}

void Cluster::write_marker(const TopicPartition& place, ProducerId producer, bool commit) {
    Log& log = *this->log(place);
    log.epochs[producer.id] = producer.epoch;
    if (const auto open = log.open.find(producer.id); open != log.open.end()) {
        for (auto offset = static_cast<std::size_t>(open->second); offset < log.entries.size(); ++offset) {
            Entry& entry = log.entries[offset];
            if (entry.producer == producer.id && entry.fate == Entry::Fate::open) {
                entry.fate = commit ? Entry::Fate::committed : Entry::Fate::aborted;
            }
        }
        log.open.erase(open);
    }
    log.entries.push_back({.record = {}, .fate = Entry::Fate::marker, .producer = producer.id, .time = machine_.now()});
    if (on_news) on_news(place.first);
}

void Cluster::end_offsets(std::int64_t producer, bool commit) {
    const auto pending = pending_.extract(producer);
    if (pending.empty() || !commit) return;
    set_offsets(pending.mapped());
}

void Cluster::set_offsets(const Offsets& offsets) {
    past_offsets_.push_back(offsets_);
    for (const auto& [partition, committed] : offsets) offsets_[partition] = committed;
    if (on_offsets) on_offsets();
}

Error Cluster::produce(const std::string& id, const ProducerId* producer, const TopicPartition& place, std::uint64_t batch,
                       const std::vector<Record>& records) {
    Log* log = this->log(place);
    if (log == nullptr) return RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    if (log->batches.contains(batch)) return RD_KAFKA_RESP_ERR_NO_ERROR;
    if (producer != nullptr && plant != Plant::results_outside_transaction) {
        const auto known = log->epochs.find(producer->id);
        if (known != log->epochs.end() && known->second > producer->epoch) return RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH;
        if (const Error error = check(id, *producer); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
        const Transaction& transaction = transactions_[id];
        if (transaction.state != Transaction::State::ongoing || !transaction.partitions.contains(place)) {
            return RD_KAFKA_RESP_ERR_INVALID_TXN_STATE;
        }
        log->epochs[producer->id] = producer->epoch;
        log->open.try_emplace(producer->id, log->end());
    }
    log->batches.emplace(batch, log->end());
    for (const Record& record : records) {
        log->entries.push_back(
            {.record = record,
             .fate = log->open.contains(producer == nullptr ? -1 : producer->id) ? Entry::Fate::open : Entry::Fate::committed,
             .producer = producer == nullptr ? -1 : producer->id,
             .time = machine_.now()});
    }
    if (on_news) on_news(place.first);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

Error Cluster::commit_offsets(const std::string& id, ProducerId producer, const Sender& sender, const Offsets& offsets) {
    if (const Error error = check(id, producer); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    const Transaction& transaction = transactions_[id];
    if (transaction.state != Transaction::State::ongoing || !transaction.offsets) return RD_KAFKA_RESP_ERR_INVALID_TXN_STATE;
    if (const Error error = validate(sender); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    Offsets& pending = pending_[producer.id];
    for (const auto& [partition, committed] : offsets) pending[partition] = committed;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

Error Cluster::validate(const Sender& sender) const {
    if (plant == Plant::offsets_of_old_generations) return RD_KAFKA_RESP_ERR_NO_ERROR;
    const auto member = members_.find(sender.instance);
    if (member == members_.end()) return RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    if (member->second.id != sender.member) return RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    return sender.generation == generation_ ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION;
}

Error Cluster::join(const std::string& instance, std::string& member, std::vector<std::int32_t> owned, Time session) {
    const auto known = members_.find(instance);
    if (!member.empty()) {
        if (known == members_.end()) return RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
        if (known->second.id != member) return RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    } else {
        member = fmt::format("{}-{}", instance, next_member_++);
        if (known != members_.end()) {
            known->second.id = member;
            known->second.deadline = machine_.now() + session;
            // A static member that comes back to a stable group gets what it had.
            if (!preparing_) return RD_KAFKA_RESP_ERR_NO_ERROR;
        }
    }
    if (members_.empty()) complete_after_ = machine_.now() + first_join_wait;
    Member& joining = members_[instance];
    joining.id = member;
    joining.session = session;
    joining.deadline = machine_.now() + session;
    if (!preparing_) begin_rebalance();
    joining.joined = true;
    joining.owned = std::move(owned);
    if (complete_after_ > machine_.now()) machine_.at(complete_after_, world, [this] { maybe_complete(); });
    maybe_complete();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void Cluster::begin_rebalance() {
    preparing_ = true;
    for (auto& [instance, member] : members_) member.joined = false;
}

void Cluster::maybe_complete() {
    if (!preparing_ || members_.empty() || machine_.now() < complete_after_) return;
    if (std::ranges::all_of(members_, [](const auto& one) { return one.second.joined; })) complete();
}

// The cooperative sticky assignment: members keep what they own up to their share; what they have to give up is left out this time.
void Cluster::complete() {
    ++generation_;
    preparing_ = false;
    const auto partitions = static_cast<std::int32_t>(topics_.at(jobs_topic_).size());
    std::vector<Member*> members;
    std::set<std::int32_t> owned;
    for (auto& [instance, member] : members_) {
        members.push_back(&member);
        owned.insert(member.owned.begin(), member.owned.end());
    }
    std::ranges::stable_sort(members, std::greater(), [](const Member* member) { return member->owned.size(); });
    std::vector<std::int32_t> unowned;
    for (std::int32_t partition = 0; partition < partitions; ++partition) {
        if (!owned.contains(partition)) unowned.push_back(partition);
    }
    const std::size_t share = static_cast<std::size_t>(partitions) / members.size();
    std::size_t larger = static_cast<std::size_t>(partitions) % members.size();
    for (Member* member : members) {
        std::size_t quota = share;
        if (larger > 0) {
            ++quota;
            --larger;
        }
        member->assigned = member->owned;
        if (member->assigned.size() > quota) member->assigned.resize(quota);
        while (member->assigned.size() < quota && !unowned.empty()) {
            member->assigned.push_back(unowned.back());
            unowned.pop_back();
        }
        member->deadline = machine_.now() + member->session;
    }
    machine_.wake(&members_);
}

std::optional<Generation> Cluster::generation_of(const std::string& instance, const std::string& member) const {
    const auto found = members_.find(instance);
    if (found == members_.end() || found->second.id != member || preparing_) return std::nullopt;
    return Generation{generation_, found->second.assigned};
}

Error Cluster::heartbeat(const Sender& sender) {
    const auto found = members_.find(sender.instance);
    if (found == members_.end()) return RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    if (found->second.id != sender.member) return RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    found->second.deadline = machine_.now() + found->second.session;
    if (preparing_) return RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    return validate(sender);
}

bool Cluster::is_member(const std::string& instance, const std::string& member) const {
    const auto found = members_.find(instance);
    return found != members_.end() && found->second.id == member;
}

void Cluster::expire_sessions() {
    // A member that waits for the others is alive as long as its connection.
    const std::size_t gone = std::erase_if(
        members_, [&](const auto& one) { return one.second.deadline < machine_.now() && !(preparing_ && one.second.joined); });
    if (gone == 0) return;
    if (!preparing_ && !members_.empty()) begin_rebalance();
    maybe_complete();
}

bool Cluster::is_undecided(std::int32_t partition) const {
    return std::ranges::any_of(pending_, [&](const auto& one) { return one.second.contains(partition); });
}

void Cluster::restore_offsets(std::size_t commits_ago) {
    if (past_offsets_.empty()) return;
    offsets_ = past_offsets_[past_offsets_.size() - std::min(commits_ago, past_offsets_.size())];
}

bool Cluster::has_markers_to_write() const {
    return std::ranges::any_of(transactions_, [](const auto& one) { return one.second.markers > 0; });
}

std::size_t Cluster::lose_markers() {
    std::size_t lost = 0;
    for (auto& [id, transaction] : transactions_) {
        if (transaction.markers == 0) continue;
        ++lost;
        transaction.markers = 0;
        transaction.state = Transaction::State::empty;
        transaction.partitions.clear();
        transaction.offsets = false;
    }
    return lost;
}

}  // namespace lorry::simulation
