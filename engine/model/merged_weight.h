// The base's tensors as adapters read them, the rows of a weight with a low-rank update added to it, and rows scaled by magnitudes (DoRA,
// https://arxiv.org/abs/2402.09353): W' = magnitude / |W + s B A| * (W + s B A), as in PEFT. Called by adapter.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/coded_tensors.h"
#include "engine/model/model.h"
#include "engine/model/model_layout.h"
#include "engine/model/weights.h"
#include "kernels/coded_weight.h"

namespace lorry::engine {

const Tensor& tensor_of(const Model& model, const std::string& name);
// A tied head has the embedding's. nullptr: the base has it in codes.
const Tensor* base_weight_of(const Model& model, const std::string& path);
// Of a module whose weight the base has in codes.
std::unique_ptr<CodedWeight> codes_of(const Model& model, const LinearModule& module);

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
// The same for each column of an embedding [tokens, width] with an update, a [rank, tokens] and b [width, rank], as PEFT has magnitudes of
// embeddings.
std::vector<float> column_scales(const Tensor& embedding, const Tensor& a, const Tensor& b, float scale, const Tensor& magnitude);

}  // namespace lorry::engine
