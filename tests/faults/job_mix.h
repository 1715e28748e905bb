// The jobs of a fault test and how each must end. Used by the driver, the checker and their tests. The first part of a job's custom_id is
// its kind ("stream-17") and the record contains the rest, so the jobs topic alone determines the expected results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schema/codec.h"

namespace lorry::faults {

enum class JobKind : std::uint8_t {
    plain,
    twin,       // many share one custom_id: each has its own result
    stream,     // asks for chunks
    slow,       // has many more tokens than the others
    stuck,      // has so many tokens that it outlasts all others
    late,       // its adapter is registered after it
    unknown,    // its adapter is never registered
    expired,    // its deadline has already passed
    cancel,     // cancelled before, while or after it runs
    malformed,  // has an unsupported field
    oversized,  // larger than job_bytes_max
    large,      // its result is larger than the results topic accepts
    killer,     // ends the process that computes it
    broken,     // not JSON
    nameless,   // no custom_id
    null,       // no value
};
std::string_view name_of(JobKind kind);

// Limits that the workers and the checker must agree on.
struct FaultRules {
    std::size_t job_bytes_max = 64 << 10;
    // Workers died so often that a job may have met three deaths by chance: then any job that is computed may end as worker_crashed.
    bool crashes_by_chance = false;
    // Limits of a worker. Jobs: its window, the eight places for jobs of unknown adapters, and what one poll may add to them.
    // Memory: what the program itself takes, and a window of jobs.
    std::uint64_t window = 256;
    // Jobs that were held back for their start are delivered whether there is room or not, 64 at a time: those that are refused then count
    // until they are committed.
    std::uint64_t working_max = window + 64;
    std::uint64_t parked_max = 9 * 256;
    std::uint64_t memory_bytes_max = std::uint64_t{512} << 20;
};

// A prompt that begins with this token makes the fake engine end its process.
inline constexpr std::int32_t killer_token = 486;

class JobMix {
public:
    // Relative frequency of each kind.
    using Weights = std::map<JobKind, double>;
    static Weights everyday();  // for random mixes: all kinds except stuck, killer, late and large

    JobMix(std::uint64_t seed, Weights weights) : random_(seed), weights_(std::move(weights)) {}

    // The next job, without its source, which is not known yet.
    schema::JobRecord next();
    schema::JobRecord next(JobKind kind);
    // The adapter that jobs of the kind `late` name, until the next call.
    std::string late_adapter() const { return fmt::format("late-{}", late_adapters_); }
    void name_next_late_adapter() { ++late_adapters_; }

private:
    std::mt19937_64 random_;
    Weights weights_;
    std::uint64_t count_ = 0;
    int late_adapters_ = 0;
};

// How a job must end.
struct Expectation {
    JobKind kind = JobKind::plain;
    bool dead_letter = false;
    std::string custom_id;                 // of results
    std::string job_id;                    // the key of results
    std::vector<schema::ErrorCode> codes;  // any of these error codes will do
    std::optional<std::string> text;       // or this answer
    bool stream = false;                   // the answer is in the chunks too
    std::int64_t tokens = 0;               // of the answer
};
Expectation expectation_of(const schema::JobRecord& record, const FaultRules& rules);

}  // namespace lorry::faults
