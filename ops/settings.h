// What may be configured: one struct, and one table (settings.cpp) that says each setting's key in lorry.toml, its flag and its meaning.
// Filled by configuration.h; read by the commands.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "schema/check.h"

namespace lorry::ops {

struct Bytes {
    std::size_t count = 0;
};

struct Settings {
    // The model and the device.
    std::string model;
    std::string base_name;
    std::string adapters;
    std::string device = "auto";
    std::string dtype = "auto";
    std::string quantize = "none";
    std::string kv_dtype = "auto";
    std::string isa = "auto";
    std::int64_t threads = 0;
    std::optional<Bytes> kv_memory;
    std::optional<Bytes> adapter_memory;
    std::optional<Bytes> graph_memory;
    std::string matmul_table;
    std::int64_t max_batch = 64;
    std::int64_t step_tokens = 512;
    bool prefix_cache = true;

    // Jobs on their way.
    std::int64_t in_flight = 2048;
    std::int64_t in_flight_tokens = 0;
    Bytes job_bytes_max{1 << 20};
    std::chrono::milliseconds commit_interval{200};
    std::chrono::milliseconds drain_timeout{20'000};
    std::chrono::milliseconds job_timeout{0};

    // Kafka and the ledger.
    std::string brokers;
    std::string prefix = "lorry";
    std::string group;
    std::string member;
    bool exactly_once = true;
    std::string group_protocol = "classic";
    std::string ledger;
    std::int64_t ledger_days = 30;
    std::chrono::milliseconds deadline_start{30'000};
    std::chrono::milliseconds deadline_later{300'000};
    std::map<std::string, std::string> kafka;  // the [kafka] table

    // The worker as a service.
    std::string metrics_address = "127.0.0.1:9464";
    std::string log_level = "info";
};

// Which commands take a setting as a flag. Any command accepts all of them in lorry.toml.
enum class SettingScope : std::uint8_t { model, jobs, kafka, ledger, service };

struct Setting {
    using Field = std::variant<std::string Settings::*, std::int64_t Settings::*, bool Settings::*, Bytes Settings::*,
                               std::optional<Bytes> Settings::*, std::chrono::milliseconds Settings::*>;
    const char* key;  // in lorry.toml; the flag has '-' for '_'
    SettingScope scope;
    Field field;
    const char* value;  // what stands for it in help: "DIR", or the words that are allowed: "auto|cpu"
    const char* help;
    std::int64_t minimum = 0;  // integers
};

std::span<const Setting> setting_table();
const Setting* find_setting(std::string_view key);
std::string flag_of(const Setting& setting);

// Reads a value's text into its field. The error goes behind the name that the value was given by: "is '0'; allowed is …".
Expected<void, std::string> set_setting(Settings& settings, const Setting& setting, std::string_view text);
// The value as text, as set_setting reads it.
std::string show_setting(const Settings& settings, const Setting& setting);

}  // namespace lorry::ops
