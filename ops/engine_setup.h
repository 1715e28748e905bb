// Everything between a model's folder and a running engine: backend, model, tokenizer, chat template, memory. What `worker`, `run` and
// `bench` share.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "consumer/intake.h"
#include "consumer/reply.h"
#include "engine/engine.h"
#include "ops/settings.h"

namespace lorry::ops {

// How memory is divided, for engine options and for people.
struct MemoryPlan {
    std::size_t available = 0;  // before the KV cache and the adapters, and without what graphs may take and steps compute with
    std::size_t kv_bytes = 0;
    std::size_t adapter_bytes = 0;
};
enum class MemoryOf : std::uint8_t { machine, device };
// kv_token_bytes: of one cached token. Without settings: adapters get an eighth of what is available, 2 GiB at most, and the KV cache what
// the batch could fill at full context, but at most half of a machine's, which others use as well, or what adapters leave of a device's own
// but a sixteenth.
MemoryPlan plan_memory(const Settings& settings, std::size_t available, std::size_t kv_token_bytes, std::int64_t context,
                       MemoryOf memory = MemoryOf::machine);

// The name that jobs call the base model by: the setting, or the folder's name.
std::string base_name_of(const Settings& settings);

// Of the base model. Throws UsageError when the folder is not there or is of another kind, std::runtime_error when its config.json is not
// one that can be used.
engine::ModelConfig load_config(const std::filesystem::path& folder);

// What --dtype, --quantize and --kv-dtype ask for, of either device.
kernels::StorageOptions storage_options(const Settings& settings);
// The same, --isa and --threads.
kernels::CpuOptions cpu_options(const Settings& settings);
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
// How matmul weights are stored: "bfloat16".
std::string weights_name(const kernels::StorageOptions& options);
// The same, and the KV cache where it is narrower than --dtype says: "int8, KV cache too", "bfloat16, KV cache fp8". What benchmarks name a
// run by.
std::string storage_name(const kernels::StorageOptions& options);

// What --device asks for. Throws UsageError saying what stands in the way of a GPU that was asked for by name, or what the device has in
// place of what it lacks.
std::unique_ptr<kernels::Backend> make_backend(const Settings& settings);

// Throws UsageError when no model is given or a folder is not there.
void check_folders(const Settings& settings);
// Whether what --device asks for is a GPU.
bool uses_gpu(const Settings& settings);

// What benchmarks ask for besides settings.
struct SetupWishes {
    // Puts another backend around the one that is made, such as one that measures it; not called without.
    std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> watch = nullptr;
    // No sequence has more tokens: a KV cache that nothing is said of takes no more than these need, and all of its pages are soon used.
    std::optional<std::int64_t> sequence_tokens;
};

// Members stay where they are: they refer to each other.
class EngineSetup {
public:
    // Loads everything. Throws UsageError when no model is given or a folder is not there, std::runtime_error for what cannot be loaded or
    // used.
    explicit EngineSetup(const Settings& settings, const SetupWishes& wishes = {});

    engine::Engine& engine() { return *engine_; }
    const engine::Model& model() const { return *model_; }
    const engine::Tokenizer& tokenizer() const { return tokenizer_; }
    const consumer::Intake& intake() const { return *intake_; }
    const consumer::ReplyContext& reply() const { return *reply_; }
    // Of the weights alone, as resumed runs compare it.
    const std::string& model_fingerprint() const { return model_->fingerprint(); }
    std::size_t kv_token_bytes() const;  // of one cached token
    kernels::Format adapter_format() const { return storage_options(settings_).weights; }
    kernels::DeviceInfo device() const { return backend_->info(); }
    // Of weights and KV cache: "int8, KV cache too".
    std::string storage() const;
    // What was set up, as a small table for people.
    std::string describe() const;
    engine::EngineOptions options() const { return options_; }
    // Another engine over the same model in the place of the one that was, for benchmarks: there is one KV cache at a time.
    engine::Engine& replace_engine(const engine::EngineOptions& options);
    // What these take together in memory. Reads each; throws std::runtime_error for one that cannot be loaded.
    std::size_t adapter_bytes(std::span<const engine::AdapterSource> adapters);

private:
    void divide_memory(const SetupWishes& wishes);

    const Settings settings_;
    std::unique_ptr<kernels::Backend> backend_;
    engine::Tokenizer tokenizer_;
    std::unique_ptr<engine::Model> model_;
    engine::EngineOptions options_;
    std::size_t step_bytes_ = 0;  // of a device's own memory, set aside
    MemoryPlan memory_;
    std::unique_ptr<engine::Engine> engine_;
    std::unique_ptr<consumer::Intake> intake_;
    std::unique_ptr<consumer::ReplyContext> reply_;
};

}  // namespace lorry::ops
