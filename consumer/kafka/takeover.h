// Finds out where partitions go on that came to this member: their committed offsets and metadata against what the log still holds, and
// what the results topic says beyond them. Asks on a thread of its own, so that the poll loop keeps the member in the group; used
// by KafkaSource only.
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

// What says which jobs of a partition are finished.
enum class Basis : std::uint8_t {
    commit,   // the commit, up to state.seen; from there on the results
    results,  // above the committed offset, if there is one, only the results
    nothing,  // the commit is about another log than this one, and so are the results
};

struct TakenOver {
    std::string topic;
    std::int32_t partition = 0;
    Basis basis = Basis::commit;
    CommitState state;       // what is finished already
    bool recorded = true;    // it is what the commit says and nothing else
    std::int64_t start = 0;  // where to read from
    std::int64_t first = 0;  // the log's start and end
    std::int64_t end = 0;
    std::int64_t lost = 0;  // offsets that retention deleted before they were finished, at most
};

class TakeOver {
public:
    // All refers to partitions of `consumer`'s group; both must outlive this.
    TakeOver(KafkaConnection& consumer, PastResults& past_results) : consumer_(consumer), past_results_(past_results) {}

    // Starts asking. A time-out is asked again, never taken for "no offset". A partition whose offset an open transaction holds undecided
    // is left out of the answer.
    void start(TopicPartitions partitions);
    bool is_running() const { return thread_.joinable(); }
    // The answer once it is there. Throws KafkaError when it cannot be had until deadline_later, or the metadata is a newer program's.
    std::optional<std::vector<TakenOver>> result();
    // Gives up; waits for the request on its way (a few seconds; deadline_start where the topics are looked at for the first time).
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

// By the rules of a take-over: `committed` nullopt = none; topic_id: empty where brokers have none. Throws KafkaError for
// a newer program's metadata.
TakenOver take_over(const std::string& topic, std::int32_t partition, std::optional<std::int64_t> committed, std::string_view metadata,
                    const KafkaConnection::Watermarks& log, std::string_view topic_id = {});
// Takes in what the results say beyond the commit.
void add_ended(TakenOver& taken, const PastResults::Answer& past);
// The state of all from `first` on, in which these of them are finished as well.
CommitState with_finished(const CommitState& state, std::int64_t first, const std::set<std::int64_t>& finished);

}  // namespace lorry::consumer
