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

}  // namespace lorry::ops
