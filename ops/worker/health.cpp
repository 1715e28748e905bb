// The states of /healthz; see health.h.
#include "ops/worker/health.h"

#include <fmt/format.h>

namespace lorry::ops {

Health health_of(Phase phase, std::chrono::steady_clock::duration since_poll, const MetricSources& sources) {
    switch (phase) {
        case Phase::starting: return {.ok = false, .state = "starting"};
        case Phase::draining: return {.ok = false, .state = "draining"};
        case Phase::running: break;
    }
    if (since_poll > poll_overdue) return {.ok = false, .state = "jobs are not polled"};
    const auto unreadable = sources.member ? sources.member().unreadable : std::vector<consumer::UnreadableRecord>();
    if (unreadable.empty()) return {.ok = true, .state = "running"};
    // A restart would not help, so the probe still gets 200.
    std::string state = "degraded";
    for (const consumer::UnreadableRecord& record : unreadable)
        state += fmt::format("\npartition {} is blocked at offset {}: {}. {}", record.partition, record.offset, record.reason,
                             advice_for(record));
    return {.ok = true, .state = std::move(state)};
}

}  // namespace lorry::ops
