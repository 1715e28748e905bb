// Divides a matmul between threads; matmul_cut.h says by what rule.
#include "kernels/cpu/matmul_cut.h"

#include <algorithm>

namespace lorry::kernels::cpu {

namespace {

// The least work of a piece: some microseconds of a core.
constexpr std::int64_t piece_multiply_adds = 250'000;
// Fewer rows take the same time: they wait for the weights.
constexpr std::int64_t rows_least = 16;
// With at most rows_abreast rows of float32, a kernel multiplies panels_abreast panels side by side.
constexpr std::int64_t rows_abreast = 6;
constexpr std::int64_t panels_abreast = 4;
// The least rows of a chunk if threads have their own rows.
constexpr std::int64_t own_rows_least = 96;
// The bytes of a chunk's inputs that the second-level cache holds beside weights and outputs. A chunk of fewer rows than the least would
// have the weights read too often.
constexpr std::int64_t chunk_bytes_most = std::int64_t{800} << 10;
constexpr std::int64_t chunk_rows_least = 128;

}  // namespace

std::int64_t row_chunk_of(const DotKernels* dot, std::int64_t row_bytes) {
    if (dot == nullptr) return common_row_chunk;
    return std::min(dot->row_chunk, std::max(chunk_rows_least, chunk_bytes_most / row_bytes));
}

MatmulCut cut_of_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, int threads, std::int64_t row_chunk) {
    // The rows of a chunk stay in the second-level cache while all panels pass. If there are enough rows, each thread gets its own, as in
    // the other ops, so that it finds in its cache what it wrote before.
    const std::int64_t even = (rows + row_chunk * threads - 1) / (row_chunk * threads) * threads;
    const bool own_rows = rows >= even * own_rows_least;
    const std::int64_t chunks = own_rows ? even : (rows + row_chunk - 1) / row_chunk;
    const std::int64_t cost_rows = std::max((rows + chunks - 1) / chunks, rows_least);
    const std::int64_t cost = cost_rows * panels.in_features * panels.width * panels_together / panels.group;
    const std::int64_t least = panels.group == 1 && rows <= rows_abreast ? panels_abreast : 1;
    return {.chunks = chunks,
            .own_rows = own_rows,
            .runs = panels.count() / panels_together,
            .piece = (std::max<std::int64_t>(piece_multiply_adds / cost, 1) + least - 1) / least * least};
}

}  // namespace lorry::kernels::cpu
