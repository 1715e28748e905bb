// Recognises a time since 1970 in the wrong unit. Used for deadlines: the header of a job, and the flag of `lorry submit`. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace lorry::schema {

// The unit in which `number` is a time since 1970 that somebody may mean: "seconds", "milliseconds", "microseconds or nanoseconds".
constexpr std::string_view unit_since_epoch(std::int64_t number) {
    // Seconds until the year 5138 are below, microseconds since 1973 above.
    constexpr std::int64_t milliseconds_min = 100'000'000'000;
    constexpr std::int64_t milliseconds_max = 100'000'000'000'000;
    if (number < milliseconds_min) return "seconds";
    return number <= milliseconds_max ? "milliseconds" : "microseconds or nanoseconds";
}

}  // namespace lorry::schema
