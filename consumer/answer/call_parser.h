// Parses the tool calls that a model wrote after a mark (formats.h). Used by answer_reader.h. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/answer/formats.h"

namespace lorry::consumer {

struct FunctionCall {
    std::string name;
    std::string arguments;  // a JSON object
    bool operator==(const FunctionCall&) const = default;
};

// What a text has in place of calls.
enum class ParseEnd : std::uint8_t {
    complete,
    incomplete,  // more text may complete it
    failed,      // these are no calls
};
struct ParsedCalls {
    ParseEnd end = ParseEnd::failed;
    std::vector<FunctionCall> calls;  // complete: at least one
    std::size_t consumed = 0;         // complete: bytes of the text, with an end mark
};

// text: after the mark, or from it on if it is part of the body. names: of the functions that may be called; others are no calls. final:
// the text has ended.
ParsedCalls parse_calls(const CallMark& mark, std::string_view text, std::span<const std::string> names, bool final);

}  // namespace lorry::consumer
