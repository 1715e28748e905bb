// Multiplies DotMatmul's panels with matrix tiles (Intel AMX): blocks of up to 32 rows by the outputs of a panel, over a line of inputs at
// a time, which is 64 bytes: 64 int8 or 32 bfloat16. Instantiated over a Dot whose Isa has Tiles; a panel is one or two tiles wide. Source:
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
//
// Sums of int8 are exact, so dot_matmul.h uses tiles when there are enough rows, and the results are the same. A bfloat16 output is one
// chain of sums of 32 inputs each, whatever the number of rows; tile_rows.h adds up the same sums for a few rows.
//
// What keeps the tiles busy:
// - The weights of a chunk of inputs stay in the first-level cache while all rows pass; the rows come from the second, with a hint that
//   keeps them out of the first.
// - Storing and reloading tiles takes as long as many products. So a chunk is as long as that cache allows.
// - A block's sums become outputs, a few rows after each line of the next block: the tiles and the vector units work at the same time.
// - Each block prefetches its share of the chunk that comes next.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

// The memory operand of LDTILECFG.
struct alignas(64) TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};

// How far ahead weights are prefetched, in bytes, when one pass over them waits for memory.
inline constexpr std::int64_t near_bytes = 4096;
[[gnu::always_inline]] inline void ask_for_first(const std::byte* next) {
    if (next == nullptr) return;
    for (std::int64_t i = 0; i < near_bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
}

// The most rows of a chunk: more rows use each weight more often, until they no longer fit into the second-level cache.
inline constexpr std::int64_t tile_row_chunk = 512;

// Consecutive panels.
struct PanelRun {
    const std::byte* weights;
    const std::byte* next;  // weights to prefetch meanwhile
    std::int64_t column;    // first place of the first panel
    std::int64_t panels = 1;
};

template <class Dot>
struct TileMatmul {
    using Tiles = typename Dot::Isa::Tiles;
    using V = Simd<typename Dot::Isa>;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int columns = Dot::vectors;  // tiles side by side
    static constexpr int tile_rows_max = 16;
    static constexpr int block_rows_max = 2 * tile_rows_max;
    static constexpr int line_bytes = 64;
    static constexpr int width = columns * lanes;  // outputs of a panel
    static constexpr std::int64_t group_bytes = width * 4;
    static constexpr std::int64_t groups_whole = 16;  // groups of inputs in a line
    static constexpr std::int64_t panel_line_bytes = groups_whole * group_bytes;
    // Numbers of the tiles: sums are 0 … 3, by row and then by column.
    static constexpr int inputs = 4;
    static constexpr int weights = 6;
    static_assert(lanes == 16 && (columns == 1 || columns == 2), "two tiles of rows by two of outputs, and their factors, are 8 tiles");
    // 36 KB of two tiles' weights, in a first-level cache of 48 KB. Measured with 128 to 512 rows: half as long chunks take a tenth longer.
    static constexpr std::int64_t chunk_lines_max = 18;

    // How rows are cut: into blocks of two tiles of equal height, so that the tiles are configured once. The last block reaches back into
    // rows of the block before it if there are too few.
    struct RowCut {
        std::int64_t rows;
        std::int64_t blocks;
        std::int64_t tile_rows;
        explicit RowCut(std::int64_t count)
            : rows(count), blocks((count + block_rows_max - 1) / block_rows_max), tile_rows((count + 2 * blocks - 1) / (2 * blocks)) {
            if (count <= tile_rows_max) tile_rows = count;
        }
        bool has_two_tiles() const { return rows > tile_rows_max; }
        std::int64_t first_tile(std::int64_t block) const {
            const std::int64_t last = rows - 2 * tile_rows;
            const std::int64_t row = block * 2 * tile_rows;
            return row <= last ? row : (last < 0 ? 0 : last);
        }
        std::int64_t second_tile(std::int64_t block) const {
            const std::int64_t last = rows - tile_rows;
            const std::int64_t row = first_tile(block) + tile_rows;
            return row < last ? row : last;
        }
    };

    struct Shape {
        std::int64_t tile_rows = 0;
        std::int64_t groups = 0;
        bool operator==(const Shape&) const = default;
    };
    static void configure(Shape& current, const Shape& wanted) {
        if (current == wanted) return;
        current = wanted;
        TileShapes shapes;
        for (int tile = 0; tile < 4; ++tile) set(shapes, tile, wanted.tile_rows, line_bytes);
        for (int tile = inputs; tile < inputs + 2; ++tile) set(shapes, tile, wanted.tile_rows, wanted.groups * 4);
        for (int tile = weights; tile < weights + 2; ++tile) set(shapes, tile, wanted.groups, line_bytes);
        Tiles::configure(shapes);
    }
    [[gnu::always_inline]] static inline void set(TileShapes& shapes, int tile, std::int64_t rows, std::int64_t bytes) {
        shapes.rows[tile] = static_cast<std::uint8_t>(rows);
        shapes.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    }

    template <int down>
    [[gnu::always_inline]] static inline void clear() {
        Tiles::template clear<0>();
        if constexpr (columns == 2) Tiles::template clear<1>();
        if constexpr (down == 2) Tiles::template clear<2>();
        if constexpr (down == 2 && columns == 2) Tiles::template clear<3>();
    }
    // A block's sums in memory: rows of group_bytes, the second tile's after the first's.
    template <int down>
    [[gnu::always_inline]] static inline void reload(const std::byte* from, std::int64_t tile_rows) {
        const std::byte* const second = from + tile_rows * group_bytes;
        Tiles::template load<0>(from, group_bytes);
        if constexpr (columns == 2) Tiles::template load<1>(from + line_bytes, group_bytes);
        if constexpr (down == 2) Tiles::template load<2>(second, group_bytes);
        if constexpr (down == 2 && columns == 2) Tiles::template load<3>(second + line_bytes, group_bytes);
    }
    template <int down>
    [[gnu::always_inline]] static inline void save(std::byte* to, std::int64_t tile_rows) {
        std::byte* const second = to + tile_rows * group_bytes;
        Tiles::template store<0>(to, group_bytes);
        if constexpr (columns == 2) Tiles::template store<1>(to + line_bytes, group_bytes);
        if constexpr (down == 2) Tiles::template store<2>(second, group_bytes);
        if constexpr (down == 2 && columns == 2) Tiles::template store<3>(second + line_bytes, group_bytes);
    }
    // Adds the products of one line. meanwhile: what the vector units do during them.
    template <int down, class Meanwhile>
    [[gnu::always_inline]] static inline void multiply(const std::byte* first, const std::byte* second, std::int64_t stride,
                                                       const std::byte* panel, const Meanwhile& meanwhile) {
        Tiles::template load_once<inputs>(first, stride);
        Tiles::template load<weights>(panel, group_bytes);
        Tiles::template dot<0, inputs, weights>();
        meanwhile();
        if constexpr (columns == 2) {
            Tiles::template load<weights + 1>(panel + line_bytes, group_bytes);
            Tiles::template dot<1, inputs, weights + 1>();
        }
        if constexpr (down == 2) {
            Tiles::template load_once<inputs + 1>(second, stride);
            Tiles::template dot<2, inputs + 1, weights>();
            if constexpr (columns == 2) Tiles::template dot<3, inputs + 1, weights + 1>();
        }
    }

    // The block whose products were added up last, while its rows become outputs.
    template <class Task>
    class Pending {
    public:
        Pending(const Task& task, const RowCut& cut, std::int64_t place) : task_(task), cut_(cut), outputs_(task, place) {}
        // For the sums of a single block.
        std::byte* parked() { return parked_[0]; }
        // Where to save the sums of the next block. Those before it must be finished.
        std::byte* memory() { return sums_[turn_ ^= 1][0]; }
        void take(std::int64_t block, std::int64_t place) {
            if (place != place_) {
                outputs_ = typename Dot::Outputs(task_, place);
                place_ = place;
                row_end_ = 0;
            }
            first_ = cut_.first_tile(block);
            second_ = cut_.second_tile(block) - cut_.tile_rows;
            index_ = 0;
            count_ = cut_.has_two_tiles() ? 2 * cut_.tile_rows : cut_.tile_rows;
        }
        // Finishes up to `count` rows.
        [[gnu::always_inline]] void advance(std::int64_t count) {
            if (index_ == count_) return;
            // Copies: the compiler must assume that an output's memory is that of the task, and would read it again after each store.
            const Task task = task_;
            const typename Dot::Outputs outputs = outputs_;
            const RowCut cut = cut_;
            const std::int64_t end = index_ + count < count_ ? index_ + count : count_;
            const std::byte(*const sums)[extent(group_bytes)] = sums_[turn_];
            for (std::int64_t index = index_; index < end; ++index) {
                const bool is_first = index < cut.tile_rows;
                const std::int64_t row = (is_first ? first_ : second_) + index;
                // An earlier block or the first tile had this row, too.
                if (row < row_end_ || (!is_first && row < first_ + cut.tile_rows)) continue;
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
            if (end == count_) row_end_ = (count_ > cut.tile_rows ? second_ : first_) + count_;
        }

    private:
        const Task& task_;
        const RowCut& cut_;
        typename Dot::Outputs outputs_;
        std::int64_t place_ = -1;
        std::int64_t first_ = 0;
        std::int64_t second_ = 0;  // less the rows of the first tile
        std::int64_t index_ = 0;
        std::int64_t count_ = 0;
        std::int64_t row_end_ = 0;  // of this panel's finished rows
        int turn_ = 0;
        alignas(64) std::byte sums_[2][block_rows_max][extent(group_bytes)];
        alignas(64) std::byte parked_[block_rows_max][extent(group_bytes)];
    };

    // Consecutive lines of a panel's inputs.
    struct Chunk {
        const std::byte* panel;    // their weights
        std::int64_t offset;       // bytes from a row's first input
        std::int64_t lines;        // whole ones; 0: the rest of a row
        std::int64_t rest_bytes;   // of that rest
        std::int64_t rest_groups;  // in them
        const std::byte* next;     // weights to prefetch
        bool is_first;
        bool is_last;
    };

    template <int down, class Task>
    static void run_chunk(const Task& task, const RowCut& cut, const Chunk& chunk, std::int64_t place, Pending<Task>& pending) {
        const std::int64_t ahead = (groups_whole * columns + cut.blocks - 1) / cut.blocks;
        const std::int64_t finished = chunk.lines == 0 ? block_rows_max : (block_rows_max + chunk.lines - 1) / chunk.lines;
        const std::int64_t parked_bytes = 2 * cut.tile_rows * group_bytes;
        const std::byte* next = chunk.next;
        for (std::int64_t block = 0; block < cut.blocks; ++block) {
            std::byte* const parked = cut.blocks == 1 ? pending.parked() : task.parked + block * parked_bytes;
            if (chunk.is_first) {
                clear<down>();
            } else {
                reload<down>(parked, cut.tile_rows);
            }
            const std::byte* first = task.in + cut.first_tile(block) * task.in_stride + chunk.offset;
            const std::byte* second = task.in + cut.second_tile(block) * task.in_stride + chunk.offset;
            const auto meanwhile = [&]() __attribute__((always_inline)) { pending.advance(finished); };
            const std::byte* panel = chunk.panel;
            for (std::int64_t line = 0; line < chunk.lines; ++line) {
                for (std::int64_t i = 0; i < ahead; ++i, next += line_bytes) __builtin_prefetch(next, 0, 2);
                multiply<down>(first, second, task.in_stride, panel, meanwhile);
                first += line_bytes;
                second += line_bytes;
                panel += panel_line_bytes;
            }
            if (chunk.rest_groups > 0) {
                // Nothing after a row's last input is read.
                alignas(64) std::byte rest[2][tile_rows_max][extent(line_bytes)] = {};
                for (std::int64_t r = 0; r < cut.tile_rows; ++r) {
                    __builtin_memcpy(rest[0][r], first + r * task.in_stride, static_cast<std::size_t>(chunk.rest_bytes));
                    if (down == 2) __builtin_memcpy(rest[1][r], second + r * task.in_stride, static_cast<std::size_t>(chunk.rest_bytes));
                }
                multiply<down>(rest[0][0], rest[1][0], line_bytes, panel, meanwhile);
            }
            if (!chunk.is_last) {
                save<down>(parked, cut.tile_rows);
                continue;
            }
            pending.advance(block_rows_max);
            save<down>(pending.memory(), cut.tile_rows);
            pending.take(block, place);
        }
    }

    static std::int64_t panel_bytes_of(const DotTask& task) { return (task.in_features + Dot::group - 1) / Dot::group * group_bytes; }

    template <int down, class Task>
    static void run_panels(const Task& task, const PanelRun& run, const RowCut& cut) {
        const std::int64_t row_bytes = task.in_features * 4 / Dot::group;
        const std::int64_t whole = row_bytes / line_bytes;
        const std::int64_t rest_bytes = row_bytes - whole * line_bytes;
        const std::int64_t rest_groups = (rest_bytes + 3) / 4;
        // A single block reads its weights once.
        const std::int64_t chunks = cut.blocks == 1 && whole > 0 ? 1 : (whole + chunk_lines_max - 1) / chunk_lines_max;
        const std::int64_t chunks_all = chunks + (rest_groups > 0 ? 1 : 0);
        Pending<Task> pending(task, cut, run.column);
        Shape shape;
        const std::byte* panel = run.weights;
        for (std::int64_t index = 0; index < run.panels; ++index) {
            const std::int64_t place = run.column + index * width;
            for (std::int64_t i = 0; i < chunks_all; ++i) {
                const bool is_rest = i == chunks;
                const std::int64_t line = is_rest ? whole : whole * i / chunks;
                const std::int64_t lines = is_rest ? 0 : whole * (i + 1) / chunks - line;
                const std::byte* const end = panel + (is_rest ? rest_groups * group_bytes : lines * panel_line_bytes);
                const bool is_last = i + 1 == chunks_all;
                const std::byte* next = cut.blocks == 1 ? panel + near_bytes : is_last && index + 1 == run.panels ? run.next : end;
                configure(shape, {cut.tile_rows, is_rest ? rest_groups : groups_whole});
                run_chunk<down>(task, cut,
                                {.panel = panel,
                                 .offset = line * line_bytes,
                                 .lines = lines,
                                 .rest_bytes = is_rest ? rest_bytes : 0,
                                 .rest_groups = is_rest ? rest_groups : 0,
                                 .next = next,
                                 .is_first = i == 0,
                                 .is_last = is_last},
                                place, pending);
                panel = end;
            }
        }
        pending.advance(block_rows_max);
        Tiles::release();
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
        const std::int64_t panel_bytes = panel_bytes_of(task);
        if (task.rows <= block_rows_max) ask_for_first(task.next);
        run(task, {.weights = task.panels + panel_begin * panel_bytes,
                   .next = task.next == nullptr ? task.panels + panel_end * panel_bytes : task.next,
                   .column = panel_begin * width,
                   .panels = panel_end - panel_begin});
    }

    // Like Peak, for the products of tiles.
    static double operations(std::int64_t turns) {
        Shape shape;
        configure(shape, {tile_rows_max, groups_whole});
        alignas(64) std::byte bytes[extent(tile_rows_max * line_bytes)] = {};
        Tiles::template load<inputs>(bytes, line_bytes);
        Tiles::template load<inputs + 1>(bytes, line_bytes);
        Tiles::template load<weights>(bytes, line_bytes);
        Tiles::template load<weights + 1>(bytes, line_bytes);
        Tiles::template clear<0>();
        Tiles::template clear<1>();
        Tiles::template clear<2>();
        Tiles::template clear<3>();
        for (std::int64_t turn = 0; turn < turns; ++turn) {
            Tiles::template dot<0, inputs, weights>();
            Tiles::template dot<1, inputs, weights + 1>();
            Tiles::template dot<2, inputs + 1, weights>();
            Tiles::template dot<3, inputs + 1, weights + 1>();
        }
        Tiles::release();
        return 2.0 * 4 * tile_rows_max * lanes * groups_whole * Dot::group * static_cast<double>(turns);
    }
};

}  // namespace lorry::kernels::cpu
