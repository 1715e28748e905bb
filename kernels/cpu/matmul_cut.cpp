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
// Kernels whose panels can share passes avoid chunks of fewer rows: a thread's share of up to share_bytes_most is one chunk; larger shares
// pass several panels together.
constexpr std::int64_t avoided_rows = 256;
constexpr std::int64_t share_bytes_most = std::int64_t{1100} << 10;
// A thread gets at least so many pieces, so that others can help it.
constexpr std::int64_t pieces_least = 2;

}  // namespace

CacheBlock cache_block_of(const DotKernels* dot, std::int64_t rows, std::int64_t row_bytes, int threads) {
    if (dot == nullptr) return {.rows = common_row_chunk};
    const std::int64_t fitting = chunk_bytes_most / row_bytes;
    if (dot->panel_group == 1 || fitting >= avoided_rows) return {.rows = std::min(dot->row_chunk, std::max(chunk_rows_least, fitting))};
    const std::int64_t share = std::clamp((rows + threads - 1) / threads, chunk_rows_least, dot->row_chunk);
    if (std::min(rows, share) * row_bytes <= share_bytes_most) return {.rows = share};
    return {.rows = dot->row_chunk, .panels = dot->panel_group};
}

MatmulCut cut_of_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, int threads, const CacheBlock& block) {
    // The rows of a chunk stay in the second-level cache while all panels pass. If there are enough rows, each thread gets its own, as in
    // the other ops, so that it finds in its cache what it wrote before.
    const std::int64_t even = (rows + block.rows * threads - 1) / (block.rows * threads) * threads;
    const bool own_rows = rows >= even * own_rows_least;
    const std::int64_t chunks = own_rows ? even : (rows + block.rows - 1) / block.rows;
    const std::int64_t cost_rows = std::max((rows + chunks - 1) / chunks, rows_least);
    const std::int64_t cost = cost_rows * panels.in_features * panels.width * panels_together / panels.group;
    const std::int64_t runs = panels.count() / panels_together;
    const std::int64_t shared = std::min(block.panels, chunks * runs / (threads * pieces_least));
    const std::int64_t least = panels.group == 1 && rows <= rows_abreast ? panels_abreast : std::max<std::int64_t>(shared, 1);
    return {.chunks = chunks,
            .own_rows = own_rows,
            .runs = runs,
            .piece = (std::max<std::int64_t>(piece_multiply_adds / cost, 1) + least - 1) / least * least};
}

}  // namespace lorry::kernels::cpu
