// What a job's answer must match. Read by codec_structure.cpp, or made of tools by consumer/answer; compiled by engine/text/grammar.cpp.
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
        rules         // a grammar with schemas that Lorry made of the job's tools (lorry_grammar.h)
    };
    Kind kind = Kind::json_schema;
    std::string field;  // of the job's body, for errors
    std::string text;
    bool compact = false;  // JSON without any white space; otherwise one space may follow each comma and colon

    bool operator==(const Structure&) const = default;
};

}  // namespace lorry::schema
