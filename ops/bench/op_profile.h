// Where the time of a run goes, op by op, and what share of the machine's limits each op reached: a Backend that hands every call on and
// takes its time. For backends whose ops are done when they return. Called by `lorry bench throughput --profile`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "ops/bench/limits.h"
#include "schema/json.h"

namespace lorry::ops {

class OpProfile {
public:
    // What an op computes; whose operations are counted, has a limit of its own.
    enum class Kind : std::uint8_t { matmul, attention, other };
    struct Entry {
        Kind kind = Kind::other;
        std::uint64_t calls = 0;
        double seconds = 0.0;
        // Bytes of weights, of what sequences keep in the KV cache, or of adapters, each once a call; the operations of matmuls and
        // attention.
        Work work;
    };

    // Puts a backend into one that takes its time. The profile outlives it.
    std::unique_ptr<kernels::Backend> watch(std::unique_ptr<kernels::Backend> backend);
    // The same as a function, for SetupWishes.
    std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> watcher() {
        return [this](std::unique_ptr<kernels::Backend> backend) { return watch(std::move(backend)); };
    }
    void clear() { entries_.clear(); }
    // Ops by the time they took, the rest of `seconds` as what is not an op.
    std::string show(double seconds, const MachineLimits& limits) const;
    // The same ops for scripts.
    schema::Json json(const MachineLimits& limits) const;

private:
    std::vector<std::pair<std::string, Entry>> sorted() const;  // the longest first

    std::map<std::string, Entry> entries_;  // by name of the op; matmuls by shape
};

}  // namespace lorry::ops
