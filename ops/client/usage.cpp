// `lorry usage`: sums up what tenants and keys used, from a ledger.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"
#include "ops/price_file.h"
#include "ops/units.h"
#include "schema/store/store.h"
#include "schema/store/usage_report.h"

namespace lorry::ops {
namespace {

class UsageCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--since", since_, "the first day, in UTC, such as 2026-11-01 (default: the first that is known)")->type_name("DAY");
        app.add_option("--until", until_, "the last day (default: today)")->type_name("DAY");
        app.add_option("--tenant", tenant_, "the usage of one tenant")->type_name("NAME")->check(not_empty());
        app.add_option("--by", by_, "a row for each day, tenant, key, model or adapter, or several of them")
            ->type_name("COLUMN,…")
            ->capture_default_str();
        auto* json = app.add_flag("--json", json_, "as a JSON object, as /v1/usage gives it");
        app.add_flag("--csv", csv_, "as CSV")->excludes(json);
        configuration_.declare(app, {SettingScope::usage}, {"ledger", "prefix"});
    }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        auto by = schema::usage_columns(by_);
        if (!by) throw UsageError(fmt::format("--by: {}", by.error()));
        schema::UsageFilter filter{.since = day_of("--since", since_), .until = day_of("--until", until_)};
        if (!tenant_.empty()) filter.tenant = tenant_;
        const std::optional<schema::Prices> prices = prices_of(settings);
        const schema::UsageReport report = schema::report_usage(open_ledger(settings).usage(filter), *std::move(by), prices);
        if (json_) {
            std::cout << json_of(report).dump() << '\n';
        } else if (csv_) {
            std::cout << csv_of(report);
        } else if (report.rows.empty()) {
            std::cerr << fmt::format("the ledger {} has no usage{}\n", ledger_file_of(settings),
                                     filter.since || filter.until || filter.tenant ? " of that kind" : "");
        } else {
            const auto columns = static_cast<unsigned>(report.by.size());
            std::cout << show_table(cells_of(report), 0b11111U << columns);
        }
        return ExitCode::done;
    }

private:
    static std::optional<std::chrono::sys_days> day_of(const char* flag, const std::string& text) {
        if (text.empty()) return std::nullopt;
        const auto day = schema::parse_day(text);
        if (!day) throw UsageError(fmt::format("{} is '{}'; allowed is a day such as 2026-11-01", flag, text));
        return day;
    }

    std::string since_;
    std::string until_;
    std::string tenant_;
    std::string by_ = "day,tenant,key,model";
    bool json_ = false;
    bool csv_ = false;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_usage_command() { return std::make_unique<UsageCommand>(); }

}  // namespace lorry::ops
