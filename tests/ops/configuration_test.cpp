// Settings from files and flags, and the units in which they are written.
#include "ops/configuration.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cpu/isa.h"
#include "kernels/storage_format.h"
#include "ops/command.h"
#include "ops/engine_setup.h"
#include "ops/kafka_settings.h"
#include "ops/machine.h"
#include "ops/units.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using tests::TempFolder;
using tests::write_text;

// The settings that these arguments give to a command that accepts all of them, or the error.
struct Loaded {
    Settings settings;
    std::string error;
};
Loaded load(std::vector<std::string> arguments) {
    CLI::App app;
    Configuration configuration;
    configuration.declare(app, {SettingScope::model, SettingScope::jobs, SettingScope::kafka, SettingScope::ledger, SettingScope::service});
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    try {
        return {.settings = configuration.load(), .error = {}};
    } catch (const UsageError& error) {
        return {.settings = {}, .error = error.what()};
    }
}

// Why these settings' Kafka cannot be used; "" if it can.
std::string kafka_error(const Loaded& loaded) {
    try {
        kafka_config_of(loaded.settings);
        return loaded.error;
    } catch (const std::exception& error) {
        return error.what();
    }
}

TEST(Configuration, TakesFlagsBeforeTheFileAndTheFileBeforeDefaults) {
    const TempFolder folder;
    write_text(folder / "lorry.toml", "max_batch = 16\nkv_memory = \"2GiB\"\nprefix_cache = false\ncommit_interval = \"1s\"\n");
    const Loaded loaded = load({"--config", folder / "lorry.toml", "--max-batch", "8"});
    EXPECT_EQ(loaded.error, "");
    EXPECT_EQ(loaded.settings.max_batch, 8);
    EXPECT_EQ(loaded.settings.kv_memory->count, std::size_t{2} << 30);
    EXPECT_FALSE(loaded.settings.prefix_cache);
    EXPECT_EQ(loaded.settings.commit_interval, std::chrono::seconds(1));
    EXPECT_EQ(loaded.settings.step_tokens, Settings().step_tokens);
}

// Pins: a flag without a value took the next flag for it.
TEST(Configuration, AFlagOfTrueOrFalseIsTrueWithoutAValue) {
    for (const auto& [arguments, wanted] :
         std::vector<std::pair<std::vector<std::string>, bool>>{{{"--share-prefixes", "--max-batch", "8"}, true},
                                                                {{"--max-batch", "8", "--share-prefixes"}, true},
                                                                {{"--share-prefixes", "true", "--max-batch", "8"}, true},
                                                                {{"--share-prefixes", "false", "--max-batch", "8"}, false},
                                                                {{"--share-prefixes=false", "--max-batch", "8"}, false},
                                                                {{"--max-batch", "8"}, false}}) {
        const Loaded loaded = load(arguments);
        EXPECT_EQ(loaded.error, "");
        EXPECT_EQ(loaded.settings.share_prefixes, wanted) << fmt::format("{}", fmt::join(arguments, " "));
        EXPECT_EQ(loaded.settings.max_batch, 8);
    }
    EXPECT_FALSE(load({"--prefix-cache", "false"}).settings.prefix_cache);
    EXPECT_EQ(load({"--share-prefixes", "maybe"}).error, "--share-prefixes is 'maybe'; allowed is true or false");
    EXPECT_EQ(load({"--share-prefixes", ""}).error, "--share-prefixes is ''; allowed is true or false");
}

TEST(Configuration, NamesFileLineAndNearestKeyOfAnUnknownOne) {
    const TempFolder folder;
    const std::string file = folder / "lorry.toml";
    write_text(file, "model = \"m\"\nmax_bach = 16\n");
    EXPECT_EQ(load({"--config", file}).error, file + ", line 2: unknown key 'max_bach'; the nearest known one is 'max_batch'");
    write_text(file, "\nthreads = \"many\"\n");
    EXPECT_EQ(load({"--config", file}).error, file + ", line 2: threads is 'many'; allowed is an integer from 0");
    write_text(file, "device = \"tpu\"\n");
    EXPECT_EQ(load({"--config", file}).error, file + ", line 1: device is 'tpu'; allowed is auto|cpu|cuda");
    write_text(file, "model = some/folder\n");
    EXPECT_TRUE(load({"--config", file}).error.ends_with("(a string needs quotes: key = \"text\")"));
    write_text(file, "model = [1]\n");
    EXPECT_EQ(load({"--config", file}).error, file + ", line 1: model must be a string, a number or a boolean");
    write_text(file, "model = \n");
    EXPECT_TRUE(load({"--config", file}).error.starts_with(file + ", line 1: ")) << load({"--config", file}).error;
    EXPECT_EQ(load({"--config", folder / "none"}).error, "--config: there is no file " + (folder / "none").string());
}

TEST(Configuration, HandsTheKafkaTableOverAndRefusesWhatTheProtocolOwns) {
    const TempFolder folder;
    const std::string file = folder / "lorry.toml";
    write_text(file, "[kafka]\n\"security.protocol\" = \"SASL_SSL\"\nsocket.nagle.disable = true\nlinger.ms = 5\n");
    const Loaded loaded = load({"--config", file, "--kafka", "linger.ms=7", "--kafka", "client.id=a=b"});
    EXPECT_EQ(loaded.error, "");
    const std::map<std::string, std::string> expected = {
        {"security.protocol", "SASL_SSL"}, {"socket.nagle.disable", "true"}, {"linger.ms", "7"}, {"client.id", "a=b"}};
    EXPECT_EQ(loaded.settings.kafka, expected);
    write_text(file, "[kafka]\n\nacks = 1\n");
    EXPECT_TRUE(load({"--config", file}).error.starts_with(file + ", line 3: [kafka] acks is not allowed: "))
        << load({"--config", file}).error;
}

// Pins: errors quoted the password of a line with a mistake in it.
TEST(Configuration, ErrorsHaveNoValuesOfTheKafkaTable) {
    const TempFolder folder;
    const std::string file = folder / "lorry.toml";
    for (const char* line :
         {"sasl.password = hunter2", "sasl.password = \"hunter2", "sasl.password hunter2", "sasl.password = [\"hunter2\"]",
          "acks = \"hunter2\"", "sasl.password = 'hunter2", "sasl.password = \"hunter2\" hunter2"}) {
        write_text(file, fmt::format("[kafka]\n{}\n", line));
        const std::string error = load({"--config", file}).error;
        EXPECT_NE(error, "") << line;
        EXPECT_EQ(error.find("hunter2"), error.npos) << error;
    }
    write_text(file, "[kafka]\nsasl.password = 31337313373133731337\n");
    EXPECT_EQ(load({"--config", file}).error.find("31337"), std::string::npos);
    for (const char* pair : {"sasl.password:hunter2", "=hunter2"}) {
        const std::string error = load({"--kafka", pair}).error;
        EXPECT_NE(error, "") << pair;
        EXPECT_EQ(error.find("hunter2"), error.npos) << error;
    }
    for (const char* pair : {"sasl.pasword=hunter2", "sasl.password=hunter2${env:LORRY_TEST_NONE}", "sasl.password=${file:hunter2"}) {
        const std::string error = kafka_error(load({"--brokers", "localhost:1", "--kafka", pair}));
        EXPECT_NE(error, "") << pair;
        EXPECT_EQ(error.find("hunter2"), error.npos) << error;
    }
}

TEST(Configuration, TakesSecretsFromFilesAndEnvironmentVariables) {
    const TempFolder folder;
    write_text(folder / "password", "hunter${env:HOME}2\r\n");
    setenv("LORRY_TEST_USER", "worker", 1);
    const std::string file = folder / "lorry.toml";
    write_text(file, fmt::format("[kafka]\nsasl.username = \"${{env:LORRY_TEST_USER}}\"\nsasl.password = \"${{file:{}}}\"\n",
                                 (folder / "password").string()));
    const Loaded loaded = load({"--config", file, "--brokers", "localhost:1", "--kafka", "client.id=a-${env:LORRY_TEST_USER}-$b${x}"});
    EXPECT_EQ(loaded.error, "");
    const std::map<std::string, std::string> expected = {
        {"sasl.username", "worker"}, {"sasl.password", "hunter${env:HOME}2"}, {"client.id", "a-worker-$b${x}"}};
    EXPECT_EQ(kafka_config_of(loaded.settings).passthrough, expected);
    const auto error_of = [](const std::string& pair) { return kafka_error(load({"--brokers", "localhost:1", "--kafka", pair})); };
    EXPECT_EQ(error_of("a=${env:LORRY_TEST_NONE}"), "[kafka] a: the environment variable 'LORRY_TEST_NONE' is not set");
    EXPECT_EQ(error_of("a=${file:/no/such}"), "[kafka] a: /no/such: cannot be opened: No such file or directory");
    EXPECT_EQ(error_of("a=${env:b"), "[kafka] a: a reference is not closed: write ${env:NAME} or ${file:PATH}");
}

TEST(Settings, CanEachBeReadFromWhatTheyShow) {
    for (const Setting& setting : setting_table()) {
        const Settings defaults;
        const std::string text = show_setting(defaults, setting);
        if (text.empty()) continue;
        Settings read;
        EXPECT_TRUE(set_setting(read, setting, text)) << setting.key;
        EXPECT_EQ(show_setting(read, setting), text) << setting.key;
    }
}

// Pins: a row that names another row's field would set it in silence.
TEST(Settings, HaveAFieldOfTheirOwn) {
    const auto table = setting_table();
    for (std::size_t i = 0; i < table.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(table[i].field == table[j].field) << table[i].key << " and " << table[j].key;
    }
}

TEST(Settings, OfferWhatKernelsHaveAndNothingElse) {
    const auto names = [](const auto& rows) {
        std::vector<std::string> words;
        for (const auto& row : rows) words.emplace_back(row.name);
        return fmt::format("{}", fmt::join(words, "|"));
    };
    EXPECT_EQ(find_setting("quantize")->value, names(kernels::weight_formats()));
    EXPECT_EQ(find_setting("kv_dtype")->value, names(kernels::cache_formats()));
    std::string isas = "auto";
    for (const kernels::CpuIsa isa : std::views::reverse(kernels::cpu::all_isas)) isas += fmt::format("|{}", kernels::cpu::name_of(isa));
    EXPECT_EQ(find_setting("isa")->value, isas);
}

TEST(Units, ReadSizesAndTimesAsPeopleWriteThem) {
    EXPECT_EQ(parse_bytes("4096"), 4096U);
    EXPECT_EQ(parse_bytes("1.5GiB"), std::size_t{3} << 29);
    EXPECT_EQ(parse_bytes("2 GB"), 2'000'000'000U);
    EXPECT_EQ(parse_bytes("3k"), 3072U);
    for (const char* wrong : {"", "x", "-1", "5 apples", "1e300G", "nan"}) EXPECT_FALSE(parse_bytes(wrong)) << wrong;
    EXPECT_EQ(parse_duration("200ms"), std::chrono::milliseconds(200));
    EXPECT_EQ(parse_duration("1.5min"), std::chrono::seconds(90));
    EXPECT_EQ(parse_duration("7"), std::chrono::seconds(7));
    EXPECT_EQ(parse_duration("90d"), std::chrono::days(90));
    for (const char* wrong : {"", "soon", "-1s", "1w"}) EXPECT_FALSE(parse_duration(wrong)) << wrong;
    EXPECT_EQ(show_bytes(1536), "1.5 KiB");
    EXPECT_EQ(show_duration(std::chrono::seconds(200)), "3 min 20 s");
    EXPECT_EQ(show_count(std::int64_t{-1234567}), "-1,234,567");
    EXPECT_EQ(show_count(std::int64_t{-123}), "-123");
    EXPECT_EQ(show_count(INT64_MIN), "-9,223,372,036,854,775,808");
    EXPECT_EQ(show_count(1, "job") + ", " + show_count(1234, "job"), "1 job, 1,234 jobs");
    EXPECT_EQ(show_table({{"name", "n"}, {"é", "1,000"}}, 0b10), "name      n\né     1,000\n");
}

TEST(Settings, AStepHasTheTokensThatSuitTheDeviceUnlessTheySayHowMany) {
    const kernels::DeviceInfo device{.step_rows = 1024};
    Settings settings;
    EXPECT_EQ(step_tokens_of(settings, device), 1024);
    settings.step_tokens = 64;
    EXPECT_EQ(step_tokens_of(settings, device), 64);
}

TEST(Machine, SaysHowMuchMemoryMayBeUsed) {
    EXPECT_GT(memory_available(), std::size_t{1} << 20);
    EXPECT_GE(memory_limit(), memory_peak());
    EXPECT_GT(memory_peak(), std::size_t{1} << 20);
}

// Pins: a benchmark's peak memory was at least that of measuring the machine before it.
TEST(Machine, ForgetsWhatMemoryItHeldBefore) {
    constexpr std::size_t large = std::size_t{256} << 20;
    EXPECT_EQ(std::string(large, 'x').back(), 'x');
    const std::size_t before = memory_peak();
    forget_memory_peak();
    EXPECT_LT(memory_peak(), before - large / 2);
}

}  // namespace
}  // namespace lorry::ops
