// What the fuzz targets share: an input is one text, or several that a record separator divides; readers' messages obey some rules.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "schema/check.h"
#include "schema/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace lorry::fuzz {

inline constexpr char separator = '\x1e';

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// The last part has all that is left; parts that the input lacks are empty.
template <std::size_t Count>
std::array<std::string_view, Count> parts_of(std::string_view input) {
    std::array<std::string_view, Count> parts;
    for (std::size_t i = 0; i < Count; ++i) {
        const std::size_t end = i + 1 < Count ? std::min(input.find(separator), input.size()) : input.size();
        parts[i] = input.substr(0, end);
        input.remove_prefix(std::min(end + 1, input.size()));
    }
    return parts;
}

// A message goes into logs, headers and JSON, whatever the input was.
inline void check_message(std::string_view message) {
    constexpr std::size_t message_bytes_max = 8'000;
    CHECK(!message.empty(), "a message says something");
    CHECK(schema::is_valid_utf8(message), "a message is UTF-8");
    CHECK(message.size() <= message_bytes_max, "a message is short");
}

// Edits one value of a JSON text among the input's parts, or bytes as libFuzzer does. For LLVMFuzzerCustomMutator, whose contract this has.
std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed);

}  // namespace lorry::fuzz
