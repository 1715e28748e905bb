// The fields' forms are those of OpenAI's chat completions and of vLLM's StructuredOutputsParams. What they hold is compiled, and checked,
// by the grammar library.
#include "schema/codec_structure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lorry::schema {
namespace {

using Read = Expected<std::optional<Structure>, JobError>;

constexpr const char* any_object = R"({"type":"object"})";

// The members of an object by name; each must be read, or it is unknown.
class Members {
public:
    Members(std::string_view place, const Json& value) : place_(place), value_(value) {}

    std::string place_of(std::string_view name) const { return fmt::format("{}.{}", place_, name); }
    // nullptr: absent or null.
    const Json* find(std::string_view name) {
        known_.push_back(name);
        const Json* member = value_.find(name);
        return member == nullptr || member->is_null() ? nullptr : member;
    }
    Expected<bool, JobError> flag(std::string_view name) {
        const Json* member = find(name);
        if (member == nullptr) return false;
        if (!member->is_bool()) return unexpected(wrong_type(place_of(name), "true or false", *member));
        return *member->as_bool();
    }
    // Why a member that was never looked for is refused.
    FieldError error_of_others() const {
        for (const auto& [name, member] : *value_.as_object()) {
            if (std::ranges::find(known_, name) != known_.end() || member.is_null()) continue;
            const std::string place = place_of(name);
            return unsupported(place, fmt::format("field '{}' is not supported; leave it out", shortened(place)));
        }
        return {};
    }

private:
    std::string_view place_;
    const Json& value_;
    std::vector<std::string_view> known_;
};

Read text_of(Structure::Kind kind, std::string place, const Json& value) {
    const auto* text = value.as_string();
    if (text == nullptr) return unexpected(wrong_type(place, "a string", value));
    if (text->empty()) return unexpected(invalid(place, fmt::format("field '{}' is empty; give at least one character", place)));
    return Structure{.kind = kind, .field = std::move(place), .text = *text};
}

// A schema, or one as a JSON text.
Read schema_of(std::string place, const Json& value) {
    const auto* text = value.as_string();
    if (text == nullptr && !value.is_object()) return unexpected(wrong_type(place, "a JSON schema", value));
    return Structure{.field = std::move(place), .text = text != nullptr ? *text : value.dump()};
}

Read choices_of(std::string place, const Json& value) {
    const auto* choices = value.as_array();
    if (choices == nullptr) return unexpected(wrong_type(place, "a list of at least one string", value));
    if (choices->empty()) return unexpected(invalid(place, fmt::format("field '{}' is empty; give at least one string", place)));
    for (const Json& choice : *choices) {
        const auto* text = choice.as_string();
        if (text == nullptr || text->empty()) return unexpected(wrong_type(place, "a list of strings, none empty", choice));
    }
    return Structure{.kind = Structure::Kind::choices, .field = std::move(place), .text = value.dump()};
}

// Whether Lark's grammar has "::=" outside of its texts, regular expressions and comments.
bool has_gbnf_rule(std::string_view grammar) {
    const auto skip_to = [&](char end, std::size_t from) {
        while (from < grammar.size() && grammar[from] != end) from += grammar[from] == '\\' && end != '\n' ? 2U : 1U;
        return from;
    };
    for (std::size_t at = 0; at < grammar.size(); ++at) {
        const std::string_view rest = grammar.substr(at);
        if (rest.starts_with("::=")) return true;
        if (rest.front() == '#' || rest.starts_with("//")) {
            at = skip_to('\n', at);
        } else if (rest.front() == '"' || rest.front() == '/') {
            at = skip_to(rest.front(), at + 1);
        }
    }
    return false;
}

Read grammar_of(std::string place, const Json& value) {
    auto grammar = text_of(Structure::Kind::lark, place, value);
    if (grammar && has_gbnf_rule((*grammar)->text)) {
        return unexpected(unsupported(
            place,
            fmt::format("field '{}' is a GBNF or EBNF grammar (\"::=\"); write it in Lark's syntax: start: \"yes\" | \"no\"", place)));
    }
    return grammar;
}

Read object_of(std::string place, const Json& value) {
    if (value.as_bool() != true) return unexpected(wrong_value(place, value, "true"));
    return Structure{.field = std::move(place), .text = any_object};
}

// Tags in free text. What they hold is checked by the grammar library.
Read tags_of(std::string place, const Json& value) {
    Members members(place, value);
    const Json* format = members.find("format");
    const Json* structures = members.find("structures");
    const Json* triggers = members.find("triggers");
    const auto tags = [&](Json parts) { return Structure{.kind = Structure::Kind::tags, .field = std::move(place), .text = parts.dump()}; };
    if (format != nullptr) {
        const std::string name = members.place_of("format");
        if (!format->is_object()) return unexpected(wrong_type(name, "an object", *format));
        for (const auto& [other, member] : {std::pair("structures", structures), std::pair("triggers", triggers)}) {
            if (member == nullptr) continue;
            const std::string second = members.place_of(other);
            return unexpected(
                invalid(second, fmt::format("fields '{}' and '{}' are both present; give 'format', or the others", name, second)));
        }
        return tags(Json::object({{"format", *format}}));
    }
    if (structures == nullptr) return unexpected(missing(members.place_of("structures"), structures, "it lists {begin, schema, end}"));
    if (triggers == nullptr) return unexpected(missing(members.place_of("triggers"), triggers, "it lists the texts that begin tags"));
    return tags(Json::object({{"structures", *structures}, {"triggers", *triggers}}));
}

Read tags_as_text(std::string place, const Json& value) {
    const auto* text = value.as_string();
    const auto parsed = text != nullptr ? Json::parse(*text) : Expected<Json, std::string>(value);
    if (!parsed || !parsed->is_object()) return unexpected(wrong_type(place, "structural tags as a JSON object, or its text", value));
    Members members(place, *parsed);
    for (const std::string_view part : {"type", "format", "structures", "triggers"}) members.find(part);
    if (auto error = members.error_of_others()) return unexpected(*std::move(error));
    const Json* type = members.find("type");
    if (type != nullptr && (!type->is_string() || *type->as_string() != "structural_tag"))
        return unexpected(wrong_value(members.place_of("type"), *type, "\"structural_tag\""));
    return tags_of(place, *parsed);
}

}  // namespace

Read read_response_format(const Json& value) {
    constexpr std::string_view field = "response_format";
    if (!value.is_object()) return unexpected(wrong_type(field, "an object", value));
    Members members(field, value);
    const Json* type = members.find("type");
    const auto* name = type == nullptr ? nullptr : type->as_string();
    if (name == nullptr)
        return unexpected(missing(members.place_of("type"), type, "it is text, json_object, json_schema or structural_tag"));
    Read structure = std::optional<Structure>();
    if (*name == "json_object") {
        structure = Structure{.field = std::string(field), .text = any_object};
    } else if (*name == "json_schema") {
        const Json* description = members.find("json_schema");
        const std::string place = members.place_of("json_schema");
        if (description == nullptr || !description->is_object())
            return unexpected(missing(place, description, "an object with the member 'schema'"));
        Members inner(place, *description);
        for (const std::string_view label : {"name", "description", "strict"}) inner.find(label);
        const Json* schema = inner.find("schema");
        if (schema == nullptr) return unexpected(missing(inner.place_of("schema"), schema, "it is what the answer must match"));
        if (auto error = inner.error_of_others()) return unexpected(*std::move(error));
        structure = schema_of(inner.place_of("schema"), *schema);
    } else if (*name == "structural_tag") {
        for (const std::string_view part : {"format", "structures", "triggers"}) members.find(part);
        structure = tags_of(std::string(field), value);
        if (!structure) return structure;
    } else if (*name != "text") {
        return unexpected(unsupported(members.place_of("type"), fmt::format("field 'response_format.type' is {}; supported are \"text\", "
                                                                            "\"json_object\", \"json_schema\" and \"structural_tag\"",
                                                                            shown(*type))));
    }
    if (auto error = members.error_of_others()) return unexpected(*std::move(error));
    return structure;
}

Read read_structured_outputs(const Json& value) {
    constexpr std::string_view field = "structured_outputs";
    if (!value.is_object()) return unexpected(wrong_type(field, "an object", value));
    Members members(field, value);
    constexpr std::pair<std::string_view, Read (*)(std::string, const Json&)> kinds[] = {
        {"json", schema_of},
        {"json_object", object_of},
        {"regex", [](std::string place, const Json& text) { return text_of(Structure::Kind::regex, std::move(place), text); }},
        {"choice", choices_of},
        {"grammar", grammar_of},
        {"structural_tag", tags_as_text}};
    Read structure = std::optional<Structure>();
    for (const auto& [name, read] : kinds) {
        const Json* member = members.find(name);
        if (member == nullptr) continue;
        if (*structure) {
            return unexpected(invalid(members.place_of(name), fmt::format("fields '{}' and '{}' are both present; give one of them",
                                                                          (*structure)->field, members.place_of(name))));
        }
        structure = read(members.place_of(name), *member);
        if (!structure) return structure;
    }
    const auto compact = members.flag("disable_any_whitespace");
    if (!compact) return unexpected(compact.error());
    const auto closed = members.flag("disable_additional_properties");
    if (!closed) return unexpected(closed.error());
    const Json* space = members.find("whitespace_pattern");
    if (space != nullptr && !space->is_string()) return unexpected(wrong_type(members.place_of("whitespace_pattern"), "a string", *space));
    if (space != nullptr && *compact) {
        return unexpected(invalid(members.place_of("whitespace_pattern"),
                                  "fields 'structured_outputs.whitespace_pattern' and 'structured_outputs.disable_any_whitespace' "
                                  "contradict each other; give one of them"));
    }
    if (auto error = members.error_of_others()) return unexpected(*std::move(error));
    if (!*structure) {
        return unexpected(invalid(
            field, "field 'structured_outputs' says nothing; give one of json, json_object, regex, choice, grammar and structural_tag"));
    }
    const bool is_json = (*structure)->kind == Structure::Kind::json_schema || (*structure)->kind == Structure::Kind::tags;
    for (const auto& [name, is_given] : {std::pair("whitespace_pattern", space != nullptr),
                                         {"disable_any_whitespace", *compact},
                                         {"disable_additional_properties", *closed}}) {
        if (!is_given || is_json) continue;
        return unexpected(invalid(members.place_of(name), fmt::format("field '{}' is for JSON, which '{}' does not describe; leave it out",
                                                                      members.place_of(name), (*structure)->field)));
    }
    if (*compact) (*structure)->space.clear();
    if (space != nullptr) (*structure)->space = *space->as_string();
    (*structure)->closed = *closed;
    return structure;
}

}  // namespace lorry::schema
