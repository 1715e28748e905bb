// cuBLASLt in place of our own matmul, for the shapes that have rows in the table for this chip: pads rows to a bucket, uses the table's
// algorithm, and adds biases. Used by CudaBackend and graphs.h, on the engine's thread.
//
// A row has the same bits whether it was padded in place or in a copy: the values that the sum is added to are copied with it, so that the
// library always does the addition (the table's algorithms were tested for that), and the bias follows in both cases.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt/cublaslt.h"
#include "kernels/cuda/cublaslt/matmul_table.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

// Memory for padded rows, their scales, and their sums.
struct MatmulScratch {
    Scratch in;
    Scratch scales;
    Scratch sums;
};

class LibraryMatmul {
public:
    // Throws std::runtime_error when the library does not start on this thread's device.
    LibraryMatmul(const lt::Functions& functions, MatmulTable table);

    // Queues the matmul and returns true, or returns false if the table has no row for the shape.
    bool multiply(const MatmulTask& task, MatmulScratch& scratch, cudaStream_t stream);
    const std::string& fingerprint() const { return table_.fingerprint; }

private:
    void multiply_piece(const MatmulTask& task, std::span<const MatmulRange> ranges, MatmulScratch& scratch, cudaStream_t stream);

    const CublasLt library_;
    const MatmulTable table_;
    std::map<MatmulShape, std::vector<MatmulRange>> ranges_;  // of the shapes requested so far
};

// What a backend multiplies with, and why, for people.
struct MatmulChoice {
    std::unique_ptr<LibraryMatmul> library = nullptr;  // null: our own kernel multiplies everything
    std::string note = {};
    bool wants_library = false;  // as in DeviceInfo
};
// Calls `open` only if the chip has rows. `quantize` is the format of projections, for the note.
using OpenLibrary = std::function<Expected<lt::Functions, std::string>()>;
MatmulChoice choose_matmuls(const MatmulRows& measured, const MatmulChip& chip, Quantization quantize, const OpenLibrary& open);

}  // namespace lorry::kernels::cuda
