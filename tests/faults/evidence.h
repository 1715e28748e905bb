// Reads the evidence for the checker: the topics at the end of a test, and the results while they arrive. Used by lorry_faults and
// lorry_fault_check.
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

// Reads all evidence except the followed records and the ledgers. Waits up to `patience` for open transactions to end; the checker reports
// those that do not. Throws KafkaError if topics or offsets cannot be read.
Evidence read_evidence(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group, const FaultRules& rules,
                       std::chrono::milliseconds patience);

// The terminal rows of the ledger in that file after it has read the topics to their end. Creates the file if it is missing. No other
// process may have it open.
std::vector<schema::Status> read_ledger(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                        const std::filesystem::path& file);

// Follows results, dead letters and terminal statuses on its own thread, as a reader of committed records. From time to time it also reads
// the group's commits, which must not be ahead of the results found after them.
class Tail {
public:
    Tail(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group);

    // All functions may be called from any thread.
    std::size_t ended() const;  // jobs with at least one result or dead letter
    // Results whose value contains all of these words.
    std::size_t results_with(std::initializer_list<std::string_view> words) const;
    // When that worker's first result after `since` was seen.
    std::optional<SteadyClock::time_point> first_end_of(const std::string& worker, SteadyClock::time_point since) const;
    // The progress watch (progress_watch.h). Call expect() before the jobs are produced.
    void expect(std::size_t jobs);
    void begin_watch();
    std::chrono::milliseconds pause() const;
    std::optional<std::chrono::milliseconds> stop_watch();
    // The violations found in commits so far, and how many commits were checked.
    std::vector<Violation> violations() const;
    std::size_t commits_seen() const;
    // Reads until it has seen everything that is committed now, for at most `patience`. Returns the records of results and dead letters.
    std::vector<schema::JobRecord> finish(std::chrono::milliseconds patience);

private:
    void run(const std::stop_token& stop);
    void take(const schema::JobRecord& record);
    void look_at_commits(const std::stop_token& stop);

    struct CommitSample {
        std::vector<CommittedOffset> commits;
        std::vector<PartitionEnd> ends;  // of results and dead letters, queried afterwards
    };

    const consumer::KafkaConfig config_;
    const schema::Topics topics_;
    const std::string group_;
    mutable std::mutex mutex_;
    std::vector<schema::JobRecord> records_;  // guarded by mutex_, like the members below
    std::set<schema::Source> sources_;
    FinishedOffsets finished_;
    std::map<std::string, std::vector<SteadyClock::time_point>> ends_of_worker_;
    ProgressWatch watch_;
    std::optional<CommitSample> sample_;
    std::size_t commits_seen_ = 0;
    std::vector<Violation> violations_;
    bool at_end_ = false;
    std::string failure_;
    std::jthread reader_;  // last, because the threads use all of the above
    std::jthread sampler_;
};

}  // namespace lorry::faults
