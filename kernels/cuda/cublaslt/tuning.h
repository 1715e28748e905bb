// The findings of `lorry bench tune --device cuda`: cuBLASLt's candidates for each shape, which of them are chosen, and the rows to add to
// matmul_table.cpp. Filled by tuner.cpp, printed by ops/bench/matmul_report.cpp. Pure, except tune_matmuls, measure_chip and describe_chip.
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

// Why a candidate is rejected.
enum class MatmulRefusal : std::uint8_t { place, rows, value };
const char* reason_of(MatmulRefusal refusal);  // "its bits depend on a row's place"

struct MatmulCandidate {
    MatmulAlgorithm algorithm{};
    std::string name;  // "algorithm 66, tile 393, …"
    std::optional<MatmulRefusal> refusal;
    std::optional<std::uint64_t> bits;           // a hash of the probed rows' outputs; nullopt: it takes no bucket
    std::vector<std::optional<double>> seconds;  // [buckets]; nullopt: does not take that many rows
};

struct TunedMatmul {
    MatmulShape shape;
    std::vector<std::int64_t> buckets;
    std::vector<MatmulCandidate> candidates;
    std::vector<double> own_seconds;  // [buckets], of our own kernel
    std::vector<std::size_t> chosen;  // [buckets] index of a candidate; empty: none cover all buckets with the same bits
    bool is_complete = true;          // false: there was no time for some or all candidates
};

// The chip's measured rates.
struct ChipRates {
    double copied_per_second = 0.0;                     // bytes read and written
    double operations_per_second = 0.0;                 // of cuBLASLt's own choice for a large bfloat16 matmul
    std::optional<double> fp8_operations_per_second{};  // the same of fp8, where the library multiplies it
    // The measured rate of fp8; if there is none, the rate that chips with fp8 promise.
    double fp8_rate() const { return fp8_operations_per_second.value_or(2.0 * operations_per_second); }
};

// The first GPU and its software, for people and for reports. Versions as "13.1".
struct ChipDescription {
    std::string device;
    MatmulChip chip;
    std::string driver;  // the newest CUDA that it supports
    std::string cudart;
    std::optional<std::string> cublaslt;  // "13.1.0"; nullopt: not found
};

struct Tuning {
    std::string device;
    MatmulChip chip;
    std::size_t library = 0;
    ChipRates rates;
    std::vector<TunedMatmul> matmuls;  // ascending by their number of weights
};
// Called after each shape with everything found so far, so that a later failure loses nothing.
using OnTunedShape = std::function<void(const Tuning& so_far)>;

// For each bucket a candidate, all with the same bits, so that the geometric mean of seconds is least. A bucket keeps the candidate of the
// next smaller one if that is less than 3 % slower. Empty: no candidates with the same bits cover all buckets.
std::vector<std::size_t> choose_candidates(std::span<const MatmulCandidate> candidates, std::size_t buckets);

// The table's rows: one range for consecutive buckets with the same candidate.
std::vector<MatmulRow> rows_of(const Tuning& tuning, const TunedMatmul& matmul);

// Tunes on this machine's GPU with its library. The largest shape comes last; each gets a share of the remaining time. Throws
// std::runtime_error with what to do if there is no GPU or no cuBLASLt.
Tuning tune_matmuls(std::span<const MatmulShape> shapes, std::optional<std::chrono::duration<double>> time_max,
                    const OnTunedShape& on_shape);

// Throws std::runtime_error if there is no GPU. The error value says that there is no cuBLASLt, and what to do.
Expected<ChipRates, std::string> measure_chip();
// Throws std::runtime_error if there is no GPU.
ChipDescription describe_chip();

}  // namespace lorry::kernels::cuda
