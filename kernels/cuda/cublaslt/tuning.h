// What `lorry bench tune --device cuda` found: cuBLASLt's candidates for each shape, which of them serve it, and the rows of
// matmul_table.cpp that say so. Filled by tuner.cpp, printed by ops/bench/matmul_report.cpp. Pure, but for tune_matmuls,
// measure_chip and describe_chip.
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

// Why a candidate may not serve.
enum class MatmulRefusal : std::uint8_t { place, rows, value };
const char* reason_of(MatmulRefusal refusal);  // "its bits depend on a row's place"

struct MatmulCandidate {
    MatmulAlgorithm algorithm{};
    std::string name;  // "algorithm 66, tile 393, …"
    std::optional<MatmulRefusal> refusal;
    std::optional<std::uint64_t> bits;           // a hash of the probed rows' outputs; nullopt: it takes no bucket
    std::vector<std::optional<double>> seconds;  // [buckets]; nullopt: does not take so many rows
};

struct TunedMatmul {
    MatmulShape shape;
    std::vector<std::int64_t> buckets;
    std::vector<MatmulCandidate> candidates;
    std::vector<double> own_seconds;  // [buckets], of our own kernel
    std::vector<std::size_t> chosen;  // [buckets], of candidates; empty: none serve all buckets with the same bits
    bool is_complete = true;          // false: there was no time for more candidates, or for any
};

// What the chip was seen to do.
struct ChipRates {
    double copied_per_second = 0.0;                     // bytes read and written
    double operations_per_second = 0.0;                 // of cuBLASLt's own choice for a large bfloat16 matmul
    std::optional<double> fp8_operations_per_second{};  // the same of fp8, where the library multiplies it
    // Where it was not measured, what chips that have fp8 promise.
    double fp8_rate() const { return fp8_operations_per_second.value_or(2.0 * operations_per_second); }
};

// The first GPU and what drives it, for people and for reports. Versions as "13.1".
struct ChipDescription {
    std::string device;
    MatmulChip chip;
    std::string driver;  // the newest CUDA that it drives
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
// Told of each shape, with all that came before it: what was found is not lost to what comes later.
using OnTunedShape = std::function<void(const Tuning& so_far)>;

// For each bucket the candidate that serves it, all with the same bits: the least geometric mean of seconds. A bucket keeps the candidate
// of the one below where that is less than 3 % slower. Empty: no bits serve all buckets.
std::vector<std::size_t> choose_candidates(std::span<const MatmulCandidate> candidates, std::size_t buckets);

// The table's rows: one range for consecutive buckets with the same candidate.
std::vector<MatmulRow> rows_of(const Tuning& tuning, const TunedMatmul& matmul);

// On this machine's GPU with this machine's library, the largest shape last, each with its share of the time that is left. Throws
// std::runtime_error when there is no GPU or no cuBLASLt, saying what to do.
Tuning tune_matmuls(std::span<const MatmulShape> shapes, std::optional<std::chrono::duration<double>> time_max,
                    const OnTunedShape& on_shape);

// Throws std::runtime_error when there is no GPU; the error says that there is no cuBLASLt, and what to do.
Expected<ChipRates, std::string> measure_chip();
// Throws std::runtime_error when there is no GPU.
ChipDescription describe_chip();

}  // namespace lorry::kernels::cuda
