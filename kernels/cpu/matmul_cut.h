// Divides a matmul's rows and panels into pieces for threads. Called by matmul.cpp. Results do not depend on it.
#pragma once

#include "kernels/cpu/pack.h"

namespace lorry::kernels::cpu {

// What of a matmul passes through the second-level cache of a core at a time.
struct CacheBlock {
    std::int64_t rows = 0;  // at most
    // More than 1: the rows' inputs exceed the cache. A few inputs of all rows then pass that many panels before the next inputs do.
    std::int64_t panels = 1;
};

// For a matmul of `rows` rows by these kernels, null where inputs are float32; row_bytes: from one row of inputs to the next.
CacheBlock cache_block_of(const DotKernels* dot, std::int64_t rows, std::int64_t row_bytes, int threads);

struct MatmulCut {
    std::int64_t chunks = 1;  // of rows; each runs through all panels
    bool own_rows = false;    // the chunks are a multiple of the threads: each thread has its own rows
    std::int64_t runs = 0;    // in each chunk, of panels that one thread multiplies together
    std::int64_t piece = 1;   // runs that a thread claims at a time
};

// panels_together: panels that one thread multiplies together. block: what cache_block_of returned for these rows and threads.
MatmulCut cut_of_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, int threads, const CacheBlock& block);

}  // namespace lorry::kernels::cpu
