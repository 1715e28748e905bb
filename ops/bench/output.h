// Where the figures of a `lorry bench` subcommand go, as text and as JSON, and what both say of where they come from: processor,
// instruction set, build and day. Called by command_bench_*.cpp.
#pragma once

#include <optional>
#include <string>

#include "kernels/backend.h"
#include "schema/json.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// Where figures that are measured here and now come from; `isa` is the instruction set that was asked for, else it is the table's choice:
// "on AMD EPYC, family 25 model 17, avx512bf16, with lorry 0.1.0, commit b8114b8, on 2026-11-24" (UTC)
std::string show_provenance(std::optional<kernels::CpuIsa> isa);
// The same, and then the members of `results`, an object.
schema::Json with_provenance(const schema::Json& results, std::optional<kernels::CpuIsa> isa);

// The device's name if it is a GPU.
std::optional<std::string> gpu_of(const kernels::DeviceInfo& device);

class BenchOutput {
public:
    // --json and --json-file.
    void declare(CLI::App& app);
    // To standard output the text and a line of where it comes from, or with --json the JSON; to the file of --json-file the JSON, in any
    // case. `isa` as above; `gpu`, which the processor's name would hide, where it was measured on one. Throws std::runtime_error naming
    // the file.
    void print(const std::string& text, const schema::Json& results, std::optional<kernels::CpuIsa> isa,
               const std::optional<std::string>& gpu = {}) const;

private:
    bool json_ = false;
    std::string file_;  // empty: none
};

}  // namespace lorry::ops
