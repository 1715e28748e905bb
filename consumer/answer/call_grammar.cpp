// Writes Lark's rules and the list of schemas that they name (lorry_grammar.h, LORRY_GRAMMAR_RULES).
#include "consumer/answer/call_grammar.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schema/codec_error.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using schema::Json;

// The most bytes of definitions that are copied into the arguments that refer to them.
constexpr std::size_t copied_max = 1 << 20;
// Of all functions together, where calls are written as in Python: each argument is a schema of its own.
constexpr std::size_t arguments_max = 400;

class Rules {
public:
    Rules(const CallFormat& format, const FindSpecial& find_special) : format_(format), find_special_(find_special) {}

    Expected<schema::Structure, std::string> write(const schema::ToolUse& tools) {
        const CallText& text = format_.text;
        const bool repeats = tools.parallel && !tools.named && !text.once;
        const std::string more = repeats ? fmt::format(" ({} call)*", literal(text.between)) : "";
        rules_ = fmt::format("start: {} call{} {}\n", literal(text.before), more, literal(text.after));
        std::vector<std::string> names;
        for (std::size_t i = 0; i < tools.functions.size(); ++i) names.push_back(fmt::format("call_{}", i));
        rules_ += fmt::format("call: {}\n", fmt::join(names, " | "));
        for (std::size_t i = 0; i < tools.functions.size(); ++i) {
            const schema::ToolFunction& function = tools.functions[i];
            rules_ += fmt::format("call_{}: {} arguments_{} {}\n", i,
                                  literal(std::string(text.call_begin) + function.name + std::string(text.call_middle)), i,
                                  literal(text.call_end));
            if (auto error = add_arguments(function, i)) return unexpected(std::move(*error));
        }
        return schema::Structure{.kind = schema::Structure::Kind::rules,
                                 .field = "tools",
                                 .text = Json::object({{"rules", rules_}, {"schemas", Json(std::move(schemas_))}}).dump()};
    }

private:
    // A text as terminals: the format's special tokens by their ids, the rest as strings.
    std::string literal(std::string_view text) const {
        std::string out;
        while (!text.empty()) {
            std::size_t first = text.size();
            std::size_t length = 0;
            std::optional<engine::TokenId> special;
            for (const std::string_view token : format_.tokens) {
                const std::size_t found = text.find(token);
                if (found >= first) continue;
                if (const auto id = find_special_(token)) {
                    first = found;
                    length = token.size();
                    special = id;
                }
            }
            if (first > 0) out += Json(text.substr(0, first)).dump() + " ";
            if (special) out += fmt::format("<[{}]> ", *special);
            text.remove_prefix(first + length);
        }
        return out.empty() ? "\"\"" : out;
    }

    std::string schema_rule(Json schema) {
        schemas_.push_back(std::move(schema));
        return fmt::format("schema_{}", schemas_.size() - 1);
    }

    std::optional<std::string> add_arguments(const schema::ToolFunction& function, std::size_t index) {
        Json schema = Json(Json::Object());
        if (!function.parameters.empty()) {
            auto parsed = Json::parse(function.parameters);
            CHECK(parsed, "the codec wrote the schema");
            schema = std::move(*parsed);
        }
        const Json* type = schema.find("type");
        if (type != nullptr && (!type->is_string() || *type->as_string() != "object"))
            return fmt::format("the parameters of the function '{}' are no object; set their type to \"object\"", function.name);
        if (format_.text.python) return add_named_arguments(function, schema, index);
        // Arguments are an object, whatever the schema leaves open.
        const bool is_open = schema.find("$ref") == nullptr && schema.find("anyOf") == nullptr && schema.find("allOf") == nullptr;
        if (schema.find("type") == nullptr && is_open) schema.set("type", "object");
        rules_ += fmt::format("arguments_{}: {}\n", index, schema_rule(std::move(schema)));
        return std::nullopt;
    }

    // In the order of the schema, with those that are not required left out or not: each rule is what may follow from one argument on,
    // where others came before (more) or not (first).
    std::optional<std::string> add_named_arguments(const schema::ToolFunction& function, const Json& schema, std::size_t index) {
        if (auto error = error_of_named(function, schema)) return error;
        const Json* properties = schema.find("properties");
        const Json::Object none;
        const Json::Object& members = properties != nullptr && properties->is_object() ? *properties->as_object() : none;
        rules_ += fmt::format("arguments_{0}: first_{0}_0\n", index);
        for (std::size_t i = 0; i < members.size(); ++i) {
            const auto& [name, value] = members[i];
            if (name.empty() ||
                name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) {
                return fmt::format(
                    "the argument '{}' of the function '{}' cannot be written, because this model writes calls as in Python; "
                    "rename it with ASCII letters, digits and underscores",
                    schema::shortened(name), function.name);
            }
            Json one = value;
            if (one.is_object() && (one.find("$defs") != nullptr || one.find("definitions") != nullptr)) {
                return fmt::format("the argument '{}' of the function '{}' has definitions of its own; move them to the parameters' $defs",
                                   schema::shortened(name), function.name);
            }
            if (one.is_object() && one.dump().find("\"$ref\"") != std::string::npos) {
                for (const char* shared : {"$defs", "definitions"}) {
                    const Json* definitions = schema.find(shared);
                    if (definitions == nullptr) continue;
                    copied_ += definitions->dump().size();
                    if (copied_ > copied_max)
                        return fmt::format("the schema of the function '{}' is too large; simplify it", function.name);
                    one.set(shared, *definitions);
                }
            }
            const std::string argument = fmt::format("{} {}", literal(name + "="), schema_rule(std::move(one)));
            const std::string next = fmt::format("more_{}_{}", index, i + 1);
            const bool required = required_of(schema).contains(name);
            rules_ += fmt::format("first_{0}_{1}: {2} {3}{4}\n", index, i, argument, next,
                                  required ? "" : fmt::format(" | first_{}_{}", index, i + 1));
            rules_ += fmt::format("more_{0}_{1}: \", \" {2} {3}{4}\n", index, i, argument, next, required ? "" : " | " + next);
        }
        rules_ += fmt::format("first_{0}_{1}: \"\"\nmore_{0}_{1}: \"\"\n", index, members.size());
        return std::nullopt;
    }

    static std::set<std::string> required_of(const Json& schema) {
        std::set<std::string> names;
        const Json* required = schema.find("required");
        if (required == nullptr || !required->is_array()) return names;
        for (const Json& one : *required->as_array()) {
            if (one.is_string()) names.insert(*one.as_string());
        }
        return names;
    }

    // What arguments by name cannot keep of a schema of parameters.
    std::optional<std::string> error_of_named(const schema::ToolFunction& function, const Json& schema) {
        constexpr std::array<std::string_view, 10> kept = {"type",     "properties", "required",    "$defs",   "definitions",
                                                           "$comment", "title",      "description", "$schema", "additionalProperties"};
        for (const auto& [key, value] : *schema.as_object()) {
            if (std::ranges::find(kept, key) == kept.end()) {
                return fmt::format(
                    "the parameters of the function '{}' have the keyword '{}', which calls as in Python cannot keep; leave it out",
                    function.name, schema::shortened(key));
            }
        }
        const Json* properties = schema.find("properties");
        const std::size_t count = properties != nullptr && properties->is_object() ? properties->as_object()->size() : 0;
        arguments_ += count;
        if (arguments_ > arguments_max)
            return fmt::format("the functions have more than {} arguments together; leave some out", arguments_max);
        for (const std::string& name : required_of(schema)) {
            if (count == 0 || properties->find(name) == nullptr) {
                return fmt::format("the function '{}' requires '{}', which is not among its properties; describe it there", function.name,
                                   schema::shortened(name));
            }
        }
        return std::nullopt;
    }

    const CallFormat& format_;
    const FindSpecial& find_special_;
    std::string rules_;
    Json::Array schemas_;
    std::size_t copied_ = 0;     // bytes of definitions that several arguments refer to
    std::size_t arguments_ = 0;  // as arguments_max
};

}  // namespace

Expected<schema::Structure, std::string> call_structure(const CallFormat& format, const schema::ToolUse& tools,
                                                        const FindSpecial& find_special) {
    return Rules(format, find_special).write(tools);
}

}  // namespace lorry::consumer
