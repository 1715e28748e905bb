// Reads calls that are written as in Python: [name(argument=value, …), …]. Used by call_parser.cpp. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/json.h"

namespace lorry::consumer {

struct PythonCall {
    std::string name;
    schema::Json arguments;  // an object
};
struct PythonCalls {
    bool incomplete = false;        // the text ends within the list
    std::vector<PythonCall> calls;  // empty: this is no list of calls
    std::size_t consumed = 0;       // bytes of the list
};

// text begins with the list. Values are Python's or JSON's: strings, numbers, True, False, None, lists and dicts.
PythonCalls read_python_calls(std::string_view text);

}  // namespace lorry::consumer
