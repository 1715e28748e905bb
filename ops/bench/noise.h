// Float32 noise in a backend's memory, for benchmarks of single ops: multiplying zeros takes less power than multiplying numbers. Used by
// tune_bench.cpp and attention_bench.h.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace lorry::ops {

class NoisyBackend {
public:
    explicit NoisyBackend(std::unique_ptr<kernels::Backend> backend) : backend_(std::move(backend)) {}
    kernels::Backend& operator*() const { return *backend_; }
    kernels::Backend* operator->() const { return backend_.get(); }

    // [rows, columns] of float32, which is also room for a narrower format.
    kernels::Matrix make(std::int64_t rows, std::int64_t columns);

private:
    std::unique_ptr<kernels::Backend> backend_;
    std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

}  // namespace lorry::ops
