// The emulated implementation of kernels/cuda/device.h, which documents each function: the same operations on the threads of machine.h,
// lane by lane with the PTX ISA's operand layouts. Included only by device.h.
#pragma once

#include <math.h>
#include <bit>

#include <cstring>
#include <source_location>
#include <tuple>
#include <utility>

#include "kernels/cuda/emulation/machine.h"
#include "kernels/cuda/emulation/stream.h"

// On the host, a function is the same for every caller.
#define __global__
#define __device__
#define __launch_bounds__(...)

namespace lorry::kernels::cuda {

using Where = std::source_location;

inline int thread_in_block() { return emulation::thread_in_block(); }
inline int block_threads() { return emulation::block_threads(); }
inline Blocks block() {
    const auto [x, y, z] = emulation::block();
    return {x, y, z};
}
inline Blocks grid() {
    const auto [x, y, z] = emulation::grid();
    return {x, y, z};
}

template <class T>
T& shared_memory(const Where& where = Where::current()) {
    return *reinterpret_cast<T*>(emulation::shared_memory(sizeof(T), where));
}

inline void barrier(const Where& where = Where::current()) { emulation::barrier(where); }
inline void warp_barrier(const Where& where = Where::current()) {
    emulation::warp_operation(emulation::WarpOperation::barrier, nullptr, nullptr, where);
}

template <class T>
T shuffle_from(T x, int from, const Where& where = Where::current()) {
    struct Operand {
        T x;
        int from;
        T result;
    };
    if (from < 0 || from >= warp_size) emulation::fault("a shuffle from lane " + std::to_string(from), where);
    Operand mine{x, from, x};
    emulation::warp_operation(
        emulation::WarpOperation::shuffle, &mine,
        [](const emulation::Operands& all) {
            for (void* const each : all) {
                auto& operand = *static_cast<Operand*>(each);
                operand.result = static_cast<Operand*>(all[static_cast<std::size_t>(operand.from)])->x;
            }
        },
        where);
    return mine.result;
}
template <class T>
T shuffle_xor(T x, int mask, const Where& where = Where::current()) {
    return shuffle_from(x, (emulation::thread_in_block() % warp_size) ^ mask, where);
}

inline std::uint32_t ballot(bool x, const Where& where = Where::current()) {
    struct Operand {
        bool x;
        std::uint32_t result;
    };
    Operand mine{x, 0};
    emulation::warp_operation(
        emulation::WarpOperation::ballot, &mine,
        [](const emulation::Operands& all) {
            std::uint32_t bits = 0;
            for (std::size_t i = 0; i < all.size(); ++i) bits |= std::uint32_t{static_cast<Operand*>(all[i])->x} << i;
            for (void* const each : all) static_cast<Operand*>(each)->result = bits;
        },
        where);
    return mine.result;
}

inline float to_float(Bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16U); }
inline Bfloat16 to_bfloat16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return {0x7FFF};
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
}
inline std::uint32_t pack(float low, float high) {
    return std::uint32_t{to_bfloat16(low).bits} | (std::uint32_t{to_bfloat16(high).bits} << 16U);
}
inline Fp8 to_fp8(float x) { return fp8_of(x); }
inline void widen(std::uint32_t four, std::uint32_t& even, std::uint32_t& odd) {
    const auto element = [&](int i) { return float_of({static_cast<std::uint8_t>(four >> 8 * i)}); };
    even = pack(element(0), element(2));
    odd = pack(element(1), element(3));
}

namespace emulation {

inline Bfloat16 low_half(std::uint32_t pair) { return {static_cast<std::uint16_t>(pair)}; }
inline Bfloat16 high_half(std::uint32_t pair) { return {static_cast<std::uint16_t>(pair >> 16U)}; }

struct MultiplyOperands {
    float* d;
    const std::uint32_t* a;
    const std::uint32_t* b;
};

// product += a b. Most of the emulation's time is spent here; sanitizers have nothing to watch, because these are locals of the caller.
template <std::size_t depth>
__attribute__((no_sanitize("address", "undefined", "thread"))) void multiply(const float (&a)[16][depth], const float (&b)[depth][8],
                                                                             float (&product)[16][8]) {
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t k = 0; k < depth; ++k) {
            for (std::size_t column = 0; column < 8; ++column) product[row][column] += a[row][k] * b[k][column];
        }
    }
}

// d += a b over all lanes' fragments of d.
template <std::size_t depth>
void add_product(const float (&a)[16][depth], const float (&b)[depth][8], const Operands& all) {
    float product[16][8] = {};
    multiply(a, b, product);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& operands = *static_cast<const MultiplyOperands*>(all[i]);
        for (std::size_t part = 0; part < 4; ++part) operands.d[part] += product[i / 4 + part / 2 * 8][2 * (i % 4) + part % 2];
    }
}

// In every fragment, lane 4 g + t holds elements of row (or column) g and of the pair of columns (or rows) 2 t.
inline void multiply_all(const Operands& all) {
    float a[16][16];
    float b[16][8];
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& operands = *static_cast<const MultiplyOperands*>(all[i]);
        const std::size_t g = i / 4;
        const std::size_t t = i % 4;
        for (std::size_t part = 0; part < 4; ++part) {
            float* const to = &a[g + part % 2 * 8][2 * t + part / 2 * 8];
            to[0] = to_float(low_half(operands.a[part]));
            to[1] = to_float(high_half(operands.a[part]));
        }
        for (std::size_t part = 0; part < 2; ++part) {
            b[2 * t + part * 8][g] = to_float(low_half(operands.b[part]));
            b[2 * t + part * 8 + 1][g] = to_float(high_half(operands.b[part]));
        }
    }
    add_product(a, b, all);
}

// For e4m3, that lane holds four neighbours from 4 t on.
inline void multiply_all_e4m3(const Operands& all) {
    float a[16][32];
    float b[32][8];
    const auto element = [](std::uint32_t four, std::size_t i) { return float_of({static_cast<std::uint8_t>(four >> 8 * i)}); };
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& operands = *static_cast<const MultiplyOperands*>(all[i]);
        const std::size_t g = i / 4;
        const std::size_t t = i % 4;
        for (std::size_t j = 0; j < 4; ++j) {
            for (std::size_t part = 0; part < 4; ++part) a[g + part % 2 * 8][4 * t + j + part / 2 * 16] = element(operands.a[part], j);
            for (std::size_t part = 0; part < 2; ++part) b[4 * t + j + part * 16][g] = element(operands.b[part], j);
        }
    }
    add_product(a, b, all);
}

struct LoadOperands {
    std::uint32_t* r;
    const void* row;  // 16 bytes
    bool transposed;
};

inline void load_all(const Operands& all) {
    const auto row_of = [&](std::size_t lane) { return static_cast<const LoadOperands*>(all[lane])->row; };
    bool conflict = false;
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
        // Eight rows of 16 bytes are read at once if they are in different quarters of the 32 banks of 4 bytes.
        unsigned banks = 0;
        for (std::size_t i = 0; i < 8; ++i) banks |= 1U << (reinterpret_cast<std::uintptr_t>(row_of(8 * matrix + i)) / 16 % 8);
        conflict = conflict || banks != 0xFFU;
        for (std::size_t lane = 0; lane < all.size(); ++lane) {
            const auto& operands = *static_cast<const LoadOperands*>(all[lane]);
            const std::size_t g = lane / 4;
            const std::size_t t = lane % 4;
            const auto at = [&](std::size_t row, std::size_t column) {
                std::uint16_t bits = 0;
                std::memcpy(&bits, static_cast<const std::byte*>(row_of(8 * matrix + row)) + 2 * column, sizeof bits);
                return std::uint32_t{bits};
            };
            operands.r[matrix] = operands.transposed ? at(2 * t, g) | (at(2 * t + 1, g) << 16U) : at(g, 2 * t) | (at(g, 2 * t + 1) << 16U);
        }
    }
    if (conflict) count_bank_conflict();
}

inline void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed, const Where& where) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) fault("ldmatrix from an address that is not a multiple of 16", where);
    LoadOperands mine{r, row, transposed};
    warp_operation(WarpOperation::load_matrix, &mine, &load_all, where);
}

}  // namespace emulation

inline void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const Where& where = Where::current()) {
    emulation::MultiplyOperands mine{d, a, b};
    emulation::warp_operation(emulation::WarpOperation::multiply, &mine, &emulation::multiply_all, where);
}
inline void multiply_add_e4m3(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                              const Where& where = Where::current()) {
    emulation::MultiplyOperands mine{d, a, b};
    emulation::warp_operation(emulation::WarpOperation::multiply, &mine, &emulation::multiply_all_e4m3, where);
}
inline void load_matrices(std::uint32_t (&r)[4], const Bfloat16* row, const Where& where = Where::current()) {
    emulation::load_matrices(r, row, false, where);
}
inline void load_matrices(std::uint32_t (&r)[4], const Fp8* row, const Where& where = Where::current()) {
    emulation::load_matrices(r, row, false, where);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const Bfloat16* row, const Where& where = Where::current()) {
    emulation::load_matrices(r, row, true, where);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const Fp8* row, const Where& where = Where::current()) {
    emulation::load_matrices(r, row, true, where);
}

inline void copy_async(void* to, const void* from, bool wanted, const Where& where = Where::current()) {
    emulation::copy_async(to, from, wanted ? 16 : 0, where);
}
inline void copy_async_commit() { emulation::copy_async_commit(); }
template <int groups>
void copy_async_wait() {
    emulation::copy_async_wait(groups);
}

namespace emulation {

template <class T>
void check_whole(const T* at, const Where& where) {
    static_assert(alignof(T) == sizeof(T) && sizeof(T) <= 16);
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T) != 0) {
        fault("an access of " + std::to_string(sizeof(T)) + " bytes at an address that is not a multiple of them", where);
    }
}

}  // namespace emulation

template <class T>
T load_whole(const T* from, const Where& where = Where::current()) {
    emulation::check_whole(from, where);
    return *from;
}
template <class T>
void store_whole(T* to, const T& x, const Where& where = Where::current()) {
    emulation::check_whole(to, where);
    *to = x;
}

inline void atomic_add(std::uint32_t* to, std::uint32_t x) { __atomic_fetch_add(to, x, __ATOMIC_RELAXED); }
inline void atomic_or(std::uint32_t* to, std::uint32_t x) { __atomic_fetch_or(to, x, __ATOMIC_RELAXED); }
inline void atomic_max(std::uint32_t* to, std::uint32_t x) {
    std::uint32_t before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (before < x && !__atomic_compare_exchange_n(to, &before, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
inline std::uint32_t arrive(std::uint32_t* count, std::uint32_t x) { return __atomic_fetch_add(count, x, __ATOMIC_ACQ_REL); }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& how, Arguments&&... arguments) {
    const std::tuple<Parameters...> values(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
    const emulation::Shape shape{
        .grid = {how.blocks.x, how.blocks.y, how.blocks.z}, .threads = how.threads, .shared_bytes = how.shared_bytes};
    emulation::queue(how.stream, [=] {
        emulation::run(shape, [&] { std::apply(kernel, values); });
        emulation::pass(1.0);
    });
}

}  // namespace lorry::kernels::cuda
