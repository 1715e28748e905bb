// The exactly-once committer: publishes results, statuses, dead letters and offsets in one transaction and retries until it is known to be
// committed.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <thread>

#include "consumer/backoff.h"
#include "consumer/kafka/committer.h"
#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/times.h"
#include "consumer/kafka/transactions.h"
#include "consumer/log.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;
using Timer = std::chrono::steady_clock;

constexpr milliseconds open_backoff_first{10};
constexpr milliseconds open_backoff_max{1'000};
constexpr milliseconds open_timeout{10'000};  // per attempt: between attempts it notices that this worker has no partitions any more
// Time for the brokers to notice that another worker's transaction has timed out, and to end it.
constexpr milliseconds others_end_wait{2'000};
// The longest that this takes: the brokers' default interval (transaction.abort.timed.out.transaction.cleanup.interval.ms).
constexpr milliseconds others_end_wait_longest{12'000};
// This many fences within a minute mean that another process keeps opening our id.
constexpr std::size_t fences_max = 3;
constexpr std::chrono::minutes fences_window{1};
constexpr milliseconds heartbeat_answer_wait{1'000};

void set_header(std::vector<schema::Header>& headers, std::string_view name, const std::string& value) {
    const auto place = std::ranges::find(headers, name, &schema::Header::first);
    if (place == headers.end()) {
        headers.emplace_back(name, value);
    } else {
        place->second = value;
    }
}

class TransactionalCommitter : public Committer {
public:
    TransactionalCommitter(const KafkaConfig& config, KafkaConnection& consumer, PastResults& past_results, OffsetTracker& tracker,
                           TransactionOptions options)
        : config_(config),
          options_(std::move(options)),
          consumer_(consumer),
          past_results_(past_results),
          tracker_(tracker),
          entries_max_(options_.entries_max) {
        reopen(config_.deadline_start);
    }

    std::vector<RejectedEntry> commit(std::vector<OutboxEntry> entries) override {
        std::vector<RejectedEntry> rejected;
        std::deque<OutboxEntry> waiting(std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
        do {
            Transaction transaction{.entries = take_first(waiting), .commits = {}, .rejected = {}};
            const std::size_t entries_tried = transaction.entries.size();
            StepResult result = attempt(transaction);
            if (result.end != StepEnd::done) settle(transaction, result);
            const bool done = result.end == StepEnd::done;
            std::move(transaction.rejected.begin(), transaction.rejected.end(), std::back_inserter(rejected));
            if (done) {
                if (!transaction.entries.empty()) entries_max_ = std::min(options_.entries_max, entries_max_ * 2);
                failing_since_.reset();
                backoff_.reset();
                continue;
            }
            // The consumer learns of a second worker with our member name and ends this one. An offset commit that fails with
            // FENCED_INSTANCE_ID does not prove one: it may be this worker's own, sent as the member it was before it rejoined.
            consumer_.check_fatal();
            if (result.timed_out && entries_tried > 0) entries_max_ = std::max<std::size_t>(1, entries_tried / 2);
            std::move(transaction.entries.rbegin(), transaction.entries.rend(), std::front_inserter(waiting));
            if (!failing_since_) failing_since_ = Timer::now();
            const auto waited = std::chrono::duration_cast<milliseconds>(Timer::now() - *failing_since_);
            if (waited > config_.deadline_later) throw consumer_.away("publishing results (" + result.reason + ")", waited);
            std::this_thread::sleep_for(backoff_.next());
        } while (!waiting.empty());
        return rejected;
    }

    CommitCounters counters() const override { return counters_; }

private:
    struct Transaction {
        std::string name = {};
        std::vector<OutboxEntry> entries;
        std::vector<PartitionCommit> commits;  // committed with it
        std::vector<RejectedEntry> rejected;
    };

    // Takes as many entries as fit into one transaction, at least one.
    std::vector<OutboxEntry> take_first(std::deque<OutboxEntry>& waiting) const {
        std::vector<OutboxEntry> taken;
        for (std::size_t bytes = 0; !waiting.empty() && taken.size() < entries_max_; waiting.pop_front()) {
            bytes += waiting.front().bytes;
            if (!taken.empty() && bytes > options_.bytes_max) break;
            taken.push_back(std::move(waiting.front()));
        }
        return taken;
    }

    // Runs one transaction from begin to commit. `done`: its entries are finished and its offsets are known to be committed. Entries that
    // are no longer needed, or of which a record was refused, are removed from it.
    StepResult attempt(Transaction& transaction) {
        // Also when there is nothing to commit: readers, and the next owner of a lost partition, may wait for the last transaction.
        if (!is_open_ || producer_->has_stray_request() || producer_->has_lost_broker()) reopen(config_.deadline_later);
        // Before it gets a partition and after it loses the last one, a worker has nothing to commit, and its consumer may be closed.
        if (!is_open_ || tracker_.partitions().empty()) {
            transaction.entries.clear();
            return {};
        }
        // Reads the generation first and the epochs second: a partition that is still ours when the epochs are read was ours in that
        // generation or came later, and offsets sent with a generation older than the group's are refused.
        const GroupMetadataHandle group(rd_kafka_consumer_group_metadata(consumer_.handle()));
        auto snapshot = tracker_.snapshot_with(work_of(transaction));
        transaction.commits = std::move(snapshot.commits);
        std::size_t index = 0;
        std::erase_if(transaction.entries, [&](const OutboxEntry&) { return !snapshot.is_current[index++]; });
        if (transaction.commits.empty()) return {};

        fault_point("outbox.begin");
        if (auto result = producer_->begin(transaction.entries.size()); result.end != StepEnd::done) return result;
        const StepResult sent = send(transaction);
        if (sent.end != StepEnd::done && (sent.end != StepEnd::aborting || !transaction.rejected.empty())) return sent;
        fault_point("outbox.produced");
        const PartitionListHandle offsets = offsets_of(consumer_.handle(), transaction.commits);
        // Also after discarded records: they do not carry the reason, but the transaction does (though not always that it timed out).
        auto result = producer_->send_offsets(group.get(), offsets.get());
        if (result.end != StepEnd::done) {
            result.timed_out = result.timed_out || sent.timed_out;
            return result;
        }
        if (sent.end != StepEnd::done) return sent;
        fault_point("outbox.offsets_sent");
        result = producer_->commit();
        if (result.end != StepEnd::done) return result;
        if (!transaction.entries.empty()) last_committed_ = transaction.name;
        fault_point("outbox.committed");
        for (const OutboxEntry& entry : transaction.entries) finish(entry);
        tracker_.committed(transaction.commits);
        ++counters_.transactions;
        return {};
    }

    static std::vector<FinishedWork> work_of(const Transaction& transaction) {
        std::vector<FinishedWork> work;
        for (const OutboxEntry& entry : transaction.entries) work.push_back({entry.source, entry.epoch});
        return work;
    }

    StepResult send(Transaction& transaction) {
        transaction.name = name_of_transaction(options_.leftovers.worker, ++transaction_number_);
        for (std::size_t i = 0; i < transaction.entries.size(); ++i) {
            for (OutboxRecord& record : transaction.entries[i].records) {
                set_header(record.headers, schema::transaction_header, transaction.name);
                const auto error = producer_->send({.topic = record.topic,
                                                    .partition = record.partition,
                                                    .key = record.key,
                                                    .value = record.value,
                                                    .headers = record.headers,
                                                    .tag = i});
                if (error != RD_KAFKA_RESP_ERR_NO_ERROR) break;
            }
        }
        StepResult result = producer_->finish_sending();
        if (result.end != StepEnd::aborting) return result;
        std::vector<OutboxEntry> kept;
        for (std::size_t i = 0; i < transaction.entries.size(); ++i) {
            OutboxEntry& entry = transaction.entries[i];
            const auto error = producer_->errors()[i];
            if (!is_record_error(error)) {
                kept.push_back(std::move(entry));
                continue;
            }
            ++entry.rejections;
            transaction.rejected.push_back({std::move(entry), rd_kafka_err2str(error)});
        }
        transaction.entries = std::move(kept);
        return result;
    }

    void finish(const OutboxEntry& entry) { tracker_.finish(entry.source, entry.epoch, ends_seen(producer_->delivered(), entry)); }

    // Afterwards the next transaction can begin, and the entries of this one that were committed are known and removed. If all were
    // committed, `result` becomes done.
    void settle(Transaction& transaction, StepResult& result) {
        log_at(result.end == StepEnd::aborting ? LogLevel::info : LogLevel::warning, "a transaction with {} results was not committed: {}",
               transaction.entries.size(), result.reason);
        if (result.end == StepEnd::aborting) {
            ++counters_.aborts;
            const StepResult aborted = producer_->abort();
            if (aborted.end == StepEnd::done) return;
            log_warning("it could not be aborted either: {}", aborted.reason);
            if (aborted.end == StepEnd::fenced) result.end = StepEnd::fenced;
        }
        if (result.end == StepEnd::fenced) take_fence(result.reason);
        if (result.end == StepEnd::unknown) ++counters_.unknown;
        reopen(config_.deadline_later);
        const std::size_t sent = transaction.entries.size();
        take_out_committed(transaction);
        if (transaction.entries.size() < sent) log_info("the brokers had committed {} of them", sent - transaction.entries.size());
        if (sent > 0 && transaction.entries.empty()) result.end = StepEnd::done;
    }

    // A second worker under this member name, or a stranger, may have opened the id. The group decides which of two workers goes on, and
    // the consumer learns it with its next heartbeat. So the id is taken back only after that: a worker whose name was taken ends here and
    // does not fence the other one.
    void take_fence(const std::string& reason) {
        ++counters_.fences;
        const auto now = Timer::now();
        recent_fences_.push_back(now);
        std::erase_if(recent_fences_, [&](Timer::time_point then) { return now - then > fences_window; });
        if (recent_fences_.size() >= fences_max) {
            throw KafkaError(
                fmt::format("Kafka at {}: another process opened the transactional id {} {} times within a minute: give each worker "
                            "a `member` of its own ({})",
                            config_.brokers, options_.id, recent_fences_.size(), reason));
        }
        while (Timer::now() < now + options_.heartbeat_interval + heartbeat_answer_wait) {
            consumer_.check_fatal();
            std::this_thread::sleep_for(poll_turn);
        }
    }

    // With a new producer, nothing of an old one can change any more. After the start, a worker without partitions tries only once: it has
    // nothing to commit, may be about to end, and the next commit tries again. Once it has left its group, it can end nothing.
    void reopen(milliseconds deadline) {
        const bool at_start = producer_ == nullptr;
        const auto is_waited_for = [&] { return at_start || !tracker_.partitions().empty(); };
        is_open_ = false;
        for (Retry retry(consumer_, "opening a producer", deadline); rd_kafka_consumer_closed(consumer_.handle()) == 0;) {
            producer_.reset();
            producer_ = std::make_unique<TransactionalProducer>(
                config_, TransactionalProducer::Options{.id = options_.id, .timeout = options_.timeout, .limits = options_.limits});
            StepResult result = producer_->open(retry.time_for_try(open_timeout));
            if (result.end == StepEnd::done) {
                const LeftoverLimits limits{.patience = options_.timeout + others_end_wait, .deadline = retry.time_for_try(deadline)};
                result = end_leftovers(*producer_, consumer_, options_.leftovers, limits, last_committed_);
            }
            is_open_ = result.end == StepEnd::done;
            if (is_open_) return;
            if (result.end == StepEnd::fenced) take_fence(result.reason);
            log_warning("a transactional producer could not be opened: {}", result.reason);
            if (!is_waited_for()) return;
            retry.again(result.reason);
        }
    }

    // Marks entries as finished whose results readers can see. Each result is looked up: the group's offsets could be outdated, and if
    // brokers lost the end of a transaction in some partitions, it is only partly visible (leftovers.h). Offsets go with the next
    // transaction, perhaps a second time.
    void take_out_committed(Transaction& transaction) {
        std::map<TopicPartition, PastResults::Question> questions;
        for (const auto& [source, epoch] : work_of(transaction)) {
            const auto sent = std::ranges::find_if(transaction.commits, [&](const PartitionCommit& commit) {
                return commit.topic == source.topic && commit.partition == source.partition && commit.epoch == epoch;
            });
            if (sent == transaction.commits.end() || !tracker_.is_current(source, epoch)) continue;
            const TopicPartition place{source.topic, source.partition};
            const PastResults::Question first{place, source.offset, source.offset + 1, sent->seen};
            PastResults::Question& question = questions.try_emplace(place, first).first->second;
            question.first = std::min(question.first, source.offset);
            question.end = std::max(question.end, source.offset + 1);
        }
        if (questions.empty()) return;
        std::vector<PastResults::Question> all;
        for (const auto& [place, question] : questions) all.push_back(question);
        const auto answers = past_results_.ask(all, std::stop_token(), options_.timeout + others_end_wait_longest);
        std::erase_if(transaction.entries, [&](const OutboxEntry& entry) {
            const auto answer = answers->find({entry.source.topic, entry.source.partition});
            if (answer == answers->end() || !answer->second.ended.contains(entry.source.offset)) return false;
            finish(entry);
            return true;
        });
    }

    const KafkaConfig config_;
    const TransactionOptions options_;
    KafkaConnection& consumer_;
    PastResults& past_results_;
    OffsetTracker& tracker_;
    // Starts at the current time in microseconds, so that no earlier worker of this name has used the number.
    std::int64_t transaction_number_ =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::string last_committed_;  // name of the last transaction with results that the brokers reported as committed
    std::size_t entries_max_;     // for the next transaction
    // Since when transactions have failed, across calls: a transaction that contains only starts is retried with the next one.
    std::optional<Timer::time_point> failing_since_;
    Backoff backoff_{open_backoff_first, open_backoff_max};
    std::vector<Timer::time_point> recent_fences_;
    CommitCounters counters_;
    std::unique_ptr<TransactionalProducer> producer_;
    bool is_open_ = false;  // the producer is open, and nothing of an earlier one is
};

}  // namespace

std::unique_ptr<Committer> make_transactional_committer(const KafkaConfig& config, KafkaConnection& consumer, PastResults& past_results,
                                                        OffsetTracker& tracker, TransactionOptions options) {
    return std::make_unique<TransactionalCommitter>(config, consumer, past_results, tracker, std::move(options));
}

}  // namespace lorry::consumer
