// Turns the tables of settings, metrics and error codes into Markdown, for `lorry docs`.
#include "ops/program/reference.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/gateway/errors.h"
#include "ops/metric_table.h"
#include "schema/error_code.h"

namespace lorry::ops {
namespace {

constexpr std::size_t columns = 120;

// Lines of at most `columns`, broken at spaces; `indent` before all but the first.
std::string wrapped(std::string_view text, std::string_view indent = "") {
    std::string out;
    std::size_t column = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (column > 0 && column + 1 + word.size() > columns) {
            out += fmt::format("\n{}", indent);
            column = indent.size();
        } else if (column > 0) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
    }
    return out + "\n";
}

// A help line as a sentence, and the sentences after it.
std::string sentences(std::string_view help, std::string_view more) {
    std::string text(help);
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    return more.empty() ? text + "." : fmt::format("{}. {}", text, more);
}

std::string head_of(std::string_view title, std::string_view page, std::string_view source) {
    return fmt::format(
        "# {}\n\nThis page is generated from [{}](../{}). To change it, edit the table there and run\n\n"
        "    build/lorry docs {} > docs/{}.md\n\n",
        title, source, source, page, page);
}

// Names of `app` and its subcommands that take the setting as a flag; the name of `app` alone where all of them do.
std::vector<std::string> takers(const CLI::App& app, const Setting& setting, const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw(flag_of(setting));
    if (option != nullptr && option->get_group() == settings_option_group) return {name};
    std::vector<std::string> names;
    const std::vector<const CLI::App*> parts = app.get_subcommands(std::function<bool(const CLI::App*)>());
    bool all = !parts.empty();
    for (const CLI::App* part : parts) {
        const std::vector<std::string> more = takers(*part, setting, fmt::format("{} {}", name, part->get_name()));
        all = all && !more.empty();
        names.insert(names.end(), more.begin(), more.end());
    }
    return all ? std::vector{name} : names;
}

// The commands that take the setting as a flag: "`run`, `worker`".
std::string commands_with(const Setting& setting) {
    std::string list;
    for (const CommandRow& row : command_table()) {
        CLI::App app;
        const std::unique_ptr<Command> command = row.make();
        command->declare(app);
        for (const std::string& name : takers(app, setting, row.name)) list += fmt::format("{}`{}`", list.empty() ? "" : ", ", name);
    }
    return list;
}

const char* title_of(SettingScope scope) {
    switch (scope) {
        case SettingScope::model: return "The model and the device";
        case SettingScope::jobs: return "Jobs in flight";
        case SettingScope::calls: return "Calls over HTTP";
        case SettingScope::gateway: return "The gateway as a service";
        case SettingScope::kafka: return "Kafka";
        case SettingScope::ledger: return "The ledger";
        case SettingScope::usage: return "Usage";
        case SettingScope::service: return "The worker as a service";
        case SettingScope::log: return "The log";
    }
    CHECK(false, "every scope has a title");
}

// What set_setting takes: "an integer, at least 1".
std::string allowed_values(const Setting& setting) {
    struct Kind {
        const Setting& setting;
        std::string operator()(std::string Settings::*) const {
            std::string words = setting.value;
            if (!lists_words(setting)) return "text";
            for (std::size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 4) words.replace(at, 1, "`, `");
            return fmt::format("one of `{}`", words);
        }
        std::string operator()(std::int64_t Settings::*) const { return fmt::format("an integer, at least {}", setting.minimum); }
        std::string operator()(bool Settings::*) const { return "`true` or `false`"; }
        std::string operator()(Bytes Settings::*) const { return "a size"; }
        std::string operator()(std::optional<Bytes> Settings::*) const { return "a size"; }
        std::string operator()(std::chrono::milliseconds Settings::*) const { return "a time"; }
    };
    return std::visit(Kind{setting}, setting.field);
}

std::string entry_of(const Setting& setting) {
    const std::string value = show_setting(Settings(), setting);
    const std::string initial = value.empty() ? (*setting.otherwise == '\0' ? "none" : setting.otherwise) : fmt::format("`{}`", value);
    return fmt::format("### {}\n\n- Flag: `{} {}`\n- Value: {}\n", setting.key, flag_of(setting), setting.value, allowed_values(setting)) +
           wrapped("- Default: " + initial, "  ") + "\n" + wrapped(sentences(setting.help, setting.more)) + "\n";
}

// How settings reach the program.
std::string settings_head() {
    return head_of("Settings", "settings", "ops/settings.h") +
           wrapped(
               "A setting has the value of its flag; without a flag, that of its key in the configuration file; else its default. A flag "
               "that is true or false is true without a value: `--share-prefixes`. "
               "The file is the one that `--config FILE` names, or `lorry.toml` in the working folder if there is one. Every command "
               "accepts all keys in the file, so one file serves all commands; each command takes as flags only what it uses.") +
           "\n" +
           wrapped(
               "The file is TOML. Text, sizes and times are written in quotes, numbers and booleans without. An unknown key is an "
               "error that names the nearest known one; the program ends with exit code 2.") +
           "\n"
           "    model = \"models/base\"\n"
           "    adapters = \"models/adapters\"\n"
           "    brokers = \"kafka-1:9092,kafka-2:9092\"\n"
           "    max_batch = 128\n"
           "    kv_memory = \"16GiB\"\n"
           "    commit_interval = \"500ms\"\n"
           "\n"
           "    [kafka]\n"
           "    security.protocol = \"SASL_SSL\"\n"
           "\n" +
           wrapped(
               "A size is a number with a unit: `4096` (bytes), `512MiB`, `1.5G`, `2GB`. K, M, G and T, alone or followed by iB, count "
               "by 1024; followed by B they count by 1000. A time is a number with `ms`, `s`, `min` or `h`; without a unit it is in "
               "seconds.") +
           "\n";
}

// The settings that are librdkafka's.
std::string kafka_table() {
    return "## The table [kafka]\n\n" +
           wrapped(
               "Each key of this table, and each `--kafka KEY=VALUE`, is a setting of librdkafka and is handed to it unchanged: "
               "security settings, for instance, or buffer sizes. See [librdkafka's list]"
               "(https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md). Keys on which the exactly-once protocol "
               "depends (such as `acks`, `group.id` or `isolation.level`) are refused, with the reason, and so are keys that "
               "librdkafka does not know. A flag wins over the same key in the file.") +
           "\n" +
           wrapped(
               "In a value, `${env:NAME}` stands for an environment variable and `${file:PATH}` for the content of a file without "
               "its last line ends, as Kafka's configuration providers write them. Other text with `$` stays as it is. So passwords "
               "need not be in command lines, which other users of the machine can see, nor in `lorry.toml`. Error messages never "
               "quote values of this table.");
}

std::string settings_page() {
    std::string page = settings_head();
    const Setting* before = nullptr;
    for (const Setting& setting : setting_table()) {
        if (before == nullptr || before->scope != setting.scope) {
            page += fmt::format("## {}\n\n", title_of(setting.scope)) + wrapped("Flags of: " + commands_with(setting) + ".") + "\n";
        }
        before = &setting;
        page += entry_of(setting);
    }
    return page + kafka_table();
}

std::string line_of(const Metric& metric) {
    std::string labels;
    for (const char* label : metric.labels) {
        if (label != nullptr) labels += (labels.empty() ? "" : ",") + std::string(label);
    }
    if (!labels.empty()) labels = "{" + labels + "}";
    return fmt::format("| `{}{}` | {} | {} | {} |\n", metric.name, labels, name_of(metric.type), metric.unit,
                       sentences(metric.help, metric.watch));
}

std::string metrics_page() {
    std::string page =
        head_of("Metrics", "metrics", "ops/metric_table.cpp") +
        wrapped(
            "A worker serves these metrics at `http://HOST:PORT/metrics` in Prometheus' text format; the address is the setting "
            "[`metrics_address`](settings.md#metrics_address). Counters begin at 0 when the worker starts. A label's name is in braces "
            "after the metric's. Each histogram has buckets from 1 ms to about 17 min, four to a decade.") +
        "\n" +
        wrapped(
            "`http://HOST:PORT/healthz` answers 200 while the worker runs, and 503 while it starts or drains or when it has not polled "
            "for jobs for two minutes; the body says which. While an unreadable record blocks a partition, it answers 200, and the "
            "body says `degraded` and names the partition, the offset and the reason.");
    for (const MetricGroup& group : metric_table()) {
        page += fmt::format("\n## {}\n\n| metric | type | unit | meaning, and what to watch |\n|---|---|---|---|\n", group.title);
        for (const Metric& metric : group.rows) page += line_of(metric);
    }
    return page;
}

std::string line_of(schema::ErrorCode code) {
    const schema::ErrorRow row = schema::row_of(code);
    return fmt::format("| `{}` | {} | {} | {} {} |\n", row.name, row.status_code ? fmt::format("{}", *row.status_code) : "none",
                       row.status_code ? fmt::format("`{}`", row.type()) : "none", row.meaning, row.remedy);
}

std::string errors_page() {
    std::string page =
        head_of("Error codes", "errors", "schema/error_code.h") +
        wrapped(
            "Each job that ends without an answer ends with one of these codes. In a result with a status, `response.status_code` is "
            "that status and `response.body.error` has `type`, `code`, `param` (the field at fault, or null) and `message`. In a "
            "result without one, `response` is null and `error` has `code` and `message`. A record without a `custom_id` has no "
            "result: it goes to the dead letter topic, with the message in the header `__connect.errors.exception.message`.") +
        "\n| code | status | type | what happened, and what to do |\n|---|---|---|---|\n";
    for (const schema::ErrorCode code : schema::error_codes) page += line_of(code);
    page += "\n## Errors of calls over HTTP\n\n" +
            wrapped(
                "A call over HTTP whose job ends with an error is answered with that error's status and object. A call that never "
                "becomes a job is answered with one of these ([ops/gateway/errors.cpp](../ops/gateway/errors.cpp)).") +
            "\n| code | status | type | what happened, and what to do |\n|---|---|---|---|\n";
    for (const GatewayError& error : gateway_errors())
        page += fmt::format("| `{}` | {} | `{}` | {} |\n", error.code, error.status, error.type, error.help);
    return page;
}

constexpr std::array pages = {ReferencePage{"settings", settings_page}, ReferencePage{"metrics", metrics_page},
                              ReferencePage{"errors", errors_page}};

}  // namespace

std::span<const ReferencePage> reference_pages() { return pages; }

}  // namespace lorry::ops
