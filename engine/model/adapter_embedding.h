// What an adapter changes in the embedding of tokens, and in the rows of a head: finds out which of PEFT's copies were trained or have
// added rows, and packs these. Called by adapter.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/model/adapter.h"
#include "engine/model/adapter_match.h"
#include "engine/model/merged_weight.h"
#include "engine/model/model_weights.h"

namespace lorry::engine {

// The part of a copy that is not the base's.
struct TrainedCopy {
    const Tensor* whole = nullptr;  // nullptr: the rows that the base has are the base's
    TokenRows added;                // then the rows that it does not have
};
inline TrainedCopy trained_part_of(const CopyMatch& match, const Model& model) {
    const Tensor* const base = base_weight_of(model, match.path);
    const std::int64_t rows = match.copy->shape.front();
    const std::int64_t shared = std::min(rows, model.config().vocabulary);
    TrainedCopy out;
    if (base == nullptr || !equal_values(slice_rows(*base, 0, shared), slice_rows(*match.copy, 0, shared))) {
        out.whole = match.copy;
    } else if (rows > shared) {
        out.added.tokens.resize(static_cast<std::size_t>(rows - shared));
        std::iota(out.added.tokens.begin(), out.added.tokens.end(), shared);
        out.added.rows = slice_rows(*match.copy, shared, rows - shared);
    }
    return out;
}

// A tied model has one matrix, stored under either name or both. Makes it the embedding and, unless the adapter has another, the head.
// False: the tensors differ. lora: of the head, or nullptr.
inline bool share_tied_copy(AdapterMatch& match, LoraMatch* lora, const ModelLayout& layout) {
    std::vector<const Tensor*> stored;
    for (const CopyMatch& copy : match.copies) stored.push_back(copy.copy);
    if (lora != nullptr && lora->base_weight != nullptr) stored.push_back(lora->base_weight);
    if (stored.empty()) return true;
    if (std::ranges::any_of(stored, [&](const Tensor* tensor) { return !equal_values(*tensor, *stored.front()); })) return false;
    match.copies.clear();
    if (match.embedding == nullptr) match.copies.push_back({.path = layout.tokens, .copy = stored.front()});
    if (lora != nullptr) {
        lora->base_weight = stored.front();
    } else if (layout.head() != nullptr &&
               std::ranges::find(match.linears, layout.head(), &SavedLinearMatch::module) == match.linears.end()) {
        match.copies.push_back({.path = layout.head()->path, .copy = stored.front()});
    }
    return true;
}

// PEFT stores copies of the base's embedding and head, which matter only if they were trained or resized. Leaves those of the head in
// `copies` and LoraMatch::base_weight, makes the other the embedding, and takes rows that were added out of them. The error names a tensor.
inline Expected<void, std::string> keep_trained_copies(AdapterMatch& match, const Model& model) {
    const ModelLayout& layout = model.layout();
    const auto targeted = std::ranges::find(match.loras, layout.head(), &LoraMatch::module);
    LoraMatch* const lora = layout.head() == nullptr || targeted == match.loras.end() ? nullptr : &*targeted;
    for (const TwinMatch& twin : match.twins) {
        if (equal_values(*twin.one, *twin.other)) continue;
        return unexpected(fmt::format("tensors {} and {} differ, although they are one in PEFT: save the adapter again (save_pretrained)",
                                      twin.one->name, twin.other->name));
    }
    if (model.config().tied_head && !share_tied_copy(match, lora, layout)) {
        return unexpected(
            std::string("it has an embedding and a head that differ, but in the base model they are one: merge the adapter into the base "
                        "model (merge_and_unload)"));
    }
    const auto add_first = [](std::vector<TokenRows>& rows, TokenRows added) {  // those that were trained count
        if (!added.tokens.empty()) rows.insert(rows.begin(), std::move(added));
    };
    std::vector<CopyMatch> heads;
    for (const CopyMatch& copy : match.copies) {
        TrainedCopy trained = trained_part_of(copy, model);
        const bool is_head = copy.path != layout.tokens;
        const bool is_clear = !is_head || (lora == nullptr && layout.head_bias.empty());
        if (!is_clear && (trained.whole != nullptr || !trained.added.tokens.empty())) {
            return unexpected(fmt::format(
                "tensor {} differs from the base model, and this adapter cannot change it. If it was trained, merge the adapter into the "
                "base model (merge_and_unload); if not, save the adapter without it (save_pretrained with save_embedding_layers=False)",
                copy.copy->name));
        }
        if (trained.whole != nullptr) {
            if (is_head) heads.push_back(copy);
            if (!is_head) match.embedding = copy.copy;
        }
        add_first(is_head ? match.head_rows : match.embedding_rows, std::move(trained.added));
    }
    match.copies = std::move(heads);
    if (lora == nullptr || lora->base_weight == nullptr) return {};
    TrainedCopy trained = trained_part_of({.path = lora->module->path, .copy = lora->base_weight}, model);
    lora->base_weight = trained.whole;
    add_first(match.head_rows, std::move(trained.added));
    return {};
}

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
inline SortedRows sorted(const std::vector<TokenRows>& list) {
    std::map<std::int64_t, std::vector<float>> by_token;
    for (const TokenRows& part : list) {
        for (std::size_t i = 0; i < part.tokens.size(); ++i) by_token[part.tokens[i]] = row_of(part.rows, static_cast<std::int64_t>(i));
    }
    SortedRows out;
    for (const auto& [token, row] : by_token) {
        out.tokens.push_back(token);
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
    if (!match.embedding_rows.empty()) {
        SortedRows rows = sorted(match.embedding_rows);
        out.rows = pack_floats(rows.values, match.embedding_rows.front().rows.shape[1], kernels::WeightRole::embedding, packer);
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
inline std::vector<ReplacedLinear> pack_head_rows(const std::vector<TokenRows>& match, kernels::Packer& packer) {
    const SortedRows rows = sorted(match);
    const std::int64_t width = match.front().rows.shape[1];
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
