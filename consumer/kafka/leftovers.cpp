// Finds the open partitions, waits for other workers' transactions, and ends the rest as the group's offsets require.
#include "consumer/kafka/leftovers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "consumer/kafka/committed_offsets.h"
#include "consumer/kafka/reader.h"
#include "consumer/kafka/times.h"
#include "consumer/log.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds committed_timeout{5'000};

const StepResult left_group{.end = StepEnd::unknown, .reason = "this worker has left its group"};

class Leftovers {
public:
    Leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options,
              const LeftoverLimits& limits, const std::string& known_committed)
        : producer_(producer), consumer_(consumer), options_(options), limits_(limits), known_committed_(known_committed) {}

    StepResult end() {
        const EndOffsets stable = stable_ends();
        open_ = ends_of(options_.outputs, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED);
        leave_out_passed(stable);
        undecided_ = options_.inputs;
        look_at_undecided();
        wait_for_others();
        if (is_nothing_left()) return {};
        log_warning("a transaction is open in {} partitions and in the offsets of {} and does not end: ending it, in case it is ours",
                    open_.size(), undecided_.size());
        const TopicPartitions committed = committed_ones();
        if (is_worker_ending()) return left_group;
        if (!committed.empty()) {
            log_warning("in {} of these partitions the group's offsets say that it was committed: committing it there", committed.size());
            if (auto result = commit_over(committed); result.end != StepEnd::done) return result;
            for (const auto& partition : committed) open_.erase(partition);
        }
        return is_nothing_left() ? StepResult{} : abort_over();
    }

private:
    bool is_nothing_left() const { return open_.empty() && undecided_.empty(); }
    // The group no longer knows a closing worker, so nothing can be ended in its name.
    bool is_worker_ending() const { return rd_kafka_consumer_closed(consumer_.handle()) != 0; }

    EndOffsets ends_of(const TopicPartitions& partitions, rd_kafka_IsolationLevel_t level) const {
        return wait_for_end_offsets(consumer_, partitions, level, limits_.deadline, {}).value();
    }
    EndOffsets stable_ends() const { return ends_of(options_.outputs, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED); }

    void leave_out_passed(const EndOffsets& stable) {
        std::erase_if(open_, [&](const auto& one) { return stable.at(one.first) >= one.second; });
    }

    // Removes the partitions that no transaction holds undecided any more. Returns false when that is unknown because the coordinator does
    // not answer. A missing right is reported later, where the offsets are needed.
    bool look_at_undecided() {
        if (undecided_.empty()) return true;
        PartitionListHandle list = list_of(undecided_);
        const auto error = committed_offsets(consumer_, list, committed_timeout);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR && !is_configuration_error(error)) return false;
        undecided_.clear();
        for (int i = 0; error == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; ++i) {
            const rd_kafka_topic_partition_t& found = list->elems[i];
            const bool is_answer = found.err == RD_KAFKA_RESP_ERR_NO_ERROR || is_configuration_error(found.err);
            if (!is_answer) undecided_.emplace_back(found.topic, found.partition);
        }
        return true;
    }

    // Usually these are transactions of other workers that are about to end.
    void wait_for_others() {
        const auto is_over = [&] { return is_nothing_left() || is_worker_ending() || Clock::now() - start_ > limits_.patience; };
        for (Backoff backoff(backoff_first, backoff_max); !is_over();) {
            std::this_thread::sleep_for(backoff.next());
            leave_out_passed(stable_ends());
            look_at_undecided();
        }
        if (is_worker_ending()) return;
        // Offsets that could not be read may be decided by now, and may show that the open transaction was committed.
        for (Retry retry(consumer_, "asking the group's coordinator", limits_.deadline); !look_at_undecided() && !is_worker_ending();) {
            retry.again();
        }
    }

    // The state of each partition for which the group has an offset.
    std::map<TopicPartition, CommitState> states() const {
        std::map<TopicPartition, CommitState> states;
        TopicPartitions left;  // still to be read
        std::ranges::remove_copy_if(options_.inputs, std::back_inserter(left),
                                    [&](const auto& one) { return std::ranges::find(undecided_, one) != undecided_.end(); });
        for (Retry retry(consumer_, "reading committed offsets", limits_.deadline); !left.empty();) {
            PartitionListHandle list = list_of(left);
            const auto error = committed_offsets_of_all(consumer_, list, committed_timeout);
            if (is_worker_ending()) break;
            if (is_configuration_error(error)) throw consumer_.refused("reading committed offsets", error, left.front().first);
            if (error == RD_KAFKA_RESP_ERR_NO_ERROR) left = take_states(*list, states);
            if (!left.empty()) retry.again(rd_kafka_err2str(error));
        }
        return states;
    }

    // Returns the partitions that have no answer yet: an active worker's transaction holds their offsets undecided for a few milliseconds.
    TopicPartitions take_states(const rd_kafka_topic_partition_list_t& answers, std::map<TopicPartition, CommitState>& states) const {
        TopicPartitions left;
        for (int i = 0; i < answers.cnt; ++i) {
            const rd_kafka_topic_partition_t& found = answers.elems[i];
            if (found.err != RD_KAFKA_RESP_ERR_NO_ERROR) left.emplace_back(found.topic, found.partition);
            if (found.err != RD_KAFKA_RESP_ERR_NO_ERROR || found.offset < 0) continue;
            const auto state = committed_state(found.topic, found.partition, found.offset, metadata_of(found));
            if (state && is_of_other_topic(*state, options_.input_ids.at(found.topic))) continue;
            // Without metadata, only the offsets below the committed one are known to be finished.
            states[{found.topic, found.partition}] = state ? *state : nothing_finished_above(found.offset);
        }
        return left;
    }

    // The open partitions in which a transaction of ours was committed. The offsets are read before the records: if another worker finishes
    // a job in between, the job counts as open or the other worker's record is seen.
    TopicPartitions committed_ones() const {
        const auto states = this->states();
        const auto is_done = [&](const schema::Source& job) {
            const auto state = states.find({job.topic, job.partition});
            return state != states.end() && is_finished(state->second, job.offset);
        };
        TopicPartitions committed;
        for (const auto& [partition, ends] : ends_behind(open_)) {
            if (counts_as_committed(ends, options_.worker, known_committed_, is_done)) committed.push_back(partition);
        }
        return committed;
    }

    // All records that ended jobs and are after the stable ends of these partitions.
    std::map<TopicPartitions::value_type, std::vector<EndOfJob>> ends_behind(const EndOffsets& open) const {
        std::map<TopicPartitions::value_type, std::vector<EndOfJob>> found;
        TopicPartitions partitions;
        for (const auto& [partition, end] : open) partitions.push_back(partition);
        const EndOffsets starts = ends_of(partitions, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED);
        const EndOffsets ends = ends_of(partitions, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED);
        RecordReader::Options reading{.positions_only = true, .uncommitted = true};
        for (const auto& [partition, start] : starts) reading.positions.push_back({partition.first, partition.second, start});
        RecordReader reader(consumer_.config(), std::move(reading));
        const auto deadline = Clock::now() + limits_.deadline;  // the reader's own deadline is longer, and a commit waits for this
        const auto may_go_on = [&](const RecordReader::Behind& behind) {
            if (behind.quiet > limits_.deadline || (reader.is_away() && Clock::now() > deadline)) {
                throw consumer_.away("reading what open transactions wrote", limits_.deadline);
            }
            return true;
        };
        reader.read_to(ends, may_go_on, [&](const schema::JobRecord& record) {
            if (auto end = end_of_job(record)) found[{record.source.topic, record.source.partition}].push_back(*std::move(end));
        });
        return found;
    }

    std::optional<EndOfJob> end_of_job(const schema::JobRecord& record) const {
        const std::string* transaction = schema::find_header(record.headers, schema::transaction_header);
        if (transaction == nullptr) return std::nullopt;
        if (record.source.topic == options_.topics.status()) {
            const auto status = schema::parse_status(record.value.value_or(""));
            return status ? std::optional(EndOfJob{status->run.source, *transaction}) : std::nullopt;
        }
        const bool is_result = record.source.topic == options_.topics.results();
        const auto named = is_result ? schema::source_of_result(record.headers) : schema::source_of_dead_letter(record.headers);
        if (!named || !schema::is_job_of(*named, options_.input_ids)) return std::nullopt;
        return EndOfJob{named->source, *transaction};
    }

    // Begins a transaction whose end marker is written to these partitions, whatever is open there.
    StepResult begin_over(const TopicPartitions& partitions) {
        if (auto begun = producer_.begin(1); begun.end != StepEnd::done) return begun;
        for (const auto& [topic, partition] : partitions) {
            producer_.send(
                {.topic = topic, .partition = partition, .key = schema::filler_key, .value = std::nullopt, .headers = {}, .tag = 0});
        }
        return producer_.finish_sending();
    }

    StepResult commit_over(const TopicPartitions& partitions) {
        const auto sent = begin_over(partitions);
        return sent.end == StepEnd::done ? producer_.commit() : sent;
    }

    StepResult abort_over() {
        TopicPartitions partitions;
        for (const auto& [partition, end] : open_) partitions.push_back(partition);
        const GroupMetadataHandle group(rd_kafka_consumer_group_metadata(consumer_.handle()));
        if (!group) return left_group;
        if (auto sent = begin_over(partitions); sent.end != StepEnd::done) return sent;
        if (!options_.inputs.empty()) {
            const PartitionListHandle offsets = list_of({options_.inputs.front()});
            offsets->elems[0].offset = 0;
            // It is enough that the offsets' partition is part of the transaction: a group that does not know us yet refuses the offset. If
            // the offset should take effect, it has no metadata, so a takeover reads the results.
            auto sent = producer_.send_offsets(group.get(), offsets.get());
            if (sent.end == StepEnd::unknown || sent.end == StepEnd::fenced) return sent;
        }
        return producer_.abort();
    }

    TransactionalProducer& producer_;
    const KafkaConnection& consumer_;
    const LeftoverOptions& options_;
    const LeftoverLimits& limits_;
    const std::string& known_committed_;
    const Clock::time_point start_ = Clock::now();
    EndOffsets open_;            // outputs held open by a transaction, and their ends when first seen
    TopicPartitions undecided_;  // inputs whose offsets a transaction holds undecided
};

}  // namespace

StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options,
                         const LeftoverLimits& limits, const std::string& known_committed) {
    return Leftovers(producer, consumer, options, limits, known_committed).end();
}

std::string name_of_transaction(const std::string& worker, std::int64_t number) { return fmt::format("{}/{}", worker, number); }

bool counts_as_committed(const std::vector<EndOfJob>& ends, const std::string& worker, const std::string& known_committed,
                         const std::function<bool(const schema::Source& job)>& is_finished) {
    const auto is_of_worker = [&](const EndOfJob& end) { return end.transaction.substr(0, end.transaction.rfind('/')) == worker; };
    const auto last = std::find_if(ends.rbegin(), ends.rend(), is_of_worker);
    if (last == ends.rend()) return false;
    if (last->transaction == known_committed) return true;
    std::set<schema::Source> ended_once;
    for (const EndOfJob& end : ends) {
        if (end.transaction != last->transaction) {
            ended_once.erase(end.job);
        } else if (is_finished(end.job)) {
            ended_once.insert(end.job);
        } else {
            return false;
        }
    }
    return !ended_once.empty();
}

}  // namespace lorry::consumer
