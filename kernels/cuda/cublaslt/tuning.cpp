// Chooses among candidates with the same bits by least time; see tuning.h.
#include "kernels/cuda/cublaslt/tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace lorry::kernels::cuda {

namespace {

constexpr double gain_min = 1.03;

}  // namespace

const char* reason_of(MatmulRefusal refusal) {
    switch (refusal) {
        case MatmulRefusal::place: return "its bits depend on a row's place or neighbours";
        case MatmulRefusal::rows: return "its bits depend on the number of rows";
        case MatmulRefusal::value: return "it disagrees with our own kernel";
    }
    return "";
}

std::vector<std::size_t> choose_candidates(std::span<const MatmulCandidate> candidates, std::size_t buckets) {
    std::map<std::uint64_t, std::vector<std::size_t>> by_bits;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (!candidates[i].refusal && candidates[i].bits) by_bits[*candidates[i].bits].push_back(i);
    }
    std::vector<std::size_t> best;
    double best_logarithms = std::numeric_limits<double>::infinity();
    for (const auto& [bits, same] : by_bits) {
        std::vector<std::size_t> chosen;
        double logarithms = 0.0;
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            const auto seconds = [&](std::size_t i) {
                return candidates[i].seconds[bucket].value_or(std::numeric_limits<double>::infinity());
            };
            std::size_t fastest = *std::ranges::min_element(same, {}, seconds);
            if (std::isinf(seconds(fastest))) break;
            if (bucket > 0 && seconds(chosen.back()) < gain_min * seconds(fastest)) fastest = chosen.back();
            chosen.push_back(fastest);
            logarithms += std::log(seconds(fastest));
        }
        if (chosen.size() < buckets || logarithms >= best_logarithms) continue;
        best = std::move(chosen);
        best_logarithms = logarithms;
    }
    return best;
}

std::vector<MatmulRow> rows_of(const Tuning& tuning, const TunedMatmul& matmul) {
    std::vector<MatmulRow> rows;
    for (std::size_t bucket = 0; bucket < matmul.chosen.size(); ++bucket) {
        const bool goes_on = bucket > 0 && matmul.chosen[bucket] == matmul.chosen[bucket - 1];
        if (!goes_on) rows.push_back({tuning.chip, tuning.library, matmul.shape, {0, matmul.candidates[matmul.chosen[bucket]].algorithm}});
        rows.back().range.rows_max = matmul.buckets[bucket];
    }
    return rows;
}

}  // namespace lorry::kernels::cuda
