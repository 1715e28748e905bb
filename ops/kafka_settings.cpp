// Maps settings to the options of consumer/kafka.
#include "ops/kafka_settings.h"

#include <CLI/CLI.hpp>

#include <filesystem>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

consumer::KafkaConfig kafka_config_of(const Settings& settings) {
    consumer::KafkaConfig config{.brokers = settings.brokers,
                                 .passthrough = settings.kafka,
                                 .deadline_start = settings.deadline_start,
                                 .deadline_later = settings.deadline_later};
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
