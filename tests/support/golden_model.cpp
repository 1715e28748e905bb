// Reads goldens and drives a model step by step.
#include "tests/support/golden_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "engine/files.h"
#include "engine/model/weights.h"
#include "schema/json.h"

namespace lorry::tests {
namespace {

using engine::Adapter;
using kernels::TokenId;

std::vector<TokenId> read_tokens(const schema::Json& list) {
    std::vector<TokenId> out;
    for (const schema::Json& token : *list.as_array()) out.push_back(static_cast<TokenId>(*token.as_integer()));
    return out;
}

std::string read_file(const std::filesystem::path& file) {
    auto text = engine::read_text(file);
    if (!text) throw std::runtime_error(text.error());
    return std::move(*text);
}

BaseKind find_kind(const std::string& checkpoint) {
    const std::filesystem::path file = golden_folder() / "checkpoints" / checkpoint / "config.json";
    if (!std::filesystem::exists(file)) return BaseKind::quantized;
    const std::string config = read_file(file);
    const bool has_experts =
        config.find("\"num_experts\"") != std::string::npos || config.find("\"num_local_experts\"") != std::string::npos;
    return has_experts ? BaseKind::experts : BaseKind::dense;
}

BaseKind kind_of(const std::string& checkpoint) {
    static std::map<std::string, BaseKind> kinds;
    const auto [entry, is_new] = kinds.try_emplace(checkpoint);
    if (is_new) entry->second = find_kind(checkpoint);
    return entry->second;
}

std::string find_base(const std::string& adapter) {
    const std::string config = read_file(golden_folder() / "adapters" / adapter / "adapter_config.json");
    const std::string key = "\"base_model_name_or_path\": \"";
    const std::size_t begin = config.find(key) + key.size();
    return config.substr(begin, config.find('"', begin) - begin);
}

// The adapters, sorted, with the kinds of their bases. A program asks several times while it starts, which each of its tests does in a
// process of its own: so each file is read once, and only searched.
const std::map<std::string, BaseKind>& kinds_of_adapters() {
    static const std::map<std::string, BaseKind> kinds = [] {
        std::map<std::string, BaseKind> out;
        for (const std::string& name : golden_names("adapters")) out[name] = kind_of(find_base(name));
        return out;
    }();
    return kinds;
}

}  // namespace

std::filesystem::path data_folder() {
    const char* const elsewhere = std::getenv("LORRY_TEST_DATA");
    return elsewhere != nullptr ? std::filesystem::path(elsewhere) : std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data";
}

std::filesystem::path golden_folder() { return data_folder() / "models"; }

std::vector<std::string> golden_names(const std::string& kind) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / kind)) names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    if (names.empty()) throw std::runtime_error("no goldens of the kind " + kind);
    return names;
}

std::vector<std::string> checkpoint_names(BaseKind kind) {
    std::vector<std::string> names = golden_names("checkpoints");
    std::erase_if(names, [&](const std::string& name) { return kind_of(name) != kind; });
    return names;
}

std::vector<std::string> adapter_names(BaseKind kind) {
    std::vector<std::string> names;
    for (const auto& [name, of_base] : kinds_of_adapters()) {
        if (of_base == kind) names.push_back(name);
    }
    return names;
}

Golden read_golden(const std::filesystem::path& folder) {
    const auto root = schema::Json::parse(read_file(folder / "goldens.json"));
    if (!root) throw std::runtime_error(root.error());
    const std::string file = read_file(folder / "goldens.safetensors");
    const auto tensors = engine::parse_safetensors(std::as_bytes(std::span(file)));
    if (!tensors) throw std::runtime_error(tensors.error());
    const auto values = [&](const std::string& name) {
        const engine::Tensor* tensor = engine::find_tensor(*tensors, name);
        if (tensor == nullptr) throw std::runtime_error("no golden tensor " + name);
        return engine::to_float(*tensor);
    };
    Golden golden;
    if (const auto* base = root->find("base")) golden.base = *base->as_string();
    if (const auto* words = root->find("may_refuse")) {
        for (const auto& word : *words->as_array()) golden.may_refuse.push_back(*word.as_string());
    }
    golden.vocabulary = *root->find("vocab_size")->as_integer();
    const auto& cases = *root->find("cases")->as_array();
    for (std::size_t i = 0; i < cases.size(); ++i) {
        golden.cases.push_back({read_tokens(*cases[i].find("prompt")), read_tokens(*cases[i].find("greedy")),
                                values(fmt::format("case{}.logits", i)), values(fmt::format("case{}.last", i))});
    }
    return golden;
}

std::unique_ptr<kernels::Backend> make_backend(kernels::Format weights, kernels::Quantization quantize, kernels::KvFormat kv) {
    const char* const device = std::getenv("LORRY_TEST_DEVICE");
    const bool is_fp8 = quantize == kernels::Quantization::fp8;
    const bool is_fp8_kv = kv == kernels::KvFormat::fp8;
    if (is_fp8 || is_fp8_kv || (device != nullptr && std::string_view(device) == "cuda")) {
        const char* const table = std::getenv("LORRY_TEST_MATMUL_TABLE");
        return kernels::make_cuda_backend({.storage = {.weights = weights,
                                                       .quantize = is_fp8 ? quantize : kernels::Quantization::none,
                                                       .kv = is_fp8_kv ? kv : kernels::KvFormat::as_weights},
                                           .matmul_table = table != nullptr ? table : ""});
    }
    return kernels::make_cpu_backend({.threads = 2, .isa = {}, .storage = {.weights = weights, .quantize = quantize, .kv = kv}});
}

std::unique_ptr<kernels::Backend> float32_backend() { return make_backend(kernels::Format::float32); }

Expected<std::unique_ptr<engine::Adapter>, engine::AdapterError> load_adapter(const std::filesystem::path& folder,
                                                                              const engine::Model& model, kernels::Backend& backend) {
    const auto files = engine::AdapterFiles::read(folder, "", model);
    if (!files) return unexpected(files.error());
    return (*files)->pack(backend);
}

StepDriver::StepDriver(engine::Model& model, kernels::Backend& backend, Samples samples)
    : model_(model), backend_(backend), samples_(samples), cache_(backend.make_kv_cache(model.kv_shape(), 2048, 0)) {}

Sequence StepDriver::begin(std::vector<TokenId> prompt, const Adapter* adapter) const {
    Sequence sequence;
    sequence.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    sequence.rope_length = model_.rope_length(sequence.prompt_tokens, sequence.prompt_tokens);
    sequence.tokens = std::move(prompt);
    sequence.adapter = adapter;
    return sequence;
}

void StepDriver::step(const std::vector<Sequence*>& sequences, std::int64_t chunk) {
    std::vector<Sequence*> ordered = sequences;
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const Sequence* a, const Sequence* b) { return std::less<>()(a->adapter, b->adapter); });

    std::vector<TokenId> tokens;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> rope_rows;
    std::vector<std::int32_t> sample_rows;
    std::vector<kernels::StepSequence> slices;
    std::vector<engine::AdapterRows> groups;
    std::vector<Sequence*> sampled;  // the sequence of each row of logits
    for (Sequence* sequence : ordered) {
        const auto row_begin = static_cast<std::int64_t>(tokens.size());
        const std::int64_t count =
            std::min({chunk, static_cast<std::int64_t>(sequence->tokens.size()) - sequence->computed, rows_max - row_begin});
        if (count == 0) continue;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t position = sequence->computed + i;
            if (samples_ == Samples::every_row || position + 1 == static_cast<std::int64_t>(sequence->tokens.size())) {
                sample_rows.push_back(static_cast<std::int32_t>(tokens.size()));
                sampled.push_back(sequence);
            }
            tokens.push_back(sequence->tokens[static_cast<std::size_t>(position)]);
            positions.push_back(static_cast<std::int32_t>(position));
            rope_rows.push_back(model_.rope_row(position, sequence->rope_length));
        }
        const auto blocks = static_cast<std::size_t>((sequence->computed + count + backend_.block_size() - 1) / backend_.block_size());
        while (sequence->blocks.size() < blocks) sequence->blocks.push_back(next_block_++);
        if (next_block_ > cache_->blocks()) throw std::runtime_error("the test's KV cache is too small");
        slices.push_back({row_begin, count, sequence->computed, sequence->blocks});
        sequence->computed += count;
        if (sequence->adapter != nullptr) {
            if (groups.empty() || groups.back().adapter != sequence->adapter) groups.push_back({row_begin, 0, sequence->adapter});
            groups.back().row_count += count;
        }
    }
    const kernels::StepInputs inputs{.rows = static_cast<std::int64_t>(tokens.size()),
                                     .tokens = tokens,
                                     .positions = positions,
                                     .rope_rows = rope_rows,
                                     .sequences = slices,
                                     .sample_rows = sample_rows};
    backend_.begin_step(inputs);
    const kernels::Matrix logits = model_.forward({.step = inputs, .adapters = groups}, *cache_);
    ASSERT_EQ(logits.rows, static_cast<std::int64_t>(sampled.size()));
    const std::int64_t vocabulary = model_.config().vocabulary;
    for (std::int64_t row = 0; row < logits.rows; ++row) {
        Sequence& sequence = *sampled[static_cast<std::size_t>(row)];
        const std::int64_t own = sequence.adapter == nullptr ? vocabulary : sequence.adapter->info().vocabulary.value_or(vocabulary);
        std::vector<float> values(static_cast<std::size_t>(own));
        backend_.read_back(std::as_writable_bytes(std::span(values)), logits.slice_rows(row, 1).data);
        sequence.logits.push_back(std::move(values));
    }
    backend_.finish_step();
}

void StepDriver::generate(const std::vector<Sequence*>& sequences, std::int64_t tokens, std::int64_t chunk) {
    const auto wanted = [&](const Sequence& sequence) { return static_cast<std::size_t>(sequence.prompt_tokens + tokens); };
    for (Sequence* sequence : sequences)
        sequence->rope_length = model_.rope_length(sequence->prompt_tokens, sequence->prompt_tokens + tokens);
    for (;;) {
        std::vector<Sequence*> unfinished;
        for (Sequence* sequence : sequences) {
            if (sequence->tokens.size() < wanted(*sequence)) unfinished.push_back(sequence);
        }
        if (unfinished.empty()) return;
        step(unfinished, chunk);
        for (Sequence* sequence : unfinished) {
            if (sequence->computed < static_cast<std::int64_t>(sequence->tokens.size())) continue;
            const auto& row = sequence->logits.back();
            sequence->tokens.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
        }
    }
}

std::string difference(std::span<const float> actual, std::span<const float> expected, float tolerance) {
    if (actual.size() != expected.size()) return fmt::format("{} elements instead of {}", actual.size(), expected.size());
    std::size_t worst = 0;
    float largest = 0.0F;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const float distance = std::abs(actual[i] - expected[i]);
        if (std::isnan(distance)) return fmt::format("element {} is {} instead of {}", i, actual[i], expected[i]);
        if (distance > largest) {
            largest = distance;
            worst = i;
        }
    }
    if (largest <= tolerance) return "";
    return fmt::format("element {} is {} instead of {}: {} apart, {} allowed", worst, actual[worst], expected[worst], largest, tolerance);
}

}  // namespace lorry::tests
