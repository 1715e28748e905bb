// Writes model and adapter folders of known shapes with random weights, for benchmarks without a trained model. The weights are small,
// normal-like numbers, so that nothing overflows; the output of such a model is meaningless. Called by `lorry bench`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"

namespace lorry::ops {

// The known shapes: "smollm2-135m", …
std::vector<std::string> random_model_names();

// Throws UsageError for an unknown name.
engine::ModelConfig random_model_config(std::string_view name);

struct RandomModel {
    std::string name;                         // of a known shape
    std::optional<std::int64_t> layers = {};  // nullopt: as many as the shape has
    // A folder whose tokenizer the model gets, and a vocabulary that has room for it; empty: a tokenizer of made-up words.
    std::filesystem::path tokenizer = {};
};

// Size of its weights.
std::int64_t random_model_bytes(const RandomModel& model);

// Writes config.json, the tokenizer and weights (bfloat16, in shards with an index), identical on any number of processors. Throws
// UsageError for an unknown name, std::runtime_error when the folder cannot be written or the tokenizer cannot be used.
void write_random_model(const RandomModel& model, const std::filesystem::path& folder);
// The same for the shape that a config.json describes, with made-up words. It may also be an encoder's with a classification head.
// Throws std::runtime_error if it cannot be used.
void write_random_model(const std::string& config_json, const std::filesystem::path& folder);

// Writes `count` PEFT LoRAs for all linear modules of the model in `model_folder`, cycling through `ranks`, as folder/lora-0 …. From number
// `distinct` on they share the weights of earlier ones (as hard links, so that thousands fit on a disk), with configs that differ.
void write_random_adapters(const std::filesystem::path& model_folder, std::int64_t count, std::int64_t distinct,
                           std::span<const std::int64_t> ranks, const std::filesystem::path& folder);

// A new folder in the system's directory for temporary files; removed by the destructor.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace lorry::ops
