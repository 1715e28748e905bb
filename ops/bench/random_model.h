// Model and adapter folders of known shapes with random weights: what benchmarks run when no trained model is at hand. The weights are
// small normal-like numbers, so that nothing overflows; what such a model writes means nothing. Called by `lorry bench`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_config.h"

namespace lorry::ops {

// "smollm2-135m", …
std::vector<std::string> random_model_names();

// Throws UsageError for a name that is not known.
engine::ModelConfig random_model_config(std::string_view name);

// What is asked for besides a shape's name. layers: of the model; nullopt: as many as the shape has.
struct RandomModel {
    std::string name;
    std::optional<std::int64_t> layers = {};
};

// Of its weights.
std::int64_t random_model_bytes(const RandomModel& model);

// Writes config.json, tokenizer.json (made-up words) and weights (bfloat16, in files with an index), the same on any number of processors.
// Throws UsageError for a name that is not known, std::runtime_error when the folder cannot be written.
void write_random_model(const RandomModel& model, const std::filesystem::path& folder);

// Writes `count` PEFT LoRAs on all linear modules of the model in `model_folder`, of these ranks in turn, as folder/lora-0 … . From the
// `distinct`th on they share earlier ones' weights (as hard links, so that thousands fit on a disk), with configs that tell them apart.
void write_random_adapters(const std::filesystem::path& model_folder, std::int64_t count, std::int64_t distinct,
                           std::span<const std::int64_t> ranks, const std::filesystem::path& folder);

// A new folder below the system's place for temporary files; gone with its owner.
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
