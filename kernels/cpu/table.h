// Makes the table of kernels of one instruction set out of the templates; included by kernels_*.cpp alone.
#pragma once

#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/scan.h"

namespace lorry::kernels::cpu {

template <class Isa>
constexpr Kernels table_of(const char* name) {
    return {
        .name = name,
        .panel_width = 2 * Isa::lanes,
        .shrink_width = Isa::lanes,
        .matmul = Matmul<Isa>::matmul,
        .shrink = Matmul<Isa>::shrink,
        .attention = Attention<Isa>::run,
        .norm = Norm<Isa>::run,
        .rope = Rope<Isa>::run,
        .activation = Activate<Isa>::run,
        .largest = Scan<Isa>::largest,
        .weights = Scan<Isa>::weights,
        .at_least = Scan<Isa>::at_least,
    };
}

}  // namespace lorry::kernels::cpu
