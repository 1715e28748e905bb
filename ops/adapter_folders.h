// The adapters of a folder, for `lorry run`, `bench` and `up`: each sub-folder is an adapter under its own name. A sub-folder is inspected
// when the first job asks for it, so ten thousand of them cost nothing at the start of a run. A list of them takes their configs and
// headers alone.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "consumer/seams.h"
#include "engine/adapter_folder.h"
#include "engine/model/model_config.h"

namespace lorry::ops {

class AdapterFolders final : public consumer::AdapterDirectory {
public:
    // root: the folder; with an empty path there are no adapters. Throws UsageError if an adapter is named `base` or like the base model.
    // config and texts are the base model's, and outlive the folders.
    AdapterFolders(std::filesystem::path root, std::string base_name, const engine::ModelConfig& config, const engine::ModelTexts& texts);

    consumer::ModelName resolve(std::string_view model, consumer::Clock::time_point polled) const override;
    // Of the sub-folders that fit the base model, as far as their configs and the shapes of their tensors say. Each is looked at once.
    std::vector<std::string> names() const override;
    struct LeftOut {
        std::string name;
        std::string why;
    };
    // The other sub-folders.
    std::vector<LeftOut> left_out() const;

    // What the rows of a table ask of the model with an adapter that resolve() accepts: one that has a head classifies, and nothing else.
    // `base` is the model as it is.
    engine::ModelConfig config_with(std::string_view model) const;
    // Whether there is a chat template for its jobs: the base's, or one of its own.
    bool converses(std::string_view model) const;

private:
    struct Known {
        consumer::ModelName name;
        std::optional<engine::AdapterInfo> info = std::nullopt;  // of an adapter that can be used
    };
    // nullptr: the base model.
    const Known* find(std::string_view model) const;
    Known inspect(const std::string& name) const;
    // Sub-folders, with what keeps them from being adapters; nullopt: nothing.
    std::map<std::string, std::optional<std::string>> faults() const;

    const std::filesystem::path root_;
    const std::string base_name_;
    const engine::ModelConfig& config_;
    const engine::ModelTexts& texts_;
    mutable std::mutex mutex_;
    mutable std::map<std::string, Known, std::less<>> known_;  // guarded by mutex_; entries never change
    mutable std::mutex faults_mutex_;                          // another one: an inspection takes as long as reading an adapter's weights
    mutable std::map<std::string, std::optional<std::string>> faults_;  // guarded by faults_mutex_; the same, of folders that were listed
};

// Jobs of a file cannot be cancelled.
class NoCancels final : public consumer::CancelDirectory {
public:
    bool is_cancelled(const schema::Job&) const override { return false; }
    std::uint64_t version() const override { return 0; }
};

}  // namespace lorry::ops
