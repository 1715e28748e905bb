// cuBLASLt for the emulated device: the same functions, which read the descriptors they are given and multiply plainly on the host. Its
// algorithms differ as real ones do: in the order of their sums, in what that order depends on, and in their time. Used by tests only.
#pragma once

#include <cstdint>

#include "kernels/cuda/cublaslt/abi.h"
#include "kernels/cuda/cublaslt/matmul_table.h"

namespace lorry::kernels::cuda::emulation {

constexpr std::size_t cublaslt_version = 130100;

// In the order of the heuristic: the fastest first.
enum class CublasLtAlgorithm : std::uint64_t {
    split_by_rows = 1,  // splits the sum into more parts the fewer rows there are
    backwards_at_odds,  // adds from the end in odd rows
    rounded,            // keeps its sum in bfloat16
    for_few_rows,       // the order of `plain`; supports up to 64 rows
    plain,              // one chain over all input features
    for_many_rows,      // the order of `plain`; slow below 128 rows
    halves,             // two chains, added at the end, for any number of rows
    starts_from_out,    // starts the sum with the value that it adds to
    in_place,           // adds partial sums in order of arrival; proposed only to callers that do not rule it out
};
MatmulAlgorithm words_of(CublasLtAlgorithm algorithm);

lt::Functions cublaslt();

// Number of matmuls done since the program started.
std::uint64_t cublaslt_matmuls();

}  // namespace lorry::kernels::cuda::emulation
