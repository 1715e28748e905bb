// Usage as people and programs read it: grouped by some columns, with its cost, as JSON, CSV or a table. Used by `lorry usage` and by the
// gateway for /v1/usage. ops/price_file.h reads prices. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"
#include "schema/json.h"
#include "schema/store/usage.h"

namespace lorry::schema {

// What a million tokens of a model cost.
struct Price {
    double prompt = 0.0;
    double completion = 0.0;
    std::optional<double> cached;  // of a prompt's tokens, those from the prefix cache; nullopt: as the others
};
struct Prices {
    std::string currency;
    std::map<std::string, Price, std::less<>> models;  // "base", and names of adapters
    std::optional<Price> others;                       // of all other models; nullopt: their cost is not known
};

enum class UsageColumn : std::uint8_t { day, tenant, key, model, adapter };
// "day,model"; an error says what is allowed.
Expected<std::vector<UsageColumn>, std::string> usage_columns(std::string_view list);
// "2026-11-27"
std::optional<std::chrono::sys_days> parse_day(std::string_view text);

// Rows that differ in `by` only.
struct UsageReport {
    struct Row {
        std::vector<std::string> values;  // of `by`
        std::int64_t jobs = 0;
        Usage usage = {};
        std::optional<double> cost;  // nullopt: a model has no price
    };
    std::vector<UsageColumn> by;
    std::optional<std::string> currency;  // nullopt: without costs
    std::vector<Row> rows;                // by their values
    Row total;                            // without values
};
UsageReport report_usage(std::span<const UsageRow> rows, std::vector<UsageColumn> by, const std::optional<Prices>& prices);

// {"object":"list","data":[{"day",…,"jobs","prompt_tokens","completion_tokens","cached_tokens","cost"}],"currency"}
Json json_of(const UsageReport& report);
// RFC 4180, with a line of names.
std::string csv_of(const UsageReport& report);
// Cells, with a row of names and, if there are several rows, one of sums.
std::vector<std::vector<std::string>> cells_of(const UsageReport& report);

}  // namespace lorry::schema
