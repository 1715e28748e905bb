// The rows of a weight with a low-rank update added to it, and what magnitudes (DoRA, https://arxiv.org/abs/2402.09353) make of a row:
// W' = magnitude / |W + s B A| * (W + s B A), as in PEFT. Called by adapter.cpp when it reads an adapter.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/model/weights.h"
#include "kernels/coded_weight.h"

namespace lorry::engine {

// weight + scale · b · a. The tensors have bytes and dtypes that weights may have, and shapes that fit each other.
struct MergedWeight {
    const Tensor* weight = nullptr;             // [out, in]; nullptr: it is in codes
    const kernels::CodedPart* codes = nullptr;  // not null if `weight` is
    bool transposed = false;                    // `weight` is [in, out] instead
    const Tensor& a;                            // [rank, in]
    const Tensor& b;                            // [out, rank]
    float scale = 1.0F;
};

// Calls visit(row, values) for each row in float32, in order. The values are valid during the call.
void for_rows(const MergedWeight& merged, const std::function<void(std::size_t row, std::span<float> values)>& visit);

float norm_of(std::span<const float> values);

// For each output its magnitude divided by the norm of its row; not finite where that norm is 0.
std::vector<float> output_scales(const MergedWeight& merged, const Tensor& magnitude);

}  // namespace lorry::engine
