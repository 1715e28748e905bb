// Decides where to resume partitions that were assigned to this member. It compares their committed offsets and metadata with what the log
// still holds and with the results topic beyond the commit. Asks on a thread of its own, so that the poll loop keeps the member in the
// group. Used only by KafkaSource.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/past_results.h"

namespace lorry::consumer {

// What determines which jobs of a partition are finished.
enum class Basis : std::uint8_t {
    commit,   // the commit, up to state.seen; after that the results
    results,  // only the results, above the committed offset if there is one
    nothing,  // the commit belongs to a different log, and so do the results
};

struct TakenOver {
    std::string topic;
    std::int32_t partition = 0;
    Basis basis = Basis::commit;
    CommitState state;       // what is already finished
    bool recorded = true;    // `state` is exactly what the commit says
    std::int64_t start = 0;  // where reading starts
    std::int64_t first = 0;  // the log's start and end
    std::int64_t end = 0;
    std::int64_t lost = 0;  // at most: offsets that retention deleted before their jobs were finished
};

class TakeOver {
public:
    // Both arguments must outlive this. Partitions are those of `consumer`'s group.
    TakeOver(KafkaConnection& consumer, PastResults& past_results) : consumer_(consumer), past_results_(past_results) {}

    // Starts asking. A request that times out is repeated; it never counts as "no offset". Partitions whose offset an open transaction
    // holds undecided are left out of the answer.
    void start(TopicPartitions partitions);
    bool is_running() const { return thread_.joinable(); }
    // Returns the answer when it is complete, nullopt before that. Throws KafkaError when there is none by deadline_later, or when the
    // metadata was written by a newer program.
    std::optional<std::vector<TakenOver>> result();
    // Gives up. Waits for the request in flight: a few seconds, or up to deadline_start while the topics are first looked up.
    void cancel();

private:
    std::vector<TakenOver> ask(const TopicPartitions& partitions, const std::stop_token& stop);

    KafkaConnection& consumer_;
    PastResults& past_results_;
    std::mutex mutex_;
    std::optional<std::vector<TakenOver>> answer_;  // guarded by mutex_
    std::exception_ptr failure_;                    // guarded by mutex_
    std::jthread thread_;                           // last: it uses all of the above
};

// Applies the takeover rules to one partition. `committed` is nullopt when the group has no offset; `topic_id` is empty when brokers have
// no topic ids. Throws KafkaError when the metadata was written by a newer program.
TakenOver take_over(const std::string& topic, std::int32_t partition, std::optional<std::int64_t> committed, std::string_view metadata,
                    const KafkaConnection::Watermarks& log, std::string_view topic_id = {});
// Adds what the results say beyond the commit.
void add_ended(TakenOver& taken, const PastResults::Answer& past);
// Returns `state` from offset `first` on, with the offsets in `finished` marked as finished.
CommitState with_finished(const CommitState& state, std::int64_t first, const std::set<std::int64_t>& finished);

}  // namespace lorry::consumer
