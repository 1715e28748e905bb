// What an experiment of `lorry bench course` found: one table of figures, shown as text, as JSON, as charts and as a page of all of them.
// Called by course_bench.cpp and course.cpp. Pure.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ops/bench/experiments/chart.h"
#include "schema/json.h"

namespace lorry::ops {

struct Column {
    const char* key;      // in JSON, with its unit: "per_token_seconds"
    const char* heading;  // for people: "ms per token"
    double scale = 1.0;   // from the JSON's unit to people's
    int digits = 0;       // behind the point
};

using Cell = std::variant<std::string, double>;

struct Table {
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows;  // a cell for each column

    double number(std::size_t row, std::size_t column) const;  // in the JSON's unit
    // One column over another in people's units; x is the row's number where that column holds words.
    Series series(std::string name, std::size_t x, std::size_t y) const;
    // The words of a column, for the categories of bars.
    std::vector<std::string> words(std::size_t column) const;
};

struct Experiment {
    std::string name;  // "kv-cache"
    std::string title;
    std::string finding;  // one sentence: what it shows, and what was seen
    Table table;
    std::vector<Chart> charts;
};

// Title, finding and table.
std::string show_experiment(const Experiment& experiment);
schema::Json experiment_json(const Experiment& experiment);
// A whole HTML page that needs nothing beside it. `machine` says in a line what all of it was measured on.
std::string experiments_page(std::span<const Experiment> experiments, std::string_view machine);

}  // namespace lorry::ops
