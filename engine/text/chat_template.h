// A model's chat template: the messages of a chat job become the text of a prompt, exactly as transformers' apply_chat_template renders it.
// Made once per model at start, used at intake.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "schema/check.h"

struct lorry_text_chat_template;

namespace lorry::engine {

// Texts are JSON in UTF-8, handed to the template as they are: whoever fills them turns what OpenAI's wire format has and templates do not
// expect (tool_calls' arguments as a string) into what they do (an object).
struct ChatRequest {
    std::string messages_json = {};  // a list of objects
    std::string tools_json = {};     // a list; empty: none
    bool add_generation_prompt = true;
    std::string extra_json = {};  // an object of further variables (chat_template_kwargs); may be empty
};

// Constant after load; render may be called by many threads at once.
class ChatTemplate {
public:
    // Reads chat_template.jinja (and additional_chat_templates/tool_use.jinja), else chat_template.json, else "chat_template" in
    // tokenizer_config.json: one template or a list of named ones, of which "default" and, for requests with tools, "tool_use" count.
    // Special tokens come from tokenizer_config.json, or from special_tokens_map.json beside an old one. Nothing if there is no template.
    // Throws std::runtime_error, naming the file and the line, if there is a broken one.
    static std::optional<ChatTemplate> load(const std::filesystem::path& model_folder);

    // The prompt, to be encoded without adding special tokens. The error is for whoever sent the job: raise_exception's own words, or what
    // the template could not do and in which line.
    Expected<std::string, std::string> render(const ChatRequest& request) const;

private:
    struct Free {
        void operator()(lorry_text_chat_template* handle) const;
    };
    using Handle = std::unique_ptr<lorry_text_chat_template, Free>;

    explicit ChatTemplate(Handle handle) : handle_(std::move(handle)) {}

    Handle handle_;
};

}  // namespace lorry::engine
