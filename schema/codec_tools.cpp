// The fields' forms are those of OpenAI's chat completions.
#include "schema/codec_tools.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

namespace lorry::schema {
namespace {

constexpr std::size_t functions_max = 128;       // as OpenAI
constexpr std::size_t tool_name_bytes_max = 64;  // as OpenAI

// Formats of calls write names as they are.
bool is_name(std::string_view name) {
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    };
    return !name.empty() && name.size() <= tool_name_bytes_max && std::ranges::all_of(name, is_plain);
}

Expected<ToolFunction, JobError> read_tool(const Json& tool, const std::string& place) {
    if (!tool.is_object()) return unexpected(wrong_type(place, "an object", tool));
    const Json* type = tool.find("type");
    if (type == nullptr || !type->is_string()) return unexpected(missing(place + ".type", type, "it is \"function\""));
    if (*type->as_string() != "function") return unexpected(wrong_value(place + ".type", *type, "\"function\""));
    const Json* function = tool.find("function");
    if (function == nullptr || !function->is_object()) {
        return unexpected(missing(place + ".function", function, "it describes the function"));
    }
    const std::string name_place = place + ".function.name";
    const Json* name = function->find("name");
    if (name == nullptr || !name->is_string()) return unexpected(missing(name_place, name, "it is the function's name"));
    if (!is_name(*name->as_string())) {
        return unexpected(
            wrong_value(name_place, *name, fmt::format("1 to {} letters, digits, underscores, dots and hyphens", tool_name_bytes_max)));
    }
    ToolFunction read{.name = *name->as_string(), .parameters = {}};
    const Json* parameters = function->find("parameters");
    if (parameters == nullptr || parameters->is_null()) return read;
    if (!parameters->is_object()) return unexpected(wrong_type(place + ".function.parameters", "a JSON schema", *parameters));
    read.parameters = parameters->dump();
    return read;
}

}  // namespace

Expected<Tools, JobError> read_tools(const Json& value) {
    const auto* tools = value.as_array();
    if (tools == nullptr) return unexpected(wrong_type("tools", "an array", value));
    if (tools->size() > functions_max) {
        return unexpected(
            invalid("tools", fmt::format("field 'tools' has {} functions; allowed are up to {}", tools->size(), functions_max)));
    }
    Tools read;
    std::unordered_set<std::string> names;
    for (std::size_t i = 0; i < tools->size(); ++i) {
        const std::string place = fmt::format("tools[{}]", i);
        auto function = read_tool((*tools)[i], place);
        if (!function) return unexpected(std::move(function.error()));
        if (!names.insert(function->name).second) {
            return unexpected(invalid(place + ".function.name",
                                      fmt::format("field '{}.function.name' repeats \"{}\"; names must differ", place, function->name)));
        }
        read.functions.push_back(std::move(*function));
    }
    if (!tools->empty()) read.json = value.dump();
    return read;
}

Expected<ToolChoice, JobError> read_tool_choice(const Json& value) {
    using Choice = ToolUse::Choice;
    constexpr std::pair<std::string_view, Choice> words[] = {
        {"none", Choice::none}, {"auto", Choice::automatic}, {"required", Choice::required}};
    if (const auto* word = value.as_string()) {
        const auto* row = std::ranges::find(words, *word, &std::pair<std::string_view, Choice>::first);
        if (row != std::end(words)) return ToolChoice{.choice = row->second, .name = {}};
    }
    const Json* type = value.find("type");
    const Json* function = value.find("function");
    const Json* name = function == nullptr ? nullptr : function->find("name");
    if (type == nullptr || type->as_string() == nullptr || *type->as_string() != "function" || name == nullptr || !name->is_string()) {
        return unexpected(
            wrong_value("tool_choice", value, R"("none", "auto", "required" and {"type": "function", "function": {"name": …}})"));
    }
    return ToolChoice{.choice = Choice::required, .name = *name->as_string()};
}

Expected<ToolUse, JobError> tool_use_of(std::vector<ToolFunction> functions, const std::optional<ToolChoice>& choice, bool parallel) {
    ToolUse use{.choice = functions.empty() ? ToolUse::Choice::none : ToolUse::Choice::automatic, .parallel = parallel};
    if (choice) use.choice = choice->choice;
    if (use.choice == ToolUse::Choice::none) return use;
    if (functions.empty()) return unexpected(invalid("tool_choice", "field 'tool_choice' needs 'tools'; give both or none"));
    use.functions = std::move(functions);
    if (!choice || choice->name.empty()) return use;
    const auto named = std::ranges::find(use.functions, choice->name, &ToolFunction::name);
    if (named == use.functions.end()) {
        return unexpected(invalid(
            "tool_choice", fmt::format("field 'tool_choice' names the function '{}', which 'tools' do not have", shortened(choice->name))));
    }
    use.named = true;
    use.functions = {std::move(*named)};
    return use;
}

}  // namespace lorry::schema
