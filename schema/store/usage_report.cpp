// Groups usage, and writes it.
#include "schema/store/usage_report.h"

#include <algorithm>
#include <array>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "schema/codec_error.h"

namespace lorry::schema {
namespace {

constexpr double price_unit = 1e6;  // tokens

struct ColumnRow {
    UsageColumn column;
    const char* name;
};
constexpr std::array columns = {ColumnRow{UsageColumn::day, "day"}, ColumnRow{UsageColumn::tenant, "tenant"},
                                ColumnRow{UsageColumn::key, "key"}, ColumnRow{UsageColumn::model, "model"},
                                ColumnRow{UsageColumn::adapter, "adapter"}};

const char* name_of(UsageColumn column) {
    const auto row = std::ranges::find(columns, column, &ColumnRow::column);
    CHECK(row != columns.end(), "each column has a name");
    return row->name;
}

std::string value_of(const UsageRow& row, UsageColumn column) {
    switch (column) {
        case UsageColumn::day: return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(row.day)));
        case UsageColumn::tenant: return row.tenant;
        case UsageColumn::key: return row.key;
        case UsageColumn::model: return row.model;
        case UsageColumn::adapter: return row.adapter;
    }
    CHECK(false, "each column has a value");
}

// nullopt: the model has no price.
std::optional<double> cost_of(const UsageRow& row, const std::optional<Prices>& prices) {
    if (!prices) return std::nullopt;
    const auto place = prices->models.find(row.model);
    if (place == prices->models.end() && !prices->others) return std::nullopt;
    const Price& price = place == prices->models.end() ? *prices->others : place->second;
    const auto cost = [](std::int64_t tokens, double of_million) { return static_cast<double>(tokens) * of_million / price_unit; };
    return cost(row.usage.prompt_tokens - row.usage.cached_tokens, price.prompt) +
           cost(row.usage.cached_tokens, price.cached.value_or(price.prompt)) + cost(row.usage.completion_tokens, price.completion);
}

void add(UsageReport::Row& sum, const UsageRow& row, const std::optional<double>& cost) {
    sum.jobs += row.jobs;
    sum.usage.prompt_tokens += row.usage.prompt_tokens;
    sum.usage.completion_tokens += row.usage.completion_tokens;
    sum.usage.cached_tokens += row.usage.cached_tokens;
    sum.cost = sum.cost && cost ? std::optional(*sum.cost + *cost) : std::nullopt;
}

std::array<std::int64_t, 4> counts_of(const UsageReport::Row& row) {
    return {row.jobs, row.usage.prompt_tokens, row.usage.completion_tokens, row.usage.cached_tokens};
}
constexpr std::array count_names = {"jobs", "prompt_tokens", "completion_tokens", "cached_tokens"};

std::string show_cost(const std::optional<double>& cost) { return cost ? fmt::format("{:.6f}", *cost) : ""; }

// A cell that a spreadsheet would take for a formula begins with an apostrophe.
std::string csv_cell(std::string text) {
    if (!text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos) text.insert(0, 1, '\'');
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
    return fmt::format("\"{}\"", text);
}

}  // namespace

Expected<std::vector<UsageColumn>, std::string> usage_columns(std::string_view list) {
    std::vector<UsageColumn> by;
    while (true) {
        const std::string_view name = list.substr(0, list.find(','));
        const auto row = std::ranges::find(columns, name, [](const ColumnRow& each) { return std::string_view(each.name); });
        if (row == columns.end()) {
            std::string known;
            for (const ColumnRow& each : columns) known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
            return unexpected(fmt::format("there is no column '{}': allowed are {}, with commas between them", shortened(name), known));
        }
        if (std::ranges::count(by, row->column) > 0) return unexpected(fmt::format("the column '{}' is named twice", name));
        by.push_back(row->column);
        if (name.size() == list.size()) return by;
        list.remove_prefix(name.size() + 1);
    }
}

std::optional<std::chrono::sys_days> parse_day(std::string_view text) {
    constexpr std::string_view form = "0000-00-00";
    if (text.size() != form.size()) return std::nullopt;
    std::array<int, 3> numbers{};  // year, month, day
    std::size_t part = 0;
    for (std::size_t i = 0; i < form.size(); ++i) {
        const bool is_digit = text[i] >= '0' && text[i] <= '9';
        if (is_digit != (form[i] == '0') || (!is_digit && text[i] != '-')) return std::nullopt;
        if (!is_digit) {
            ++part;
        } else {
            numbers.at(part) = 10 * numbers.at(part) + (text[i] - '0');
        }
    }
    const auto [year, month, day_of_month] = numbers;
    const std::chrono::year_month_day day{std::chrono::year{year}, std::chrono::month{static_cast<unsigned>(month)},
                                          std::chrono::day{static_cast<unsigned>(day_of_month)}};
    return day.ok() ? std::optional(std::chrono::sys_days(day)) : std::nullopt;
}

UsageReport report_usage(std::span<const UsageRow> rows, std::vector<UsageColumn> by, const std::optional<Prices>& prices) {
    UsageReport report{.by = std::move(by), .currency = prices ? std::optional(prices->currency) : std::nullopt};
    std::map<std::vector<std::string>, UsageReport::Row> groups;
    report.total.cost = 0.0;
    for (const UsageRow& row : rows) {
        std::vector<std::string> values;
        for (const UsageColumn column : report.by) values.push_back(value_of(row, column));
        const std::optional<double> cost = cost_of(row, prices);
        add(groups.try_emplace(values, UsageReport::Row{.values = values, .cost = 0.0}).first->second, row, cost);
        add(report.total, row, cost);
    }
    for (auto& [values, row] : groups) report.rows.push_back(std::move(row));
    return report;
}

Json json_of(const UsageReport& report) {
    Json::Array data;
    for (const UsageReport::Row& row : report.rows) {
        Json object = Json::object({});
        for (std::size_t i = 0; i < report.by.size(); ++i) {
            object.set(name_of(report.by[i]), row.values[i].empty() ? Json() : Json(repair_utf8(row.values[i])));
        }
        for (std::size_t i = 0; i < count_names.size(); ++i) object.set(count_names.at(i), counts_of(row).at(i));
        if (report.currency) object.set("cost", row.cost ? Json(Numeral{show_cost(row.cost)}) : Json());
        data.push_back(std::move(object));
    }
    Json list = Json::object({{"object", "list"}, {"data", std::move(data)}});
    if (report.currency) list.set("currency", repair_utf8(*report.currency));
    return list;
}

std::string csv_of(const UsageReport& report) {
    std::string text;
    for (const UsageColumn column : report.by) text += fmt::format("{},", name_of(column));
    text += fmt::format("{}", fmt::join(count_names, ","));
    if (report.currency) text += ",cost,currency";
    text += "\r\n";
    for (const UsageReport::Row& row : report.rows) {
        for (const std::string& value : row.values) text += csv_cell(value) + ",";
        text += fmt::format("{}", fmt::join(counts_of(row), ","));
        if (report.currency) text += fmt::format(",{},{}", show_cost(row.cost), csv_cell(*report.currency));
        text += "\r\n";
    }
    return text;
}

std::vector<std::vector<std::string>> cells_of(const UsageReport& report) {
    const auto upper = [](std::string name) {
        std::ranges::transform(name, name.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
        return name;
    };
    std::vector<std::vector<std::string>> cells(1);
    for (const UsageColumn column : report.by) cells[0].push_back(upper(name_of(column)));
    cells[0].insert(cells[0].end(), {"JOBS", "PROMPT", "COMPLETION", "CACHED"});
    if (report.currency) cells[0].push_back(upper(report.currency->empty() ? "cost" : *report.currency));
    const auto add_row = [&](std::vector<std::string> row, const UsageReport::Row& sums) {
        for (const std::int64_t count : counts_of(sums)) row.push_back(std::to_string(count));
        if (report.currency) row.push_back(sums.cost ? show_cost(sums.cost) : "no price");
        cells.push_back(std::move(row));
    };
    for (const UsageReport::Row& row : report.rows) {
        std::vector<std::string> values = row.values;
        for (std::string& value : values) value = value.empty() ? "-" : value;
        add_row(std::move(values), row);
    }
    if (report.rows.size() > 1) {
        std::vector<std::string> values(report.by.size());
        if (!values.empty()) values[0] = "all";
        add_row(std::move(values), report.total);
    }
    return cells;
}

}  // namespace lorry::schema
