// What a job's answer must match. Read by codec_structure.cpp, or made from tools by consumer/answer; compiled by engine/text/grammar.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace lorry::schema {

struct Structure {
    enum class Kind : std::uint8_t {
        json_schema,  // a JSON text
        regex,        // of the whole answer
        choices,      // a JSON array of strings, one of which is the answer
        lark,         // a grammar
        rules,        // a grammar with schemas that Lorry made of the job's tools (lorry_grammar.h)
        tags          // {"structures", "triggers"}, JSON: structural tags in free text (lorry_grammar.h)
    };
    Kind kind = Kind::json_schema;
    std::string field;  // of the job's body, for errors
    std::string text;
    // Of JSON schemas and tags.
    std::string space = " ?";  // a regular expression: the white space after each comma and colon; there is no other
    bool closed = false;       // objects whose schema lists properties have no others

    bool operator==(const Structure&) const = default;
};

}  // namespace lorry::schema
