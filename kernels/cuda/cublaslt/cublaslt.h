// One matrix product of cuBLASLt's by a given algorithm, the check whether an algorithm takes it, and the library's own proposals. What
// owns the library's handles is here. Used by library_matmul.cpp and tuner.cpp on one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/cublaslt/abi.h"
#include "kernels/cuda/cublaslt/matmul_table.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

// out [rows, out_features] = in [rows, in_features] weight', or += that. Device memory; rows, and vectors of scales, begin at multiples of
// 16 bytes.
struct CublasLtTask {
    MatmulShape shape;
    std::int64_t rows = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;  // elements from row to row, as the next two
    const void* in = nullptr;
    std::int64_t in_stride = 0;
    const float* in_scales = nullptr;  // fp8: [rows]
    const void* weight = nullptr;      // [out_features, in_features]
    std::int64_t weight_stride = 0;
    const float* weight_scales = nullptr;  // fp8: [out_features]
    bool accumulate = false;
};

// What multiply() throws when the library refuses a matmul that it said it takes: it is not asked whether sums are added to others.
class MatmulRefused : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class CublasLt {
public:
    // On this thread's device. Throws std::runtime_error when the library does not start.
    explicit CublasLt(const lt::Functions& functions);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    std::size_t version() const { return functions_.get_version(); }

    bool takes(const CublasLtTask& task, const MatmulAlgorithm& algorithm) const;
    // Queues it. Throws MatmulRefused when the library refuses: its caller has asked takes(), or a row of the table is wrong.
    void multiply(const CublasLtTask& task, const MatmulAlgorithm& algorithm, cudaStream_t stream) const;

    // The library's choices for this task, at most so many, best first by its own estimate; none that add parts of a sum as they come.
    // Not for answers: the choice depends on the number of rows and on the version.
    std::vector<MatmulAlgorithm> candidates(const CublasLtTask& task, int most) const;
    // "algorithm 66, tile 393, stages 35, split 1"
    std::string describe(const MatmulAlgorithm& algorithm) const;

private:
    template <class Descriptor>
    using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, lt::Status (*)(Descriptor)>;
    template <class Descriptor, class Create, class... Arguments>
    Owned<Descriptor> create(lt::Status (*destroy)(Descriptor), Create make, Arguments... arguments) const;
    struct Descriptors;
    Descriptors descriptors_of(const CublasLtTask& task) const;
    void check(lt::Status status, const char* what) const;

    const lt::Functions functions_;
    lt::Handle handle_ = nullptr;
    DeviceMemory workspace_;
};

}  // namespace lorry::kernels::cuda
