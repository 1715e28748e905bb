// Implements ChatTemplate with the crate's C functions. Finds the template and the special tokens in a model's files.
#include "engine/text/chat_template.h"

#include <stdexcept>
#include <utility>

#include "engine/text/abi.h"
#include "engine/text/tokenizer_files.h"
#include "schema/json.h"

namespace lorry::engine {

namespace {

using schema::Json;

struct Templates {
    std::filesystem::path file;  // for messages
    Json by_name = Json::object({});
    bool is_empty() const { return by_name.as_object()->empty(); }
};

// Reads "chat_template" of tokenizer_config.json or chat_template.json: a string, or [{"name": ..., "template": ...}, ...].
Templates templates_in(const std::filesystem::path& file, const Json& config) {
    Templates found{.file = file};
    const Json* value = config.find("chat_template");
    if (value == nullptr || value->is_null()) return found;
    if (value->is_string()) {
        found.by_name.set("default", *value);
        return found;
    }
    if (!value->is_array()) throw std::runtime_error(file.string() + ": chat_template must be a string or a list, not " + value->kind());
    for (const Json& entry : *value->as_array()) {
        const Json* name = entry.find("name");
        const Json* source = entry.find("template");
        if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string()) {
            throw std::runtime_error(file.string() + ": each entry of the list chat_template needs the strings \"name\" and \"template\"");
        }
        // Templates with other names are selected by name, which a job cannot do.
        if (*name->as_string() == "default" || *name->as_string() == "tool_use") found.by_name.set(*name->as_string(), *source);
    }
    return found;
}

Templates templates_in(const std::filesystem::path& folder) {
    const auto jinja = folder / "chat_template.jinja";
    if (const auto source = read_if_there(jinja)) {
        Templates found{.file = jinja};
        found.by_name.set("default", *source);
        if (const auto tool_use = read_if_there(folder / "additional_chat_templates" / "tool_use.jinja")) {
            found.by_name.set("tool_use", *tool_use);
        }
        return found;
    }
    Templates found;
    for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
        const auto file = folder / name;
        found = templates_in(file, read_json_object(file));
        if (!found.is_empty()) break;
    }
    return found;
}

Templates find_templates(const TextFolder& folder) {
    for (const std::filesystem::path& place : folder.templates()) {
        if (auto found = templates_in(place); !found.is_empty()) return found;
    }
    return {};
}

// The templates, and the special tokens whose names are in them: they decide how chats are rendered. Parsers drop a newline at the end.
std::string meaning_of(const Json& by_name, const Json& special_tokens) {
    Json templates = Json::object({});
    Json tokens = Json::object({});
    for (const auto& [name, text] : *by_name.as_object()) {
        std::string_view source = *text.as_string();
        if (source.ends_with('\n')) source.remove_suffix(1);
        templates.set(name, std::string(source));
        for (const auto& [token, value] : *special_tokens.as_object()) {
            if (source.find(token) != std::string_view::npos) tokens.set(token, value);
        }
    }
    return Json::object({{"templates", std::move(templates)}, {"special_tokens", std::move(tokens)}}).dump();
}

}  // namespace

void ChatTemplate::Free::operator()(lorry_text_chat_template* handle) const { lorry_text_chat_template_free(handle); }

std::optional<ChatTemplate> ChatTemplate::load(const TextFolder& folder) {
    auto templates = find_templates(folder);
    if (templates.is_empty()) return std::nullopt;
    std::string source;
    for (const auto& [name, text] : *templates.by_name.as_object()) source += *text.as_string() + '\n';
    Json special_tokens = special_tokens_of(folder, read_json_object(folder.tokenizer_config()));
    std::string meaning = meaning_of(templates.by_name, special_tokens);
    const auto description =
        Json::object({{"templates", std::move(templates.by_name)}, {"special_tokens", std::move(special_tokens)}}).dump();
    lorry_text_chat_template* handle = nullptr;
    std::string error;
    if (lorry_text_chat_template_new(abi::view_of(description), &handle, abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error(templates.file.string() + " cannot be used: " + error + "; correct the template, or remove it to serve " +
                                 "/v1/completions only");
    }
    return ChatTemplate(Handle(handle), std::move(source), std::move(meaning));
}

Expected<std::string, std::string> ChatTemplate::render(const ChatRequest& request) const {
    const lorry_text_chat_request view = {.messages = abi::view_of(request.messages_json),
                                          .tools = abi::view_of(request.tools_json),
                                          .extra = abi::view_of(request.extra_json),
                                          .add_generation_prompt = request.add_generation_prompt};
    std::string text;
    std::string error;
    if (lorry_text_chat_template_render(handle_.get(), &view, abi::sink_into(text), abi::sink_into(error)) != LORRY_TEXT_OK) {
        return unexpected(std::move(error));
    }
    return text;
}

}  // namespace lorry::engine
