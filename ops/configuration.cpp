// Reads lorry.toml and the flags.
#include "ops/configuration.h"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "consumer/kafka/config.h"
#include "ops/command.h"

namespace lorry::ops {
namespace {

constexpr const char* default_file = "lorry.toml";
constexpr const char* kafka_table = "kafka";

// Levenshtein's distance.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

std::string nearest_key(std::string_view key) {
    std::string best = kafka_table;
    std::size_t least = distance(key, best);
    for (const Setting& setting : setting_table()) {
        if (const std::size_t here = distance(key, setting.key); here < least) {
            least = here;
            best = setting.key;
        }
    }
    return best;
}

// A scalar as it would be written in a flag; nullopt for tables, arrays and dates.
std::optional<std::string> text_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
    if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    return std::nullopt;
}

[[noreturn]] void fail(const std::filesystem::path& file, const toml::node& node, const std::string& message) {
    throw UsageError(fmt::format("{}, line {}: {}", file.string(), node.source().begin.line, message));
}

// TOML reads keys with dots as tables within tables; this joins them again, so that such keys need no quotes.
void read_kafka(const std::filesystem::path& file, const toml::table& table, const std::string& path, Settings& settings) {
    for (const auto& [name, node] : table) {
        const std::string key = path + std::string(name.str());
        if (node.is_table()) {
            read_kafka(file, *node.as_table(), key + ".", settings);
            continue;
        }
        const auto text = text_of(node);
        if (!text) fail(file, node, fmt::format("[kafka] {} must be a string, a number or a boolean", key));
        if (const auto reason = consumer::refusal_of_kafka_key(key))
            fail(file, node, fmt::format("[kafka] {} is not allowed: {}", key, *reason));
        settings.kafka[key] = *text;
    }
}

}  // namespace

void Configuration::declare(CLI::App& app, std::initializer_list<SettingScope> scopes, std::initializer_list<std::string_view> more) {
    const Settings defaults;
    app.add_option("--config", file_, "the configuration file (default: lorry.toml, if there is one)")->type_name("FILE");
    for (const Setting& setting : setting_table()) {
        const bool is_wanted = std::find(scopes.begin(), scopes.end(), setting.scope) != scopes.end() ||
                               std::find(more.begin(), more.end(), setting.key) != more.end();
        if (!is_wanted) continue;
        const std::string key = setting.key;
        const std::string_view otherwise = setting.otherwise;
        auto* option = app.add_option_function<std::string>(
            flag_of(setting), [this, key](const std::string& text) { flags_[key] = text; },
            otherwise.empty() ? setting.help : fmt::format("{} (default: {})", setting.help, otherwise));
        option->type_name(setting.value)->group(settings_option_group);
        // expected(0) makes it a flag, which is true without a value; one may follow all the same.
        if (std::holds_alternative<bool Settings::*>(setting.field)) option->expected(0)->expected(0, 1);
        const std::string text = show_setting(defaults, setting);
        if (!text.empty()) option->default_str(text);
    }
    if (std::find(scopes.begin(), scopes.end(), SettingScope::kafka) != scopes.end()) {
        app.add_option("--kafka", kafka_flags_, "a setting of librdkafka, as in the [kafka] table")
            ->type_name("KEY=VALUE")
            ->group(settings_option_group)
            ->expected(1)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
}

std::optional<std::filesystem::path> Configuration::file() const {
    if (!file_.empty()) return file_;
    return std::filesystem::exists(default_file) ? std::optional<std::filesystem::path>(default_file) : std::nullopt;
}

Settings Configuration::load() const {
    Settings settings;
    if (!file_.empty() && !std::filesystem::exists(file_)) throw UsageError(fmt::format("--config: there is no file {}", file_));
    if (const auto read = file()) read_configuration(*read, settings);
    for (const auto& [key, text] : flags_) {
        const Setting* setting = find_setting(key);
        CHECK(setting != nullptr, "flags are made from the table");
        if (auto set = set_setting(settings, *setting, text); !set) throw UsageError(fmt::format("{} {}", flag_of(*setting), set.error()));
    }
    for (const std::string& pair : kafka_flags_) {
        const std::size_t mark = pair.find('=');
        if (mark == std::string::npos || mark == 0) throw UsageError("--kafka needs a KEY=VALUE, such as --kafka client.id=mine");
        settings.kafka[pair.substr(0, mark)] = pair.substr(mark + 1);
    }
    return settings;
}

void read_configuration(const std::filesystem::path& file, Settings& settings) {
    toml::table table;
    try {
        table = toml::parse_file(file.string());
    } catch (const toml::parse_error& error) {
        std::string_view what = error.description();
        what = what.substr(0, what.find(": '"));  // a number that is too large follows: perhaps a password without its quotes
        const bool bare = what.find("could not determine value type") != what.npos;
        throw UsageError(fmt::format("{}, line {}: {}{}", file.string(), error.source().begin.line, what,
                                     bare ? " (a string needs quotes: key = \"text\")" : ""));
    }
    for (const auto& [name, node] : table) {
        const std::string key(name.str());
        if (key == kafka_table) {
            if (!node.is_table()) fail(file, node, "kafka is a table of librdkafka's own settings: write [kafka]");
            read_kafka(file, *node.as_table(), "", settings);
            continue;
        }
        const Setting* setting = find_setting(key);
        if (setting == nullptr) fail(file, node, fmt::format("unknown key '{}'; the nearest known one is '{}'", key, nearest_key(key)));
        const auto text = text_of(node);
        if (!text) fail(file, node, fmt::format("{} must be a string, a number or a boolean", key));
        if (auto set = set_setting(settings, *setting, *text); !set) fail(file, node, fmt::format("{} {}", key, set.error()));
    }
}

}  // namespace lorry::ops
