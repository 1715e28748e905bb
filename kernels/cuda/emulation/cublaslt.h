// cuBLASLt for the emulated device: the same functions, which read the descriptors that they are given and multiply plainly on the host.
// Its algorithms differ as real ones do: in the order of their sums, in what that order depends on, and in their time. For tests.
#pragma once

#include <cstdint>

#include "kernels/cuda/cublaslt/abi.h"
#include "kernels/cuda/cublaslt/matmul_table.h"

namespace lorry::kernels::cuda::emulation {

constexpr std::size_t cublaslt_version = 130100;

// In the order in which the heuristic names them: the fastest first.
enum class CublasLtAlgorithm : std::uint64_t {
    split_by_rows = 1,  // cuts the sum into more parts the fewer rows there are
    backwards_at_odds,  // adds from the end in odd rows
    rounded,            // keeps its sum in bfloat16
    for_few_rows,       // the order of `plain`; takes up to 64 rows
    plain,              // one chain over all input features
    for_many_rows,      // the order of `plain`; slow below 128 rows
    halves,             // two chains, added at the end, whatever the rows
    starts_from_out,    // begins the sum with what it accumulates to
    in_place,           // counts who comes first: proposed only to those that do not rule it out
};
MatmulAlgorithm words_of(CublasLtAlgorithm algorithm);

lt::Functions cublaslt();

// Matmuls that it has done since the program started.
std::uint64_t cublaslt_matmuls();

}  // namespace lorry::kernels::cuda::emulation
