// Parses and formats sizes, counts and durations for people.
#include "ops/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "ops/printable.h"
#include "schema/check.h"
#include "schema/whole_number.h"

namespace lorry::ops {
namespace {

// A number that is not negative, and the unit after it.
std::optional<std::pair<double, std::string_view>> split(std::string_view text) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !std::isfinite(value) || value < 0.0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    while (text.starts_with(' ')) text.remove_prefix(1);
    return std::pair{value, text};
}

// Screen columns of UTF-8 text, taken as its characters.
std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return schema::parse_whole<std::int64_t>(text); }
std::optional<double> parse_number(std::string_view text) { return schema::parse_whole<double>(text); }

std::optional<HostAndPort> parse_host_and_port(std::string_view text) {
    const std::size_t mark = text.rfind(':');
    const auto port = mark == std::string_view::npos ? std::nullopt : parse_integer(text.substr(mark + 1));
    if (!port || *port < 0 || *port > std::numeric_limits<std::uint16_t>::max()) return std::nullopt;
    std::string_view host = text.substr(0, mark);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    return HostAndPort{.host = std::string(host), .port = static_cast<std::uint16_t>(*port)};
}

std::optional<std::size_t> parse_bytes(std::string_view text) {
    const auto parts = split(text);
    if (!parts) return std::nullopt;
    auto [value, unit] = *parts;
    double factor = 1.0;
    if (!unit.empty() && unit != "B") {
        constexpr std::string_view prefixes = "KMGT";
        const char first = unit.front() == 'k' ? 'K' : unit.front();
        const std::size_t power = prefixes.find(first);
        if (power == std::string_view::npos) return std::nullopt;
        unit.remove_prefix(1);
        if (unit != "" && unit != "iB" && unit != "B") return std::nullopt;
        factor = std::pow(unit == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
    }
    value *= factor;
    if (value > 9.0e18) return std::nullopt;
    return static_cast<std::size_t>(value);
}

std::string show_bytes(std::size_t bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < units.size()) {
        value /= 1024.0;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 10.0 ? 1 : 0, units[unit]);
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
    const auto parts = split(text);
    if (!parts) return std::nullopt;
    const auto [value, unit] = *parts;
    double milliseconds = 0.0;
    if (unit == "ms") {
        milliseconds = value;
    } else if (unit.empty() || unit == "s") {
        milliseconds = value * 1e3;
    } else if (unit == "min" || unit == "m") {
        milliseconds = value * 60e3;
    } else if (unit == "h") {
        milliseconds = value * 3600e3;
    } else if (unit == "d") {
        milliseconds = value * 86'400e3;
    } else {
        return std::nullopt;
    }
    if (milliseconds > 1e14) return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

std::string show_time(const std::optional<std::chrono::sys_time<std::chrono::milliseconds>>& time) {
    if (!time) return "-";
    const auto day = std::chrono::floor<std::chrono::days>(*time);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(*time - day));
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                       static_cast<unsigned>(date.day()), clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::string show_duration(std::chrono::milliseconds duration) {
    const double seconds = static_cast<double>(duration.count()) / 1000.0;
    if (seconds < 10.0) return fmt::format("{:.1f} s", seconds);
    const auto whole = static_cast<std::int64_t>(std::llround(seconds));
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
    return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string show_giga(double per_second, std::string_view unit) { return fmt::format("{:.1f} {}", per_second * 1e-9, unit); }

std::string show_count(std::int64_t count) {
    std::string text = std::to_string(count);
    const std::size_t first_digit = count < 0 ? 1 : 0;
    for (std::size_t at = text.size(); at > first_digit + 3; at -= 3) text.insert(at - 3, ",");
    return text;
}

std::string show_count(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", show_count(count), noun, count == 1 ? "" : "s");
}

std::string show_table(const std::vector<std::vector<std::string>>& rows, std::uint32_t right_aligned) {
    std::vector<std::vector<std::string>> safe = rows;
    std::vector<std::size_t> widths;
    for (auto& row : safe) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            row[i] = printable(row[i], "");
            widths[i] = std::max(widths[i], width_of(row[i]));
        }
    }
    std::string text;
    for (const auto& row : safe) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string space(widths[i] - width_of(row[i]), ' ');
            const bool right = (right_aligned >> i & 1) != 0;
            line += (i == 0 ? "" : "  ") + (right ? space + row[i] : row[i] + space);
        }
        while (line.ends_with(' ')) line.pop_back();
        text += line + "\n";
    }
    return text;
}

}  // namespace lorry::ops
