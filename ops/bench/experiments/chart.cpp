// Layout from top to bottom: title, legend, label of the y axis, plot, tick labels, label of the x axis, note.
#include "ops/bench/experiments/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "ops/units.h"
#include "schema/check.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

// Of medium lightness, so that they stand out on white and on black; distinguishable with red-green blindness too.
constexpr std::array colours = {"#3d85c6", "#e07b29", "#2a9d72", "#b565c9", "#a8892c", "#d1556b"};

constexpr const char* style =
    R"(<style>
.chart text{font:13px system-ui,sans-serif;fill:#1f2328}
.chart .title{font-size:16px;font-weight:600}
.chart .note{font-size:11px;fill:#6e7781}
.chart .value{paint-order:stroke;stroke:#ffffff;stroke-width:4px}
.chart .paper{fill:#ffffff}
.chart .grid{stroke:#d8dee4}
.chart .axis{stroke:#6e7781}
@media (prefers-color-scheme:dark){
.chart text{fill:#e6edf3}
.chart .note{fill:#8b949e}
.chart .value{stroke:#0d1117}
.chart .paper{fill:#0d1117}
.chart .grid{stroke:#30363d}
.chart .axis{stroke:#8b949e}
}
</style>
)";

constexpr double width = 720.0;
constexpr double edge = 16.0;
constexpr double plot_height = 240.0;
constexpr double line_height = 22.0;
constexpr double note_gap = 4.0;
constexpr double note_height = 15.0;  // per line
constexpr std::size_t note_characters = 115;
constexpr double label_gap = 18.0;       // from the label of the y axis to the plot
constexpr double character_width = 7.0;  // of most fonts at this size; a generous guess

double pixels_of(std::string_view text) { return character_width * static_cast<double>(schema::count_characters(text)); }

std::string show_number(double value) { return std::abs(value) >= 999.5 ? show_count(std::lround(value)) : fmt::format("{:.3g}", value); }

// Splits text into lines of at most `most` bytes, between words.
std::vector<std::string> wrapped(std::string_view text, std::size_t most) {
    std::vector<std::string> lines;
    while (text.size() > most) {
        const std::size_t space = text.rfind(' ', most);
        if (space == std::string_view::npos) break;
        lines.emplace_back(text.substr(0, space));
        text.remove_prefix(space + 1);
    }
    if (!text.empty()) lines.emplace_back(text);
    return lines;
}

std::vector<double> linear_ticks(double low, double high) {
    constexpr double steps_wanted = 6.0;
    if (high <= low) high = low + 1.0;
    const double decade = std::pow(10.0, std::floor(std::log10((high - low) / steps_wanted)));
    double step = 10.0 * decade;
    for (const double factor : {5.0, 2.0, 1.0}) {
        if ((high - low) / (factor * decade) <= steps_wanted) step = factor * decade;
    }
    std::vector<double> ticks;
    // Multiples, not sums, so that errors do not accumulate. The margin absorbs the rounding of low / step.
    const double last = std::ceil(high / step - 1e-9);
    for (double i = std::floor(low / step + 1e-9); i <= last; ++i) ticks.push_back(i * step);
    return ticks;
}

std::vector<double> log_ticks(AxisScale scale, double low, double high) {
    CHECK(low > 0.0 && high >= low, "a logarithmic axis shows positive numbers");
    constexpr double powers_max = 10.0;
    constexpr double decades_with_steps = 3.0;
    const double base = scale == AxisScale::log2 ? 2.0 : 10.0;
    const bool has_steps = scale == AxisScale::log10 && std::log10(high / low) <= decades_with_steps;
    const double first = std::floor(std::log(low) / std::log(base));
    const double last = std::ceil(std::log(high) / std::log(base));
    const double stride = std::max(1.0, std::ceil((last - first) / powers_max));
    std::vector<double> ticks;
    for (double power = first; power < last + stride + 1.0; power += stride) {
        ticks.push_back(std::pow(base, power));
        if (has_steps) {
            ticks.push_back(2.0 * ticks.back());
            ticks.push_back(2.5 * ticks.back());
        }
    }
    while (ticks.size() > 2 && ticks[1] <= low) ticks.erase(ticks.begin());
    while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high) ticks.pop_back();
    return ticks;
}

// The position of a value between the first and the last tick: 0 to 1.
double share_of(AxisScale scale, const std::vector<double>& ticks, double value) {
    const auto place = [&](double number) { return scale == AxisScale::linear ? number : std::log(number); };
    return (place(value) - place(ticks.front())) / (place(ticks.back()) - place(ticks.front()));
}

class Drawing {
public:
    explicit Drawing(const Chart& chart);
    std::string take() && { return std::move(out_); }

private:
    void measure();
    void draw_legend();
    void draw_y_axis();
    void draw_x_axis();
    void draw_lines();
    void draw_bars();
    void draw_note(double top);
    void text(double x, double y, const char* anchor, std::string_view words, const char* kind = nullptr);
    double x_of(double value) const { return left_ + (width - edge - left_) * share_of(chart_.x.scale, x_ticks_, value); }
    double y_of(double value) const { return bottom_ - plot_height * share_of(chart_.y.scale, y_ticks_, value); }
    // Width of a category's place.
    double slot() const { return (width - edge - left_) / static_cast<double>(chart_.categories.size()); }
    template <typename... Values>
    void add(fmt::format_string<Values...> format, Values&&... values) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
    }

    const Chart& chart_;
    std::vector<double> x_ticks_;
    std::vector<double> y_ticks_;
    std::vector<Point> legend_;      // where each series' entry begins
    std::vector<std::string> note_;  // lines of the note
    double left_ = 0.0;
    double bottom_ = 0.0;
    std::string out_;
};

Drawing::Drawing(const Chart& chart) : chart_(chart), note_(wrapped(chart.note, note_characters)) {
    CHECK(!chart.series.empty() && chart.series.size() <= colours.size(), "a chart has a series at least, and a colour for each");
    measure();
    const double note_top = bottom_ + (chart.x.label.empty() ? 1.0 : 2.0) * line_height + note_gap;
    const double height = note_top + static_cast<double>(note_.size()) * note_height + edge;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "aria-label=\"{2}\">\n",
        width, height, escape_xml(chart.title));
    out_ += style;
    add("<rect class=\"paper\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n", width, height);
    text(edge, edge + 14.0, "start", chart.title, "title");
    draw_legend();
    draw_y_axis();
    draw_x_axis();
    if (chart.categories.empty()) {
        draw_lines();
    } else {
        draw_bars();
    }
    draw_note(note_top);
    out_ += "</svg>\n";
}

void Drawing::measure() {
    std::vector<double> xs;
    std::vector<double> ys;
    for (const Series& series : chart_.series) {
        for (const Point& point : series.points) {
            xs.push_back(point.x);
            ys.push_back(point.y);
        }
    }
    CHECK(!ys.empty(), "a chart shows something");
    if (chart_.categories.empty()) x_ticks_ = round_ticks(chart_.x.scale, std::ranges::min(xs), std::ranges::max(xs));
    const bool from_zero = chart_.y.scale == AxisScale::linear;
    y_ticks_ = round_ticks(chart_.y.scale, from_zero ? std::min(0.0, std::ranges::min(ys)) : std::ranges::min(ys),
                           std::ranges::max(ys) * (chart_.categories.empty() ? 1.0 : 1.08));  // room for the values above bars
    for (const double tick : y_ticks_) left_ = std::max(left_, pixels_of(show_number(tick)));
    left_ += edge + 8.0;

    Point place{.x = edge, .y = edge + 14.0 + line_height};
    if (chart_.series.size() > 1) {
        for (const Series& series : chart_.series) {
            const double entry = 38.0 + pixels_of(series.name);
            if (place.x > edge && place.x + entry > width - edge) place = {.x = edge, .y = place.y + line_height};
            legend_.push_back(place);
            place.x += entry;
        }
        place.y += line_height;
    }
    bottom_ = place.y + label_gap + plot_height;
}

void Drawing::text(double x, double y, const char* anchor, std::string_view words, const char* kind) {
    const std::string attribute = kind == nullptr ? "" : fmt::format(" class=\"{}\"", kind);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, attribute, escape_xml(words));
}

void Drawing::draw_legend() {
    for (std::size_t i = 0; i < legend_.size(); ++i) {
        add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"8\" rx=\"2\" fill=\"{}\"/>\n", legend_[i].x, legend_[i].y - 9.0,
            colours[i]);
        text(legend_[i].x + 20.0, legend_[i].y, "start", chart_.series[i].name);
    }
}

void Drawing::draw_y_axis() {
    text(edge, bottom_ - plot_height - label_gap, "start", chart_.y.label);
    for (const double tick : y_ticks_) {
        const double y = y_of(tick);
        add("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", left_, width - edge, y, y);
        text(left_ - 8.0, y + 4.0, "end", show_number(tick));
    }
}

void Drawing::draw_x_axis() {
    add("<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", left_, width - edge, bottom_, bottom_);
    const double y = bottom_ + line_height - 2.0;
    for (const double tick : x_ticks_) {
        add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x_of(tick), bottom_, bottom_ + 5.0);
        // A long, centred last label would extend beyond the picture.
        const bool last = tick == x_ticks_.back() && pixels_of(show_number(tick)) > 2.0 * edge;
        text(last ? width - edge : x_of(tick), y, last ? "end" : "middle", show_number(tick));
    }
    for (std::size_t i = 0; i < chart_.categories.size(); ++i)
        text(left_ + slot() * (static_cast<double>(i) + 0.5), y, "middle", chart_.categories[i]);
    if (!chart_.x.label.empty()) text((left_ + width - edge) / 2.0, y + line_height, "middle", chart_.x.label);
}

void Drawing::draw_lines() {
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
        std::string path;
        std::string dots;
        for (const Point& point : chart_.series[i].points) {
            const double x = x_of(point.x);
            const double y = y_of(point.y);
            path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
            dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}: {}</title></circle>\n", x, y,
                                colours[i], show_number(point.x), show_number(point.y));
        }
        add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", path, colours[i], dots);
    }
}

void Drawing::draw_bars() {
    const double bar = std::min(72.0, slot() * 0.8 / static_cast<double>(chart_.series.size()));
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
        for (const Point& point : chart_.series[i].points) {
            const double middle = static_cast<double>(i) + 0.5 - static_cast<double>(chart_.series.size()) / 2.0;
            const double x = left_ + slot() * (point.x + 0.5) + bar * middle;
            const double y = y_of(point.y);
            add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x - bar / 2.0 + 1.0, y, bar - 2.0,
                bottom_ - y, colours[i]);
            text(x, y - 5.0, "middle", show_number(point.y), "value");
        }
    }
}

void Drawing::draw_note(double top) {
    for (const std::string& line : note_) text(edge, top += note_height, "start", line, "note");
}

}  // namespace

std::vector<double> round_ticks(AxisScale scale, double low, double high) {
    return scale == AxisScale::linear ? linear_ticks(low, high) : log_ticks(scale, low, high);
}

std::string escape_xml(std::string_view text) {
    std::string escaped;
    for (const char byte : text) {
        switch (byte) {
            case '&': escaped += "&amp;"; break;
            case '<': escaped += "&lt;"; break;
            case '>': escaped += "&gt;"; break;
            case '"': escaped += "&quot;"; break;
            default: escaped += byte;
        }
    }
    return escaped;
}

std::string svg_of(const Chart& chart) { return Drawing(chart).take(); }

}  // namespace lorry::ops
