// Makes CLI11's validators of flags.
#include "ops/flag_checks.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {

CLI::Validator whole_number_from(std::int64_t lowest) {
    return {[lowest](const std::string& text) {
                const auto number = parse_integer(text);
                return number && *number >= lowest ? std::string() : fmt::format("'{}' is not a whole number from {}", text, lowest);
            },
            fmt::format("{} or more", lowest)};
}

CLI::Validator not_empty() {
    return {[](const std::string& text) { return text.empty() ? "it is empty: give a value, or leave it out" : std::string(); }, ""};
}

}  // namespace lorry::ops
