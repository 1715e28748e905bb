// Writes Lark's rules and the list of schemas that they name (lorry_grammar.h, LORRY_GRAMMAR_RULES).
#include "consumer/answer/call_grammar.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schema/codec_error.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using schema::Json;

class Rules {
public:
    Rules(const CallFormat& format, const FindSpecial& find_special) : format_(format), find_special_(find_special) {}

    Expected<schema::Structure, std::string> write(const schema::ToolUse& tools) {
        const CallText& text = format_.text;
        const std::string more = tools.parallel && !tools.named ? fmt::format(" ({} call)*", literal(text.between)) : "";
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
        const Json* properties = schema.find("properties");
        const Json::Object none;
        const Json::Object& members = properties != nullptr && properties->is_object() ? *properties->as_object() : none;
        rules_ += fmt::format("arguments_{0}: first_{0}_0\n", index);
        for (std::size_t i = 0; i < members.size(); ++i) {
            const auto& [name, value] = members[i];
            if (name.empty() ||
                name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) {
                return fmt::format(
                    "the argument '{}' of the function '{}' has a name that Python does not allow, as the model's calls are "
                    "written",
                    schema::shortened(name), function.name);
            }
            Json one = value;
            for (const char* shared : {"$defs", "definitions"}) {
                if (const Json* definitions = schema.find(shared); definitions != nullptr && one.is_object()) one.set(shared, *definitions);
            }
            const std::string argument = fmt::format("{} {}", literal(name + "="), schema_rule(std::move(one)));
            const std::string next = fmt::format("more_{}_{}", index, i + 1);
            const bool required = is_required(schema, name);
            rules_ += fmt::format("first_{0}_{1}: {2} {3}{4}\n", index, i, argument, next,
                                  required ? "" : fmt::format(" | first_{}_{}", index, i + 1));
            rules_ += fmt::format("more_{0}_{1}: \", \" {2} {3}{4}\n", index, i, argument, next, required ? "" : " | " + next);
        }
        rules_ += fmt::format("first_{0}_{1}: \"\"\nmore_{0}_{1}: \"\"\n", index, members.size());
        return std::nullopt;
    }

    static bool is_required(const Json& schema, const std::string& name) {
        const Json* required = schema.find("required");
        const auto* names = required == nullptr ? nullptr : required->as_array();
        return names != nullptr &&
               std::ranges::any_of(*names, [&](const Json& one) { return one.is_string() && *one.as_string() == name; });
    }

    const CallFormat& format_;
    const FindSpecial& find_special_;
    std::string rules_;
    Json::Array schemas_;
};

}  // namespace

Expected<schema::Structure, std::string> call_structure(const CallFormat& format, const schema::ToolUse& tools,
                                                        const FindSpecial& find_special) {
    return Rules(format, find_special).write(tools);
}

}  // namespace lorry::consumer
