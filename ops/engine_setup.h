// Loads a model folder and makes a running engine of it: backend, model, tokenizer, chat template, memory. Used by `worker`, `run`, `bench`
// and `check-model`.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "engine/engine.h"
#include "ops/settings.h"

namespace lorry::ops {

// How memory is divided between the KV cache and the adapters.
struct MemoryPlan {
    std::size_t available = 0;  // for both; what CUDA graphs may take and steps compute with is already taken off
    std::size_t kv_bytes = 0;
    std::size_t adapter_bytes = 0;
};
enum class MemoryOf : std::uint8_t { machine, device };
// Follows the settings kv_memory and adapter_memory. Where they are not set, adapters get an eighth of what is available, at most 2 GiB,
// and the KV cache gets what the batch can fill at full context: at most half of a machine's memory, which other programs use as well, or
// what the adapters and a reserve of a sixteenth leave of a device's own. kv_token_bytes is the size of one cached token.
MemoryPlan plan_memory(const Settings& settings, std::size_t available, std::size_t kv_token_bytes, std::int64_t context,
                       MemoryOf memory = MemoryOf::machine);

// The name by which jobs call the base model: the setting, or the folder's name.
std::string base_name_of(const Settings& settings);

// Reads the base model's config.json. Throws UsageError when the folder is missing or holds no model, std::runtime_error when the
// configuration cannot be used.
engine::ModelConfig load_config(const Settings& settings);
// How texts become embeddings, for people: "mean (1_Pooling/config.json), 384 dimensions, scaled to length 1".
std::string describe_pooling(const engine::EmbedderConfig& embedder);
// How --pooling says that texts are pooled; nullopt: as the model's folder says.
std::optional<engine::PoolingMode> pooling_of(const Settings& settings);

// What people should know of a model that runs: one text each. unused: tensors that are in its files, but not used.
std::vector<std::string> model_remarks(const std::filesystem::path& folder, const engine::ModelConfig& config,
                                       std::span<const std::string> unused);
// The one where config.head_untied is set.
inline constexpr std::string_view head_untied_remark =
    "config.json ties the head to the embedding, but lm_head.weight differs from it and is used, as in transformers; set "
    "tie_word_embeddings to false";
// The one for each of config.skipped_parts, after its name.
inline constexpr std::string_view part_skipped_remark = " describes a part of the model that Lorry does not run; only the text part runs";
// The one for a folder that also holds an adapter, which transformers applies to the model.
inline constexpr std::string_view adapter_beside_remark =
    "the folder also has an adapter_config.json: the base model runs without that adapter, which transformers would apply; to run it, move "
    "adapter_config.json and adapter_model.safetensors to a folder of their own in that of --adapters";

// What --dtype, --quantize and --kv-dtype ask for, of either device.
kernels::StorageOptions storage_options(const Settings& settings);
// The same, --isa and --threads.
kernels::CpuOptions cpu_options(const Settings& settings);
// The CPU's instruction set and what chose it, for people: "avx2: set by --isa or lorry.toml". `wanted`: as CpuOptions.
std::string describe_isa(std::optional<kernels::CpuIsa> wanted);
// The ways to store weights and KV cache that benchmarks compare: --dtype, --quantize and --kv-dtype.
struct StorageFormat {
    const char* dtype;
    const char* quantize;
    const char* kv_dtype = "auto";
    void put_into(Settings& settings) const;
};
inline constexpr std::array storage_formats = {StorageFormat{"float32", "none"}, StorageFormat{"bfloat16", "none"},
                                               StorageFormat{"bfloat16", "int8"}, StorageFormat{"bfloat16", "int8", "int8"},
                                               StorageFormat{"bfloat16", "int4"}};
// Tokens of a step, if the batch has no more sequences than that.
std::int64_t step_tokens_of(const Settings& settings, const kernels::DeviceInfo& device);
// How matmul weights are stored: "bfloat16".
std::string weights_name(const kernels::StorageOptions& options);
// The same, and the KV cache where it is narrower than --dtype says: "int8, KV cache too", "bfloat16, KV cache fp8". What benchmarks name a
// run by.
std::string storage_name(const kernels::StorageOptions& options);

// What --device asks for. Throws UsageError saying what stands in the way of a GPU that was asked for by name, or what the device has in
// place of what it lacks.
std::unique_ptr<kernels::Backend> make_backend(const Settings& settings);

// Throws UsageError when no model is given or a folder is missing. Returns the model's configuration, as load_config does.
engine::ModelConfig check_folders(const Settings& settings);
// Whether the model runs on a GPU, as --device asks.
bool uses_gpu(const Settings& settings);

// What benchmarks ask for in addition to settings.
struct SetupWishes {
    // Wraps the backend in another one, such as one that measures it. Optional.
    std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> watch = nullptr;
    // The most tokens of a sequence. Without the setting kv_memory, the KV cache is no larger than such sequences need, so all of its pages
    // are used soon.
    std::optional<std::int64_t> sequence_tokens;
    // Where --speculation is auto, nothing is guessed: what a model makes of random prompts repeats itself more than answers to jobs do.
    bool plain_decoding = false;
};

// Cannot be moved, as its members refer to each other.
class EngineSetup {
public:
    // Loads everything. Throws UsageError when no model is given or a folder is missing, std::runtime_error when something cannot be loaded
    // or used.
    explicit EngineSetup(const Settings& settings, const SetupWishes& wishes = {});
    // The same with texts of settings.model that outlive it.
    EngineSetup(const Settings& settings, const engine::ModelTexts& texts, const SetupWishes& wishes = {});

    engine::Engine& engine() { return *engine_; }
    const engine::Model& model() const { return *model_; }
    const engine::ModelTexts& texts() const { return texts_; }
    const consumer::Preparer& preparer() const { return *preparer_; }
    const consumer::ReplyContext& reply() const { return *reply_; }
    // A hash of the weights; a resumed run compares it.
    const std::string& model_fingerprint() const { return model_->fingerprint(); }
    std::size_t kv_token_bytes() const;  // of one cached token
    kernels::Format adapter_format() const { return storage_options(settings_).weights; }
    kernels::DeviceInfo device() const { return backend_->info(); }
    // How weights and KV cache are stored: "int8, KV cache too".
    std::string storage() const;
    // What was set up, as a small table of text.
    std::string describe() const;
    engine::EngineOptions options() const { return options_; }
    // Replaces the engine by another one over the same model, for benchmarks. There is one KV cache at a time.
    engine::Engine& replace_engine(const engine::EngineOptions& options);
    // The memory that these adapters take together. Reads each; throws std::runtime_error for one that cannot be loaded.
    std::size_t adapter_bytes(std::span<const engine::AdapterSource> adapters);

private:
    // texts: nullptr: own_texts.
    EngineSetup(const Settings& settings, std::unique_ptr<const engine::ModelTexts> own_texts, const engine::ModelTexts* texts,
                const SetupWishes& wishes);
    void divide_memory(const SetupWishes& wishes);

    const Settings settings_;
    std::unique_ptr<kernels::Backend> backend_;
    const std::unique_ptr<const engine::ModelTexts> own_texts_;  // nullptr: they are another's
    const engine::ModelTexts& texts_;
    std::unique_ptr<engine::Model> model_;
    engine::EngineOptions options_;
    std::size_t step_bytes_ = 0;  // of a device's own memory, set aside for steps
    MemoryPlan memory_;
    std::unique_ptr<engine::Engine> engine_;
    std::unique_ptr<consumer::Preparer> preparer_;
    std::unique_ptr<consumer::ReplyContext> reply_;
};

}  // namespace lorry::ops
