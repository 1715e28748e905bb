// Tries cuBLASLt's algorithms on this GPU. Called by tune_matmuls and measure_chip of tuning.h; tests pass their own options and library.
//
// A candidate is rejected unless each of 16 rows gets the same bits in all buckets that it takes and at any position among any other rows,
// both alone and added to existing outputs, and agrees with our own kernel. Candidates with the same bits may share a shape's buckets;
// among the sets that cover all buckets, the fastest wins.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "kernels/cuda/cublaslt/abi.h"
#include "kernels/cuda/cublaslt/tuning.h"
#include "kernels/cuda/shapes.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

using TuneClock = std::chrono::steady_clock;
struct TuneOptions {
    std::int64_t rows_max = matmul_rows_max;                  // of the buckets to try
    int candidates_max = 8;                                   // to ask the library for in each bucket
    double seconds = 2e-3;                                    // to run each candidate for in each bucket
    std::size_t walked_bytes = std::size_t{256} << 20;        // of weights used in turn, more than the chip's cache holds
    std::size_t copied_bytes = std::size_t{1} << 30;          // to measure the memory's rate
    std::int64_t square = 8192;                               // rows and features of the matmul that measures the arithmetic
    std::optional<std::chrono::duration<double>> time_max{};  // in total; no candidate is begun later
    std::function<TuneClock::time_point()> now = TuneClock::now;
};

// open_cublaslt, or a substitute in tests.
using OpenLibrary = std::function<Expected<lt::Functions, std::string>()>;

// As in tuning.h; both also throw std::runtime_error if the GPU has no memory left.
Tuning tune_matmuls(std::span<const MatmulShape> shapes, const TuneOptions& options, const OpenLibrary& open,
                    const OnTunedShape& on_shape = {});
Expected<ChipRates, std::string> measure_chip(const TuneOptions& options, const OpenLibrary& open);

}  // namespace lorry::kernels::cuda
