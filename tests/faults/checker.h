// Decides from committed records alone whether every job ended exactly once and as it must. Pure: takes evidence, returns violations. Used
// by lorry_faults and lorry_fault_check, which read the topics with evidence.h, and by its own tests, each of which breaks one promise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/codec.h"
#include "schema/topics.h"
#include "tests/faults/job_mix.h"

namespace lorry::faults {

struct CommittedOffset {
    std::int32_t partition = 0;  // of the jobs topic
    std::int64_t offset = 0;
    std::string metadata;
};

// Where a partition ends for readers of committed records and for other readers. They differ while a transaction is open.
struct PartitionEnd {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t committed = 0;
    std::int64_t all = 0;
};

// The most that a worker held at one time, over all its restarts.
struct WorkerPeak {
    std::string member;
    std::uint64_t working = 0;  // jobs in flight that were not parked
    std::uint64_t parked = 0;
    std::uint64_t memory_bytes = 0;
};

// Faults that wait for an event (a fault point passed, a request seen), and how many of them waited in vain.
struct FaultPoints {
    std::size_t chosen = 0;
    std::size_t missed = 0;
    double reached_least = 1.0;  // minimum share of the chosen faults that must be reached
};

// The longest time in which no job ended though jobs were left, between the healing of one fault and the next fault (progress_watch.h).
struct Pause {
    std::string after;  // the fault
    std::chrono::milliseconds longest{0};
};

// A worker that had to end in a certain way, or had to keep running.
struct WorkerEnd {
    std::string member;
    std::optional<int> exit_code = std::nullopt;  // nullopt: still running
    std::optional<int> wanted = std::nullopt;     // nullopt: must still run
    std::vector<std::string> words = {};          // the log must contain these
    std::string log = {};                         // last lines of the log
};

// The terminal jobs of a ledger.
struct LedgerRows {
    std::string name;
    std::optional<std::vector<schema::Status>> rows = std::nullopt;  // nullopt: the file is missing
};

// What the topics and the ledgers contain at the end of the test.
struct Evidence {
    schema::Topics topics;
    FaultRules rules;
    // Read at the end, in order of (partition, offset).
    std::vector<schema::JobRecord> jobs, results, dead_letters, statuses, chunks;
    std::optional<std::size_t> jobs_sent;  // nullopt: not known
    // Results and dead letters as seen by a reader that followed the topics throughout; nullopt: there was no such reader.
    std::optional<std::vector<schema::JobRecord>> tailed;
    std::vector<CommittedOffset> commits;
    bool offsets_settled = false;  // no open transaction holds newer offsets of the group
    std::vector<PartitionEnd> ends;
    std::vector<WorkerPeak> peaks;
    FaultPoints points;
    std::vector<Pause> pauses;
    std::chrono::milliseconds pause_limit{0};
    std::vector<WorkerEnd> worker_ends;
    std::size_t deaths = 0;           // deaths of workers; each may have made one harmless job end as worker_crashed
    std::vector<LedgerRows> ledgers;  // the workers' ledgers, and one rebuilt from the topics
};

struct Violation {
    enum class Kind : std::uint8_t {
        lost,                 // a job has neither a result nor a dead letter, or is not in its topic
        stalled,              // no job ended for longer than the time-outs allow, or a worker did not end after SIGTERM
        wrong_exit,           // a worker did not end as it must, or did not say why
        not_reached,          // too many faults did not come about, or there are no jobs, so the test shows nothing
        doubled,              // a job has more than one result or dead letter
        stranger,             // a result belongs to no job
        wrong_end,            // the result is not the one that the job must have
        readers_disagree,     // the reader that followed the topics throughout saw other records
        committed_too_far,    // an unfinished job is committed as finished
        metadata_unreadable,  // the metadata of a commit cannot be decoded
        broken_stream,        // the chunks of the winning attempt do not add up to the text
        status_disorder,      // statuses and result contradict each other
        hanging_transaction,  // a partition or the group's offsets wait for an open transaction
        ledger_differs,       // a ledger is missing or differs from one rebuilt from the topics
        beyond_limits,        // a worker held more jobs or memory than allowed
    };
    Kind kind = Kind::lost;
    std::string text;
};
std::string_view name_of(Violation::Kind kind);

// The source named by a result or a dead letter; nullopt if it names none.
std::optional<schema::Source> source_of(const schema::JobRecord& record);

std::vector<Violation> check(const Evidence& evidence);

// For each partition of jobs, the offsets that have a result or a dead letter.
using FinishedOffsets = std::map<std::int32_t, std::vector<bool>>;
void mark_finished(FinishedOffsets& finished, const schema::Source& source);
// Checks the rule that holds at any time: every job that `commits` marks as finished has its end in `finished`, which was read after them.
std::vector<Violation> check_commits(std::span<const CommittedOffset> commits, const FinishedOffsets& finished);

// The tokens of all results that have text.
std::int64_t answer_tokens(const Evidence& evidence);
// How many harmless jobs ended as worker_crashed.
std::size_t crashed_by_chance(const Evidence& evidence);

}  // namespace lorry::faults
