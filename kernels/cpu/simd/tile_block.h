// The eight matrix tiles (Intel AMX) as a block: two tiles of rows times two of columns make four tiles of sums. How rows are cut into
// blocks, and how a block is configured, loaded, multiplied and stored. For few rows, a strip: one tile of rows times four of columns.
// Used by tile_matmul.h and tile_attention.h over an Isa that has Tiles. Source: Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, chapter 18.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

inline constexpr std::int64_t tile_line_bytes = 64;  // of a tile's row

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

// Rows of one or two tiles in memory: the first row of each tile, and the bytes from a row to the next.
template <class Byte>
struct TileLines {
    Byte* first;
    Byte* second;  // as `first` if there is one tile
    std::int64_t stride;

    [[gnu::always_inline]] inline void advance(std::int64_t bytes) {
        first += bytes;
        second += bytes;
    }
};
using TilePlace = TileLines<std::byte>;         // of sums
using TileRowsIn = TileLines<const std::byte>;  // of a product's rows

// The columns of `across` tiles in memory, each wherever it lies.
template <int across>
struct TileColumns {
    const std::byte* at[extent(across)];
    std::int64_t stride;

    // first: of the first tile; the others follow it, a line each.
    [[gnu::always_inline]] static inline TileColumns side_by_side(const std::byte* first, std::int64_t stride) {
        TileColumns columns{.at = {}, .stride = stride};
        for (int i = 0; i < across; ++i) columns.at[i] = first + i * tile_line_bytes;
        return columns;
    }
    [[gnu::always_inline]] inline void advance(std::int64_t bytes) {
        for (int i = 0; i < across; ++i) at[i] += bytes;
    }
};

// The tiles of sums, `down` x `across` of the first four: 1 x 1 ... 1 x 4, 2 x 1 or 2 x 2.
template <class Tiles, int down, int across>
struct TileSums {
    static_assert(down == 1 ? across <= 4 : down == 2 && across <= 2, "there are four tiles of sums");

    [[gnu::always_inline]] static inline void clear() {
        each([]<int tile>(int, int) __attribute__((always_inline)) { Tiles::template clear<tile>(); });
    }
    [[gnu::always_inline]] static inline void load(const TilePlace& from) {
        each([&]<int tile>(int row, int column) __attribute__((always_inline)) {
            Tiles::template load<tile>((row == 0 ? from.first : from.second) + column * tile_line_bytes, from.stride);
        });
    }
    [[gnu::always_inline]] static inline void store(const TilePlace& to) {
        each([&]<int tile>(int row, int column) __attribute__((always_inline)) {
            Tiles::template store<tile>((row == 0 ? to.first : to.second) + column * tile_line_bytes, to.stride);
        });
    }

private:
    // Calls work<number of the tile>(row, column).
    template <int row = 0, int column = 0, class Work>
    [[gnu::always_inline]] static inline void each(const Work& work) {
        work.template operator()<row * 2 + column>(row, column);
        if constexpr (column + 1 < across) {
            each<row, column + 1>(work);
        } else if constexpr (row + 1 < down) {
            each<row + 1, 0>(work);
        }
    }
};

template <class Tiles>
class TileBlock {
public:
    static constexpr std::int64_t line_bytes = tile_line_bytes;
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

    // Adds the products of a line. down: tiles of rows. rows_once: the first-level cache need not keep the rows. meanwhile: what the vector
    // units do.
    template <int down, bool rows_once, int across, class Meanwhile>
    [[gnu::always_inline]] static inline void multiply(const TileRowsIn& rows, const TileColumns<across>& columns,
                                                       const Meanwhile& meanwhile) {
        load_rows<rows_tile, rows_once>(rows.first, rows.stride);
        Tiles::template load<columns_tile>(columns.at[0], columns.stride);
        Tiles::template dot<0, rows_tile, columns_tile>();
        meanwhile();
        if constexpr (across == 2) {
            Tiles::template load<columns_tile + 1>(columns.at[1], columns.stride);
            Tiles::template dot<1, rows_tile, columns_tile + 1>();
        }
        if constexpr (down == 2) {
            load_rows<rows_tile + 1, rows_once>(rows.second, rows.stride);
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
        for (int tile = 0; tile < across_max; ++tile) shapes.set(tile, tile_rows, tile_line_bytes);
        for (int pair = first; pair <= second; ++pair) {
            shapes.set(rows_tile + pair, tile_rows, groups_[pair] * 4);
            shapes.set(columns_tile + pair, groups_[pair], tile_line_bytes);
        }
        Tiles::configure(shapes);
    }

    // Adds the products of rows with `across` columns.
    template <Pair pair, int across>
    [[gnu::always_inline]] static inline void multiply(const TileRowsIn& rows, const TileColumns<across>& columns) {
        Tiles::template load<rows_tile + pair>(rows.first, rows.stride);
        add<pair, 0>(columns);
    }

private:
    static constexpr int rows_tile = 4;
    static constexpr int columns_tile = 6;
    // From this column on.
    template <Pair pair, int column, int across>
    [[gnu::always_inline]] static inline void add(const TileColumns<across>& columns) {
        Tiles::template load<columns_tile + pair>(columns.at[column], columns.stride);
        Tiles::template dot<column, rows_tile + pair, columns_tile + pair>();
        if constexpr (column + 1 < across) add<pair, column + 1>(columns);
    }

    std::int64_t tile_rows_ = 0;
    std::int64_t groups_[2] = {};
};

}  // namespace lorry::kernels::cpu
