// Follows a batch in the topics: how many jobs it has (jobs topic) and how each ended (results and dead letters). Used by `collect`,
// `submit` and `jobs --batch`. Needs nothing from whoever submitted the batch, so it also works after the submitter crashed.
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
#include "ops/client/wait_limit.h"
#include "schema/codec.h"
#include "schema/topics.h"

namespace lorry::ops {

class ProgressBar;

// A header of each job that `lorry submit` sends: the number of jobs that the batch will have.
inline constexpr std::string_view batch_jobs_header = "batch_jobs";

struct BatchResult {
    std::string line;  // as published
    schema::ResultSummary summary;
};

struct BatchCounts {
    std::int64_t jobs = 0;  // jobs in the jobs topic
    std::int64_t ok = 0;
    std::int64_t failed = 0;     // including dead letters
    std::int64_t announced = 0;  // by batch_jobs_header; 0: unknown
    std::int64_t finished() const { return ok + failed; }
    // Jobs whose records are gone still count through their results, or through the announced number.
    std::int64_t total() const { return std::max({jobs, announced, finished()}); }
};

// The state of one batch, updated by poll(). One thread.
class BatchFollower {
public:
    struct Options {
        std::string batch_id;
        // Where to start reading; nullopt: at the time in the id, or at the beginning if it has none.
        std::optional<schema::Timestamp> since;
        bool results = true;  // false: only count the jobs
    };
    // Throws KafkaError like RecordReader.
    BatchFollower(const consumer::KafkaConfig& config, const schema::Topics& topics, Options options);

    // The results that arrived since the last call. Each of the batch's results is returned once, however often it was published.
    std::vector<BatchResult> poll();
    const BatchCounts& counts() const { return counts_; }
    // Sets a function to be called for each job of the batch with the value of its record (perhaps empty). Call before the first poll().
    void on_job(std::function<void(const std::string& value)> call) { on_job_ = std::move(call); }
    // Adds a result that the caller has from an earlier call, of any batch. It counts as soon as its job is seen, even if its own record
    // arrives late or is gone. Call before the first poll().
    void know(const schema::ResultSummary& summary);
    // Number of results passed to know(), each counted once.
    std::int64_t known() const { return static_cast<std::int64_t>(known_.size()); }
    // How often each error text, shortened, occurred among the failed jobs.
    const std::map<std::string, std::int64_t>& errors() const { return errors_; }

    enum class Standing {
        open,       // jobs are running, waiting or still being submitted
        checked,    // each known job ended; what was written until now is being read, for more jobs
        complete,   // each job of the batch ended
        cut_short,  // the same, but fewer jobs were submitted than announced, and none arrived for a while
        lost,       // each job ended, but some results are no longer in the topic
        no_such,    // the topics have no job of the batch
    };
    // Asks the brokers, so do not call it for each record.
    Standing standing();
    // True once everything was read that existed at the first call.
    bool has_caught_up() { return beginning_.is_done(); }
    // True if no broker answers at present.
    bool is_away() const { return reader_.is_away(); }
    // The topics that no longer have their oldest records. Asks the brokers.
    std::vector<std::string> shortened_topics();
    // Upper bound of the batch's jobs that the jobs topic no longer has. Asks the brokers.
    std::int64_t jobs_gone_max();

private:
    void take_job(const schema::JobRecord& record);
    void take_result(schema::JobRecord record, std::vector<BatchResult>& results);
    void take_dead_letter(const schema::JobRecord& record);
    void count(const schema::ResultSummary& summary);
    void count_failure(const std::string& error);
    bool is_rest_lost();
    bool can_read_statuses();
    void take_status(const schema::JobRecord& record);

    const Options options_;
    const consumer::KafkaConfig config_;
    const schema::Topics topics_;
    consumer::RecordReader reader_;
    consumer::CatchUp beginning_;  // what existed when following began
    consumer::CatchUp all_;        // what existed when each known job had ended
    consumer::CatchUp rest_;       // what existed when the last missing result was noticed
    std::function<void(const std::string&)> on_job_;
    consumer::TextSet seen_;  // result ids
    // Ids of the results passed to know().
    consumer::TextSet known_;
    std::unordered_map<std::string, std::string> known_failures_;  // result id -> error
    // Reader of the status topic; only used when results are missing and nothing arrives.
    std::optional<consumer::RecordReader> statuses_;
    std::optional<consumer::CatchUp> all_statuses_;
    std::set<std::string> missing_;  // ids of missing results of jobs that ended
    std::chrono::steady_clock::time_point last_news_;
    BatchCounts counts_;
    std::map<std::string, std::int64_t> errors_;
    std::chrono::steady_clock::time_point last_job_;
};

enum class FollowEnd { complete, cut_short, lost, no_such, timed_out, stopped };
struct FollowOptions {
    WaitLimit limit;
    const std::atomic<bool>& stop;
    std::function<void(const BatchResult&)> on_result;
    std::function<void()> after_poll;  // a chance to flush the results so far
};
// Polls until the batch is complete or the wait ends, and shows the progress.
FollowEnd follow_to_end(BatchFollower& batch, ProgressBar& progress, const FollowOptions& options);

// "398 of 400 jobs ended, 3 of them failed"; ", all well" if all ended and none failed; then a line for each of the most common errors.
std::string show_counts(const BatchFollower& batch);

}  // namespace lorry::ops
