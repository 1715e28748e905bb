// The experiments of a course on serving many LoRA adapters, run on the real engine and kernels. Called by `lorry bench course`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "ops/bench/experiments/experiment.h"
#include "ops/bench/workload.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

// What all experiments share. They run on the CPU, without the prefix cache.
struct Course {
    const Settings& settings;
    EngineSetup& setup;
    std::filesystem::path scratch;  // a folder for adapters
    bool quick = false;             // fewer and shorter runs, each once instead of the best of three
};

// How often an experiment repeats a measurement. A quick course does a single run.
Tries tries_of(const Course& course);

struct CourseRow {
    const char* name;
    const char* title;
    void (*run)(Course& course, Experiment& experiment);  // fills in finding, table and charts
};
// In the order in which they build on each other.
std::span<const CourseRow> course_table();

// Minimum length of the longest sequence of the experiments, in tokens.
inline constexpr std::int64_t course_context = 128;

Experiment run_experiment(const CourseRow& row, Course& course);

}  // namespace lorry::ops
