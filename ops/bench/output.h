// Prints the figures of a `lorry bench` subcommand as text and as JSON, each with its provenance: processor, instruction set, build and
// day. Called by the subcommands in this folder and in experiments/.
#pragma once

#include <optional>
#include <string>

#include "kernels/backend.h"
#include "schema/json.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// Provenance of figures measured here and now. `isa` is the requested instruction set; nullopt means the rules' choice:
// "on AMD EPYC, family 25 model 17, avx512bf16, with lorry 0.1.0, commit b8114b8, on 2026-11-24" (UTC)
std::string show_provenance(std::optional<kernels::CpuIsa> isa);
// The same as JSON, followed by the members of `results`, an object.
schema::Json with_provenance(const schema::Json& results, std::optional<kernels::CpuIsa> isa);

// The device's name if it is a GPU, otherwise nullopt.
std::optional<std::string> gpu_of(const kernels::DeviceInfo& device);

class BenchOutput {
public:
    // Declares --json and --json-file.
    void declare(CLI::App& app);
    // Prints the text with a line of provenance, or with --json the JSON, to standard output; writes the JSON to the file of --json-file in
    // any case. `isa` as above. `gpu` is the device's name if it is a GPU, which the processor's name would not show. Throws
    // std::runtime_error naming the file.
    void print(const std::string& text, const schema::Json& results, std::optional<kernels::CpuIsa> isa,
               const std::optional<std::string>& gpu = {}) const;

private:
    bool json_ = false;
    std::string file_;  // empty: none
};

}  // namespace lorry::ops
