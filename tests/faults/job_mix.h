// The jobs of a fault test and how each must end. A job's kind is the first part of its custom_id ("stream-17"), everything else is read
// from the record itself, so that what must come out can be told from the jobs topic alone.
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
    twin,       // many under one custom_id: each has a result of its own
    stream,     // asks for chunks
    slow,       // many more tokens than the others
    stuck,      // so many that it outlasts everything around it
    late,       // for an adapter that is registered after it
    unknown,    // for an adapter that nobody registers
    expired,    // its deadline is over
    cancel,     // cancelled before, while or after it runs
    malformed,  // a field that is not supported
    oversized,  // beyond job_bytes_max
    large,      // its result is larger than the results topic takes
    killer,     // ends the process that computes it
    broken,     // no JSON
    nameless,   // no custom_id
    null,       // no value
};
std::string_view name_of(JobKind kind);

// What both the workers and the checker must agree on.
struct FaultRules {
    std::size_t job_bytes_max = 64 << 10;
    // Workers ended so often that a job may have met three of those ends by chance: worker_crashed will do for any job that is computed.
    bool crashes_by_chance = false;
    // Of a worker: its window; the eight that jobs of unknown adapters have beside it, and as many as one poll may add to them; what the
    // program itself takes, and a window of jobs.
    std::uint64_t working_max = 256;
    std::uint64_t parked_max = 9 * 256;
    std::uint64_t memory_bytes_max = std::uint64_t{512} << 20;
};

// The fake engine ends its process when a prompt begins with this token.
inline constexpr std::int32_t killer_token = 486;

class JobMix {
public:
    // Jobs of each kind by weight.
    using Weights = std::map<JobKind, double>;
    static Weights everyday();  // what a random mix is made of: all kinds but stuck, killer, late and large

    JobMix(std::uint64_t seed, Weights weights) : random_(seed), weights_(std::move(weights)) {}

    // The next job. Its source is not yet known.
    schema::JobRecord next();
    schema::JobRecord next(JobKind kind);
    // What jobs of the kind `late` ask for, until the next name.
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
    std::vector<schema::ErrorCode> codes;  // any of these error codes will do
    std::optional<std::string> text;       // or this answer
    bool stream = false;                   // the answer is in the chunks too
    std::int64_t tokens = 0;               // of the answer
};
Expectation expectation_of(const schema::JobRecord& record, const FaultRules& rules);

}  // namespace lorry::faults
