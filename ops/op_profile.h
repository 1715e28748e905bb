// Where the time of a run goes, op by op: a Backend that hands every call on and takes its time. For backends whose ops are done when they
// return. Called by `lorry bench throughput --profile`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "schema/json.h"

namespace lorry::ops {

class OpProfile {
public:
    struct Entry {
        std::uint64_t calls = 0;
        double seconds = 0.0;
        double operations = 0.0;  // of matmuls
    };

    // The profile outlives what is returned.
    std::unique_ptr<kernels::Backend> watch(std::unique_ptr<kernels::Backend> backend);
    void clear() { entries_.clear(); }
    // Ops by the time they took, the rest of `seconds` as what is not an op; `unit` is that of matmuls: "GFLOP/s".
    std::string show(double seconds, const char* unit) const;
    // The same ops for scripts.
    schema::Json json() const;

private:
    std::vector<std::pair<std::string, Entry>> sorted() const;  // the longest first

    std::map<std::string, Entry> entries_;  // by name of the op; matmuls by shape
};

}  // namespace lorry::ops
