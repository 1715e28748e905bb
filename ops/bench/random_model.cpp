// The table of shapes, and a safetensors writer that uses all processors, because large models take long to write.
#include "ops/bench/random_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>

#include <fmt/format.h>

#include "engine/model/model_layout.h"
#include "engine/text/tokenizer.h"
#include "kernels/processors.h"
#include "kernels/thread_pool.h"
#include "ops/command.h"
#include "ops/paths.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using schema::Json;

struct Shape {
    const char* name;
    const char* config;  // config.json
};
// As in the models' own config.json files, without entries that do not affect the arithmetic.
constexpr std::array shapes = {
    Shape{"smollm2-135m",
          R"({"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    Shape{"stories42m",
          R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 1024, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    Shape{"stories260k",
          R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    Shape{"gpt2", R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024,
    "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new", "torch_dtype": "bfloat16"})"},
    Shape{"llama-3.2-1b",
          R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
    "hidden_act": "silu", "rope_theta": 500000.0, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    Shape{"qwen2.5-0.5b",
          R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "hidden_act": "silu",
    "rope_theta": 1000000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    Shape{"llama-3.1-8b",
          R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
};

constexpr std::uint16_t bfloat16_one = 0x3F80;

enum class Fill : std::uint8_t {
    random,
    ones,
    spread,  // random, and larger: the outputs of a classification head, so that its classes' probabilities differ as a trained model's do
};
struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    Fill fill = Fill::random;
    std::uint64_t seed = 0;  // a seed of its own, so that it does not depend on which thread writes it, or what else is written
};
// A safetensors file.
struct WeightFile {
    std::filesystem::path path;
    std::vector<NamedTensor> tensors;
};

std::int64_t elements_of(const NamedTensor& tensor) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    return elements;
}
std::int64_t bytes_of(const NamedTensor& tensor) { return elements_of(tensor) * 2; }

// A bfloat16 number of either sign with a magnitude around 0.02, as in freshly initialized models: 16 random bits give the sign, the
// fraction and one of three exponents, of which `exponent_first` is the smallest.
std::uint16_t random_weight(std::uint16_t bits, std::uint16_t exponent_first) {
    const auto exponent = static_cast<std::uint16_t>(exponent_first + (bits >> 7 & 0x3F) % 3);
    return static_cast<std::uint16_t>((bits & 0x8000U) | static_cast<unsigned>(exponent << 7) | (bits & 0x7FU));
}

// Returns false if the file could not be written completely.
bool write_safetensors(const WeightFile& file) {
    Json::Object header;
    std::int64_t bytes = 0;
    for (const NamedTensor& tensor : file.tensors) {
        Json shape = Json::Array();
        for (const std::int64_t extent : tensor.shape) shape.push(extent);
        const std::int64_t end = bytes + bytes_of(tensor);
        header.emplace_back(tensor.name, Json::object({{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", Json::array({bytes, end})}}));
        bytes = end;
    }
    std::string text = Json(std::move(header)).dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::ofstream out(file.path, std::ios::binary);
    std::array<char, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    out.write(length.data(), length.size());
    out.write(text.data(), static_cast<std::streamsize>(text.size()));

    std::vector<std::uint16_t> piece;
    constexpr std::int64_t piece_max = 1 << 18;
    constexpr std::uint16_t small = 120;   // 2^-7
    constexpr std::uint16_t spread = 124;  // 2^-3
    for (const NamedTensor& tensor : file.tensors) {
        std::mt19937_64 random(tensor.seed);
        for (std::int64_t left = elements_of(tensor); left > 0; left -= std::ssize(piece)) {
            piece.resize(static_cast<std::size_t>(std::min(left, piece_max)));
            std::uint64_t bits = 0;
            for (std::size_t i = 0; i < piece.size(); ++i) {
                bits = i % 4 == 0 ? random() : bits >> 16;
                piece[i] = tensor.fill == Fill::ones
                               ? bfloat16_one
                               : random_weight(static_cast<std::uint16_t>(bits), tensor.fill == Fill::spread ? spread : small);
            }
            out.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size() * 2));
        }
    }
    out.close();
    return !out.fail();
}

// Throws std::runtime_error naming a file that could not be written.
void write_all(std::span<const WeightFile> files) {
    std::vector<char> written(files.size());
    kernels::ThreadPool threads(kernels::usable_processors());
    threads.each(std::ssize(files), [&](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        written[i] = write_safetensors(files[i]) ? 1 : 0;
    });
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (written[i] == 0) throw std::runtime_error(files[i].path.string() + ": cannot be written; is the disk full?");
    }
}

// Writes whole tensors into shards of similar size, enough of them for many processors, and the index that names them.
void write_shards(const std::filesystem::path& folder, std::vector<NamedTensor> tensors) {
    constexpr std::int64_t shard_bytes = std::int64_t{64} << 20;
    std::vector<WeightFile> shards;
    Json::Object places;
    std::int64_t room = 0;
    for (NamedTensor& tensor : tensors) {
        if (room <= 0) {
            shards.push_back({.path = folder / fmt::format("model-{:05}.safetensors", shards.size() + 1), .tensors = {}});
            room = shard_bytes;
        }
        room -= bytes_of(tensor);
        places.emplace_back(tensor.name, shards.back().path.filename().string());
        shards.back().tensors.push_back(std::move(tensor));
    }
    write_all(shards);
    write_text(folder / "model.safetensors.index.json", Json::object({{"weight_map", std::move(places)}}).dump());
}

// A tokenizer with one word per id, so that texts have a length.
std::string made_up_tokenizer(std::int64_t vocabulary) {
    Json::Object words;
    for (std::int64_t id = 0; id < vocabulary; ++id) words.emplace_back(fmt::format("w{}", id), id);
    const Json model = Json::object({{"type", "WordLevel"}, {"vocab", std::move(words)}, {"unk_token", "w0"}});
    return Json::object({{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", Json::Array()},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", Json::object({{"type", "Whitespace"}})},
                         {"post_processor", nullptr},
                         {"decoder", nullptr},
                         {"model", model}})
        .dump();
}

const Shape& shape_of(std::string_view name) {
    const auto* const shape = std::ranges::find(shapes, name, [](const Shape& row) -> std::string_view { return row.name; });
    if (shape == shapes.end())
        throw UsageError(fmt::format("--random-weights {}: known are {}", name, fmt::join(random_model_names(), ", ")));
    return *shape;
}

// config.json
std::string config_of(const RandomModel& model) {
    Json config = *Json::parse(shape_of(model.name).config);
    if (model.layers) config.set(config.find("n_layer") != nullptr ? "n_layer" : "num_hidden_layers", *model.layers);
    if (!model.tokenizer.empty()) {
        const auto tokens = static_cast<std::int64_t>(engine::Tokenizer::load(model.tokenizer).vocabulary_size());
        config.set("vocab_size", std::max(tokens, *config.find("vocab_size")->as_integer()));
    }
    return config.dump();
}

Fill fill_of(engine::TensorRole role) {
    switch (role) {
        case engine::TensorRole::norm: return Fill::ones;
        case engine::TensorRole::head_output: return Fill::spread;
        case engine::TensorRole::embedding:
        case engine::TensorRole::projection:
        case engine::TensorRole::vector: return Fill::random;
    }
    CHECK(false, "every role has values");
}

std::vector<NamedTensor> tensors_of(const engine::ModelConfig& config) {
    std::vector<NamedTensor> tensors;
    for (engine::LayoutTensor& tensor : engine::tensors_of(config, engine::layout_of(config)))
        tensors.push_back({std::move(tensor.name), std::move(tensor.shape), fill_of(tensor.role), tensors.size()});
    return tensors;
}

engine::ModelConfig parsed(const std::string& config_json) { return engine::ModelConfig::parse(config_json, "", "config.json"); }

}  // namespace

std::vector<std::string> random_model_names() {
    std::vector<std::string> names;
    for (const Shape& shape : shapes) names.emplace_back(shape.name);
    return names;
}

engine::ModelConfig random_model_config(std::string_view name) { return parsed(shape_of(name).config); }

std::int64_t random_model_bytes(const RandomModel& model) {
    std::int64_t bytes = 0;
    for (const NamedTensor& tensor : tensors_of(parsed(config_of(model)))) bytes += bytes_of(tensor);
    return bytes;
}

void write_random_model(const RandomModel& model, const std::filesystem::path& folder) {
    write_random_model(config_of(model), folder);
    if (model.tokenizer.empty()) return;
    for (const char* const name : {"tokenizer.json", "tokenizer_config.json"}) {
        if (!std::filesystem::exists(model.tokenizer / name)) continue;
        std::filesystem::copy_file(model.tokenizer / name, folder / name, std::filesystem::copy_options::overwrite_existing);
    }
}

void write_random_model(const std::string& config_json, const std::filesystem::path& folder) {
    const engine::ModelConfig config = parsed(config_json);
    std::filesystem::create_directories(folder);
    write_text(folder / "config.json", config_json);
    write_text(folder / "tokenizer.json", made_up_tokenizer(config.vocabulary));
    write_shards(folder, tensors_of(config));
}

void write_random_adapters(const std::filesystem::path& model_folder, std::int64_t count, std::int64_t distinct,
                           std::span<const std::int64_t> ranks, const std::filesystem::path& folder) {
    CHECK(distinct % std::ssize(ranks) == 0, "an adapter has the rank of the one whose weights it shares");
    const auto place_of = [&](std::int64_t i) { return folder / fmt::format("lora-{}", i); };

    const engine::ModelConfig config = engine::ModelConfig::load(model_folder);
    const engine::ModelLayout layout = engine::layout_of(config);
    constexpr const char* weights = "adapter_model.safetensors";
    std::vector<WeightFile> files;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t rank = ranks[static_cast<std::size_t>(i) % ranks.size()];
        const std::filesystem::path place = place_of(i);
        std::filesystem::create_directories(place);
        write_text(place / "adapter_config.json", Json::object({{"peft_type", "LORA"},
                                                                {"task_type", "CAUSAL_LM"},
                                                                {"base_model_name_or_path", fmt::format("made up for {}", i)},
                                                                {"r", rank},
                                                                {"lora_alpha", rank},
                                                                {"bias", "none"},
                                                                {"target_modules", "all-linear"}})
                                                      .dump());
        if (i >= distinct) continue;
        WeightFile& file = files.emplace_back(WeightFile{.path = place / weights, .tensors = {}});
        for (const engine::LinearModule& linear : layout.linears) {
            if (linear.projection == engine::Projection::head) continue;
            const std::string path = "base_model.model." + linear.path;
            const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
                const std::uint64_t seed = (static_cast<std::uint64_t>(i) + 1) << 32 | file.tensors.size();
                file.tensors.push_back({path + name, std::move(shape), Fill::random, seed});
            };
            add(".lora_A.weight", {rank, linear.in_features});
            add(".lora_B.weight", {linear.out_features, rank});
        }
    }
    write_all(files);
    for (std::int64_t i = distinct; i < count; ++i)
        std::filesystem::create_hard_link(place_of(i % distinct) / weights, place_of(i) / weights);
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lorry-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), fmt::format("cannot create the folder {}", pattern));
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;  // anything left is among temporary files
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace lorry::ops
