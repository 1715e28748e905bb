// Tries cuBLASLt's algorithms on this GPU, for tune_matmuls() and measure_chip() of tuning.h. Tests call it with options and a library of
// their own.
//
// A candidate is refused unless each of 16 rows gets the same bits in all buckets of rows that it supports, at any place among any
// neighbours, alone and added to other values, and unless it agrees with our own kernel. Candidates with the same bits may share a shape's
// buckets; among those that together support all buckets, the fastest win.
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
    std::int64_t rows_max = matmul_rows_max;                  // largest bucket that is tried
    int candidates_max = 8;                                   // candidates requested from the library per bucket
    double seconds = 2e-3;                                    // time that each candidate runs in each bucket
    std::size_t walked_bytes = std::size_t{256} << 20;        // weights used in turn: more than the chip's cache holds
    std::size_t copied_bytes = std::size_t{1} << 30;          // bytes copied to measure the memory
    std::int64_t square = 8192;                               // rows and features of the matmul that measures the arithmetic
    std::optional<std::chrono::duration<double>> time_max{};  // limit for everything: no candidate starts later
    std::function<TuneClock::time_point()> now = TuneClock::now;
};

// open_cublaslt, or its substitute in tests.
using OpenLibrary = std::function<Expected<lt::Functions, std::string>()>;

// Like the functions of tuning.h. Both throw std::runtime_error when the GPU's memory does not suffice.
Tuning tune_matmuls(std::span<const MatmulShape> shapes, const TuneOptions& options, const OpenLibrary& open,
                    const OnTunedShape& on_shape = {});
Expected<ChipRates, std::string> measure_chip(const TuneOptions& options, const OpenLibrary& open);

}  // namespace lorry::kernels::cuda
