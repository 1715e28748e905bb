// Multiplies DotMatmul's panels with matrix tiles (Intel AMX): blocks of up to 32 rows by the outputs of a panel, over a line of inputs at
// a time, which is 64 bytes: 64 int8 or 32 bfloat16. Instantiated over a Dot whose Isa has Tiles; a panel is one or two tiles wide.
//
// Sums of int8 are exact, so dot_matmul.h uses tiles when there are enough rows, and the results are the same. A bfloat16 output is one
// chain of sums of 32 inputs each, whatever the number of rows; tile_rows.h adds up the same sums for a few rows.
//
// What keeps the tiles busy:
// - The weights of a chunk of inputs stay in the first-level cache while all rows pass; the rows come from the second, with a hint that
//   keeps them out of the first.
// - Storing and reloading tiles takes as long as many products. So a chunk is as long as the first-level cache allows.
// - A block's sums become outputs, a few rows after each line of the next block: the tiles and the vector units work at the same time.
// - Each block prefetches its share of the chunk that comes next.
// - If rows do not fit into the second-level cache, several panels share each chunk of inputs before the next chunk is read.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/tile_block.h"

namespace lorry::kernels::cpu {

// How far ahead weights are prefetched, in bytes, when one pass over them waits for memory.
inline constexpr std::int64_t near_bytes = 4096;
[[gnu::always_inline]] inline void ask_for_first(const std::byte* next) {
    if (next == nullptr) return;
    for (std::int64_t i = 0; i < near_bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
}

// The most rows of a task: more rows use each weight more often, until they no longer fit into the second-level cache.
inline constexpr std::int64_t tile_row_chunk = 512;
// How many panels share each pass over a chunk of wide rows' inputs. Their sums, 1 MB, wait in the second-level cache beside 0.6 MB of
// inputs.
inline constexpr std::int64_t tile_panel_group = 16;

// Consecutive panels.
struct PanelRun {
    const std::byte* weights;
    const std::byte* next;  // weights to prefetch meanwhile
    std::int64_t place;     // the first of the first panel
    std::int64_t panels = 1;
};

template <class Dot>
struct TileMatmul {
    using Block = TileBlock<typename Dot::Isa::Tiles>;
    using RowCut = typename Block::RowCut;
    using V = Simd<typename Dot::Isa>;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int columns = Dot::vectors;  // tiles side by side
    static constexpr std::int64_t line_bytes = Block::line_bytes;
    static constexpr std::int64_t width = columns * lanes;  // outputs of a panel
    static constexpr std::int64_t group_bytes = width * 4;
    static constexpr std::int64_t panel_line_bytes = Block::groups_whole * group_bytes;
    static_assert(lanes * 4 == line_bytes && (columns == 1 || columns == 2), "a block has one or two tiles of outputs");
    // 36 KB of weights of a panel two tiles wide, in a first-level cache of 48 KB. With chunks of half that size, one core takes a fifth
    // longer.
    static constexpr std::int64_t chunk_lines_max = 18;
    // A block's sums in memory.
    using SumBytes = std::byte[extent(Block::rows_max)][extent(group_bytes)];
    static constexpr std::int64_t blocks_max = tile_row_chunk / Block::rows_max;
    [[gnu::always_inline]] static inline TilePlace place_of(SumBytes& sums, std::int64_t tile_rows) {
        return {.first = sums[0], .second = sums[tile_rows], .stride = group_bytes};
    }

    // The block whose products were added up last, while its rows become outputs.
    template <class Task>
    class Pending {
    public:
        Pending(const Task& task, const RowCut& cut, std::int64_t place)
            : task_(task),
              cut_(cut),
              outputs_(task, place),
              parked_(task.parked == nullptr ? parked_alone_ : reinterpret_cast<SumBytes*>(task.parked)) {}
        // Where a block's sums wait for the next chunk of inputs. panel: of those that share the pass.
        SumBytes& parked(std::int64_t panel, std::int64_t block) { return parked_[panel * blocks_max + block]; }
        // Where to store the sums of the next block. Those before it must be finished.
        SumBytes& memory() { return sums_[turn_ ^= 1]; }
        // place: of the panel. The blocks of a panel come in order.
        void take(std::int64_t block, std::int64_t place) {
            if (place != place_) {
                outputs_ = typename Dot::Outputs(task_, place);
                place_ = place;
                row_end_ = 0;
            }
            first_ = cut_.first_tile(block);
            second_ = cut_.second_tile(block);
            index_ = 0;
            count_ = cut_.block_rows();
        }
        // Finishes up to `count` rows.
        [[gnu::always_inline]] void advance(std::int64_t count) {
            if (index_ == count_) return;
            // Copies: the compiler must assume that an output's memory is that of the task, and would read it again after each store.
            const Task task = task_;
            const typename Dot::Outputs outputs = outputs_;
            const std::int64_t tile_rows = cut_.tile_rows;
            const std::int64_t end = index_ + count < count_ ? index_ + count : count_;
            const SumBytes& sums = sums_[turn_];
            for (std::int64_t index = index_; index < end; ++index) {
                const bool is_second = index >= tile_rows;
                const std::int64_t row = is_second ? second_ + index - tile_rows : first_ + index;
                // An earlier block or the first tile had this row, too.
                if (row < row_end_ || (is_second && row < first_ + tile_rows)) continue;
                typename V::Floats values[extent(columns)];
#pragma GCC unroll 2
                for (int i = 0; i < columns; ++i) {
                    typename Dot::Sums sum;
                    __builtin_memcpy(&sum, &sums[index][i * line_bytes], sizeof sum);
                    values[i] = outputs.value(task, row, i, sum);
                }
                MatmulOutput<typename Dot::Isa>::template finish<columns>(task, row, place_, values);
            }
            index_ = end;
            if (end == count_) row_end_ = (cut_.has_two_tiles() ? second_ : first_) + tile_rows;
        }

    private:
        const Task& task_;
        const RowCut& cut_;
        typename Dot::Outputs outputs_;
        std::int64_t place_ = -1;
        std::int64_t first_ = 0;  // rows of the tiles
        std::int64_t second_ = 0;
        std::int64_t index_ = 0;  // of the block's next row
        std::int64_t count_ = 0;
        std::int64_t row_end_ = 0;  // of the panel's finished rows
        int turn_ = 0;
        SumBytes* const parked_;
        alignas(64) SumBytes sums_[2];
        alignas(64) SumBytes parked_alone_[extent(blocks_max)];
    };

    // Rows whose last inputs may fill only a part of a group of 4 bytes.
    class RestCopy {
    public:
        // The rows themselves if they end with a group; otherwise a copy with zeros after the last input, so that nothing after it is read.
        [[gnu::always_inline]] TileRowsIn whole_groups(const TileRowsIn& rows, std::int64_t tile_rows, std::int64_t bytes) {
            if (bytes % 4 == 0) [[likely]]
                return rows;
            return copied(rows, tile_rows, bytes);
        }

    private:
        [[gnu::noinline]] TileRowsIn copied(const TileRowsIn& rows, std::int64_t tile_rows, std::int64_t bytes) {
            __builtin_memset(lines_, 0, sizeof lines_);
            for (std::int64_t r = 0; r < tile_rows; ++r) {
                __builtin_memcpy(lines_[0][r], rows.first + r * rows.stride, static_cast<std::size_t>(bytes));
                __builtin_memcpy(lines_[1][r], rows.second + r * rows.stride, static_cast<std::size_t>(bytes));
            }
            return {.first = lines_[0][0], .second = lines_[1][0], .stride = line_bytes};
        }
        alignas(64) std::byte lines_[2][Block::tile_rows_max][extent(line_bytes)];
    };

    // Consecutive lines of a panel's inputs.
    struct Chunk {
        const std::byte* weights;
        std::int64_t panel;       // of those that share the pass
        std::int64_t place;       // of the panel
        std::int64_t offset;      // bytes from a row's first input
        std::int64_t lines;       // whole ones
        std::int64_t rest_bytes;  // instead of lines: inputs that do not fill one
        const std::byte* next;    // weights to prefetch
        bool is_first;
        bool is_last;
    };

    template <int down, class Task>
    static void run_chunk(const Task& task, const RowCut& cut, const Chunk& chunk, Pending<Task>& pending) {
        using Sums = TileSums<typename Dot::Isa::Tiles, down, columns>;
        const std::int64_t ahead = (Block::groups_whole * columns + cut.blocks - 1) / cut.blocks;
        const std::int64_t finished = chunk.lines == 0 ? Block::rows_max : (Block::rows_max + chunk.lines - 1) / chunk.lines;
        const auto meanwhile = [&]() __attribute__((always_inline)) { pending.advance(finished); };
        const std::byte* next = chunk.next;
        for (std::int64_t block = 0; block < cut.blocks; ++block) {
            const TilePlace parked = place_of(pending.parked(chunk.panel, block), cut.tile_rows);
            if (chunk.is_first) {
                Sums::clear();
            } else {
                Sums::load(parked);
            }
            TileRowsIn rows{.first = task.in + cut.first_tile(block) * task.in_stride + chunk.offset,
                            .second = task.in + cut.second_tile(block) * task.in_stride + chunk.offset,
                            .stride = task.in_stride};
            auto weights = TileColumns<columns>::side_by_side(chunk.weights, group_bytes);
            for (std::int64_t line = 0; line < chunk.lines; ++line) {
                for (std::int64_t i = 0; i < ahead; ++i, next += line_bytes) __builtin_prefetch(next, 0, 2);
                Block::template multiply<down, true>(rows, weights, meanwhile);
                rows.advance(line_bytes);
                weights.advance(panel_line_bytes);
            }
            if (chunk.rest_bytes > 0) {
                RestCopy copy;
                Block::template multiply<down, true>(copy.whole_groups(rows, cut.tile_rows, chunk.rest_bytes), weights, meanwhile);
                const std::int64_t lines = (chunk.rest_bytes + 3) / 4 * columns;
                for (std::int64_t i = 0; i < (lines + cut.blocks - 1) / cut.blocks; ++i, next += line_bytes) __builtin_prefetch(next, 0, 2);
            }
            if (!chunk.is_last) {
                Sums::store(parked);
                continue;
            }
            pending.advance(Block::rows_max);
            Sums::store(place_of(pending.memory(), cut.tile_rows));
            pending.take(block, chunk.place);
        }
    }

    static std::int64_t panel_bytes_of(std::int64_t in_features) { return (in_features + Dot::group - 1) / Dot::group * group_bytes; }

    // A row's inputs: whole lines, and the bytes of the inputs that do not fill one.
    struct InputLines {
        std::int64_t whole;
        std::int64_t rest_bytes;

        explicit InputLines(std::int64_t in_features)
            : whole(in_features * 4 / Dot::group / line_bytes), rest_bytes(in_features * 4 / Dot::group % line_bytes) {}
        std::int64_t rest_groups() const { return (rest_bytes + 3) / 4; }
    };

    template <int down, class Task>
    static void run_panels(const Task& task, const PanelRun& run, const RowCut& cut) {
        const InputLines inputs(task.in_features);
        const std::int64_t whole = inputs.whole;
        // A single block reads its weights once.
        const std::int64_t chunks = cut.blocks == 1 && whole > 0 ? 1 : (whole + chunk_lines_max - 1) / chunk_lines_max;
        const std::int64_t chunks_all = chunks + (inputs.rest_bytes > 0 ? 1 : 0);
        const std::int64_t panel_bytes = panel_bytes_of(task.in_features);
        const std::int64_t together = task.parked == nullptr ? 1 : tile_panel_group;
        Pending<Task> pending(task, cut, run.place);
        Block tiles;
        for (std::int64_t begin = 0; begin < run.panels; begin += together) {
            const std::int64_t end = begin + together < run.panels ? begin + together : run.panels;
            for (std::int64_t i = 0; i < chunks_all; ++i) {
                const bool is_rest = i == chunks;
                const std::int64_t line = is_rest ? whole : whole * i / chunks;
                const std::int64_t lines = is_rest ? 0 : whole * (i + 1) / chunks - line;
                const std::int64_t bytes = is_rest ? inputs.rest_groups() * group_bytes : lines * panel_line_bytes;
                const bool is_last = i + 1 == chunks_all;
                tiles.configure(cut.tile_rows, is_rest ? inputs.rest_groups() : Block::groups_whole);
                const std::byte* const first = run.weights + begin * panel_bytes + line * panel_line_bytes;
                // What is read after these panels: their next chunk, the next panels, or what the caller reads next.
                const std::byte* after = first + bytes;
                if (is_last) after = end < run.panels ? run.weights + end * panel_bytes : run.next;
                for (std::int64_t panel = begin; panel < end; ++panel) {
                    const std::byte* const weights = first + (panel - begin) * panel_bytes;
                    const std::byte* next = panel + 1 < end ? weights + panel_bytes : after;
                    if (cut.blocks == 1) next = weights + near_bytes;
                    run_chunk<down>(task, cut,
                                    {.weights = weights,
                                     .panel = panel - begin,
                                     .place = run.place + panel * width,
                                     .offset = line * line_bytes,
                                     .lines = lines,
                                     .rest_bytes = is_rest ? inputs.rest_bytes : 0,
                                     .next = next,
                                     .is_first = i == 0,
                                     .is_last = is_last},
                                    pending);
                }
            }
        }
        pending.advance(Block::rows_max);
    }

    // Multiplies all rows with these panels. Task: DotTask or ActivatedDotTask.
    template <class Task>
    static void run(const Task& task, const PanelRun& run) {
        const RowCut cut(task.rows);
        if (cut.has_two_tiles()) {
            run_panels<2>(task, run, cut);
        } else {
            run_panels<1>(task, run, cut);
        }
    }

    template <class Task>
    static void matmul(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        const std::int64_t panel_bytes = panel_bytes_of(task.in_features);
        if (task.rows <= Block::rows_max) ask_for_first(task.next);
        run(task, {.weights = task.panels + panel_begin * panel_bytes,
                   .next = task.next == nullptr ? task.panels + panel_end * panel_bytes : task.next,
                   .place = panel_begin * width,
                   .panels = panel_end - panel_begin});
    }

    template <int down>
    static void update(const UpdateTask& task, const RowCut& cut, Block& tiles) {
        using Sums = TileSums<typename Dot::Isa::Tiles, down, columns>;
        const InputLines inputs(task.in_features);
        const auto nothing = []() __attribute__((always_inline)){};
        for (std::int64_t block = 0; block < cut.blocks; ++block) {
            const std::int64_t first = cut.first_tile(block);
            const std::int64_t second = cut.second_tile(block);
            const TilePlace out{.first = reinterpret_cast<std::byte*>(task.out + first * task.out_stride),
                                .second = reinterpret_cast<std::byte*>(task.out + second * task.out_stride),
                                .stride = task.out_stride * static_cast<std::int64_t>(sizeof(float))};
            TileRowsIn rows{
                .first = task.in + first * task.in_stride, .second = task.in + second * task.in_stride, .stride = task.in_stride};
            auto weights = TileColumns<columns>::side_by_side(task.panel, group_bytes);
            if (inputs.whole > 0) {
                tiles.configure(cut.tile_rows, Block::groups_whole);
                Sums::clear();
                for (std::int64_t line = 0; line < inputs.whole; ++line) {
                    Block::template multiply<down, false>(rows, weights, nothing);
                    rows.advance(line_bytes);
                    weights.advance(panel_line_bytes);
                }
                Sums::store(out);
            }
            if (inputs.rest_bytes > 0) {
                tiles.configure(cut.tile_rows, inputs.rest_groups());
                if (inputs.whole > 0) {
                    Sums::load(out);
                } else {
                    Sums::clear();
                }
                RestCopy copy;
                Block::template multiply<down, false>(copy.whole_groups(rows, cut.tile_rows, inputs.rest_bytes), weights, nothing);
                Sums::store(out);
            }
        }
    }

    // Computes the tasks one after another, without a task's overhead. The sums are those of `run`.
    static void updates(std::span<const UpdateTask> tasks) {
        Block tiles;
        for (const UpdateTask& task : tasks) {
            const RowCut cut(task.rows);
            if (cut.has_two_tiles()) {
                update<2>(task, cut, tiles);
            } else {
                update<1>(task, cut, tiles);
            }
        }
    }

    // Like Peak, for the products of tiles.
    static double operations(std::int64_t turns) {
        Block tiles;
        tiles.configure(Block::tile_rows_max, Block::groups_whole);
        TileSums<typename Dot::Isa::Tiles, 2, 2>::clear();
        Block::products(turns);
        return 2.0 * 4 * Block::tile_rows_max * lanes * Block::groups_whole * Dot::group * static_cast<double>(turns);
    }
};

}  // namespace lorry::kernels::cpu
