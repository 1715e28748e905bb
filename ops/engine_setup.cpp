// Makes an engine from settings.
#include "ops/engine_setup.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "consumer/file/listed.h"
#include "consumer/work.h"
#include "engine/adapter_folder.h"
#include "engine/files.h"
#include "engine/model/sentence_config.h"
#include "engine/step_memory.h"
#include "kernels/cpu/isa.h"
#include "ops/command.h"
#include "ops/machine.h"
#include "ops/paths.h"
#include "ops/units.h"
#include "ops/weight_memory.h"

namespace lorry::ops {
namespace {

constexpr std::size_t adapter_bytes_most = std::size_t{2} << 30;
constexpr std::size_t graph_bytes_most = std::size_t{512} << 20;

// The memory that is set aside for CUDA graphs of steps.
std::size_t graph_bytes_of(const Settings& settings, const kernels::DeviceInfo& device) {
    if (!device.has_own_memory) return 0;
    return settings.graph_memory ? settings.graph_memory->count : std::min(device.memory_free / 32, graph_bytes_most);
}

// Throws UsageError if the device lacks a format that the settings ask for; `more` is appended.
void check_storage(const Settings& settings, const kernels::StorageOptions& storage, kernels::DeviceKind device, const std::string& more) {
    const auto weights = kernels::obstacle(storage.quantize, device);
    if (weights) throw UsageError("--quantize " + settings.quantize + ": " + *weights + more);
    const auto cache = kernels::obstacle(storage.kv, device);
    if (cache) throw UsageError("--kv-dtype " + settings.kv_dtype + ": " + *cache + more);
}

std::unique_ptr<kernels::Backend> watched(std::unique_ptr<kernels::Backend> backend, const SetupWishes& wishes) {
    return wishes.watch ? wishes.watch(std::move(backend)) : std::move(backend);
}

// The model, its context limited to what the KV cache can hold. Throws std::runtime_error if the weights do not fit into the machine.
engine::ModelConfig config_that_fits(const Settings& settings, const kernels::Backend& backend) {
    const kernels::DeviceInfo device = backend.info();
    const FreeMemory memory = device.has_own_memory ? FreeMemory{.bytes = device.memory_free, .of = MemoryOf::device}
                                                    : FreeMemory{.bytes = memory_available(), .of = MemoryOf::machine};
    engine::ModelReport model = inspect_model(settings);
    const std::size_t bytes = fit_to_memory(settings, memory, kv_token_bytes_of(backend, engine::kv_shape_of(model.config)), model);
    const auto obstacle = weights_obstacle(bytes, memory.bytes);
    if (obstacle && !device.has_own_memory) throw std::runtime_error(settings.model + ": " + *obstacle);
    return model.config;
}

}  // namespace

MemoryPlan plan_memory(const Settings& settings, std::size_t available, std::size_t kv_token_bytes, std::int64_t context, MemoryOf memory) {
    const std::size_t adapters = settings.adapter_memory ? settings.adapter_memory->count : std::min(available / 8, adapter_bytes_most);
    const std::size_t wanted = static_cast<std::size_t>(settings.max_batch) * static_cast<std::size_t>(context) * kv_token_bytes;
    const std::size_t left = available - std::min(available, adapters + available / 16);
    const std::size_t most = memory == MemoryOf::device ? left : available / 2;
    return {.available = available,
            .kv_bytes = settings.kv_memory ? settings.kv_memory->count : std::min(wanted, most),
            .adapter_bytes = adapters};
}

std::string base_name_of(const Settings& settings) {
    if (!settings.base_name.empty()) return settings.base_name;
    std::filesystem::path folder = std::filesystem::absolute(settings.model).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    return folder.filename().string();
}

std::optional<engine::PoolingMode> pooling_of(const Settings& settings) { return engine::pooling_mode_named(settings.pooling); }

engine::ModelConfig load_config(const Settings& settings) {
    const std::filesystem::path folder = settings.model;
    require_folder("--model", folder);
    try {
        return engine::ModelConfig::load(folder, pooling_of(settings));
    } catch (const std::runtime_error& error) {
        if (std::filesystem::exists(folder / "config.json")) throw;
        throw UsageError(error.what());
    }
}

engine::ModelConfig check_folders(const Settings& settings) {
    if (settings.model.empty()) throw UsageError("no model is given: pass --model DIR or set model in lorry.toml");
    engine::ModelConfig config = load_config(settings);
    if (!settings.adapters.empty()) require_folder("--adapters", settings.adapters);
    return config;
}

bool uses_gpu(const Settings& settings) { return settings.device == "cuda" || (settings.device == "auto" && !kernels::cuda_obstacle()); }

kernels::StorageOptions storage_options(const Settings& settings) {
    const auto quantize = kernels::quantization_of(settings.quantize);
    const auto kv = kernels::kv_format_of(settings.kv_dtype);
    CHECK(quantize && kv, "the settings' choices are the names of kernels/storage_format.h");
    // By default bfloat16, which halves the memory and the time that limit every device; float32 keeps the checkpoint's every bit.
    const kernels::Format weights = settings.dtype == "float32" ? kernels::Format::float32 : kernels::Format::bfloat16;
    return {.weights = weights, .quantize = *quantize, .kv = *kv};
}

kernels::CpuOptions cpu_options(const Settings& settings) {
    return {.threads = static_cast<int>(std::clamp<std::int64_t>(settings.threads, 0, 1024)),
            .isa = kernels::cpu::isa_named(settings.isa),  // nullopt: auto
            .storage = storage_options(settings)};
}

std::string describe_pooling(const engine::EmbedderConfig& embedder) {
    return fmt::format("{}{}, {} dimensions{}", engine::name_of(embedder.pooling),
                       embedder.pooling_source.empty() ? "" : " (" + embedder.pooling_source + ")", embedder.dimensions,
                       embedder.normalized ? ", scaled to length 1" : "");
}

std::string describe_isa(std::optional<kernels::CpuIsa> wanted) {
    if (wanted) return fmt::format("{}: set by --isa or lorry.toml", kernels::cpu::name_of(*wanted));
    const kernels::cpu::IsaChoice choice = kernels::cpu::choose_isa();
    return fmt::format("{}: chosen because {}; compare others with `lorry bench tune`, choose one with --isa",
                       kernels::cpu::name_of(choice.isa), choice.reason);
}

void StorageFormat::put_into(Settings& settings) const {
    settings.dtype = dtype;
    settings.quantize = quantize;
    settings.kv_dtype = kv_dtype;
}

std::unique_ptr<kernels::Backend> make_backend(const Settings& settings) {
    const kernels::StorageOptions storage = storage_options(settings);
    std::string no_gpu;
    if (settings.device != "cpu") {
        const auto obstacle = kernels::cuda_obstacle();
        if (settings.device == "cuda" && obstacle) throw UsageError("--device cuda: " + *obstacle);
        if (!obstacle) {
            check_storage(settings, storage, kernels::DeviceKind::gpu, ", or add --device cpu");
            return kernels::make_cuda_backend({.storage = storage, .matmul_table = settings.matmul_table});
        }
        no_gpu = "; and " + *obstacle;
    }
    check_storage(settings, storage, kernels::DeviceKind::cpu, no_gpu);
    return kernels::make_cpu_backend(cpu_options(settings));
}

std::string weights_name(const kernels::StorageOptions& options) {
    return options.quantize == kernels::Quantization::none ? kernels::name_of(options.weights) : kernels::name_of(options.quantize);
}

std::string storage_name(const kernels::StorageOptions& options) {
    if (options.kv == kernels::KvFormat::as_weights) return weights_name(options);
    const std::string cache = kernels::name_of(options.kv);
    return weights_name(options) + (cache == weights_name(options) ? ", KV cache too" : ", KV cache " + cache);
}

std::int64_t step_tokens_of(const Settings& settings, const kernels::DeviceInfo& device) {
    return settings.step_tokens > 0 ? settings.step_tokens : device.step_rows;
}

namespace {

// Of a quantized checkpoint, codes stay as they are.
std::string weights_kind(const engine::ModelConfig& config, const kernels::StorageOptions& options) {
    if (config.quantized) return fmt::format(": {}; the rest in {}", config.quantized->name, weights_name(options));
    return fmt::format(" in {} (checkpoint: {})", weights_name(options), kernels::name_of(config.storage));
}

std::int64_t drafts_max_of(const Settings& settings, const SetupWishes& wishes, const kernels::Backend& backend) {
    constexpr std::int64_t drafts_max = 16;
    const bool by_default = !wishes.plain_decoding && !backend.info().has_own_memory;
    return settings.speculation == "ngram" || (settings.speculation == "auto" && by_default) ? drafts_max : 0;
}

// There is at least one.
std::string unused_remark(std::span<const std::string> names) {
    constexpr std::size_t shown = 8;
    // Of a module whose weight is used.
    const auto is_lone_bias = [&](const std::string& name) {
        constexpr std::string_view end = ".bias";
        return name.ends_with(end) && std::ranges::find(names, name.substr(0, name.size() - end.size()) + ".weight") == names.end();
    };
    std::string text = "tensors that are not used: " + consumer::listed({names.begin(), names.end()}, shown);
    if (const auto bias = std::ranges::find_if(names, is_lone_bias); bias != names.end())
        text += fmt::format("; config.json has no bias for the module of {}, so that it is left out, as in transformers: check config.json",
                            schema::shortened(*bias));
    return text;
}

}  // namespace

EngineSetup::EngineSetup(const Settings& settings, const SetupWishes& wishes)
    : EngineSetup(settings, std::make_unique<const engine::ModelTexts>(settings.model), nullptr, wishes) {}

EngineSetup::EngineSetup(const Settings& settings, const engine::ModelTexts& texts, const SetupWishes& wishes)
    : EngineSetup(settings, nullptr, &texts, wishes) {}

EngineSetup::EngineSetup(const Settings& settings, std::unique_ptr<const engine::ModelTexts> own_texts, const engine::ModelTexts* texts,
                         const SetupWishes& wishes)
    : settings_(settings),
      backend_((check_folders(settings), watched(make_backend(settings), wishes))),
      own_texts_(std::move(own_texts)),
      texts_(texts == nullptr ? *own_texts_ : *texts) {
    const engine::ModelText& text = texts_.base();
    options_.texts = &texts_;
    options_.sequences_max = settings.max_batch;
    options_.step_rows_max = std::max(step_tokens_of(settings, backend_->info()), settings.max_batch);
    options_.prefix_cache = settings.prefix_cache;
    options_.mask_patience = engine::MaskPatience{};
    options_.drafts_max = drafts_max_of(settings, wishes, *backend_);
    const engine::ModelConfig config = config_that_fits(settings, *backend_);
    const std::int64_t context = config.max_positions;
    if (config.is_encoder) {
        // A step computes whole texts, and as many as its tokens hold.
        options_.step_rows_max = std::max(options_.step_rows_max, context);
        options_.sequences_max = std::max(options_.sequences_max, options_.step_rows_max / 4);
    }
    model_ =
        engine::Model::load(settings.model, *backend_, options_.step_rows_max, options_.sample_rows_max(), context, pooling_of(settings));
    divide_memory(wishes);
    replace_engine(options_);

    preparer_ = std::make_unique<consumer::Preparer>(text.tokenizer, text.chat_template, model_->config(),
                                                     consumer::PreparerOptions{.context_max = engine_->context_max(),
                                                                               .whole_max = options_.step_rows_max,
                                                                               .share_prefixes = settings.share_prefixes,
                                                                               .reasoning_parser = settings.reasoning_parser,
                                                                               .tool_parser = settings.tool_parser,
                                                                               .texts = &texts_});
    engine::ContentHash hash;
    hash.add_text(model_->fingerprint());
    hash.add_text(backend_->info().fingerprint);
    reply_ = std::make_unique<consumer::ReplyContext>(
        consumer::ReplyContext{.tokenizer = text.tokenizer,
                               .base_name = base_name_of(settings),
                               .system_fingerprint = "fp_" + hash.hex().substr(0, 16),
                               .reply_bytes_max = static_cast<std::int64_t>(settings.result_bytes_max.count)});
}

void EngineSetup::divide_memory(const SetupWishes& wishes) {
    const kernels::DeviceInfo before = backend_->info();
    if (before.has_own_memory) engine::reserve_steps(*model_, *backend_, options_);
    const kernels::DeviceInfo device = backend_->info();
    step_bytes_ = before.memory_free - std::min(before.memory_free, device.memory_free);
    options_.graph_bytes = graph_bytes_of(settings_, device);
    if (options_.graph_bytes > 0 && options_.graph_bytes >= device.memory_free) {
        throw std::runtime_error(
            fmt::format("--graph-memory {}: only {} are free now", show_bytes(options_.graph_bytes), show_bytes(device.memory_free)));
    }
    const std::size_t available = device.has_own_memory ? device.memory_free - options_.graph_bytes : memory_available();
    const std::int64_t positions = model_->config().max_positions;
    // Whole blocks and one more: while another sequence starts, one is kept free for each that runs.
    const std::int64_t block_size = backend_->block_size();
    const auto with_room = [&](std::int64_t tokens) { return ((tokens + block_size - 1) / block_size + 1) * block_size; };
    const std::int64_t sequence_tokens = wishes.sequence_tokens ? with_room(*wishes.sequence_tokens) : positions;
    memory_ = plan_memory(settings_, available, kv_token_bytes(), std::min(positions, sequence_tokens),
                          device.has_own_memory ? MemoryOf::device : MemoryOf::machine);
    const std::size_t block_bytes = backend_->kv_block_bytes(model_->kv_shape());
    const std::size_t limit = device.has_own_memory ? device.memory_total : memory_limit();
    if (settings_.kv_memory && (memory_.kv_bytes < block_bytes || memory_.kv_bytes > limit)) {
        throw UsageError(fmt::format("--kv-memory {}: give at least {}, which is one block, and less than the total of {}",
                                     show_bytes(memory_.kv_bytes), show_bytes(block_bytes), show_bytes(limit)));
    }
    if (settings_.adapter_memory && memory_.adapter_bytes > limit) {
        throw UsageError(
            fmt::format("--adapter-memory {}: give less than the total of {}", show_bytes(memory_.adapter_bytes), show_bytes(limit)));
    }
    if (device.has_own_memory && !settings_.kv_memory && memory_.kv_bytes < block_bytes) {
        throw std::runtime_error(fmt::format(
            "no memory is left for a KV cache, of which a block takes {}: {} are free now, and adapters get {} of them; give less "
            "--adapter-memory or --graph-memory, or store the weights in a narrower format (--quantize fp8)",
            show_bytes(block_bytes), show_bytes(available), show_bytes(memory_.adapter_bytes)));
    }
    // A device's memory for adapters is set aside; a machine's is taken as adapters are loaded.
    const std::size_t adapters = device.has_own_memory ? memory_.adapter_bytes : 0;
    if (memory_.kv_bytes + adapters > available) {
        throw std::runtime_error(fmt::format("--kv-memory {}{}: only {} are free now", show_bytes(memory_.kv_bytes),
                                             adapters > 0 ? " and --adapter-memory " + show_bytes(adapters) : "", show_bytes(available)));
    }
    options_.kv_bytes = memory_.kv_bytes;
    options_.adapter_bytes = memory_.adapter_bytes;
}

std::string EngineSetup::storage() const { return storage_name(storage_options(settings_)); }

std::size_t EngineSetup::kv_token_bytes() const { return kv_token_bytes_of(*backend_, model_->kv_shape()); }

engine::Engine& EngineSetup::replace_engine(const engine::EngineOptions& options) {
    engine_.reset();
    engine_ = std::make_unique<engine::Engine>(*model_, *backend_, texts_.base().tokenizer, options);
    return *engine_;
}

std::size_t EngineSetup::adapter_bytes(std::span<const engine::AdapterSource> adapters) {
    std::size_t bytes = 0;
    for (const engine::AdapterSource& source : adapters) {
        const auto files = engine::read_adapter(source.folder, source.hash, *model_, texts_);
        if (!files) throw std::runtime_error(files.error().reason);
        bytes += (*files)->slot_bytes(*backend_);
    }
    return bytes;
}

std::vector<std::string> model_remarks(const std::filesystem::path& folder, const engine::ModelConfig& config,
                                       std::span<const std::string> unused) {
    std::vector<std::string> out;
    if (std::filesystem::exists(folder / "adapter_config.json")) out.emplace_back(adapter_beside_remark);
    if (config.head_untied) out.emplace_back(head_untied_remark);
    for (const std::string& part : config.skipped_parts) out.push_back(part + std::string(part_skipped_remark));
    if (!unused.empty()) out.push_back(unused_remark(unused));
    return out;
}

std::string EngineSetup::describe() const {
    const engine::ModelConfig& config = model_->config();
    const kernels::DeviceInfo device = backend_->info();
    const auto tokens = static_cast<std::int64_t>(memory_.kv_bytes / kv_token_bytes());
    const std::string kv = config.is_encoder
                               ? "none: a step computes whole texts of up to " + show_count(engine_->context_max()) + " tokens"
                               : fmt::format("{}{}: {} tokens; one job holds up to {}", show_bytes(memory_.kv_bytes),
                                             settings_.kv_dtype == "auto" ? "" : " in " + settings_.kv_dtype, show_count(tokens),
                                             show_count(engine_->context_max()));
    std::vector<std::vector<std::string>> rows = {
        {"  model", fmt::format("{} ({}, {} layers, hidden {}), answers to 'base' and '{}'", settings_.model, config.family, config.layers,
                                config.hidden, reply_->base_name)},
        {"  device", device.name},
        {"  weights", show_bytes(model_->weight_bytes()) + weights_kind(config, storage_options(settings_))},
        {"  KV cache", kv},
        {"  adapters", fmt::format("up to {} in memory{}", show_bytes(memory_.adapter_bytes),
                                   device.has_own_memory ? ", and half of what the KV cache has to spare" : "")},
        {"  batch", fmt::format("up to {} sequences, {} tokens a step", options_.sequences_max, options_.step_rows_max)},
    };
    if (!config.generates || config.embedder) rows.insert(rows.begin() + 1, {"  ability", consumer::abilities_of(config)});
    if (config.embedder) rows.insert(rows.begin() + 2, {"  pooling", describe_pooling(*config.embedder)});
    if (device.has_own_memory) {
        rows.push_back({"  graphs", fmt::format("{} of up to {}, for decoding steps of {} different sizes", show_bytes(device.graph_bytes),
                                                show_bytes(options_.graph_bytes), device.graphs)});
        rows.push_back({"  steps", fmt::format("{} to compute with, set aside", show_bytes(step_bytes_))});
        rows.push_back({"  memory", fmt::format("{} of {} are left", show_bytes(device.memory_free), show_bytes(device.memory_total))});
    } else {
        rows.push_back({"  isa", describe_isa(cpu_options(settings_).isa)});
    }
    if (!device.matmuls.empty()) rows.push_back({"  matmuls", device.matmuls});
    for (std::string& remark : model_remarks(settings_.model, config, model_->unused_tensors()))
        rows.push_back({"  warning", std::move(remark)});
    return show_table(rows);
}

}  // namespace lorry::ops
