// Reads prompts in every shape that an endpoint accepts.
#include "schema/codec_prompt.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>

namespace lorry::schema {
namespace {

// Refuses parts that are not text.
FieldError check_parts(const Json::Array& parts, const std::string& field) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string part = fmt::format("{}[{}]", field, i);
        if (!parts[i].is_object()) return wrong_type(part, "an object", parts[i]);
        const Json* type = parts[i].find("type");
        if (type == nullptr || !type->is_string()) return missing(part + ".type", type, "it says what the part is, such as \"text\"");
        if (*type->as_string() != "text") {
            return unsupported(part + ".type", fmt::format("field '{}.type' is {}; only text is supported", part, shown(*type)));
        }
        const Json* text = parts[i].find("text");
        if (text == nullptr || !text->is_string()) return missing(part + ".text", text, "it is the part's text");
    }
    return {};
}

// OpenAI's API carries a call's arguments as JSON text; chat templates expect an object.
Expected<Json, JobError> read_arguments(const Json* value, const std::string& field) {
    const std::string* text = value == nullptr ? nullptr : value->as_string();
    if (value == nullptr || value->is_null() || (text != nullptr && text->empty())) return Json::object({});
    auto arguments = text == nullptr ? *value : Json::parse(*text);
    if (!arguments || !arguments->is_object()) {
        return unexpected(invalid(field, fmt::format("field '{}' is not a JSON object: {}", field, shown(*value))));
    }
    return std::move(*arguments);
}

Expected<Json, JobError> read_tool_calls(const Json& value, const std::string& field) {
    const auto* calls = value.as_array();
    if (calls == nullptr) return unexpected(wrong_type(field, "an array", value));
    Json out = Json::array({});
    for (std::size_t i = 0; i < calls->size(); ++i) {
        const std::string place = fmt::format("{}[{}]", field, i);
        Json call = (*calls)[i];
        if (!call.is_object()) return unexpected(wrong_type(place, "an object", call));
        const Json* function = call.find("function");
        if (function == nullptr || !function->is_object()) {
            return unexpected(missing(place + ".function", function, "it is an object with name and arguments"));
        }
        auto arguments = read_arguments(function->find("arguments"), place + ".function.arguments");
        if (!arguments) return unexpected(std::move(arguments.error()));
        Json read_function = *function;
        read_function.set("arguments", std::move(*arguments));
        call.set("function", std::move(read_function));
        out.push(std::move(call));
    }
    return out;
}

Expected<Json, JobError> read_message(const Json& value, const std::string& field) {
    if (!value.is_object()) return unexpected(wrong_type(field, "an object", value));
    Json message = value;
    const Json* role = value.find("role");
    if (role == nullptr || !role->is_string()) return unexpected(missing(field + ".role", role, "it says who speaks, such as \"user\""));
    if (role->as_string()->empty()) return unexpected(wrong_value(field + ".role", *role, "a name such as \"user\""));

    bool has_calls = false;
    if (const Json* calls = value.find("tool_calls"); calls != nullptr && !calls->is_null()) {
        auto read = read_tool_calls(*calls, field + ".tool_calls");
        if (!read) return unexpected(std::move(read.error()));
        has_calls = !read->as_array()->empty();
        message.set("tool_calls", std::move(*read));
    }

    const Json* content = value.find("content");
    if (content == nullptr || content->is_null()) {
        if (!has_calls && *role->as_string() != "assistant") {
            return unexpected(missing(field + ".content", content, "only an assistant's message may leave it out"));
        }
    } else if (const auto* parts = content->as_array()) {
        if (auto error = check_parts(*parts, field + ".content")) return unexpected(std::move(*error));
    } else if (!content->is_string()) {
        return unexpected(wrong_type(field + ".content", "a string or an array of text parts", *content));
    }
    return message;
}

// Of a content, or of its last part.
std::string last_text_of(const Json& content) {
    if (const auto* text = content.as_string()) return *text;
    const auto* parts = content.as_array();
    return parts == nullptr || parts->empty() ? std::string() : *parts->back().find("text")->as_string();
}

Expected<std::vector<std::int32_t>, JobError> read_ids(const std::string& field, const Json::Array& values) {
    if (values.empty()) return unexpected(invalid(field, fmt::format("field '{}' is empty; give at least one token id", field)));
    std::vector<std::int32_t> ids;
    ids.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        auto id = read_token_id(fmt::format("{}[{}]", field, i), values[i]);
        if (!id) return unexpected(std::move(id.error()));
        ids.push_back(*id);
    }
    return ids;
}

}  // namespace

Expected<ReadMessages, JobError> read_messages(const Json& value) {
    const auto* messages = value.as_array();
    if (messages == nullptr) return unexpected(wrong_type("messages", "an array", value));
    if (messages->empty()) return unexpected(invalid("messages", "field 'messages' is empty; give at least one message"));
    Json out = Json::array({});
    for (std::size_t i = 0; i < messages->size(); ++i) {
        auto message = read_message((*messages)[i], fmt::format("messages[{}]", i));
        if (!message) return unexpected(std::move(message.error()));
        out.push(std::move(*message));
    }
    const Json* last = messages->back().find("content");
    return ReadMessages{.json = out.dump(), .last_text = last == nullptr ? std::string() : last_text_of(*last)};
}

Expected<std::vector<TextPrompt>, JobError> read_prompts(std::string_view field, const Json& value) {
    constexpr const char* shapes = "a string, a list of strings, a list of token ids or a list of such lists";
    if (const auto* text = value.as_string()) return std::vector<TextPrompt>{*text};
    const auto* values = value.as_array();
    if (values == nullptr) return unexpected(wrong_type(field, shapes, value));
    if (values->empty()) return unexpected(invalid(field, fmt::format("field '{}' is empty; allowed is {}", field, shapes)));
    const std::string name(field);
    std::vector<TextPrompt> prompts;
    if (values->front().is_number()) {
        auto ids = read_ids(name, *values);
        if (!ids) return unexpected(std::move(ids.error()));
        prompts.emplace_back(std::move(*ids));
        return prompts;
    }
    const bool texts = values->front().is_string();
    for (std::size_t i = 0; i < values->size(); ++i) {
        const Json& element = (*values)[i];
        const std::string place = fmt::format("{}[{}]", field, i);
        if (texts && element.is_string()) {
            prompts.emplace_back(*element.as_string());
        } else if (!texts && element.is_array()) {
            auto ids = read_ids(place, *element.as_array());
            if (!ids) return unexpected(std::move(ids.error()));
            prompts.emplace_back(std::move(*ids));
        } else {
            return unexpected(wrong_type(place, texts ? "a string as those before it" : "a string or a list of token ids", element));
        }
    }
    return prompts;
}

Expected<std::int32_t, JobError> read_token_id(std::string_view place, const Json& value) {
    if (!value.is_number()) return unexpected(wrong_type(place, "a token id", value));
    if (!value.is_integer() || *value.as_integer() < 0 || *value.as_integer() > std::numeric_limits<std::int32_t>::max()) {
        return unexpected(wrong_value(place, value, "a token id, 0 or more"));
    }
    return static_cast<std::int32_t>(*value.as_integer());
}

Expected<std::vector<std::int32_t>, JobError> read_token_ids(std::string_view field, const Json& value) {
    const auto* values = value.as_array();
    if (values == nullptr) return unexpected(wrong_type(field, "an array of token ids", value));
    return read_ids(std::string(field), *values);
}

Expected<std::vector<std::string>, JobError> read_words(std::string_view field, const Json& value, const WordLimits& limits) {
    const auto* list = value.as_array();
    if (list != nullptr && list->size() > limits.words)
        return unexpected(wrong_value(field, value, fmt::format("a list of up to {} strings", limits.words)));
    if (list == nullptr && !(limits.single && value.is_string()))
        return unexpected(wrong_type(field, limits.single ? "a string or an array of strings" : "an array of strings", value));
    std::vector<std::string> words;
    std::size_t bytes = 0;
    for (const Json& element : list == nullptr ? Json::Array{value} : *list) {
        const auto* word = element.as_string();
        if (word == nullptr)
            return unexpected(wrong_type(field, limits.single ? "a string or an array of strings" : "an array of strings", element));
        if (word->empty() || word->size() > limits.bytes)
            return unexpected(wrong_value(field, element, fmt::format("a text of 1 to {} bytes", limits.bytes)));
        bytes += word->size();
        if (bytes > limits.all_bytes)
            return unexpected(wrong_value(field, value, fmt::format("texts of {} bytes together", limits.all_bytes)));
        words.push_back(*word);
    }
    return words;
}

Expected<std::vector<std::string>, JobError> read_choices(const Json& value) {
    const auto* values = value.as_array();
    if (values == nullptr) return unexpected(wrong_type("choices", "an array of strings", value));
    if (values->size() < 2) return unexpected(wrong_value("choices", value, "a list of at least 2 strings"));
    std::vector<std::string> choices;
    std::unordered_set<std::string_view> seen;
    choices.reserve(values->size());
    for (std::size_t i = 0; i < values->size(); ++i) {
        const std::string place = fmt::format("choices[{}]", i);
        const auto* choice = (*values)[i].as_string();
        if (choice == nullptr) return unexpected(wrong_type(place, "a string", (*values)[i]));
        if (choice->empty()) return unexpected(wrong_value(place, (*values)[i], "a text that is not empty"));
        if (!seen.insert(*choice).second) {
            return unexpected(invalid(place, fmt::format("field '{}' repeats {}; choices must differ", place, shown((*values)[i]))));
        }
        choices.push_back(*choice);
    }
    return choices;
}

}  // namespace lorry::schema
