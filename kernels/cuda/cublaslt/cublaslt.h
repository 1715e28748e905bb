// One matrix product by a given algorithm of cuBLASLt, the check whether an algorithm supports it, and the library's own proposals. Owns
// the library's handles. Used by library_matmul.cpp and tuner.cpp on one thread.
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

// out [rows, out_features] = or += in [rows, in_features] weight'. Device memory; rows and vectors of scales begin at multiples of 16
// bytes.
struct CublasLtTask {
    MatmulShape shape;
    std::int64_t rows = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;  // elements from row to row; also the next two
    const void* in = nullptr;
    std::int64_t in_stride = 0;
    const float* in_scales = nullptr;  // fp8: [rows]
    const void* weight = nullptr;      // [out_features, in_features]
    std::int64_t weight_stride = 0;
    const float* weight_scales = nullptr;  // fp8: [out_features]
    bool accumulate = false;
};

// Thrown by multiply() if the library rejects a matmul for which takes() was true; takes() does not ask about adding to `out`.
class MatmulRefused : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class CublasLt {
public:
    // On this thread's device. Throws std::runtime_error if the library does not start.
    explicit CublasLt(const lt::Functions& functions);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    std::size_t version() const { return functions_.get_version(); }

    bool takes(const CublasLtTask& task, const MatmulAlgorithm& algorithm) const;
    // Queues it. Throws MatmulRefused if the library rejects it; callers ask takes() first, so a row of the table is wrong then.
    void multiply(const CublasLtTask& task, const MatmulAlgorithm& algorithm, cudaStream_t stream) const;

    // The library's choices for this task, at most `count`, best first by its own estimate, without those that add parts of a sum in order
    // of arrival. For tuning only: the choice depends on the number of rows and on the version.
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
