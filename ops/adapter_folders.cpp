// Resolves names of models to sub-folders.
#include "ops/adapter_folders.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/adapter_fault.h"
#include "ops/command.h"
#include "schema/codec.h"

namespace lorry::ops {

using consumer::ModelName;

AdapterFolders::AdapterFolders(std::filesystem::path root, std::string base_name, const engine::ModelConfig& config,
                               const engine::ModelTexts& texts)
    : root_(std::move(root)), base_name_(std::move(base_name)), config_(config), texts_(texts) {
    if (root_.empty()) return;
    if (std::filesystem::exists(root_ / "adapter_config.json"))
        throw UsageError(fmt::format("--adapters {}: this folder is an adapter itself; give the folder that it is in", root_.string()));
    for (const std::string& name : {std::string("base"), base_name_}) {
        if (!std::filesystem::exists(root_ / name / "adapter_config.json")) continue;
        throw UsageError(
            fmt::format("the adapter {} has the same name as the base model, so its jobs would go to the base model: rename the folder{}",
                        (root_ / name).string(), name == "base" ? "" : ", or give the base model another name with --base-name"));
    }
}

const AdapterFolders::Known* AdapterFolders::find(std::string_view model) const {
    if (model == "base" || model == base_name_) return nullptr;
    const std::string name(model.substr(0, model.find('@')));
    const std::lock_guard lock(mutex_);
    auto place = known_.find(name);
    if (place == known_.end()) place = known_.emplace(name, inspect(name)).first;
    return &place->second;
}

ModelName AdapterFolders::resolve(std::string_view model, consumer::Clock::time_point) const {
    const Known* known = find(model);
    if (known == nullptr) return {.kind = ModelName::Kind::base, .hash = {}, .folder = {}};
    const std::size_t mark = model.find('@');
    const bool is_other =
        mark != std::string_view::npos && known->name.kind == ModelName::Kind::adapter && model.substr(mark + 1) != known->name.hash;
    return is_other ? ModelName{} : known->name;
}

engine::ModelConfig AdapterFolders::config_with(std::string_view model) const {
    engine::ModelConfig config = config_;
    const Known* known = find(model);
    if (known == nullptr || !known->info || known->info->labels == nullptr) return config;
    config.labels = known->info->labels;
    config.head = known->info->head;
    config.generates = false;
    config.fills_masks = false;
    config.embedder.reset();
    return config;
}

bool AdapterFolders::converses(std::string_view model) const {
    const Known* known = find(model);
    if (known == nullptr || known->name.text_hash.empty()) return texts_.base().chat_template.has_value();
    const auto own = texts_.of(known->name.folder);
    return own && *own != nullptr && (*own)->chat_template.has_value();
}

AdapterFolders::Known AdapterFolders::inspect(const std::string& name) const {
    if (root_.empty() || schema::adapter_name_error(name) || name == "." || name == "..") return {};
    const std::filesystem::path folder = root_ / name;
    if (!std::filesystem::is_directory(folder)) return {};
    auto info = engine::inspect_adapter(folder, config_, texts_);
    if (!info) return {.name = {.kind = ModelName::Kind::refused, .hash = {}, .folder = {}, .refusal = info.error()}};
    ModelName found{.kind = ModelName::Kind::adapter, .hash = info->hash, .folder = folder, .text_hash = info->text_hash};
    found.vocabulary = info->vocabulary;
    if (info->labels) found.head = {.task = info->head, .labels = std::ssize(info->labels->names)};
    return {.name = std::move(found), .info = *std::move(info)};
}

std::map<std::string, std::optional<std::string>> AdapterFolders::faults() const {
    std::map<std::string, std::optional<std::string>> found;
    if (root_.empty()) return found;
    const std::lock_guard lock(faults_mutex_);
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_directory() || name.starts_with('.')) continue;
        auto place = faults_.find(name);
        if (place == faults_.end()) {
            auto fault = schema::adapter_name_error(name);
            place = faults_.emplace(name, fault ? std::move(fault) : engine::find_adapter_fault(entry.path(), config_)).first;
        }
        found.insert(*place);
    }
    return found;
}

std::vector<std::string> AdapterFolders::names() const {
    std::vector<std::string> names;
    for (const auto& [name, fault] : faults()) {
        if (!fault) names.push_back(name);
    }
    return names;
}

std::vector<AdapterFolders::LeftOut> AdapterFolders::left_out() const {
    std::vector<LeftOut> left;
    for (const auto& [name, fault] : faults()) {
        if (fault) left.push_back({.name = name, .why = *fault});
    }
    return left;
}

}  // namespace lorry::ops
