// Checks of flags whose messages say what is allowed, where CLI11's own quote limits of the number's type. Used by the commands' declare().
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace lorry::ops {

// A whole number that is at least `lowest`: "'abc' is not a whole number from 1".
CLI::Validator whole_number_from(std::int64_t lowest);

// Any text but the empty one, which scripts pass for a variable that is not set: "it is empty: give a value, or leave it out".
CLI::Validator not_empty();

}  // namespace lorry::ops
