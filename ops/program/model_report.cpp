// Inspects the folders, works out what fits into memory, and formats the report.
#include "ops/program/model_report.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "consumer/file/listed.h"
#include "consumer/pair_template.h"
#include "consumer/work.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "kernels/cuda/shapes.h"
#include "ops/engine_setup.h"
#include "ops/machine.h"
#include "ops/units.h"
#include "ops/weight_memory.h"

namespace lorry::ops {
namespace {

using engine::ModelConfig;

constexpr std::size_t names_shown = 8;
constexpr std::int64_t context_least = 256;

std::string rope_of(const ModelConfig& config) {
    using enum engine::RopeConfig::Kind;
    switch (config.rope.kind) {
        case none: return "learned positions";
        case standard: return fmt::format("rope, theta {}", config.rope.theta);
        case linear: return fmt::format("rope, linear × {}", config.rope.factor);
        case dynamic: return fmt::format("rope, dynamic × {}", config.rope.factor);
        case llama3: return fmt::format("rope, llama3 × {}", config.rope.factor);
        case yarn: return fmt::format("rope, yarn × {}", config.rope.factor);
        case longrope: return fmt::format("rope, longrope beyond {} tokens", show_count(config.rope.original_max_positions));
    }
    CHECK(false, "every kind of rope has a name");
}

std::string attention_of(const ModelConfig& config) {
    const char* kind = config.kv_heads == config.heads ? "MHA" : config.kv_heads == 1 ? "MQA" : "GQA";
    std::string text = fmt::format("{} heads, {} for keys and values ({}), {} wide", config.heads, config.kv_heads, kind, config.head_dim);
    const auto windowed = std::ranges::count_if(config.windows, [](const auto& window) { return window.has_value(); });
    if (windowed > 0) {
        const auto first = std::ranges::find_if(config.windows, [](const auto& window) { return window.has_value(); });
        text += fmt::format("; sliding window of {} tokens in {} layers", **first, windowed);
    }
    return text;
}

std::string storage_of(const engine::ModelReport& model) {
    const std::string numbers = kernels::name_of(model.config.storage);
    if (!model.config.quantized) return numbers;
    return fmt::format("{}: {} parameters in {} of codes and scales; the rest in {}", model.config.quantized->name,
                       show_count(model.coded_parameters), show_bytes(model.coded_bytes), numbers);
}

void check_text(const std::string& folder, ModelCheck& check) {
    const bool generates = check.model.config.generates;
    try {
        const engine::Tokenizer tokenizer = engine::Tokenizer::load(folder);
        check.has_tokenizer = true;
        if (generates && tokenizer.end_tokens(check.model.config.eos_ids, check.model.config.vocabulary).empty())
            check.remarks.emplace_back("no end token in the configuration or the tokenizer: answers end only at max_tokens");
        if (static_cast<std::int64_t>(tokenizer.vocabulary_size()) > check.model.config.vocabulary) {
            check.remarks.push_back(fmt::format("the tokenizer has {} tokens, the model {}: jobs that use the rest are refused",
                                                tokenizer.vocabulary_size(), check.model.config.vocabulary));
        }
    } catch (const std::exception& error) {
        check.problems.emplace_back(error.what());
    }
    try {
        const auto chat_template = engine::ChatTemplate::load(folder);
        check.has_chat_template = chat_template.has_value();
        if (!check.has_chat_template && generates)
            check.remarks.emplace_back("no chat template: /v1/chat/completions is refused, /v1/completions works");
        if (const auto& score = check.model.config.token_score) {
            const auto pair = consumer::PairTemplate(chat_template, *score).render({.query = "a", .document = "b"});
            if (!pair) check.remarks.push_back(fmt::format("/score and /rerank are refused: {}", pair.error().message));
        }
    } catch (const std::exception& error) {
        check.problems.emplace_back(error.what());
    }
    std::ranges::move(model_remarks(folder, check.model.config, check.model.unused_tensors), std::back_inserter(check.remarks));
}

// The size of one token's keys and values, on the CPU or, if it lacks the format, on a GPU. The format of the weights does not matter.
std::size_t kv_token_bytes(const kernels::KvShape& shape, const kernels::CpuOptions& options) {
    const kernels::KvFormat kv = options.storage.kv;
    if (kernels::obstacle(kv, kernels::DeviceKind::cpu)) {
        const kernels::Format elements = kernels::cache_format(kv).elements.value_or(options.storage.weights);
        const std::size_t layer = kernels::cuda::kv_layer_block_bytes(shape, elements);
        return static_cast<std::size_t>(shape.layers) * layer / static_cast<std::size_t>(kernels::cuda::kv_block_size);
    }
    const auto backend = kernels::make_cpu_backend(
        {.threads = options.threads, .isa = options.isa, .storage = {.weights = options.storage.weights, .kv = kv}});
    return kv_token_bytes_of(*backend, shape);
}

void check_memory(const Settings& settings, ModelCheck& check) {
    const ModelConfig& config = check.model.config;
    check.kv_token_bytes = kv_token_bytes(engine::kv_shape_of(config), cpu_options(settings));
    check.memory_limit = memory_limit();
    check.memory_available = memory_available();
    const std::int64_t configured = config.max_positions;
    check.weight_bytes = fit_to_memory(settings, {.bytes = check.memory_available}, check.kv_token_bytes, check.model);
    if (config.max_positions < configured) {
        check.remarks.push_back(fmt::format("the context is limited to {} tokens of {}, as the KV cache holds no more",
                                            show_count(config.max_positions), show_count(configured)));
    }
    if (auto obstacle = weights_obstacle(check.weight_bytes, check.memory_available)) {
        check.problems.push_back(std::move(*obstacle));
        return;
    }
    check.kv_bytes =
        plan_memory(settings, check.memory_available - check.weight_bytes, check.kv_token_bytes, config.max_positions).kv_bytes;
    if (config.is_encoder) return;  // which has no KV cache
    const auto tokens = static_cast<std::int64_t>(check.kv_bytes / check.kv_token_bytes);
    for (std::int64_t context = std::min(context_least, config.max_positions);; context = std::min(context * 4, config.max_positions)) {
        check.fits.push_back({.context = context, .sequences = tokens / context});
        if (context == config.max_positions) break;
    }
}

void check_adapters(const Settings& settings, ModelCheck& check) {
    if (settings.adapters.empty()) return;
    const engine::ModelTexts texts(settings.model);
    for (const auto& entry : std::filesystem::directory_iterator(settings.adapters)) {
        if (!entry.is_directory()) continue;
        AdapterReport report{.name = entry.path().filename().string(), .info = {}, .problem = {}};
        if (auto info = engine::inspect_adapter(entry.path(), check.model.config, texts)) {
            report.info = std::move(*info);
        } else {
            report.problem = std::move(info.error());
        }
        check.adapters.push_back(std::move(report));
    }
    std::ranges::sort(check.adapters, {}, &AdapterReport::name);
}

std::string experts_of(const engine::ExpertsConfig& experts) {
    std::string text = fmt::format("{} in {} layers, {} of them for a token, of {} each", experts.count,
                                   std::ranges::count(experts.sparse, true), experts.chosen, experts.intermediate);
    if (experts.shared_intermediate > 0) text += fmt::format(", and one of {} for all tokens", experts.shared_intermediate);
    return text;
}

}  // namespace

ModelCheck check_model(const Settings& settings) {
    ModelCheck check{.folder = settings.model, .model = inspect_model(settings)};
    check_text(settings.model, check);
    check_memory(settings, check);
    check_adapters(settings, check);
    return check;
}

std::string show(const ModelCheck& check) {
    const ModelConfig& config = check.model.config;
    const bool is_tied = config.tied_head && config.has_vocabulary_head();
    std::vector<std::vector<std::string>> rows = {
        {"model", check.folder},
        {"family", config.family},
        {"parameters", show_count(check.model.parameters)},
        {"layers",
         fmt::format("{}, hidden {}, MLP {}{}", config.layers, config.hidden, config.intermediate, config.gated ? " (gated)" : "")},
        {"attention", attention_of(config)},
        {"positions", fmt::format("{} tokens ({}){}", show_count(config.max_positions), rope_of(config),
                                  config.max_sequence ? ", of which a text may have " + show_count(*config.max_sequence) : "")},
        {"vocabulary", fmt::format("{}{}", show_count(config.vocabulary), is_tied ? ", head tied to the embedding" : "")},
        {"stored as", storage_of(check.model)},
        {"tokenizer", check.has_tokenizer ? "yes" : "no"},
        {"chat template", check.has_chat_template ? "yes" : "no"},
        {"memory", fmt::format("{} of {} free", show_bytes(check.memory_available), show_bytes(check.memory_limit))},
        {"weights", show_bytes(check.weight_bytes)},
        {"1,000 tokens", fmt::format("{} of KV cache", show_bytes(1000 * check.kv_token_bytes))},
        {"KV cache", show_bytes(check.kv_bytes)},
    };
    if (config.experts) rows.insert(rows.begin() + 4, {"experts", experts_of(*config.experts)});
    if (!config.generates || config.embedder) rows.insert(rows.begin() + 2, {"ability", consumer::abilities_of(config)});
    if (config.embedder) rows.insert(rows.begin() + 3, {"pooling", describe_pooling(*config.embedder)});
    if (config.is_encoder) std::erase_if(rows, [](const auto& row) { return row.front() == "KV cache" || row.front() == "1,000 tokens"; });
    std::string text = show_table(rows);
    if (!check.fits.empty()) {
        rows = {{"  tokens each", "sequences that fit"}};
        for (const ContextFit& fit : check.fits) rows.push_back({"  " + show_count(fit.context), show_count(fit.sequences)});
        text += show_table(rows, 0b11);
    }
    if (!check.adapters.empty()) {
        rows = {{"adapter", "rank", "size", "changes"}};
        for (const AdapterReport& adapter : check.adapters) {
            if (adapter.info) {
                rows.push_back({adapter.name, show_count(adapter.info->rank_max), show_bytes(adapter.info->bytes),
                                consumer::listed(adapter.info->targets, names_shown)});
            } else {
                rows.push_back({adapter.name, "-", "-", "refused: " + adapter.problem});
            }
        }
        text += show_table(rows, 0b0110);
    }
    for (const AdapterReport& adapter : check.adapters) {
        if (!adapter.info || !adapter.info->vocabulary) continue;
        const std::int64_t tokens = *adapter.info->vocabulary;
        text += fmt::format("note: {} has {} tokens, {} {} than the base\n", adapter.name, show_count(tokens),
                            show_count(std::abs(tokens - config.vocabulary)), tokens > config.vocabulary ? "more" : "fewer");
    }
    for (const AdapterReport& adapter : check.adapters) {
        if (!adapter.info || adapter.info->text_difference.empty()) continue;
        text += fmt::format("note: jobs of {} use the tokenizer and the chat template of its folder: {}\n", adapter.name,
                            adapter.info->text_difference);
    }
    for (const std::string& remark : check.remarks) text += "note: " + remark + "\n";
    for (const std::string& problem : check.problems) text += "refused: " + problem + "\n";
    return text;
}

schema::Json json_of(const ModelCheck& check) {
    using schema::Json;
    const ModelConfig& config = check.model.config;
    const auto list = [](const std::vector<std::string>& texts) {
        Json::Array array;
        for (const std::string& text : texts) array.emplace_back(schema::repair_utf8(text));
        return Json(std::move(array));
    };
    Json json = Json::object({{"family", config.family},
                              {"parameters", check.model.parameters},
                              {"layers", config.layers},
                              {"hidden", config.hidden},
                              {"intermediate", config.intermediate},
                              {"heads", config.heads},
                              {"kv_heads", config.kv_heads},
                              {"head_dim", config.head_dim},
                              {"vocabulary", config.vocabulary},
                              {"max_positions", config.max_positions},
                              {"storage", kernels::name_of(config.storage)},
                              {"tied_head", config.tied_head},
                              {"tokenizer", check.has_tokenizer},
                              {"chat_template", check.has_chat_template},
                              {"weight_bytes", check.weight_bytes},
                              {"kv_bytes_per_1000_tokens", 1000 * check.kv_token_bytes},
                              {"memory_limit", check.memory_limit},
                              {"memory_available", check.memory_available},
                              {"kv_bytes", check.kv_bytes}});
    if (config.quantized) {
        json.set("quantization", config.quantized->name);
        json.set("coded_parameters", check.model.coded_parameters);
        json.set("coded_bytes", check.model.coded_bytes);
    }
    Json fits = Json::Array();
    for (const ContextFit& fit : check.fits) fits.push(Json::object({{"context", fit.context}, {"sequences", fit.sequences}}));
    json.set("fits", std::move(fits));
    Json adapters = Json::Array();
    for (const AdapterReport& adapter : check.adapters) {
        Json one = Json::object({{"name", schema::repair_utf8(adapter.name)}, {"ok", adapter.info.has_value()}});
        if (adapter.info) {
            one.set("hash", adapter.info->hash);
            one.set("rank_max", adapter.info->rank_max);
            one.set("bytes", adapter.info->bytes);
            one.set("targets", list(adapter.info->targets));
            if (adapter.info->vocabulary) one.set("vocabulary", *adapter.info->vocabulary);
            if (!adapter.info->text_difference.empty()) one.set("own_text", schema::repair_utf8(adapter.info->text_difference));
        } else {
            one.set("problem", schema::repair_utf8(adapter.problem));
        }
        adapters.push(std::move(one));
    }
    json.set("adapters", std::move(adapters));
    json.set("notes", list(check.remarks));
    json.set("problems", list(check.problems));
    return json;
}

}  // namespace lorry::ops
