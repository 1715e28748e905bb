// A worker as `lorry worker` builds it, with an engine that computes hashes, as one process of a simulated cluster. Used by world.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "consumer/pipeline.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/plants.h"

namespace lorry::simulation {

struct WorkerOptions {
    std::string member;
    Plant plant = Plant::none;
    std::function<void()> on_killer;  // a job that kills its worker runs now
};

inline constexpr std::string_view topic_prefix = "sim";
inline constexpr std::string_view group_name = "sim-group";
std::string transactional_id(const std::string& member);

// What the world may do to a running worker.
struct RunningWorker {
    consumer::Pipeline* pipeline = nullptr;  // while it runs
};

// Runs until it is asked to stop. Throws what the worker's parts throw. The process's first fiber calls it.
void run_worker(const WorkerOptions& options, RunningWorker& running);

}  // namespace lorry::simulation
