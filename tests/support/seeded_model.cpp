// Writes the weights of golden encoders, and runs texts through a model.
#include "tests/support/seeded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "engine/files.h"
#include "engine/model/weights.h"
#include "kernels/checkpoint_weights.h"
#include "schema/json.h"

namespace lorry::tests {
namespace {

using kernels::TokenId;
using schema::Json;

std::string read_file(const std::filesystem::path& file) {
    auto text = engine::read_text(file);
    if (!text) throw std::runtime_error(text.error());
    return std::move(*text);
}

Json read_json(const std::filesystem::path& file) {
    auto json = Json::parse(read_file(file));
    if (!json) throw std::runtime_error(file.string() + ": " + json.error());
    return std::move(*json);
}

std::uint64_t hash_of(std::string_view name) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    return hash;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t index) {
    std::uint64_t z = hash + (index + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
}

template <class Element>
void append(std::string& data, Element element) {
    data.append(reinterpret_cast<const char*>(&element), sizeof element);
}

void append_float(std::string& data, std::string_view dtype, float value) {
    if (dtype == "F16") return append(data, static_cast<_Float16>(value));
    if (dtype == "BF16") return append(data, kernels::to_bfloat16(value));
    append(data, value);
}

void append_integer(std::string& data, std::string_view dtype, std::int64_t value) {
    if (dtype == "I64") return append(data, value);
    if (dtype == "I32") return append(data, static_cast<std::int32_t>(value));
    append(data, static_cast<std::uint8_t>(value));
}

// A row of tensors.json, listed values, of which one stands for all, whatever the bits are, or spread floats.
void append_tensor(std::string& data, const Json& tensor, std::string_view name, std::string_view dtype, std::uint64_t elements) {
    const std::uint64_t hash = hash_of(name);
    const Json* const values = tensor.find("values");
    for (std::uint64_t i = 0; i < elements; ++i) {
        if (values != nullptr) {
            const Json& value = (*values->as_array())[values->as_array()->size() == 1 ? 0 : i];
            if (dtype.starts_with("I") || dtype.starts_with("U")) {
                append_integer(data, dtype, *value.as_integer());
            } else {
                append_float(data, dtype, static_cast<float>(*value.as_number()));
            }
        } else if (tensor.find("bits") != nullptr) {
            const std::uint64_t z = mixed(hash, i);
            const std::uint64_t octet = (z >> 56U) - static_cast<std::uint64_t>(dtype == "F8_E4M3" && (z >> 56U & 0x7FU) == 0x7FU);
            append_integer(data, dtype, static_cast<std::int64_t>(dtype == "I32" ? z >> 32U : octet));
        } else {
            const double u = static_cast<double>(mixed(hash, i) >> 40U) * 0x1p-24;
            append_float(data, dtype,
                         static_cast<float>(*tensor.find("offset")->as_number() + *tensor.find("scale")->as_number() * (2.0 * u - 1.0)));
        }
    }
}

void write_weights(const Json& tensors, const std::filesystem::path& file) {
    Json header = Json::object({});
    std::string data;
    for (const Json& tensor : *tensors.as_array()) {
        const std::string& name = *tensor.find("name")->as_string();
        std::uint64_t elements = 1;
        for (const Json& size : *tensor.find("shape")->as_array()) elements *= static_cast<std::uint64_t>(*size.as_integer());
        const Json* const own = tensor.find("dtype");
        const std::string dtype = own == nullptr ? "F32" : *own->as_string();
        const std::size_t begin = data.size();
        append_tensor(data, tensor, name, dtype, elements);
        header.set(name, Json::object(
                             {{"dtype", dtype},
                              {"shape", *tensor.find("shape")},
                              {"data_offsets", Json::array({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(data.size())})}}));
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text << data;
    if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

std::vector<std::int32_t> integers(const Json* list) {
    std::vector<std::int32_t> out;
    if (list == nullptr) return out;
    for (const Json& value : *list->as_array()) out.push_back(static_cast<std::int32_t>(*value.as_integer()));
    return out;
}

// The inputs of one step, with blocks of their own for each text.
struct Step {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> types;
    std::vector<std::int32_t> rope_rows;
    std::vector<std::int32_t> sample_rows;
    std::vector<std::vector<kernels::BlockId>> blocks;
    std::vector<kernels::StepSequence> sequences;
    std::vector<engine::AdapterRows> adapters;
    std::vector<engine::PooledText> texts;
    std::vector<std::size_t> first_text;  // of each wanted text

    void add(engine::Model& model, std::int64_t block_size, const WantedText& wanted) {
        const auto begin = std::ssize(tokens);
        const auto count = std::ssize(wanted.text->tokens);
        for (std::int64_t i = 0; i < count; ++i) {
            tokens.push_back(wanted.text->tokens[static_cast<std::size_t>(i)]);
            positions.push_back(static_cast<std::int32_t>(i));
            types.push_back(wanted.text->types.empty() ? 0 : wanted.text->types[static_cast<std::size_t>(i)]);
            rope_rows.push_back(model.rope_row(i, model.rope_length(count, count)));
        }
        std::int32_t next = blocks.empty() ? 0 : blocks.back().back() + 1;
        auto& own = blocks.emplace_back();
        for (std::int64_t i = 0; i < (count + block_size - 1) / block_size; ++i) own.push_back(next++);
        sequences.push_back({.row_begin = begin, .row_count = count, .position = 0, .blocks = {}});
        if (wanted.adapter != nullptr) {
            if (adapters.empty() || adapters.back().adapter != wanted.adapter) adapters.push_back({begin, 0, wanted.adapter});
            adapters.back().row_count += count;
        }
        first_text.push_back(texts.size());
        const bool is_masked = wanted.task == engine::PoolingTask::fill_mask;
        const auto rows = wanted.by_token || is_masked ? engine::PooledRows::all : engine::rows_of(wanted.task, model.config());
        const std::int64_t first = rows == engine::PooledRows::last ? count - 1 : 0;
        const std::int64_t wanted_rows = rows == engine::PooledRows::all ? count : 1;
        for (std::int64_t i = 0; i < wanted_rows; ++i) {
            if (!is_masked && (i == 0 || wanted.by_token)) {
                texts.push_back({.row_begin = std::ssize(sample_rows),
                                 .row_count = wanted.by_token ? 1 : wanted_rows,
                                 .task = wanted.task,
                                 .adapter = wanted.adapter});
            }
            sample_rows.push_back(static_cast<std::int32_t>(begin + first + i));
        }
    }
};

std::vector<float> read(kernels::Backend& backend, const kernels::Matrix& from) {
    std::vector<float> out;
    std::vector<float> row(static_cast<std::size_t>(from.columns));
    for (std::int64_t i = 0; i < from.rows; ++i) {
        backend.read_back(std::as_writable_bytes(std::span(row)), from.slice_rows(i, 1).data);
        out.insert(out.end(), row.begin(), row.end());
    }
    return out;
}

}  // namespace

SeededFolder::SeededFolder(const std::filesystem::path& from, const std::string& file) : path_(folder_ / from.filename().string()) {
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with("config.json")) std::filesystem::copy_file(entry.path(), path_ / name);
    }
    write_weights(*read_json(from / "tensors.json").find("tensors"), path_ / file);
}

GoldenFolder::GoldenFolder(const std::filesystem::path& from) : path_(from) {
    if (!std::filesystem::exists(from / "tensors.json")) return;
    const bool is_adapter = std::filesystem::exists(from / "adapter_config.json");
    seeded_.emplace(from, is_adapter ? "adapter_model.safetensors" : "model.safetensors");
}

TextGolden read_text_golden(const std::filesystem::path& folder) {
    const Json root = read_json(folder / "goldens.json");
    const std::string file = read_file(folder / "goldens.safetensors");
    const auto tensors = engine::parse_safetensors(std::as_bytes(std::span(file)));
    if (!tensors) throw std::runtime_error(tensors.error());
    const auto values = [&](const std::string& name) {
        const engine::Tensor* const tensor = engine::find_tensor(*tensors, name);
        return tensor == nullptr ? std::vector<float>() : engine::to_float(*tensor);
    };
    TextGolden golden;
    if (const auto* base = root.find("base")) golden.base = *base->as_string();
    golden.architecture = *root.find("architecture")->as_string();
    for (const Json& one : *root.find("cases")->as_array()) {
        const auto index = golden.cases.size();
        golden.cases.push_back({.tokens = integers(one.find("tokens")),
                                .types = integers(one.find("types")),
                                .hidden = values(fmt::format("case{}.hidden", index)),
                                .logits = values(fmt::format("case{}.logits", index))});
    }
    return golden;
}

std::vector<std::vector<float>> pool_texts(engine::Model& model, kernels::Backend& backend, const std::vector<WantedText>& wanted) {
    std::vector<std::size_t> order(wanted.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::less<>(), [&](std::size_t i) { return wanted[i].adapter; });
    Step step;
    for (const std::size_t i : order) step.add(model, backend.block_size(), wanted[i]);
    for (std::size_t i = 0; i < step.sequences.size(); ++i) step.sequences[i].blocks = step.blocks[i];
    const auto cache = backend.make_kv_cache(model.kv_shape(), step.blocks.back().back() + 1, 0);
    const bool has_types = std::ranges::any_of(step.types, [](std::int32_t type) { return type != 0; });
    const kernels::StepInputs inputs{.rows = std::ssize(step.tokens),
                                     .tokens = step.tokens,
                                     .positions = step.positions,
                                     .token_types = has_types ? std::span<const std::int32_t>(step.types) : std::span<const std::int32_t>(),
                                     .rope_rows = step.rope_rows,
                                     .sequences = step.sequences,
                                     .sample_rows = step.sample_rows};
    backend.begin_step(inputs);
    const kernels::Matrix logits = model.forward({.step = inputs, .adapters = step.adapters, .texts = step.texts}, *cache);
    std::vector<std::vector<float>> out(wanted.size());
    std::int64_t row = 0;
    for (std::size_t at = 0; at < order.size(); ++at) {
        const WantedText& text = wanted[order[at]];
        std::vector<float>& result = out[order[at]];
        if (text.task == engine::PoolingTask::fill_mask) {
            const auto count = std::ssize(text.text->tokens);
            result = read(backend, logits.slice_rows(row, count));
            row += count;
            continue;
        }
        const std::size_t end = at + 1 < order.size() ? step.first_text[at + 1] : step.texts.size();
        for (std::size_t i = step.first_text[at]; i < end; ++i) {
            const auto part = read(backend, step.texts[i].out);
            result.insert(result.end(), part.begin(), part.end());
        }
    }
    backend.finish_step();
    return out;
}

}  // namespace lorry::tests
