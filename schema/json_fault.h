// Where a text stops being JSON, for messages to its sender. Implemented in json.cpp. Pure, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::schema {

// As Json::parse, which fails with the same error.
struct JsonFault {
    std::string error;
    std::size_t byte = 0;  // the last one that was read, from 1; one more than there are if the text ends too early
    std::string around;    // what stands there, repaired and shortened: it quotes the text, so it is for the text's sender only
};
// nullopt: the text is JSON, or is nested too deeply, which has no place.
std::optional<JsonFault> find_json_fault(std::string_view text);

}  // namespace lorry::schema
