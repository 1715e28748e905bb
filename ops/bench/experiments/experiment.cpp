// Renders the same cells as text, JSON and HTML.
#include "ops/bench/experiments/experiment.h"

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr const char* page_begin =
    R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>lorry bench course</title>
<style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:720px;margin:2rem auto;padding:0 1rem}
svg{max-width:100%;height:auto;margin:.5rem 0}
table{border-collapse:collapse;margin:.5rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8884}
th{text-align:right;vertical-align:bottom}
.words{text-align:left;white-space:nowrap}
.machine{color:#808080;font-size:.85rem}
</style>
</head>
<body>
<h1>lorry bench course</h1>
)";

std::string show_cell(const Column& column, const Cell& cell) {
    if (const auto* const words = std::get_if<std::string>(&cell)) return *words;
    const double value = std::get<double>(cell) * column.scale;
    return column.digits == 0 ? show_count(std::lround(value)) : fmt::format("{:.{}f}", value, column.digits);
}

std::string table_html(const Table& table) {
    const auto html_of = [&](const char* tag, std::size_t column, std::string_view text) {
        const bool words = !table.rows.empty() && std::holds_alternative<std::string>(table.rows.front()[column]);
        return fmt::format("<{0}{1}>{2}</{0}>", tag, words ? " class=\"words\"" : "", escape_xml(text));
    };
    std::string html = "<table>\n<tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) html += html_of("th", i, table.columns[i].heading);
    html += "</tr>\n";
    for (const std::vector<Cell>& row : table.rows) {
        html += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) html += html_of("td", i, show_cell(table.columns[i], row[i]));
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

}  // namespace

double Table::number(std::size_t row, std::size_t column) const { return std::get<double>(rows.at(row).at(column)); }

Series Table::series(std::string name, std::size_t x, std::size_t y) const {
    Series series{.name = std::move(name)};
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const double* const place = std::get_if<double>(&rows[row][x]);
        series.points.push_back(
            {.x = place == nullptr ? static_cast<double>(row) : *place * columns[x].scale, .y = number(row, y) * columns[y].scale});
    }
    return series;
}

std::vector<std::string> Table::words(std::size_t column) const {
    std::vector<std::string> words;
    for (const std::vector<Cell>& row : rows) words.push_back(std::get<std::string>(row[column]));
    return words;
}

std::string show_experiment(const Experiment& experiment) {
    const Table& table = experiment.table;
    std::vector<std::vector<std::string>> lines(1);
    std::uint32_t numbers = 0;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        lines[0].emplace_back(table.columns[i].heading);
        if (std::holds_alternative<double>(table.rows.front()[i])) numbers |= 1U << i;
    }
    for (const std::vector<Cell>& row : table.rows) {
        lines.emplace_back();
        for (std::size_t i = 0; i < row.size(); ++i) lines.back().push_back(show_cell(table.columns[i], row[i]));
    }
    return fmt::format("{}\n{}\n\n{}\n", experiment.title, experiment.finding, show_table(lines, numbers));
}

Json experiment_json(const Experiment& experiment) {
    Json rows = Json::Array();
    for (const std::vector<Cell>& cells : experiment.table.rows) {
        Json row = Json::Object();
        for (std::size_t i = 0; i < cells.size(); ++i)
            row.set(experiment.table.columns[i].key, std::visit([](const auto& value) { return Json(value); }, cells[i]));
        rows.push(std::move(row));
    }
    return Json::object({{"name", experiment.name}, {"title", experiment.title}, {"finding", experiment.finding}, {"rows", rows}});
}

std::string experiments_page(std::span<const Experiment> experiments, std::string_view machine) {
    std::string page = page_begin;
    page += fmt::format("<p class=\"machine\">{}</p>\n", escape_xml(machine));
    for (const Experiment& experiment : experiments) {
        page += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", escape_xml(experiment.name), escape_xml(experiment.title),
                            escape_xml(experiment.finding));
        for (const Chart& chart : experiment.charts) page += svg_of(chart);
        page += table_html(experiment.table) + "</section>\n";
    }
    return page + "</body>\n</html>\n";
}

}  // namespace lorry::ops
