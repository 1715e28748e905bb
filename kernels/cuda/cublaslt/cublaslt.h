// One matrix product by a given algorithm of cuBLASLt, the check whether an algorithm supports it, and the library's own proposals. The
// library's handles are owned here. Used by library_matmul.cpp and tuner.cpp, on one thread.
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

// out [rows, out_features] = in [rows, in_features] weight', or += that. All pointers are device memory; rows and vectors of scales start
// at multiples of 16 bytes.
struct CublasLtTask {
    MatmulShape shape;
    std::int64_t rows = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;  // elements from row to row; the same for the other strides
    const void* in = nullptr;
    std::int64_t in_stride = 0;
    const float* in_scales = nullptr;  // fp8: [rows]
    const void* weight = nullptr;      // [out_features, in_features]
    std::int64_t weight_stride = 0;
    const float* weight_scales = nullptr;  // fp8: [out_features]
    bool accumulate = false;
};

// Thrown by multiply() when the library refuses a matmul that it said it supports: its check does not cover whether sums are added to
// others.
class MatmulRefused : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class CublasLt {
public:
    // Uses this thread's device. Throws std::runtime_error when the library does not start.
    explicit CublasLt(const lt::Functions& functions);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    std::size_t version() const { return functions_.get_version(); }

    bool takes(const CublasLtTask& task, const MatmulAlgorithm& algorithm) const;
    // Queues the product. Throws MatmulRefused when the library refuses it: callers ask takes() first, so either the library contradicts
    // itself or a row of the table is wrong.
    void multiply(const CublasLtTask& task, const MatmulAlgorithm& algorithm, cudaStream_t stream) const;

    // At most `most` choices of the library for this task, best first by its own estimate, without those that add parts of a sum in order
    // of arrival. Do not use them for answers: the choice depends on the number of rows and on the library's version.
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
