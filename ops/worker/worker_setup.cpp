// Maps settings to options of the member and of the pipeline.
#include "ops/worker/worker_setup.h"

#include <algorithm>

#include "ops/kafka_settings.h"
#include "ops/pipeline_setup.h"

namespace lorry::ops {
namespace {

consumer::CarefulStarts::Options careful_starts_of(const Settings& settings) {
    consumer::CarefulStarts::Options options{.at_once = static_cast<std::size_t>(settings.max_batch)};
    options.jobs = std::max(options.jobs, options.at_once);
    return options;
}

consumer::GroupProtocol group_protocol_of(const Settings& settings) {
    return settings.group_protocol == "consumer" ? consumer::GroupProtocol::consumer : consumer::GroupProtocol::classic;
}

}  // namespace

consumer::KafkaMember::Options member_options(const Settings& settings, const std::string& group, const std::string& member) {
    return {.topics = topics_of(settings),
            .group = group,
            .member = member,
            .protocol = group_protocol_of(settings),
            .exactly_once = settings.exactly_once,
            .careful_starts = careful_starts_of(settings)};
}

consumer::PipelineOptions worker_pipeline_options(const Settings& settings, const engine::Engine& engine, const std::string& member) {
    consumer::PipelineOptions options = pipeline_options(settings, engine, member);
    options.calls_in_flight_max = static_cast<std::size_t>(settings.in_flight_calls);
    return options;
}

}  // namespace lorry::ops
