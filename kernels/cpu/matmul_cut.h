// How a matmul's rows and panels are cut into pieces for threads; asked by backend.cpp. Changes no bit of a result.
#pragma once

#include "kernels/cpu/pack.h"

namespace lorry::kernels::cpu {

// Rows of one chunk at most.
inline constexpr std::int64_t row_chunk = 240;

struct MatmulCut {
    std::int64_t chunks = 1;  // of rows; each runs through all panels
    bool own_rows = false;    // a multiple of `threads` chunks: each thread has rows of its own
    std::int64_t runs = 0;    // of panels that one thread multiplies together, in each chunk
    std::int64_t piece = 1;   // runs that a thread claims at a time, being worth its while
};

MatmulCut cut_of_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, int threads);

}  // namespace lorry::kernels::cpu
