// What an answer must match, as response_format and structured_outputs say it.
#include "schema/codec_structure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::schema {
namespace {

// A member of a job's body: "response_format":… or "structured_outputs":…
auto read(const std::string& member) {
    const auto body = Json::parse("{" + member + "}");
    CHECK(body, "the test's JSON is right");
    const Json* format = body->find("response_format");
    return format != nullptr ? read_response_format(*format) : read_structured_outputs(*body->find("structured_outputs"));
}

TEST(Structures, AreReadFromEitherField) {
    using Kind = Structure::Kind;
    struct Case {
        std::string member;
        Structure structure;
    };
    const Case cases[] = {
        {R"("response_format":{"type":"json_object"})", {Kind::json_schema, "response_format", R"({"type":"object"})"}},
        {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"description":null,"schema":{"type":"null"}}})",
         {Kind::json_schema, "response_format.json_schema.schema", R"({"type":"null"})"}},
        {R"("structured_outputs":{"json":{"minimum":1.50}})", {Kind::json_schema, "structured_outputs.json", R"({"minimum":1.50})"}},
        {R"("structured_outputs":{"json":"{}","regex":null})", {Kind::json_schema, "structured_outputs.json", "{}"}},
        {R"("structured_outputs":{"json_object":true,"disable_any_whitespace":true})",
         {Kind::json_schema, "structured_outputs.json_object", R"({"type":"object"})", ""}},
        {R"("structured_outputs":{"json":{},"whitespace_pattern":"\\n*","disable_additional_properties":true})",
         {Kind::json_schema, "structured_outputs.json", "{}", "\\n*", true}},
        {R"("response_format":{"type":"structural_tag","structures":[{"begin":"<f>"}],"triggers":["<"]})",
         {Kind::tags, "response_format", R"({"structures":[{"begin":"<f>"}],"triggers":["<"]})"}},
        {R"("response_format":{"type":"structural_tag","format":{"type":"or","elements":[]}})",
         {Kind::tags, "response_format", R"({"format":{"type":"or","elements":[]}})"}},
        {R"("structured_outputs":{"structural_tag":"{\"type\":\"structural_tag\",\"structures\":[1],\"triggers\":[2]}"})",
         {Kind::tags, "structured_outputs.structural_tag", R"({"structures":[1],"triggers":[2]})"}},
        {R"("structured_outputs":{"regex":"a+","disable_any_whitespace":false,"whitespace_pattern":null})",
         {Kind::regex, "structured_outputs.regex", "a+"}},
        {R"("structured_outputs":{"regex":"a+"})", {Kind::regex, "structured_outputs.regex", "a+"}},
        {R"("structured_outputs":{"choice":["yes","no"]})", {Kind::choices, "structured_outputs.choice", R"(["yes","no"])"}},
        {R"("structured_outputs":{"grammar":"start: \"a\""})", {Kind::lark, "structured_outputs.grammar", "start: \"a\""}},
        {R"("structured_outputs":{"grammar":"start: \"a ::= \\\" ::=\" | /::=/ // ::="})",
         {Kind::lark, "structured_outputs.grammar", R"(start: "a ::= \" ::=" | /::=/ // ::=)"}},
    };
    for (const Case& one : cases) {
        const auto structure = read(one.member);
        ASSERT_TRUE(structure && *structure) << one.member;
        EXPECT_EQ(**structure, one.structure) << one.member;
    }
    EXPECT_FALSE(read(R"("response_format":{"type":"text"})").value());
}

TEST(Structures, AreRefusedWithTheirPlace) {
    struct Case {
        std::string member;
        std::string refusal;
    };
    const Case cases[] = {
        {R"("response_format":"json_object")", "400 invalid_type response_format: field 'response_format' must be an object"},
        {R"("response_format":{})", "400 missing_field response_format.type"},
        {R"("response_format":{"type":"xml"})",
         "400 unsupported_field response_format.type: field 'response_format.type' is \"xml\"; supported are"},
        {R"("response_format":{"type":"structural_tag"})", "400 missing_field response_format.structures"},
        {R"("response_format":{"type":"structural_tag","structures":[]})", "400 missing_field response_format.triggers"},
        {R"("response_format":{"type":"structural_tag","structures":[],"triggers":[],"x":1})", "400 unsupported_field response_format.x"},
        {R"("response_format":{"type":"structural_tag","format":"any_text"})", "400 invalid_type response_format.format"},
        {R"("response_format":{"type":"structural_tag","format":{},"triggers":["a"]})",
         "400 invalid_value response_format.triggers: fields 'response_format.format' and 'response_format.triggers' are both present"},
        {R"("structured_outputs":{"structural_tag":{"structures":[1],"triggers":["a"],"at_least_one":true}})",
         "400 unsupported_field structured_outputs.structural_tag.at_least_one"},
        {R"("structured_outputs":{"structural_tag":{"type":"tags","structures":[1],"triggers":["a"]}})",
         "400 invalid_value structured_outputs.structural_tag.type"},
        {R"("structured_outputs":{"structural_tag":"{"})", "400 invalid_type structured_outputs.structural_tag"},
        {R"("response_format":{"type":"json_schema"})", "400 missing_field response_format.json_schema"},
        {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})", "400 missing_field response_format.json_schema.schema"},
        {R"("response_format":{"type":"json_schema","json_schema":{"schema":7}})", "400 invalid_type response_format.json_schema.schema"},
        {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"x":1}})",
         "400 unsupported_field response_format.json_schema.x"},
        {R"("response_format":{"type":"json_object","schema":{}})", "400 unsupported_field response_format.schema"},
        {R"("structured_outputs":[])", "400 invalid_type structured_outputs"},
        {R"("structured_outputs":{})", "400 invalid_value structured_outputs: field 'structured_outputs' says nothing"},
        {R"("structured_outputs":{"regex":"a","choice":["b"]})",
         "fields 'structured_outputs.regex' and 'structured_outputs.choice' are both present"},
        {R"("structured_outputs":{"regex":""})", "field 'structured_outputs.regex' is empty"},
        {R"("structured_outputs":{"choice":[]})", "400 invalid_value structured_outputs.choice"},
        {R"("structured_outputs":{"choice":["a",""]})", "400 invalid_type structured_outputs.choice"},
        {R"("structured_outputs":{"json_object":false})", "400 invalid_value structured_outputs.json_object"},
        {R"("structured_outputs":{"grammar":"root ::= \"a\""})",
         "400 unsupported_field structured_outputs.grammar: field 'structured_outputs.grammar' is a GBNF or EBNF grammar"},
        {R"("structured_outputs":{"grammar":"# text\nroot ::= \"a\""})", "400 unsupported_field structured_outputs.grammar"},
        {R"("structured_outputs":{"json":{},"whitespace_pattern":7})", "400 invalid_type structured_outputs.whitespace_pattern"},
        {R"("structured_outputs":{"json":{},"whitespace_pattern":" ","disable_any_whitespace":true})",
         "'structured_outputs.whitespace_pattern' and 'structured_outputs.disable_any_whitespace' contradict each other"},
        {R"("structured_outputs":{"json":{},"disable_additional_properties":1})",
         "400 invalid_type structured_outputs.disable_additional_properties"},
        {R"("structured_outputs":{"regex":"a","whitespace_pattern":" "})",
         "400 invalid_value structured_outputs.whitespace_pattern: field 'structured_outputs.whitespace_pattern' is for JSON, which "
         "'structured_outputs.regex' does not describe"},
        {R"("structured_outputs":{"choice":["a b"],"disable_any_whitespace":true})",
         "400 invalid_value structured_outputs.disable_any_whitespace"},
        {R"("structured_outputs":{"grammar":"start: \"a\"","disable_additional_properties":true})",
         "400 invalid_value structured_outputs.disable_additional_properties"},
        {R"("structured_outputs":{"json":{},"backend":"xgrammar"})", "400 unsupported_field structured_outputs.backend"},
    };
    for (const auto& [member, refusal] : cases) {
        const auto structure = read(member);
        ASSERT_FALSE(structure) << member;
        const JobError& error = structure.error();
        EXPECT_THAT(fmt::format("{} {} {}: {}", error.status_code(), name_of(error.code), error.param, error.message),
                    testing::HasSubstr(refusal));
    }
}

}  // namespace
}  // namespace lorry::schema
