// Adds up weights and derives the limits of one job from those of all.
#include "consumer/weight.h"

#include <algorithm>
#include <limits>

namespace lorry::consumer {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t large_share = 8;  // one part in so many makes a job large
constexpr std::int64_t large_steps = 8;

}  // namespace

JobWeight& JobWeight::operator+=(const JobWeight& other) {
    requests += other.requests;
    rows += other.rows;
    tokens += other.tokens;
    bytes += other.bytes;
    return *this;
}

JobWeight& JobWeight::operator-=(const JobWeight& other) {
    return *this += {.requests = -other.requests, .rows = -other.rows, .tokens = -other.tokens, .bytes = -other.bytes};
}

bool JobWeight::exceeds(const JobWeight& limit) const {
    return requests > limit.requests || rows > limit.rows || tokens > limit.tokens || bytes > limit.bytes;
}

InFlightLimits InFlightLimits::of(std::int64_t tokens, std::int64_t bytes, const engine::EngineOptions& engine) {
    return {.tokens = tokens, .bytes = bytes, .sequences = engine.sequences_max, .step_rows = engine.step_rows_max};
}

JobWeight InFlightLimits::all() const { return {.requests = unlimited, .rows = unlimited, .tokens = tokens, .bytes = bytes}; }

JobWeight InFlightLimits::kept_for_calls() const {
    return {.requests = unlimited, .rows = unlimited, .tokens = tokens / large_share, .bytes = bytes / large_share};
}

JobWeight InFlightLimits::but_calls() const {
    JobWeight most = all();
    const JobWeight kept = kept_for_calls();
    if (keeps_room_for_calls) most -= {.requests = 0, .rows = 0, .tokens = kept.tokens, .bytes = kept.bytes};
    return most;
}

JobWeight InFlightLimits::heaviest() const { return {.requests = unlimited, .rows = unlimited, .tokens = tokens / 2, .bytes = bytes / 2}; }

JobWeight InFlightLimits::large() const {
    return {.requests = std::max<std::int64_t>(1, sequences / large_share),
            .rows = large_steps * step_rows,
            .tokens = tokens / large_share,
            .bytes = bytes / large_share};
}

}  // namespace lorry::consumer
