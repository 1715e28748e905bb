// Line and bar charts as SVG texts that need nothing beside them and can be read on light and on dark screens. Called by
// course.cpp and experiment.cpp. Pure.
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
    std::vector<Point> points;  // by x
};

struct Chart {
    std::string name;  // of its file: "kv-cache"
    std::string title;
    Axis x;
    Axis y;                               // a linear one begins at 0
    std::vector<std::string> categories;  // not empty: bars, and a point's x is the index of its category; else lines
    std::vector<Series> series;           // at most as many as there are colours: 6
    std::string note;                     // small, below: what was measured on what
};

// Ascending round numbers, the first at most `low` and the last at least `high`: multiples of 1, 2 or 5 times a power of ten; powers of two
// for log2; 1, 2 and 5 times powers of ten, or these powers alone, for log10. Logarithmic scales take positive numbers.
std::vector<double> round_ticks(AxisScale scale, double low, double high);

// Text as it stands between XML tags and in attributes.
std::string escape_xml(std::string_view text);

// An <svg> element of 720 by 380 pixels or a little more; it scales.
std::string svg_of(const Chart& chart);

}  // namespace lorry::ops
