// A batch as the topics tell of it: how many jobs it has (jobs topic), how each ended (results and dead letters). Used by `collect`,
// `submit --wait` and `jobs --batch`. Needs nothing from whoever submitted the batch, so it works after a crash of that one too.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "consumer/file/record_set.h"
#include "consumer/kafka/reader.h"
#include "schema/codec.h"
#include "schema/topics.h"

namespace lorry::ops {

class ProgressBar;

// A header of each job that `lorry submit` sends: how many jobs the batch is going to have.
inline constexpr std::string_view batch_jobs_header = "batch_jobs";

struct BatchResult {
    std::string line;  // as published
    schema::ResultSummary summary;
};

struct BatchCounts {
    std::int64_t jobs = 0;  // in the jobs topic
    std::int64_t ok = 0;
    std::int64_t failed = 0;     // dead letters included
    std::int64_t announced = 0;  // by batch_jobs_header; 0: not said
    std::int64_t finished() const { return ok + failed; }
    // Jobs whose records are gone still count by their ends, or by what was announced.
    std::int64_t total() const { return std::max({jobs, announced, finished()}); }
};

// One thread.
class BatchFollower {
public:
    struct Options {
        std::string batch_id;
        // Where to begin: nullopt reads everything, unless the id tells its time.
        std::optional<schema::Timestamp> since;
        bool results = true;  // false: only counts the jobs
    };
    // Throws KafkaError as RecordReader does.
    BatchFollower(const consumer::KafkaConfig& config, const schema::Topics& topics, Options options);

    // The results that came since; each of the batch's once, however often it was published.
    std::vector<BatchResult> poll();
    const BatchCounts& counts() const { return counts_; }
    // Called for each job of the batch, with the value of its record (perhaps empty); before the first poll().
    void on_job(std::function<void(const std::string& value)> call) { on_job_ = std::move(call); }
    // A result that the caller has from an earlier call, of whichever batch: it counts as soon as its job is seen, though its own record
    // come late or be gone. Before the first poll().
    void know(const schema::ResultSummary& summary);
    // How many results were made known, each counted once.
    std::int64_t known() const { return static_cast<std::int64_t>(known_.size()); }
    // Text of an error, how often: what the failed ones died of.
    const std::map<std::string, std::int64_t>& errors() const { return errors_; }

    enum class Standing {
        open,       // jobs are running, waiting or still being submitted
        complete,   // each job of the batch ended
        cut_short,  // the same, but fewer were submitted than announced, and none came for a while
        lost,       // each job ended, but not all of their results are in the topic any more
        no_such,    // no job of it in the topics
    };
    // Asks the brokers, so not for each record.
    Standing standing();
    // True when everything was read that was there a moment ago.
    bool is_at_end() const { return reader_.at_end(); }
    // No broker answers at present.
    bool is_away() const { return reader_.is_away(); }
    // Which of the topics no longer have their oldest records. Asks the brokers.
    std::vector<std::string> shortened_topics();
    // How many jobs of the batch the jobs topic may have had that it no longer has. Asks the brokers.
    std::int64_t jobs_gone_max();

private:
    void take_job(const schema::JobRecord& record);
    void take_result(schema::JobRecord record, std::vector<BatchResult>& results);
    void take_dead_letter(const schema::JobRecord& record);
    void count(const schema::ResultSummary& summary);
    void count_failure(const std::string& error);
    bool is_rest_lost();
    void take_status(const schema::JobRecord& record);

    const Options options_;
    const consumer::KafkaConfig config_;
    const schema::Topics topics_;
    consumer::RecordReader reader_;
    std::function<void(const std::string&)> on_job_;
    consumer::TextSet seen_;  // result ids
    // Of the results that the caller knew.
    consumer::TextSet known_;
    std::unordered_map<std::string, std::string> known_failures_;  // result id -> error
    // What the status topic says; read only when results are missing and nothing comes.
    std::optional<consumer::RecordReader> statuses_;
    std::set<std::string> missing_;  // ids of the results of jobs that ended
    std::chrono::steady_clock::time_point last_news_;
    BatchCounts counts_;
    std::map<std::string, std::int64_t> errors_;
    std::chrono::steady_clock::time_point last_job_;
};

enum class FollowEnd { complete, cut_short, lost, no_such, timed_out, stopped };
struct FollowOptions {
    std::optional<std::chrono::milliseconds> timeout;  // 0: what is there now
    const std::atomic<bool>& stop;
    std::function<void(const BatchResult&)> on_result;
    std::function<void()> after_poll;  // results so far may be flushed
};
// Polls until the batch is complete or the wait is over, and shows how far it is.
FollowEnd follow_to_end(BatchFollower& batch, ProgressBar& progress, const FollowOptions& options);

// "398 of 400 jobs ended, 3 of them failed"; "all well" when all ended and none failed; and a line for each of the commonest errors.
std::string show_counts(const BatchFollower& batch);

}  // namespace lorry::ops
