// Where settings come from: flags, then lorry.toml, then defaults. Used by every command that takes settings: declare() while the
// command line is built, load() when the command runs.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/settings.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// The heading under which --help lists settings.
inline constexpr const char* settings_option_group = "Settings";

class Configuration {
public:
    // Adds the flags of these scopes and of further settings by their keys, --config and, for SettingScope::kafka, --kafka KEY=VALUE. This
    // object must outlive the parsing.
    void declare(CLI::App& app, std::initializer_list<SettingScope> scopes, std::initializer_list<std::string_view> more = {});
    // The file that load() reads; nullopt: there is none.
    std::optional<std::filesystem::path> file() const;
    // Throws UsageError for a value that is not allowed, an unknown key (naming file, line and the nearest known key), and a broken file.
    Settings load() const;

private:
    std::string file_;                          // --config; empty: lorry.toml if there is one
    std::map<std::string, std::string> flags_;  // key → text, for the flags that were given
    std::vector<std::string> kafka_flags_;
};

// Reads the file over `settings`. Throws UsageError. For load() and tests.
void read_configuration(const std::filesystem::path& file, Settings& settings);

}  // namespace lorry::ops
