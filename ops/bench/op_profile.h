// Measures where the time of a run goes, op by op, and what share of the machine's limits each op reached. A Backend forwards every call
// and times it, so this works only for backends whose ops are done when they return. Used by `lorry bench throughput --profile`.
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
    // What an op computes. Kinds whose operations are counted have a limit of their own.
    enum class Kind : std::uint8_t { matmul, attention, other };
    struct Entry {
        Kind kind = Kind::other;
        std::uint64_t calls = 0;
        double seconds = 0.0;
        // Bytes of weights, of the sequences' KV cache, or of adapters, each once per call; operations of matmuls and attention.
        Work work;
    };

    // Wraps a backend in one that times its calls. The profile must outlive it.
    std::unique_ptr<kernels::Backend> watch(std::unique_ptr<kernels::Backend> backend);
    // The same as a function, for SetupWishes.
    std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> watcher() {
        return [this](std::unique_ptr<kernels::Backend> backend) { return watch(std::move(backend)); };
    }
    void clear() { entries_.clear(); }
    // A table of ops by the time they took; the rest of `seconds` is shown as not an op.
    std::string show(double seconds, const MachineLimits& limits) const;
    // The same for scripts.
    schema::Json json(const MachineLimits& limits) const;

private:
    std::vector<std::pair<std::string, Entry>> sorted() const;  // longest first

    std::map<std::string, Entry> entries_;  // by name of the op; matmuls by shape
};

}  // namespace lorry::ops
