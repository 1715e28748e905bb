// One product of rows with some panels of a weight or of an adapter's A or B, as the two kinds of kernels take it. Used by the launchers
// of matmul.cpp and lora.cpp.
#pragma once

#include "kernels/cpu/pack.h"

namespace lorry::kernels::cpu {

struct PanelProduct {
    const Panels& panels;
    std::int64_t begin = 0;  // panels [begin, end), of one part
    std::int64_t end = 0;
    Matrix in;                        // [rows, in_features] in the format that the kernel reads
    const float* bias = nullptr;      // [out_features] of the whole weight, or null
    float* out = nullptr;             // [rows, …] where the outputs of panel `begin` go
    std::int64_t out_stride = 0;      // elements
    bool accumulate = false;          // out += instead of out =
    const std::byte* next = nullptr;  // what will be read afterwards; null: what follows in memory
    std::byte* scratch = nullptr;     // of this thread, where weights are unpacked first
};

// For panels [0, end - begin) of a kernel for narrow inputs, or of one for float32.
DotTask dot_task(const PanelProduct& product);
MatmulTask matmul_task(const PanelProduct& product);

}  // namespace lorry::kernels::cpu
