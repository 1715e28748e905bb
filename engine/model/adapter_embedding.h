// Packs what an adapter changes in the embedding of tokens, and in the rows of a head. Called by adapter.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/model/adapter.h"
#include "engine/model/adapter_match.h"
#include "engine/model/model_weights.h"

namespace lorry::engine {

inline std::unique_ptr<kernels::PackedWeight> pack_floats(std::span<const float> values, std::int64_t columns, kernels::WeightRole role,
                                                          kernels::Packer& packer) {
    const kernels::WeightPart part{.data = values.data(), .out_features = std::ssize(values) / columns, .in_features = columns};
    return packer.pack_weight({&part, 1}, role);
}

// The rows by their tokens, ascending.
struct SortedRows {
    std::vector<std::int64_t> tokens;
    std::vector<float> values;  // [tokens, width]
};
inline SortedRows sorted(const TokenRows& match) {
    const std::size_t count = match.tokens.size();
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return match.tokens[i]; });
    SortedRows out;
    for (const std::size_t i : order) {
        out.tokens.push_back(match.tokens[i]);
        const std::vector<float> row = row_of(*match.rows, static_cast<std::int64_t>(i));
        out.values.insert(out.values.end(), row.begin(), row.end());
    }
    return out;
}

inline AdapterEmbedding pack_embedding(const AdapterMatch& match, kernels::Packer& packer) {
    AdapterEmbedding out;
    std::vector<std::unique_ptr<std::byte[]>> aligned;
    const auto pack = [&](const Tensor& tensor, std::int64_t rows, std::int64_t columns, bool transposed) {
        const kernels::WeightPart part = weight_part(tensor, rows, columns, transposed, aligned);
        return packer.pack_weight({&part, 1}, kernels::WeightRole::embedding);
    };
    if (match.embedding != nullptr) out.table = pack(*match.embedding, match.embedding->shape[0], match.embedding->shape[1], false);
    if (match.embedding_rows) {
        SortedRows rows = sorted(*match.embedding_rows);
        out.table = pack_floats(rows.values, match.embedding_rows->rows->shape[1], kernels::WeightRole::embedding, packer);
        out.tokens = std::move(rows.tokens);
    }
    if (match.embedding_update) {
        const Tensor& a = *match.embedding_update->a;
        out.a = pack(a, a.shape[1], a.shape[0], true);
        std::vector<float> b = to_float(*match.embedding_update->b);
        for (float& value : b) value *= match.embedding_update->scale;
        out.b = pack_floats(b, a.shape[0], kernels::WeightRole::exact, packer);
    }
    return out;
}

// Adjacent tokens together.
inline std::vector<ReplacedLinear> pack_head_rows(const TokenRows& match, kernels::Packer& packer) {
    const SortedRows rows = sorted(match);
    const std::int64_t width = match.rows->shape[1];
    std::vector<ReplacedLinear> out;
    for (std::size_t begin = 0; begin < rows.tokens.size();) {
        std::size_t end = begin + 1;
        while (end < rows.tokens.size() && rows.tokens[end] == rows.tokens[end - 1] + 1) ++end;
        const auto values =
            std::span(rows.values).subspan(begin * static_cast<std::size_t>(width), (end - begin) * static_cast<std::size_t>(width));
        out.push_back(
            {.weight = pack_floats(values, width, role_of(Projection::head), packer), .bias = {}, .out_begin = rows.tokens[begin]});
        begin = end;
    }
    return out;
}

}  // namespace lorry::engine
