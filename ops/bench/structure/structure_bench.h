// Runs requests whose answers must match a JSON schema beside requests that draw as many tokens freely: what grammars cost, and what
// forced tokens save. Called by `lorry bench structure`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/bench/throughput_bench.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct StructureShape {
    std::string schema;  // JSON Schema; every answer must match it
    std::int64_t requests = 64;
    TokenRange input_tokens{128, 128};
    std::int64_t output_tokens_max = 1024;
    std::int64_t compiles = 100;  // schemas to compile, each with one more field of a name of its own
    std::int64_t repeat = 3;      // runs of each way, of which the fastest counts
};

struct StructureResult {
    struct Way {
        const char* name = "";
        double seconds = 0.0;
        double processor_seconds = 0.0;  // the least of all runs, by itself
        std::uint64_t steps = 0;
    };
    std::vector<Way> ways;  // free, forced tokens drawn one by one, forced tokens computed together
    std::uint64_t tokens = 0;
    std::uint64_t forced_tokens = 0;      // of these
    std::int64_t complete = 0;            // answers that ended by themselves
    double first_compile_seconds = 0.0;   // reads the vocabulary, too
    std::vector<double> compile_seconds;  // ascending
};

// Leaves an engine of the last way in the setup. Throws std::runtime_error if the schema is refused, and if the ways' answers differ.
StructureResult run_structure(EngineSetup& setup, const StructureShape& shape);

}  // namespace lorry::ops
