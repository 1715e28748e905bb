// Maps settings to the options of consumer/kafka.
#include "ops/kafka_settings.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "engine/files.h"
#include "ops/command.h"
#include "ops/engine_setup.h"

namespace lorry::ops {
namespace {

constexpr std::size_t secret_bytes_max = std::size_t{1} << 20;

// What is at the place that a reference names: "env:NAME" or "file:PATH". Throws UsageError, which names the setting.
std::string referred(const std::string& key, std::string_view reference) {
    const std::string name(reference.substr(reference.find(':') + 1));
    if (reference.starts_with("env:")) {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) throw UsageError(fmt::format("[kafka] {}: the environment variable '{}' is not set", key, name));
        return value;
    }
    auto text = engine::read_text(name, {.bytes_max = secret_bytes_max, .kinds = engine::InputFile::Kinds::all});
    if (!text) throw UsageError(fmt::format("[kafka] {}: {}", key, text.error()));
    while (text->ends_with('\n') || text->ends_with('\r')) text->pop_back();
    return std::move(*text);
}

// The value with its references replaced, which are written as Kafka's config providers write them.
std::string resolved(const std::string& key, std::string_view value) {
    std::string out;
    while (!value.empty()) {
        const std::size_t open = std::min(value.find("${env:"), value.find("${file:"));
        out += value.substr(0, open);
        if (open == value.npos) break;
        const std::size_t close = value.find('}', open);
        if (close == value.npos)
            throw UsageError(fmt::format("[kafka] {}: a reference is not closed: write ${{env:NAME}} or ${{file:PATH}}", key));
        out += referred(key, value.substr(open + 2, close - open - 2));
        value.remove_prefix(close + 1);
    }
    return out;
}

}  // namespace

consumer::KafkaConfig kafka_config_of(const Settings& settings) {
    consumer::KafkaConfig config{.brokers = settings.brokers,
                                 .passthrough = {},
                                 .deadline_start = settings.deadline_start,
                                 .deadline_later = settings.deadline_later};
    for (const auto& [key, value] : settings.kafka) config.passthrough[key] = resolved(key, value);
    consumer::check_kafka_config(config);
    return config;
}

schema::Topics topics_of(const Settings& settings) { return {.prefix = settings.prefix}; }

std::string group_of(const Settings& settings) {
    if (!settings.group.empty()) return settings.group;
    if (settings.model.empty())
        throw UsageError("the workers' consumer group is not known: pass --group NAME, or set `group` or `model` in lorry.toml");
    return settings.prefix + "-" + base_name_of(settings);
}

std::string ledger_file_of(const Settings& settings) { return settings.ledger.empty() ? settings.prefix + ".sqlite" : settings.ledger; }

schema::Store open_ledger(const Settings& settings) {
    const std::filesystem::path file = ledger_file_of(settings);
    if (!std::filesystem::exists(file)) {
        throw UsageError(fmt::format("there is no ledger {}: a worker writes it into the folder in which it was started; --ledger names "
                                     "another file",
                                     file.string()));
    }
    return schema::Store::open(file, schema::Store::Mode::reader);
}

std::string repeated_flags(const CLI::App& app) {
    std::string flags;
    for (const std::string name : {"--config", "--brokers", "--prefix"}) {
        if (app.count(name) > 0) flags += " " + name + " " + app.get_option(name)->as<std::string>();
    }
    return flags;
}

schema::Timestamp now() { return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

}  // namespace lorry::ops
