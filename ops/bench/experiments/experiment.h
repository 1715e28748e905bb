// The result of an experiment of `lorry bench course`: one table of figures, rendered as text, JSON, charts and an HTML page of all of
// them. Called by course_bench.cpp and course.cpp. Pure.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ops/bench/experiments/chart.h"
#include "schema/json.h"

namespace lorry::ops {

struct Column {
    const char* key;      // in JSON, with its unit
    const char* heading;  // for people: "ms per token"
    double scale = 1.0;   // from the JSON's unit to the heading's
    int digits = 0;       // after the decimal point
};

using Cell = std::variant<std::string, double>;

struct Table {
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows;  // one cell per column

    double number(std::size_t row, std::size_t column) const;  // in the JSON's unit
    // One column over another in the headings' units; if column x holds words, x is the row's number.
    Series series(std::string name, std::size_t x, std::size_t y) const;
    // The words of a column, as categories for bars.
    std::vector<std::string> words(std::size_t column) const;
};

struct Experiment {
    std::string name;  // "kv-cache"
    std::string title;
    std::string finding;  // one sentence: what it shows, and what was measured
    Table table;
    std::vector<Chart> charts;
};

// Title, finding and table.
std::string show_experiment(const Experiment& experiment);
schema::Json experiment_json(const Experiment& experiment);
// A self-contained HTML page. `machine` describes in one line what everything was measured on.
std::string experiments_page(std::span<const Experiment> experiments, std::string_view machine);

}  // namespace lorry::ops
