// What a worker answers to a probe of /healthz. Called by worker.cpp on the server's threads.
#pragma once

#include <chrono>
#include <cstdint>

#include "ops/metrics.h"
#include "ops/worker/health_server.h"

namespace lorry::ops {

enum class Phase : std::uint8_t { starting, running, draining };

// A pipeline that has not polled for this long counts as hung; a probe may restart the worker.
inline constexpr std::chrono::seconds poll_overdue{120};

// since_poll: time since the pipeline's last poll. Asks sources only in the phase `running`.
Health health_of(Phase phase, std::chrono::steady_clock::duration since_poll, const MetricSources& sources);

}  // namespace lorry::ops
