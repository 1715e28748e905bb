// Builds the kernel table of one instruction set from the templates. Included only by kernels_*.cpp and the emulated AVX-512 of the tests.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/activation.h"
#include "kernels/cpu/simd/bfloat16_dot.h"
#include "kernels/cpu/simd/coded_matmul.h"
#include "kernels/cpu/simd/matmul.h"
#include "kernels/cpu/simd/narrow.h"
#include "kernels/cpu/simd/norm.h"
#include "kernels/cpu/simd/paired_attention.h"
#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/plain_attention.h"
#include "kernels/cpu/simd/rope.h"
#include "kernels/cpu/simd/scan.h"
#include "kernels/cpu/simd/tile_attention.h"
#include "kernels/cpu/simd/tile_rows.h"

namespace lorry::kernels::cpu {

// The kernels of an instruction set; if it multiplies pairs of bfloat16 (Isa::dot) or has tiles (Isa::Tiles), also those that use this.
template <class Isa>
constexpr Kernels table_of(const char* name) {
    Kernels table{
        .name = name,
        .panel_width = 2 * Isa::lanes,
        .shrink_width = Isa::lanes,
        .matmul = Matmul<Isa>::matmul,
        .shrink = Matmul<Isa>::shrink,
        .attention = run_plain_attention<Isa>,
        .norm = Norm<Isa>::run,
        .rope = Rope<Isa>::run,
        .activation = Activate<Isa>::run,
        .largest = Scan<Isa>::largest,
        .weights = Scan<Isa>::weights,
        .at_least = Scan<Isa>::at_least,
        .to_bfloat16 = Narrow<Isa>::to_bfloat16,
        .from_bfloat16 = Narrow<Isa>::from_bfloat16,
        .to_int8 = Narrow<Isa>::to_int8,
        .from_int8 = Narrow<Isa>::from_int8,
        .coded = {.matmul = CodedMatmul<FloatInputs<Isa>>::matmul, .decode = CodedMatmul<FloatInputs<Isa>>::decode},
        .multiply_adds = Peak<Isa>::multiply_adds,
        .sum = Peak<Isa>::sum,
    };
    if constexpr (requires { typename Isa::Pairs; }) {
        table.bfloat16_dot = &DotMatmul<Bfloat16Dot<Isa, 3>>::table;
        table.bfloat16_shrink = &DotMatmul<Bfloat16Dot<Isa, 1>>::table;
        table.coded_pairs = {.matmul = CodedMatmul<PairInputs<Isa, 3>>::matmul, .decode = CodedMatmul<PairInputs<Isa, 3>>::decode};
        table.int8_to_bfloat16 = Narrow<Isa>::int8_to_bfloat16;
        table.attention = PairedAttention<Isa>::run;
        table.attends_pairs = true;
    }
    if constexpr (requires { typename Isa::Tiles; }) {
        table.bfloat16_dot = &TileRows<Bfloat16Panels<Isa, 2>>::table;
        table.bfloat16_shrink = &TileRows<Bfloat16Panels<Isa, 1>>::table;
        table.coded_pairs = {.matmul = nullptr, .decode = CodedMatmul<PairInputs<Isa, 2>>::decode};
        table.int8_to_bfloat16 = Narrow<Isa>::int8_to_bfloat16;
        table.attention = TileAttention<Isa>::run;
        table.attends_pairs = true;
        table.attention_writes_bfloat16 = true;
        table.attention_rows = TileBlock<typename Isa::Tiles>::rows_max;
        table.attention_tasks = attention_tasks_max;
        table.step_rows = 1024;  // time per row, two threads: 11 % longer with steps of 512 rows, 4 % longer with 2,048
    }
    return table;
}

}  // namespace lorry::kernels::cpu
