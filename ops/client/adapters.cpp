// `lorry adapters`: registers, lists, shows and removes the adapters that jobs may name.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka/client.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "engine/adapter_folder.h"
#include "ops/client/compacted_topic.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/kafka_settings.h"
#include "ops/paths.h"
#include "ops/units.h"
#include "schema/codec.h"
#include "schema/store/store.h"

namespace lorry::ops {
namespace {

constexpr std::size_t hash_digits_shown = 12;

std::string joined(const std::vector<std::string>& words, const char* separator) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
    return text;
}

class AdaptersCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.require_subcommand(1);
        add_ = app.add_subcommand("add", "checks a PEFT folder against the base model and registers it");
        add_->add_option("NAME", name_, "what jobs call it: their 'model'");
        add_->add_option("DIR", folder_, "its folder: adapter_config.json and adapter_model.safetensors");
        add_->add_option("--all", all_, "registers every sub-folder of DIR under its own name")->type_name("DIR");
        add_->add_option("--model", model_, "the base model's folder")->type_name("DIR");
        add_->add_option("--base-name", base_name_, "what the base model is called (default: its folder's name)")->type_name("NAME");
        add_->add_option("--adapters", root_, "the folder that workers get as --adapters (default: the parent of the adapter's folder)")
            ->type_name("DIR");
        configuration_.declare(*add_, {SettingScope::kafka});

        list_ = app.add_subcommand("list", "all adapters");
        list_->add_flag("--json", json_, "a JSON object per line");
        list_configuration_.declare(*list_, {SettingScope::kafka, SettingScope::ledger});
        show_ = app.add_subcommand("show", "everything known about one adapter");
        show_->add_option("NAME", name_)->required();
        show_->add_flag("--json", json_, "as a JSON object");
        show_configuration_.declare(*show_, {SettingScope::kafka, SettingScope::ledger});
        remove_ = app.add_subcommand("remove", "removes a name; jobs that ask for it from then on are refused");
        remove_->add_option("NAME", name_)->required();
        remove_configuration_.declare(*remove_, {SettingScope::kafka});
    }

    ExitCode run() override {
        if (add_->parsed()) return add(configuration_.load());
        if (remove_->parsed()) return remove(remove_configuration_.load());
        if (show_->parsed()) return show(read(show_configuration_.load(), show_->count("--ledger") > 0));
        return list(read(list_configuration_.load(), list_->count("--ledger") > 0));
    }

private:
    ExitCode add(Settings settings) {
        if (!model_.empty()) settings.model = model_;
        if (!base_name_.empty()) settings.base_name = base_name_;
        if (!root_.empty()) settings.adapters = root_;
        if (all_.empty() && (name_.empty() || folder_.empty())) throw UsageError("adapters add takes NAME DIR, or --all DIR");
        if (!all_.empty() && !name_.empty()) throw UsageError("adapters add --all DIR takes names from the sub-folders: leave NAME out");
        if (settings.model.empty())
            throw UsageError("--model DIR is missing: an adapter is checked against its base model before jobs can use it");
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        const engine::ModelConfig config = load_config(settings);
        const engine::ModelTexts texts(settings.model);
        int refused = 0;
        std::vector<schema::AdapterRegistration> good;
        for (const auto& [name, folder] : folders()) {
            const auto registration = inspect(settings, config, texts, name, folder);
            if (!registration) {
                ++refused;
                std::cerr << fmt::format("lorry: {}: {}\n", name, registration.error());
                continue;
            }
            good.push_back(std::move(*registration));
        }
        if (!good.empty()) consumer::register_adapters(kafka, topics_of(settings).adapters(), good);
        for (const schema::AdapterRegistration& adapter : good) {
            std::cerr << fmt::format("{}: registered, rank {}, {} on {}, {}{}\n", adapter.name, adapter.rank_max,
                                     show_bytes(static_cast<std::size_t>(adapter.bytes)), joined(adapter.targets, ", "),
                                     adapter.hash.substr(0, hash_digits_shown),
                                     adapter.text.empty() ? "" : ", with the tokenizer and chat template of its folder");
        }
        if (settings.adapters.empty()) {
            std::cerr << fmt::format("Their paths are relative to {}: pass that to the workers as --adapters.\n", default_root().string());
        }
        return refused == 0 ? ExitCode::done : ExitCode::failed;
    }

    // Names and folders of the adapters to register.
    std::vector<std::pair<std::string, std::filesystem::path>> folders() const {
        if (all_.empty()) {
            require_folder(name_, folder_);
            return {{name_, folder_}};
        }
        require_folder("--all", all_);
        std::vector<std::pair<std::string, std::filesystem::path>> found;
        for (const auto& entry : std::filesystem::directory_iterator(all_)) {
            const std::string name = entry.path().filename().string();
            if (entry.is_directory() && !name.starts_with('.')) found.emplace_back(name, entry.path());
        }
        if (found.empty()) throw UsageError(fmt::format("--all {}: it has no sub-folders", all_));
        std::ranges::sort(found);
        return found;
    }

    std::filesystem::path default_root() const {
        return all_.empty() ? std::filesystem::absolute(folder_).lexically_normal().parent_path()
                            : std::filesystem::absolute(all_).lexically_normal();
    }

    Expected<schema::AdapterRegistration, std::string> inspect(const Settings& settings, const engine::ModelConfig& config,
                                                               const engine::ModelTexts& texts, const std::string& name,
                                                               const std::filesystem::path& folder) const {
        if (auto error = schema::adapter_name_error(name)) return unexpected(*std::move(error));
        if (name == base_name_of(settings)) return unexpected(fmt::format("'{}' is the base model's own name; choose another", name));
        const std::filesystem::path root = settings.adapters.empty() ? default_root() : std::filesystem::path(settings.adapters);
        const std::filesystem::path path =
            std::filesystem::weakly_canonical(folder).lexically_relative(std::filesystem::weakly_canonical(root));
        if (path.empty() || !consumer::folder_below(root, path)) {
            return unexpected(fmt::format("{} is not below {}: workers only load adapters from there (--adapters); move or copy it",
                                          folder.string(), root.string()));
        }
        const auto info = engine::inspect_adapter(folder, config, texts);
        if (!info) return unexpected(info.error());
        std::optional<schema::RegisteredHead> head;
        if (info->labels) head = {.task = std::string(name_of(info->head)), .labels = std::ssize(info->labels->names)};
        return schema::AdapterRegistration{.name = name,
                                           .hash = info->hash,
                                           .path = path.generic_string(),
                                           .base = base_name_of(settings),
                                           .rank_max = info->rank_max,
                                           .targets = info->targets,
                                           .bytes = static_cast<std::int64_t>(info->bytes),
                                           .registered = now(),
                                           .head = std::move(head),
                                           .text = info->text_hash,
                                           .vocabulary = info->vocabulary};
    }

    ExitCode remove(const Settings& settings) {
        const std::vector<schema::AdapterRow> adapters = read_topic(settings);
        find(adapters);
        consumer::remove_adapter(kafka_config_of(settings), topics_of(settings).adapters(), name_);
        std::cerr << fmt::format("{}: removed\n", name_);
        return ExitCode::done;
    }

    // Reads the ledger if it was asked for or there are no brokers, otherwise the topic itself.
    static std::vector<schema::AdapterRow> read(const Settings& settings, bool ledger) {
        if (!ledger && !settings.brokers.empty()) return read_topic(settings);
        return open_ledger(settings).adapters();
    }

    static std::vector<schema::AdapterRow> read_topic(const Settings& settings) {
        std::vector<schema::AdapterRow> rows;
        for (const auto& [name, value] : read_compacted(settings, topics_of(settings).adapters())) {
            auto registration = schema::parse_adapter(value);
            if (registration) rows.push_back({.registration = *std::move(registration), .state = "registered", .error = {}, .updated = {}});
        }
        return rows;
    }

    ExitCode list(const std::vector<schema::AdapterRow>& adapters) const {
        std::vector<std::vector<std::string>> rows = {{"ADAPTER", "RANK", "SIZE", "STATE", "HASH", "PATH", "TARGETS"}};
        for (const schema::AdapterRow& row : adapters) {
            const schema::AdapterRegistration& adapter = row.registration;
            if (json_) {
                std::cout << schema::encode_adapter(adapter) << '\n';
                continue;
            }
            rows.push_back({adapter.name, std::to_string(adapter.rank_max), show_bytes(static_cast<std::size_t>(adapter.bytes)), row.state,
                            adapter.hash.substr(0, hash_digits_shown), adapter.path, joined(adapter.targets, " ")});
        }
        if (!json_ && !adapters.empty()) std::cout << show_table(rows, 0b110);
        if (adapters.empty()) std::cerr << "no adapters are registered; `lorry adapters add NAME DIR` registers one\n";
        return ExitCode::done;
    }

    const schema::AdapterRow& find(const std::vector<schema::AdapterRow>& adapters) const {
        const auto place = std::ranges::find(adapters, name_, [](const schema::AdapterRow& row) { return row.registration.name; });
        if (place != adapters.end()) return *place;
        std::vector<std::string> names;
        for (const schema::AdapterRow& row : adapters) names.push_back(row.registration.name);
        throw std::runtime_error(fmt::format("no adapter is called '{}'; {}", name_,
                                             names.empty() ? "none are registered" : "registered are " + joined(names, ", ")));
    }

    ExitCode show(const std::vector<schema::AdapterRow>& adapters) const {
        const schema::AdapterRow& row = find(adapters);
        const schema::AdapterRegistration& adapter = row.registration;
        if (json_) {
            std::cout << schema::encode_adapter(adapter) << '\n';
            return ExitCode::done;
        }
        std::vector<std::vector<std::string>> rows = {
            {"name", adapter.name},
            {"pinned as", fmt::format("{}@{}", adapter.name, adapter.hash)},
            {"base", adapter.base},
            {"path", adapter.path},
            {"rank", std::to_string(adapter.rank_max)},
            {"targets", joined(adapter.targets, ", ")},
            {"size", show_bytes(static_cast<std::size_t>(adapter.bytes))},
            {"state", row.error.empty() ? row.state : fmt::format("{}: {}", row.state, row.error)}};
        if (adapter.vocabulary) rows.insert(rows.end() - 2, {"vocabulary", show_count(*adapter.vocabulary)});
        std::cout << show_table(rows);
        return ExitCode::done;
    }

    CLI::App* add_ = nullptr;
    CLI::App* list_ = nullptr;
    CLI::App* show_ = nullptr;
    CLI::App* remove_ = nullptr;
    // One per subcommand, because each has flags of its own.
    Configuration configuration_;
    Configuration list_configuration_;
    Configuration show_configuration_;
    Configuration remove_configuration_;
    std::string name_;
    std::string folder_;
    std::string all_;
    std::string model_;
    std::string base_name_;
    std::string root_;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_adapters_command() { return std::make_unique<AdaptersCommand>(); }

}  // namespace lorry::ops
