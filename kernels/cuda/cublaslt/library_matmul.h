// Multiplies with cuBLASLt instead of our own kernel, for the shapes that this chip's table has rows for: pads the rows to a bucket, uses
// the table's algorithm, adds biases. Used by CudaBackend on the engine's thread.
//
// A row's bits are the same whether it was padded in place or in a copy: the memory that the sum is added to is copied as well, so that the
// library always adds (the table's algorithms were tested for that), and the bias is added afterwards.
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

// Scratch memory for padded copies of rows, their scales and their sums.
struct MatmulScratch {
    Scratch in;
    Scratch scales;
    Scratch sums;
};

class LibraryMatmul {
public:
    // Throws std::runtime_error if the library does not start on this thread's device.
    LibraryMatmul(const lt::Functions& functions, MatmulTable table);

    // Queues it and returns true; returns false if the table has no row for the shape.
    bool multiply(const MatmulTask& task, MatmulScratch& scratch, cudaStream_t stream);
    const std::string& fingerprint() const { return table_.fingerprint; }

private:
    void multiply_piece(const MatmulTask& task, std::span<const MatmulRange> ranges, MatmulScratch& scratch, cudaStream_t stream);

    const CublasLt library_;
    const MatmulTable table_;
    std::map<MatmulShape, std::vector<MatmulRange>> ranges_;  // by the shapes looked up so far
};

// What multiplies: the library or our own kernel, and why, for people.
struct MatmulChoice {
    std::unique_ptr<LibraryMatmul> library = nullptr;  // null: our own kernel multiplies everything
    std::string note = {};
    bool wants_library = false;  // as DeviceInfo::wants_library
};
// open: called only if the chip has rows. quantize: the format of projections, for the note.
using OpenLibrary = std::function<Expected<lt::Functions, std::string>()>;
MatmulChoice choose_matmuls(const MatmulRows& measured, const MatmulChip& chip, Quantization quantize, const OpenLibrary& open);

}  // namespace lorry::kernels::cuda
