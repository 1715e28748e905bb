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

Templates find_templates(const std::filesystem::path& folder, const Json& tokenizer_config) {
    const auto jinja = folder / "chat_template.jinja";
    if (const auto source = read_if_there(jinja)) {
        Templates found{.file = jinja};
        found.by_name.set("default", *source);
        if (const auto tool_use = read_if_there(folder / "additional_chat_templates" / "tool_use.jinja")) {
            found.by_name.set("tool_use", *tool_use);
        }
        return found;
    }
    const auto json = folder / "chat_template.json";
    auto found = templates_in(json, read_json_object(json));
    if (found.by_name.as_object()->empty()) found = templates_in(folder / "tokenizer_config.json", tokenizer_config);
    return found;
}

}  // namespace

void ChatTemplate::Free::operator()(lorry_text_chat_template* handle) const { lorry_text_chat_template_free(handle); }

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_folder) {
    const auto config = read_json_object(model_folder / "tokenizer_config.json");
    auto templates = find_templates(model_folder, config);
    if (templates.by_name.as_object()->empty()) return std::nullopt;
    std::string source;
    for (const auto& [name, text] : *templates.by_name.as_object()) source += *text.as_string() + '\n';
    const auto description =
        Json::object({{"templates", std::move(templates.by_name)}, {"special_tokens", special_tokens_of(model_folder, config)}}).dump();
    lorry_text_chat_template* handle = nullptr;
    std::string error;
    if (lorry_text_chat_template_new(abi::view_of(description), &handle, abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error(templates.file.string() + " cannot be used: " + error + "; correct the template, or remove it to serve " +
                                 "/v1/completions only");
    }
    return ChatTemplate(Handle(handle), std::move(source));
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
