// The result of `lorry bench tune --device cuda`: cuBLASLt's candidates for each shape, which of them are suitable, and the rows for
// matmul_table.cpp. Filled by tuner.cpp, printed by ops/bench/matmul_report.cpp. Pure, except for tune_matmuls(), measure_chip() and
// describe_chip().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt/matmul_table.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

// Why a candidate is not suitable.
enum class MatmulRefusal : std::uint8_t { place, rows, value };
const char* reason_of(MatmulRefusal refusal);  // "its bits depend on a row's place"

struct MatmulCandidate {
    MatmulAlgorithm algorithm{};
    std::string name;  // "algorithm 66, tile 393, …"
    std::optional<MatmulRefusal> refusal;
    std::optional<std::uint64_t> bits;           // a hash of the probed rows' outputs; nullopt: it supports no bucket
    std::vector<std::optional<double>> seconds;  // [buckets]; nullopt: does not support this many rows
};

struct TunedMatmul {
    MatmulShape shape;
    std::vector<std::int64_t> buckets;
    std::vector<MatmulCandidate> candidates;
    std::vector<double> own_seconds;  // [buckets], of our own kernel
    std::vector<std::size_t> chosen;  // [buckets], indices of candidates; empty: none serve all buckets with the same bits
    bool is_complete = true;          // false: there was no time for more candidates, or for any
};

// The measured rates of the chip.
struct ChipRates {
    double copied_per_second = 0.0;                     // bytes read and written
    double operations_per_second = 0.0;                 // of cuBLASLt's own choice for a large bfloat16 matmul
    std::optional<double> fp8_operations_per_second{};  // the same for fp8, if the library multiplies it
    // If not measured, the rate that chips with fp8 promise.
    double fp8_rate() const { return fp8_operations_per_second.value_or(2.0 * operations_per_second); }
};

// The first GPU and its software, for people and reports. Versions are written as "13.1".
struct ChipDescription {
    std::string device;
    MatmulChip chip;
    std::string driver;  // the newest CUDA version that the driver supports
    std::string cudart;
    std::optional<std::string> cublaslt;  // "13.1.0"; nullopt: not found
};

struct Tuning {
    std::string device;
    MatmulChip chip;
    std::size_t library = 0;
    ChipRates rates;
    std::vector<TunedMatmul> matmuls;  // ascending by number of weights
};
// Called after each shape with everything found so far, so that a later failure loses nothing.
using OnTunedShape = std::function<void(const Tuning& so_far)>;

// For each bucket, the candidate to use. All have the same bits, chosen for the least geometric mean of seconds. A bucket keeps the
// candidate of the bucket below if that is less than 3 % slower. Empty: no bits serve all buckets.
std::vector<std::size_t> choose_candidates(std::span<const MatmulCandidate> candidates, std::size_t buckets);

// The table's rows: one range for consecutive buckets with the same candidate.
std::vector<MatmulRow> rows_of(const Tuning& tuning, const TunedMatmul& matmul);

// Tunes on this machine's GPU with this machine's library, the largest shape last, each with its share of the remaining time. Throws
// std::runtime_error, saying what to do, when there is no GPU or no cuBLASLt.
Tuning tune_matmuls(std::span<const MatmulShape> shapes, std::optional<std::chrono::duration<double>> time_max,
                    const OnTunedShape& on_shape);

// Throws std::runtime_error when there is no GPU. Returns an error that says what to do when there is no cuBLASLt.
Expected<ChipRates, std::string> measure_chip();
// Throws std::runtime_error when there is no GPU.
ChipDescription describe_chip();

}  // namespace lorry::kernels::cuda
