// How kernels read and write rows: in fours of neighbours, which a thread moves in one access if their address is a multiple of their size
// (`aligned`), else one by one. Which thread has which elements depends on the row's width alone, so that a row's sums have the same order
// whatever the number of rows and wherever they begin. Included by the .cu files of ops over rows.
#pragma once

#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

template <class T>
struct alignas(row_four * sizeof(T)) Four {
    T at[row_four];
};
using Floats = Four<float>;

// Whether the row has this column of a four that begins in the row.
template <bool aligned>
__device__ bool has_column(int column, int columns) {
    return aligned || column < columns;
}

// Columns [i, i + 4) of a row; zeros beyond its end.
template <bool aligned, class T>
__device__ Floats load_four(const T* row, int i, int columns) {
    Floats x{};
    if constexpr (aligned) {
        const Four<T> packed = load_whole(reinterpret_cast<const Four<T>*>(row + i));
        for (int k = 0; k < row_four; ++k) x.at[k] = load(&packed.at[k]);
    } else {
        for (int k = 0; k < row_four; ++k) {
            if (i + k < columns) x.at[k] = load(row + i + k);
        }
    }
    return x;
}
template <bool aligned, class T>
__device__ void store_four(T* row, int i, int columns, const Floats& x) {
    if constexpr (aligned) {
        Four<T> packed;
        for (int k = 0; k < row_four; ++k) store(&packed.at[k], x.at[k]);
        store_whole(reinterpret_cast<Four<T>*>(row + i), packed);
    } else {
        for (int k = 0; k < row_four; ++k) {
            if (i + k < columns) store(row + i + k, x.at[k]);
        }
    }
}

// In a launch with row_parts(): the first column of the thread's four, which may be beyond the row's end; block().x is the row.
__device__ inline int part_column() { return (block().y * block_threads() + thread_in_block()) * static_cast<int>(row_four); }

// In a launch with row_threads(): one thread's fours of the block's row. value(i) computes the four that begins at column i. It is called
// once for each; for those after row_columns_kept, again each time they are used.
constexpr int row_fours_kept = 4;
constexpr int row_columns_kept = row_fours_kept * row_threads_max * static_cast<int>(row_four);
template <class Value>
class RowFours {
public:
    __device__ RowFours(int columns, const Value& value) : columns_(columns), value_(value) {
#pragma unroll
        for (int round = 0; round < row_fours_kept; ++round) {
            if (column(round) < columns_) kept_[round] = value_(column(round));
        }
    }
    // Calls each(i, four) for each four, which begins at column i.
    template <class Each>
    __device__ void for_each(const Each& each) const {
#pragma unroll
        for (int round = 0; round < row_fours_kept; ++round) {
            if (column(round) < columns_) each(column(round), kept_[round]);
        }
#pragma unroll 1
        for (int round = row_fours_kept; column(round) < columns_; ++round) each(column(round), value_(column(round)));
    }

private:
    __device__ static int column(int round) { return (thread_in_block() + round * block_threads()) * static_cast<int>(row_four); }

    const int columns_;
    const Value value_;
    Floats kept_[row_fours_kept];
};

// In the block's shared memory.
struct RowScratch {
    std::uint32_t largest[row_threads_max / warp_size];
};

// Called by all threads of a block: for each four x of the row, at column i, stores change(i, x) as T. For fp8, change is called twice, and
// nothing is stored before all threads have computed their `fours`.
template <bool aligned, class T, class Fours, class Change>
__device__ void store_row(const View& out, std::int64_t row, int columns, const Fours& fours, RowScratch& scratch, const Change& change) {
    T* const to = static_cast<T*>(out.data) + row * out.stride;
    if constexpr (std::is_same_v<T, Fp8>) {
        std::uint32_t largest = 0;
        fours.for_each([&](int i, const Floats& four) {
            const Floats x = change(i, four);
            for (int k = 0; k < row_four; ++k) {
                if (has_column<aligned>(i + k, columns)) largest = larger(largest, magnitude_bits(x.at[k]));
            }
        });
        const float scale = fp8_scale(block_largest(largest, scratch.largest));
        const float inverse = 1.0F / scale;
        fours.for_each([&](int i, const Floats& four) {
            Floats x = change(i, four);
            for (int k = 0; k < row_four; ++k) x.at[k] *= inverse;
            store_four<aligned>(to, i, columns, x);
        });
        if (thread_in_block() == 0) out.scales[row] = scale;
    } else {
        fours.for_each([&](int i, const Floats& four) { store_four<aligned>(to, i, columns, change(i, four)); });
    }
}
struct Unchanged {
    __device__ Floats operator()(int, const Floats& x) const { return x; }
};

// Whether all fours of these rows, or of a vector, are at multiples of their size; true for an absent one.
inline bool has_whole_fours(const View& rows) {
    const std::size_t bytes = row_four * rows.element_bytes();
    return reinterpret_cast<std::uintptr_t>(rows.data) % bytes == 0 && rows.row_bytes() % bytes == 0;
}
inline bool has_whole_fours(const float* vector) { return reinterpret_cast<std::uintptr_t>(vector) % (row_four * sizeof(float)) == 0; }
template <class... Operands>
bool are_aligned(int columns, const Operands&... operands) {
    return columns % row_four == 0 && (has_whole_fours(operands) && ...);
}

// Calls run(element, aligned) with an element of the type that has the format, and a std::bool_constant.
constexpr Format format_of(float) { return Format::float32; }
constexpr Format format_of(Bfloat16) { return Format::bfloat16; }
constexpr Format format_of(Fp8) { return Format::fp8_rows; }
template <class... Elements, class Run>
void choose_kernel(Format format, bool aligned, const Run& run) {
    const auto choose = [&](auto element) {
        if (format_of(element) != format) return;
        aligned ? run(element, std::true_type{}) : run(element, std::false_type{});
    };
    (choose(Elements{}), ...);
}

}  // namespace lorry::kernels::cuda
