// The product of some rows and some panels of a weight or of an adapter's A or B, converted to the arguments of either kind of kernel. Used
// by the launchers in matmul.cpp and lora.cpp.
#pragma once

#include "kernels/cpu/pack.h"

namespace lorry::kernels::cpu {

struct PanelProduct {
    const Panels& panels;
    std::int64_t begin = 0;  // panels [begin, end), of one part
    std::int64_t end = 0;
    Matrix in;                        // [rows, in_features] in the format that the kernel reads
    const float* bias = nullptr;      // [out_features] of the whole weight, or null
    float* out = nullptr;             // [rows, …] from the first output of panel `begin` on
    std::int64_t out_stride = 0;      // elements
    bool accumulate = false;          // out += instead of out =
    const std::byte* next = nullptr;  // read afterwards, to be prefetched; null: the memory that follows
    std::byte* scratch = nullptr;     // this thread's, if weights are unpacked first
    std::byte* parked = nullptr;      // this thread's, if panels share passes over inputs
};

// For panels [0, end - begin) of a dot kernel, or of a kernel for float32 inputs.
DotTask dot_task(const PanelProduct& product);
MatmulTask matmul_task(const PanelProduct& product);
// For panels of codes and few rows.
CodedTask coded_task(const PanelProduct& product);

}  // namespace lorry::kernels::cpu
