// How a worker takes part in its group, and how its pipeline runs, as the settings say. Used by `lorry worker` and `lorry up`.
#pragma once

#include <string>

#include "consumer/kafka/member.h"
#include "consumer/pipeline.h"
#include "ops/settings.h"

namespace lorry::ops {

// member: the worker's name, each once in the group.
consumer::KafkaMember::Options member_options(const Settings& settings, const std::string& group, const std::string& member);

// With places for calls.
consumer::PipelineOptions worker_pipeline_options(const Settings& settings, const engine::Engine& engine, const std::string& member);

}  // namespace lorry::ops
