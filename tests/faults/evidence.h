// Reads what the checker decides upon: the topics when all is over, and the results while they come.
#pragma once

#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "consumer/kafka/config.h"
#include "tests/faults/checker.h"
#include "tests/faults/progress_watch.h"

namespace lorry::faults {

using SteadyClock = std::chrono::steady_clock;

// Everything but the tailed records and the ledgers. Throws KafkaError, also when a partition does not become readable to its end within
// `patience`: that is left to the checker to see, for as long as reading is possible.
Evidence read_evidence(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group, const FaultRules& rules,
                       std::chrono::milliseconds patience);

// The ledger in that file when it has read the topics to their end; made if there is none. Terminal rows only. Nobody else keeps it.
std::vector<schema::Status> read_ledger(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                        const std::filesystem::path& file);

// Follows results, dead letters and terminal statuses on a thread of its own, as a reader of committed records; and now and then looks at
// the group's commits, which must not run ahead of what is then found.
class Tail {
public:
    Tail(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group);

    // Any thread, all of them.
    std::size_t ended() const;  // jobs with at least one end
    // Results whose value holds all of these words.
    std::size_t results_with(std::initializer_list<std::string_view> words) const;
    // When that worker's first result after `since` was seen.
    std::optional<SteadyClock::time_point> first_end_of(const std::string& worker, SteadyClock::time_point since) const;
    // Of the watch over progress (progress_watch.h); expect() before these jobs are produced.
    void expect(std::size_t jobs);
    void begin_watch();
    std::chrono::milliseconds pause() const;
    std::optional<std::chrono::milliseconds> stop_watch();
    // What was wrong with commits so far, and how many were looked at.
    std::vector<Violation> violations() const;
    std::size_t commits_seen() const;
    // Reads on until everything that is committed now was seen, for at most `patience`; then the records of results and dead letters.
    std::vector<schema::JobRecord> finish(std::chrono::milliseconds patience);

private:
    void run(const std::stop_token& stop);
    void take(const schema::JobRecord& record);
    void look_at_commits(const std::stop_token& stop);

    struct CommitSample {
        std::vector<CommittedOffset> commits;
        std::vector<PartitionEnd> ends;  // of results and dead letters, asked for afterwards
    };

    const consumer::KafkaConfig config_;
    const schema::Topics topics_;
    const std::string group_;
    mutable std::mutex mutex_;
    std::vector<schema::JobRecord> records_;  // guarded by mutex_, as all that follows
    std::set<schema::Source> sources_;
    FinishedOffsets finished_;
    std::map<std::string, std::vector<SteadyClock::time_point>> ends_of_worker_;
    ProgressWatch watch_;
    std::optional<CommitSample> sample_;
    std::size_t commits_seen_ = 0;
    std::vector<Violation> violations_;
    bool at_end_ = false;
    std::string failure_;
    std::jthread reader_;  // last: they use all of the above
    std::jthread sampler_;
};

}  // namespace lorry::faults
