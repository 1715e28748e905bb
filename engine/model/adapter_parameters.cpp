// Cuts the low-rank updates of fused experts.
#include "engine/model/adapter_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace lorry::engine {
namespace {

constexpr std::string_view a_end = ".lora_A.weight";
constexpr std::string_view b_end = ".lora_B.weight";

// The updates of one parameter.
struct Pair {
    Tensor a;                          // [experts · rank, in]
    Tensor b;                          // [out, rank · experts]
    std::string list;                  // of the experts' modules: "base_model.model.model.layers.0.mlp.experts"
    std::vector<const char*> modules;  // that share its outputs
};

// [outputs of one of `modules`, rank] of one expert.
Tensor b_of(const Pair& pair, std::int64_t experts, std::int64_t expert, std::int64_t module,
            std::vector<std::unique_ptr<std::byte[]>>& owned) {
    const std::int64_t columns = pair.b.shape[1];
    const std::int64_t rank = columns / experts;
    const std::int64_t outputs = pair.b.shape[0] / std::ssize(pair.modules);
    Tensor out = pair.b;
    out.shape = {outputs, rank};
    if (pair.b.bytes.empty()) return out;
    const auto element = static_cast<std::int64_t>(kernels::bytes_of(*pair.b.format));
    owned.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(outputs * rank * element)));
    std::byte* to = owned.back().get();
    for (std::int64_t output = module * outputs; output < (module + 1) * outputs; ++output) {
        for (std::int64_t i = 0; i < rank; ++i, to += element)
            std::memcpy(to, pair.b.bytes.data() + (output * columns + i * experts + expert) * element, static_cast<std::size_t>(element));
    }
    out.bytes = {owned.back().get(), static_cast<std::size_t>(outputs * rank * element)};
    return out;
}

// nullopt: `a` is not an A of a parameter of experts.
std::optional<Pair> pair_of(const std::vector<Tensor>& tensors, const Tensor& a, const ModelConfig& model) {
    const ExpertNames& names = *model.names->experts;
    const std::string list = fmt::format(".{}.experts", names.newer);
    if (!a.name.ends_with(a_end) || !a.format) return std::nullopt;
    const std::string path = a.name.substr(0, a.name.size() - a_end.size());
    std::string module = path;
    if (module.ends_with(".base_layer")) module.resize(module.rfind('.'));
    const Tensor* const b = find_tensor(tensors, path + std::string(b_end));
    if (!module.ends_with(list) || b == nullptr || !b->format) return std::nullopt;
    if (a.shape.size() != 2 || b->shape.size() != 2 || a.shape[0] != b->shape[1] || a.begin == a.end || b->begin == b->end ||
        a.shape[0] % model.experts->count != 0)
        return std::nullopt;
    Pair pair{.a = a, .b = *b, .list = module.substr(0, module.size() - list.size() + 1) + names.list, .modules = {}};
    const std::int64_t width = model.experts->intermediate;
    if (a.shape[1] == model.hidden && b->shape[0] == 2 * width) {
        pair.modules.push_back(names.gate_up[0]);
        if (names.gate_up[1] != nullptr) pair.modules.push_back(names.gate_up[1]);
    } else if (a.shape[1] == width && b->shape[0] == model.hidden) {
        pair.modules.push_back(names.down);
    } else {
        return std::nullopt;
    }
    return pair;
}

}  // namespace

std::vector<Tensor> split_parameter_updates(std::vector<Tensor> tensors, const ModelConfig& model,
                                            std::vector<std::unique_ptr<std::byte[]>>& owned) {
    if (!model.experts) return tensors;
    const std::int64_t experts = model.experts->count;
    std::vector<Tensor> out;
    std::set<std::string> split;
    for (const Tensor& tensor : tensors) {
        const auto pair = pair_of(tensors, tensor, model);
        if (!pair) continue;
        split.insert(pair->a.name);
        split.insert(pair->b.name);
        Tensor a_of_all = pair->a;
        a_of_all.shape.insert(a_of_all.shape.begin(), experts);
        a_of_all.shape[1] /= experts;
        for (std::int64_t i = 0; i < experts * std::ssize(pair->modules); ++i) {
            const std::int64_t expert = i / std::ssize(pair->modules);
            const std::int64_t module = i % std::ssize(pair->modules);
            const std::string path = fmt::format("{}.{}.{}", pair->list, expert, pair->modules[static_cast<std::size_t>(module)]);
            out.push_back(part_of(a_of_all, expert, 0, 1));
            out.back().name = path + std::string(a_end);
            out.push_back(b_of(*pair, experts, expert, module, owned));
            out.back().name = path + std::string(b_end);
        }
    }
    std::erase_if(tensors, [&](const Tensor& tensor) { return split.contains(tensor.name); });
    std::ranges::move(tensors, std::back_inserter(out));
    std::ranges::sort(out, {}, &Tensor::name);
    return out;
}

}  // namespace lorry::engine
