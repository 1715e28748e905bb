// Maps settings to options of the pipeline.
#include "ops/pipeline_setup.h"

#include <algorithm>

namespace lorry::ops {

std::int64_t in_flight_tokens_of(const Settings& settings, std::int64_t context_max) {
    if (settings.in_flight_tokens > 0) return settings.in_flight_tokens;
    return std::max<std::int64_t>(2'000'000, 4 * settings.max_batch * context_max);
}

consumer::InFlightLimits in_flight_limits(const Settings& settings, const engine::Engine& engine) {
    return consumer::InFlightLimits::of(in_flight_tokens_of(settings, engine.context_max()),
                                        static_cast<std::int64_t>(settings.in_flight_bytes.count), engine.options());
}

consumer::PipelineOptions pipeline_options(const Settings& settings, const engine::Engine& engine, const std::string& worker) {
    return {.worker = worker,
            .in_flight_max = static_cast<std::size_t>(settings.in_flight),
            .in_flight = in_flight_limits(settings, engine),
            .commit_interval = settings.commit_interval,
            .drain_timeout = settings.drain_timeout,
            .commit_timeout = settings.deadline_later + std::chrono::minutes(1),
            .job_timeout = settings.job_timeout,
            .parse = {.bytes_max = settings.job_bytes_max.count}};
}

}  // namespace lorry::ops
