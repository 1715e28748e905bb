// Decides from committed records alone whether every job ended exactly once and as it must. Pure: evidence in, violations out. Used by
// lorry_faults, lorry_fault_check (evidence.h reads the topics) and its own tests, which break one thing each.
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

// Where a partition ends for readers of committed records and for all others: unequal while a transaction is open.
struct PartitionEnd {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t committed = 0;
    std::int64_t all = 0;
};

// The most that a worker ever had, over all its lives.
struct WorkerPeak {
    std::string member;
    std::uint64_t working = 0;  // jobs in flight that were not parked
    std::uint64_t parked = 0;
    std::uint64_t memory_bytes = 0;
};

// Faults that wait for something to happen first (a fault point passed, a request seen), and how many of them never came about.
struct FaultPoints {
    std::size_t chosen = 0;
    std::size_t missed = 0;
    double reached_least = 1.0;  // share of the chosen
};

// The longest time in which nothing ended while jobs were left: from a fault, once it had healed, to the next one (progress_watch.h).
struct Pause {
    std::string after;  // the fault
    std::chrono::milliseconds longest{0};
};

// A worker that had to end in one way, or not to end.
struct WorkerEnd {
    std::string member;
    std::optional<int> exit_code = std::nullopt;  // nullopt: it still runs
    std::optional<int> wanted = std::nullopt;     // likewise
    std::vector<std::string> words = {};          // that its log must hold
    std::string log = {};                         // its last lines
};

// A ledger's terminal jobs.
struct LedgerRows {
    std::string name;
    std::optional<std::vector<schema::Status>> rows = std::nullopt;  // nullopt: the file is missing
};

// What the topics and the ledgers say when all is over.
struct Evidence {
    schema::Topics topics;
    FaultRules rules;
    // As read afterwards, each in order of (partition, offset).
    std::vector<schema::JobRecord> jobs, results, dead_letters, statuses, chunks;
    // Results and dead letters as seen by a reader that was there all the time; nullopt: there was none.
    std::optional<std::vector<schema::JobRecord>> tailed;
    std::vector<CommittedOffset> commits;
    bool offsets_settled = false;  // no transaction holds newer ones of the group undecided
    std::vector<PartitionEnd> ends;
    std::vector<WorkerPeak> peaks;
    FaultPoints points;
    std::vector<Pause> pauses;
    std::chrono::milliseconds pause_limit{0};
    std::vector<WorkerEnd> worker_ends;
    std::size_t deaths = 0;           // of workers, each of which may have made one job a crash by chance
    std::vector<LedgerRows> ledgers;  // those that workers kept, and one made anew
};

struct Violation {
    enum class Kind : std::uint8_t {
        lost,                 // a job without result and dead letter
        stalled,              // nothing ended for longer than the time-outs allow, or a worker did not that was told to
        wrong_exit,           // a worker did not end as it must, or without saying why
        not_reached,          // faults that were to happen and did not: nothing was shown
        doubled,              // with more than one
        stranger,             // a result of no job
        wrong_end,            // not what the job must end with
        readers_disagree,     // the reader that was there all the time saw other records
        committed_too_far,    // an unfinished job is committed as finished
        metadata_unreadable,  // of a commit
        broken_stream,        // the winning attempt's chunks are not the text
        status_disorder,      // statuses and result do not tell one story
        hanging_transaction,  // a partition's committed end does not reach its end, or the group's offsets wait for one
        ledger_differs,       // one of them from its topics, and so from the one made anew; or it is missing
        beyond_limits,        // a worker held more jobs or memory than it may
    };
    Kind kind = Kind::lost;
    std::string text;
};
std::string_view name_of(Violation::Kind kind);

// The source that a result or a dead letter names; nullopt: it names none.
std::optional<schema::Source> source_of(const schema::JobRecord& record);

std::vector<Violation> check(const Evidence& evidence);

// The rule that must hold at any time: whatever `commits` says is finished has its end among `finished`, which was read after them.
// finished: per partition the offsets with a result or dead letter.
using FinishedOffsets = std::map<std::int32_t, std::vector<bool>>;
std::vector<Violation> check_commits(std::span<const CommittedOffset> commits, const FinishedOffsets& finished);

// What the jobs' answers are worth: tokens of all results that carry text.
std::int64_t answer_tokens(const Evidence& evidence);
// How many jobs that do no harm ended as worker_crashed.
std::size_t crashed_by_chance(const Evidence& evidence);

}  // namespace lorry::faults
