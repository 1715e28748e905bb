// The low-rank updates of all row groups: shrink computes A x for every rank of a group's adapter, expand adds B (A x) to one slice of the
// outputs. Each is one launch for all adapters and ranks. The order of sums depends only on the sizes, and there are no atomics, so a row's
// result does not depend on how many rows its adapter has. Launched by graphs.cpp.
//
// bfloat16: tensor cores. A split of the input features (shapes.h) is four sums, one per warp, each over 16 of every 64 features. The sums
// are added in order of warps, then the splits in order, and the total is rounded to bfloat16, like the input of every matmul. float32,
// which exists for strict parity, uses one warp per rank and one thread per output.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int rows_max = static_cast<int>(lora_rows);
constexpr int ranks_max = static_cast<int>(lora_ranks);
constexpr int outputs_max = static_cast<int>(lora_outputs);
constexpr int depth = static_cast<int>(lora_depth);
constexpr int row_tiles = rows_max / 16;  // 16 rows: one mma
constexpr int chunk = 8;                  // elements in 16 bytes
static_assert(depth == warps * 16 && ranks_max == depth);

__device__ int smaller(int a, int b) { return a < b ? a : b; }

constexpr int stride = depth + chunk;  // rows of 144 bytes, so that ldmatrix reads them from different banks
constexpr int stages = 3;
constexpr int sums_stride = ranks_max + 8;

struct ShrinkShared {
    alignas(16) Bfloat16 in[stages][rows_max][stride];
    alignas(16) Bfloat16 a[stages][ranks_max][stride];
    float sums[warps][rows_max][sums_stride];
};

// The rank_count ranks from rank_begin that one block of shrink computes.
struct ShrinkTile {
    int rank_begin;
    int rank_count;
    bool aligned;  // chunks of `in` start at multiples of 16 bytes
};

// Loads features [k_begin, k_begin + depth) of the piece's rows and of the tile's ranks; zeros where there are none.
__device__ void load_step(const LoraTask& task, const LoraTable& piece, const ShrinkTile& tile, int k_begin, int stage,
                          ShrinkShared& shared) {
    const auto* const in = static_cast<const Bfloat16*>(task.in.data);
    for (int i = thread_in_block(); i < rows_max * depth / chunk; i += threads) {
        const int row = i / (depth / chunk);
        const int k = i % (depth / chunk) * chunk;
        const bool row_exists = row < piece.row_count;
        const Bfloat16* const from = in + (piece.row_begin + row) * task.in.stride + k_begin + k;
        Bfloat16* const to = &shared.in[stage][row][k];
        if (tile.aligned) {
            const bool wanted = row_exists && k_begin + k < task.in_features;
            copy_async(to, wanted ? from : in, wanted);
        } else {
            for (int j = 0; j < chunk; ++j) to[j] = row_exists && k_begin + k + j < task.in_features ? from[j] : Bfloat16{};
        }
    }
    const auto* const a = static_cast<const Bfloat16*>(piece.a);
    for (int i = thread_in_block(); i < ranks_max * depth / chunk; i += threads) {
        const int rank = i / (depth / chunk);
        const int k = i % (depth / chunk) * chunk;
        if (rank >= round_up(tile.rank_count, 16)) break;
        const bool wanted = rank < tile.rank_count && k_begin + k < task.a_stride;
        const std::int64_t row = tile.rank_begin + rank;
        copy_async(&shared.a[stage][rank][k], wanted ? a + row * task.a_stride + k_begin + k : a, wanted);
    }
}

// A warp's sums over its features: [16 rows][8 ranks].
using ShrinkSums = float[row_tiles][ranks_max / 8][4];

__device__ void multiply_step(const ShrinkShared& shared, int stage, const LoraTable& piece, const ShrinkTile& tile, ShrinkSums& sums) {
    const int k = warp() * 16;
    std::uint32_t in[row_tiles][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) load_matrices(in[m], &shared.in[stage][m * 16 + lane() % 16][k + lane() / 16 * 8]);
#pragma unroll
    for (int n = 0; n < ranks_max / 8; n += 2) {
        if (n * 8 >= tile.rank_count) break;
        std::uint32_t a[4];
        load_matrices(a, &shared.a[stage][n * 8 + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
            if (m * 16 >= piece.row_count) break;
            multiply_add(sums[m][n], in[m], {a[0], a[1]});
            multiply_add(sums[m][n + 1], in[m], {a[2], a[3]});
        }
    }
}

// A thread's part of the totals over splits: rank thread % ranks_max, every other row.
constexpr int rows_apart = threads / ranks_max;
using Totals = float[rows_max / rows_apart];

// Adds the warps' sums in order, then adds the result to the totals and clears the warps' sums.
__device__ void end_split(ShrinkShared& shared, const LoraTable& piece, bool is_first, ShrinkSums& sums, Totals& totals) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int n = 0; n < ranks_max / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                shared.sums[warp()][m * 16 + i / 2 * 8 + lane() / 4][n * 8 + lane() % 4 * 2 + i % 2] = sums[m][n][i];
                sums[m][n][i] = 0.0F;
            }
        }
    }
    barrier();
    const int rank = thread_in_block() % ranks_max;
#pragma unroll
    for (int i = 0; i < rows_max / rows_apart; ++i) {
        const int row = thread_in_block() / ranks_max + i * rows_apart;
        if (row >= piece.row_count) break;
        float sum = shared.sums[0][row][rank];
        for (int other = 1; other < warps; ++other) sum += shared.sums[other][row][rank];
        totals[i] = is_first ? sum : totals[i] + sum;
    }
}

__device__ void shrink_tile(const LoraTask& task, const LoraTable& piece, const ShrinkTile& tile, ShrinkShared& shared) {
    // One split, or all of them if the piece has one sum per row.
    const int k_begin = block().z * task.split_features;
    const int k_end = piece.splits == 1 ? task.in_features : smaller(k_begin + task.split_features, task.in_features);
    const int steps = (k_end - k_begin + depth - 1) / depth;
    const int steps_per_split = task.split_features / depth;

    // Groups without copies keep the number of groups the same in every step.
    for (int step = 0; step < stages - 1; ++step) {
        if (step < steps) load_step(task, piece, tile, k_begin + step * depth, step, shared);
        copy_async_commit();
    }
    ShrinkSums sums = {};
    Totals totals = {};
    for (int step = 0; step < steps; ++step) {
        copy_async_wait<stages - 2>();
        barrier();  // all copies have arrived, and the stage that the next copies overwrite was read
        const int next = step + stages - 1;
        if (next < steps) load_step(task, piece, tile, k_begin + next * depth, next % stages, shared);
        copy_async_commit();
        multiply_step(shared, step % stages, piece, tile, sums);
        if ((step + 1) % steps_per_split == 0 || step + 1 == steps) end_split(shared, piece, step < steps_per_split, sums, totals);
    }

    const int rank = thread_in_block() % ranks_max;
    if (rank >= tile.rank_count) return;
#pragma unroll
    for (int i = 0; i < rows_max / rows_apart; ++i) {
        const int row = thread_in_block() / ranks_max + i * rows_apart;
        if (row >= piece.row_count) break;
        const std::int64_t of_row = (block().z * piece.row_count + row) * piece.rank_sum;
        task.work->sums[piece.sums_begin + of_row + tile.rank_begin + rank] = totals[i];
    }
}

// The barriers within a tile keep the next one from overwriting data that is still to be read.
__global__ void __launch_bounds__(threads) shrink_bfloat16(LoraTask task, bool aligned) {
    for (int i = block().x; i < task.work->shrink_count; i += grid().x) {
        const LoraTable piece = task.work->shrink[i];
        if (block().z >= piece.splits) continue;
        for (int rank = block().y * ranks_max; rank < piece.rank_sum; rank += grid().y * ranks_max) {
            const ShrinkTile tile{rank, smaller(piece.rank_sum - rank, ranks_max), aligned};
            shrink_tile(task, piece, tile, shared_memory<ShrinkShared>());
        }
    }
}

struct ExpandShared {
    alignas(16) Bfloat16 shrunk[rows_max][stride];
    alignas(16) Bfloat16 b[outputs_max][stride];
};

// Loads ranks [rank_begin, rank_begin + ranks_max) of the part: B for the block's outputs, and A x as the sum of its splits.
__device__ void load_ranks(const LoraTask& task, const LoraTable& piece, int out_begin, int rank_begin, ExpandShared& shared) {
    const auto* const b = static_cast<const Bfloat16*>(piece.b);
    const int b_stride = static_cast<int>(round_up(piece.rank, lora_multiple));
    const int chunks = static_cast<int>(round_up(smaller(piece.rank - rank_begin, ranks_max), 16)) / chunk;
    for (int i = thread_in_block(); i < outputs_max * chunks; i += threads) {
        const int output = i / chunks;
        const int rank = i % chunks * chunk;
        const bool wanted = out_begin + output < piece.out_features && rank_begin + rank < b_stride;
        const std::int64_t row = out_begin + output;
        copy_async(&shared.b[output][rank], wanted ? b + row * b_stride + rank_begin + rank : b, wanted);
    }
    copy_async_commit();
    const int rank = thread_in_block() % ranks_max;
    const bool rank_exists = rank_begin + rank < piece.rank;
    const float* const from = task.work->sums + piece.sums_begin + piece.rank_begin + rank_begin + rank;
    const int row_begin = thread_in_block() / ranks_max;
    // One split at a time for all rows, so that their loads are in flight together.
    float sums[rows_max / rows_apart] = {};
    for (int split = 0; split < piece.splits; ++split) {
#pragma unroll
        for (int i = 0; i < rows_max / rows_apart; ++i) {
            const int row = row_begin + i * rows_apart;
            if (rank_exists && row < piece.row_count) {
                const float part = from[(split * piece.row_count + row) * piece.rank_sum];
                sums[i] = split == 0 ? part : sums[i] + part;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < rows_max / rows_apart; ++i) shared.shrunk[row_begin + i * rows_apart][rank] = to_bfloat16(sums[i]);
    copy_async_wait<0>();
}

__device__ void expand_tile(const LoraTask& task, const LoraTable& piece, int out_begin, ExpandShared& shared) {
    constexpr int outputs = outputs_max / warps;  // per warp
    float sums[row_tiles][outputs / 8][4] = {};
    for (int rank_begin = 0; rank_begin < piece.rank; rank_begin += ranks_max) {
        if (rank_begin > 0) barrier();  // the last ranks were read
        load_ranks(task, piece, out_begin, rank_begin, shared);
        barrier();
        for (int k = 0; k < ranks_max && rank_begin + k < piece.rank; k += 16) {
            std::uint32_t shrunk[row_tiles][4];
#pragma unroll
            for (int m = 0; m < row_tiles; ++m) load_matrices(shrunk[m], &shared.shrunk[m * 16 + lane() % 16][k + lane() / 16 * 8]);
#pragma unroll
            for (int n = 0; n < outputs / 8; n += 2) {
                std::uint32_t b[4];
                load_matrices(b, &shared.b[warp() * outputs + n * 8 + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * 8]);
#pragma unroll
                for (int m = 0; m < row_tiles; ++m) {
                    if (m * 16 >= piece.row_count) break;
                    multiply_add(sums[m][n], shrunk[m], {b[0], b[1]});
                    multiply_add(sums[m][n + 1], shrunk[m], {b[2], b[3]});
                }
            }
        }
    }

    auto* const out = static_cast<float*>(task.out.data) + piece.row_begin * task.out.stride + piece.out_begin;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
        // All loads first: no thread reads what it stored, which the compiler cannot know.
        float before[outputs / 8][4];
        const auto each = [&](const auto& run) {
#pragma unroll
            for (int n = 0; n < outputs / 8; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = m * 16 + i / 2 * 8 + lane() / 4;
                    const int output = out_begin + warp() * outputs + n * 8 + lane() % 4 * 2 + i % 2;
                    if (row < piece.row_count && output < piece.out_features) run(n, i, out + row * task.out.stride + output);
                }
            }
        };
        each([&](int n, int i, const float* place) { before[n][i] = *place; });
        each([&](int n, int i, float* place) { *place = before[n][i] + sums[m][n][i]; });
    }
    barrier();  // the last ranks were read, and the next tile may overwrite them
}

__global__ void __launch_bounds__(threads) expand_bfloat16(LoraTask task) {
    for (int i = block().x; i < task.work->expand_count; i += grid().x) {
        const LoraTable piece = task.work->expand[i];
        for (int out_begin = block().y * outputs_max; out_begin < piece.out_features; out_begin += grid().y * outputs_max) {
            expand_tile(task, piece, out_begin, shared_memory<ExpandShared>());
        }
    }
}

void run_bfloat16(const LoraTask& task, cudaStream_t stream) {
    const bool aligned =
        task.in_features % chunk == 0 && task.in.stride % chunk == 0 && reinterpret_cast<std::uintptr_t>(task.in.data) % 16 == 0;
    launch(shrink_bfloat16,
           {.blocks = {task.size.shrink, static_cast<int>(ceil_div(task.size.rank_sum, ranks_max)), task.size.splits},
            .threads = threads,
            .shared_bytes = sizeof(ShrinkShared),
            .stream = stream},
           task, aligned);
    launch(expand_bfloat16,
           {.blocks = {task.size.expand, static_cast<int>(ceil_div(task.size.out_features, outputs_max))},
            .threads = threads,
            .shared_bytes = sizeof(ExpandShared),
            .stream = stream},
           task);
}

constexpr int ranks_per_block = 2 * warps;

// One warp per rank: its lanes share the input features and process all rows of the piece.
__device__ void shrink_plain_piece(const LoraTask& task, const LoraTable& piece) {
    const auto* const in = static_cast<const float*>(task.in.data) + piece.row_begin * task.in.stride;
    for (int rank = block().y * warps + warp(); rank < piece.rank_sum; rank += grid().y * warps) {
        const auto* const a = static_cast<const float*>(piece.a) + static_cast<std::int64_t>(rank) * task.a_stride;
        float sums[rows_max] = {};
        for (int k = lane(); k < task.in_features; k += warp_size) {
            const float weight = a[k];
#pragma unroll
            for (int row = 0; row < rows_max; ++row) {
                if (row < piece.row_count) sums[row] = fmaf(in[row * task.in.stride + k], weight, sums[row]);
            }
        }
#pragma unroll
        for (int row = 0; row < rows_max; ++row) {
            if (row >= piece.row_count) break;
            const float sum = warp_sum(sums[row]);
            if (lane() == 0) task.work->sums[piece.sums_begin + row * piece.rank_sum + rank] = sum;
        }
    }
}

__global__ void __launch_bounds__(threads) shrink_float32(LoraTask task) {
    for (int i = block().x; i < task.work->shrink_count; i += grid().x) {
        const LoraTable piece = task.work->shrink[i];
        shrink_plain_piece(task, piece);
    }
}

// One thread per output.
__device__ void expand_plain_output(const LoraTask& task, const LoraTable& piece, int output) {
    const auto* const b = static_cast<const float*>(piece.b) + output * round_up(piece.rank, lora_multiple);
    const float* const shrunk = task.work->sums + piece.sums_begin + piece.rank_begin;
    float sums[rows_max] = {};
    for (int rank = 0; rank < piece.rank; ++rank) {
        const float weight = b[rank];
#pragma unroll
        for (int row = 0; row < rows_max; ++row) {
            if (row < piece.row_count) sums[row] = fmaf(shrunk[row * piece.rank_sum + rank], weight, sums[row]);
        }
    }
    auto* const out = static_cast<float*>(task.out.data) + piece.row_begin * task.out.stride + piece.out_begin + output;
#pragma unroll
    for (int row = 0; row < rows_max; ++row) {
        if (row < piece.row_count) out[row * task.out.stride] += sums[row];
    }
}

__global__ void __launch_bounds__(threads) expand_float32(LoraTask task) {
    for (int i = block().x; i < task.work->expand_count; i += grid().x) {
        const LoraTable piece = task.work->expand[i];
        for (int output = block().y * threads + thread_in_block(); output < piece.out_features; output += grid().y * threads) {
            expand_plain_output(task, piece, output);
        }
    }
}

void run_float32(const LoraTask& task, cudaStream_t stream) {
    launch(shrink_float32,
           {.blocks = {task.size.shrink, static_cast<int>(ceil_div(task.size.rank_sum, ranks_per_block))},
            .threads = threads,
            .shared_bytes = 0,
            .stream = stream},
           task);
    launch(expand_float32,
           {.blocks = {task.size.expand, static_cast<int>(ceil_div(task.size.out_features, threads))},
            .threads = threads,
            .shared_bytes = 0,
            .stream = stream},
           task);
}

}  // namespace

void run_lora(const LoraTask& task, cudaStream_t stream) {
    if (task.weights == Format::float32) {
        run_float32(task, stream);
    } else {
        run_bfloat16(task, stream);
    }
}

}  // namespace lorry::kernels::cuda
