// Divides a matmul's rows and panels into pieces for threads. Called by matmul.cpp. Results do not depend on it.
#pragma once

#include "kernels/cpu/pack.h"

namespace lorry::kernels::cpu {

struct MatmulCut {
    std::int64_t chunks = 1;  // of rows; each runs through all panels
    bool own_rows = false;    // the chunks are a multiple of the threads: each thread has its own rows
    std::int64_t runs = 0;    // in each chunk, of panels that one thread multiplies together
    std::int64_t piece = 1;   // runs that a thread claims at a time
};

// The most rows of a chunk of a matmul by these kernels, null where inputs are float32; row_bytes: of the inputs that they read.
std::int64_t row_chunk_of(const DotKernels* dot, std::int64_t row_bytes);

// row_chunk: the most rows of a chunk.
MatmulCut cut_of_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, int threads, std::int64_t row_chunk);

}  // namespace lorry::kernels::cpu
