// Draws line and bar charts as self-contained SVG that is readable on light and dark screens. Called by course.cpp and experiment.cpp.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::ops {

enum class AxisScale : std::uint8_t { linear, log2, log10 };

struct Axis {
    std::string label;  // with its unit
    AxisScale scale = AxisScale::linear;
};

struct Point {
    double x = 0.0;
    double y = 0.0;
};

struct Series {
    std::string name;
    std::vector<Point> points;  // sorted by x
};

struct Chart {
    std::string name;  // name of its file: "kv-cache"
    std::string title;
    Axis x;
    Axis y;                               // a linear axis starts at 0
    std::vector<std::string> categories;  // if not empty, draws bars, and a point's x is the index of its category; otherwise lines
    std::vector<Series> series;           // at most 6, one colour each
    std::string note;  // small print below: what was measured, and on what; an experiment leaves the latter to its caller
};

// Ascending round numbers, the first at most `low` and the last at least `high`: multiples of 1, 2 or 5 times a power of ten; powers of two
// for log2; for log10, 1, 2 and 5 times powers of ten, or powers of ten alone. Logarithmic scales need positive numbers.
std::vector<double> round_ticks(AxisScale scale, double low, double high);

// Escapes text for use between XML tags and in attributes.
std::string escape_xml(std::string_view text);

// An <svg> element of about 720 by 380 pixels; it scales.
std::string svg_of(const Chart& chart);

}  // namespace lorry::ops
