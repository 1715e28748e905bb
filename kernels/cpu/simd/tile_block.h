// The eight matrix tiles (Intel AMX) as a block: two tiles of rows times two of columns make four tiles of sums. How rows are cut into
// blocks, and how a block is configured, loaded, multiplied and stored. For few rows, a strip: one tile of rows times four of columns.
// Used by tile_matmul.h and tile_attention.h over an Isa that has Tiles. Source: Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, chapter 18.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

// The memory operand of LDTILECFG.
struct alignas(64) TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};

    [[gnu::always_inline]] inline void set(int tile, std::int64_t height, std::int64_t bytes) {
        rows[tile] = static_cast<std::uint8_t>(height);
        row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    }
};

// Where the sums of a block are in memory: the first row of each tile of rows, and the bytes from a row to the next.
struct TilePlace {
    std::byte* first;
    std::byte* second;
    std::int64_t stride;
};

// What a block multiplies: rows of both tiles, and the columns of both.
struct TileFactors {
    const std::byte* first;
    const std::byte* second;
    std::int64_t row_stride;
    const std::byte* left;
    const std::byte* right;
    std::int64_t column_stride;
};

template <class Tiles>
class TileBlock {
public:
    static constexpr std::int64_t line_bytes = 64;    // of a tile's row
    static constexpr std::int64_t groups_whole = 16;  // groups of 4 bytes in a line
    static constexpr std::int64_t tile_rows_max = 16;
    static constexpr std::int64_t rows_max = 2 * tile_rows_max;

    // Rows, cut into blocks of one or two tiles. All tiles have the same height, so that they are configured once: where rows do not
    // divide evenly, the last tiles reach back over rows that the tiles before them have, too.
    struct RowCut {
        std::int64_t rows;
        std::int64_t blocks;
        std::int64_t tile_rows;

        // count: at least 1.
        explicit RowCut(std::int64_t count)
            : rows(count),
              blocks((count + rows_max - 1) / rows_max),
              tile_rows(count <= tile_rows_max ? count : (count + 2 * blocks - 1) / (2 * blocks)) {}
        bool has_two_tiles() const { return rows > tile_rows_max; }
        std::int64_t block_rows() const { return has_two_tiles() ? 2 * tile_rows : tile_rows; }
        // The first row of each tile of a block.
        std::int64_t first_tile(std::int64_t block) const {
            const std::int64_t row = block * block_rows();
            const std::int64_t last = rows > block_rows() ? rows - block_rows() : 0;
            return row < last ? row : last;
        }
        std::int64_t second_tile(std::int64_t block) const {
            const std::int64_t row = first_tile(block) + tile_rows;
            const std::int64_t last = rows - tile_rows;
            return row < last ? row : last;
        }
    };

    ~TileBlock() { Tiles::release(); }

    // groups: of 4 bytes in a line; also the height of the columns' tiles. Clears all tiles, unless they have these shapes already.
    void configure(std::int64_t tile_rows, std::int64_t groups) {
        if (tile_rows == tile_rows_ && groups == groups_) return;
        tile_rows_ = tile_rows;
        groups_ = groups;
        TileShapes shapes;
        for (int tile = 0; tile < rows_tile; ++tile) shapes.set(tile, tile_rows, line_bytes);
        for (int i = 0; i < 2; ++i) {
            shapes.set(rows_tile + i, tile_rows, groups * 4);
            shapes.set(columns_tile + i, groups, line_bytes);
        }
        Tiles::configure(shapes);
    }

    // down, across: how many tiles of rows and of columns the block has.
    template <int down, int across>
    [[gnu::always_inline]] static inline void clear() {
        Tiles::template clear<0>();
        if constexpr (across == 2) Tiles::template clear<1>();
        if constexpr (down == 2) Tiles::template clear<2>();
        if constexpr (down == 2 && across == 2) Tiles::template clear<3>();
    }
    template <int down, int across>
    [[gnu::always_inline]] static inline void load(const TilePlace& from) {
        Tiles::template load<0>(from.first, from.stride);
        if constexpr (across == 2) Tiles::template load<1>(from.first + line_bytes, from.stride);
        if constexpr (down == 2) Tiles::template load<2>(from.second, from.stride);
        if constexpr (down == 2 && across == 2) Tiles::template load<3>(from.second + line_bytes, from.stride);
    }
    template <int down, int across>
    [[gnu::always_inline]] static inline void store(const TilePlace& to) {
        Tiles::template store<0>(to.first, to.stride);
        if constexpr (across == 2) Tiles::template store<1>(to.first + line_bytes, to.stride);
        if constexpr (down == 2) Tiles::template store<2>(to.second, to.stride);
        if constexpr (down == 2 && across == 2) Tiles::template store<3>(to.second + line_bytes, to.stride);
    }
    // Adds the products of a line. rows_once: the first-level cache need not keep the rows. meanwhile: what the vector units do.
    template <int down, int across, bool rows_once, class Meanwhile>
    [[gnu::always_inline]] static inline void multiply(const TileFactors& from, const Meanwhile& meanwhile) {
        load_rows<rows_tile, rows_once>(from.first, from.row_stride);
        Tiles::template load<columns_tile>(from.left, from.column_stride);
        Tiles::template dot<0, rows_tile, columns_tile>();
        meanwhile();
        if constexpr (across == 2) {
            Tiles::template load<columns_tile + 1>(from.right, from.column_stride);
            Tiles::template dot<1, rows_tile, columns_tile + 1>();
        }
        if constexpr (down == 2) {
            load_rows<rows_tile + 1, rows_once>(from.second, from.row_stride);
            Tiles::template dot<2, rows_tile + 1, columns_tile>();
            if constexpr (across == 2) Tiles::template dot<3, rows_tile + 1, columns_tile + 1>();
        }
    }

    // The products of a line, `turns` times, with zeros.
    static void products(std::int64_t turns) {
        Tiles::template clear<rows_tile>();
        Tiles::template clear<rows_tile + 1>();
        Tiles::template clear<columns_tile>();
        Tiles::template clear<columns_tile + 1>();
        for (std::int64_t turn = 0; turn < turns; ++turn) {
            Tiles::template dot<0, rows_tile, columns_tile>();
            Tiles::template dot<1, rows_tile, columns_tile + 1>();
            Tiles::template dot<2, rows_tile + 1, columns_tile>();
            Tiles::template dot<3, rows_tile + 1, columns_tile + 1>();
        }
    }

private:
    // Numbers of the tiles. Sums are 0 … 3, by row and then by column.
    static constexpr int rows_tile = 4;
    static constexpr int columns_tile = 6;
    template <int tile, bool once>
    [[gnu::always_inline]] static inline void load_rows(const std::byte* from, std::int64_t stride) {
        if constexpr (once) {
            Tiles::template load_once<tile>(from, stride);
        } else {
            Tiles::template load<tile>(from, stride);
        }
    }

    std::int64_t tile_rows_ = 0;
    std::int64_t groups_ = 0;
};

// One tile of rows and up to four of columns. It has two pairs of factors, each with a shape of its own, so that work which alternates
// between two shapes configures the tiles once: configuring waits for all loads before it, and nothing comes from memory meanwhile.
template <class Tiles>
class TileStrip {
public:
    static constexpr std::int64_t line_bytes = 64;
    static constexpr int across_max = 4;
    // Which pair of factors.
    enum Pair { first, second };

    ~TileStrip() { Tiles::release(); }

    // groups: of 4 bytes in a line of rows of each pair; also the height of its columns' tile.
    void configure(std::int64_t tile_rows, std::int64_t first_groups, std::int64_t second_groups) {
        if (tile_rows == tile_rows_ && first_groups == groups_[first] && second_groups == groups_[second]) return;
        tile_rows_ = tile_rows;
        groups_[first] = first_groups;
        groups_[second] = second_groups;
        TileShapes shapes;
        for (int tile = 0; tile < across_max; ++tile) shapes.set(tile, tile_rows, line_bytes);
        for (int pair = first; pair <= second; ++pair) {
            shapes.set(rows_tile + pair, tile_rows, groups_[pair] * 4);
            shapes.set(columns_tile + pair, groups_[pair], line_bytes);
        }
        Tiles::configure(shapes);
    }

    // across: how many tiles of columns.
    template <int across>
    [[gnu::always_inline]] static inline void clear() {
        Tiles::template clear<0>();
        if constexpr (across > 1) Tiles::template clear<1>();
        if constexpr (across > 2) Tiles::template clear<2>();
        if constexpr (across > 3) Tiles::template clear<3>();
    }
    template <int across>
    [[gnu::always_inline]] static inline void load(const std::byte* from, std::int64_t stride) {
        Tiles::template load<0>(from, stride);
        if constexpr (across > 1) Tiles::template load<1>(from + line_bytes, stride);
        if constexpr (across > 2) Tiles::template load<2>(from + 2 * line_bytes, stride);
        if constexpr (across > 3) Tiles::template load<3>(from + 3 * line_bytes, stride);
    }
    template <int across>
    [[gnu::always_inline]] static inline void store(std::byte* to, std::int64_t stride) {
        Tiles::template store<0>(to, stride);
        if constexpr (across > 1) Tiles::template store<1>(to + line_bytes, stride);
        if constexpr (across > 2) Tiles::template store<2>(to + 2 * line_bytes, stride);
        if constexpr (across > 3) Tiles::template store<3>(to + 3 * line_bytes, stride);
    }
    // Adds the products of rows with `across` columns.
    template <Pair pair, int across>
    [[gnu::always_inline]] static inline void multiply(const std::byte* rows, std::int64_t row_stride, const std::byte* const* columns,
                                                       std::int64_t column_stride) {
        Tiles::template load<rows_tile + pair>(rows, row_stride);
        add<pair, 0>(columns, column_stride);
        if constexpr (across > 1) add<pair, 1>(columns, column_stride);
        if constexpr (across > 2) add<pair, 2>(columns, column_stride);
        if constexpr (across > 3) add<pair, 3>(columns, column_stride);
    }

private:
    static constexpr int rows_tile = 4;
    static constexpr int columns_tile = 6;
    template <Pair pair, int column>
    [[gnu::always_inline]] static inline void add(const std::byte* const* columns, std::int64_t column_stride) {
        Tiles::template load<columns_tile + pair>(columns[column], column_stride);
        Tiles::template dot<column, rows_tile + pair, columns_tile + pair>();
    }

    std::int64_t tile_rows_ = 0;
    std::int64_t groups_[2] = {};
};

}  // namespace lorry::kernels::cpu
