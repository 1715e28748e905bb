// The duration of a step of the fake engine: constant, or drawn for each step. Used by the fault worker and the driver's arguments. It
// changes when answers arrive, never their text.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#include "tests/faults/arguments.h"

namespace lorry::faults {

class StepTime {
public:
    // In microseconds: "10000", "uniform:5000..20000" or "exponential:10000" (the mean). Throws UsageError for anything else.
    StepTime(std::string_view text, std::uint64_t seed) : random_(seed) {
        const auto colon = text.find(':');
        const std::string_view shape = colon == std::string_view::npos ? "" : text.substr(0, colon);
        const std::string_view rest = colon == std::string_view::npos ? text : text.substr(colon + 1);
        const auto dots = rest.find("..");
        const auto first = microseconds_in(rest.substr(0, dots));
        const auto last = microseconds_in(dots == std::string_view::npos ? "" : rest.substr(dots + 2));
        if (shape.empty() && first && dots == std::string_view::npos) {
            draw_ = [=](std::mt19937_64&) { return *first; };
        } else if (shape == "uniform" && first && last && *first <= *last) {
            draw_ = std::uniform_int_distribution<std::int64_t>(*first, *last);
        } else if (shape == "exponential" && first && *first > 0 && dots == std::string_view::npos) {
            draw_ = [draw = std::exponential_distribution<double>(1.0 / static_cast<double>(*first))](std::mt19937_64& random) mutable {
                return static_cast<std::int64_t>(draw(random));
            };
        } else {
            throw UsageError("not a time of steps: " + std::string(text) + " (10000, uniform:5000..20000 or exponential:10000)");
        }
    }

    std::chrono::microseconds next() { return std::chrono::microseconds(draw_(random_)); }

private:
    static std::optional<std::int64_t> microseconds_in(std::string_view text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
        return value;
    }

    std::mt19937_64 random_;
    std::function<std::int64_t(std::mt19937_64&)> draw_;
};

}  // namespace lorry::faults
