// A model's chat template: renders the messages of a chat job into the text of a prompt, exactly as vLLM does with transformers'
// apply_chat_template.
// Loaded once per model at start; used by consumer/text/text_preparer.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/text/tokenizer_files.h"
#include "schema/check.h"

struct lorry_text_chat_template;

namespace lorry::engine {

// The texts are JSON in UTF-8. render() gives the messages to the template as vLLM does: without null members and empty tool_calls, with
// contents as texts or parts by what the template takes, with the role `developer` as `system` if the template does not name it, and with a
// message's reasoning as `thinking` and as `reasoning_content`. The caller converts the arguments of tool_calls, which are a string in
// OpenAI's wire format, and an object in templates.
struct ChatRequest {
    std::string messages_json = {};  // a list of objects
    std::string tools_json = {};     // a list; empty: no tools
    bool add_generation_prompt = true;
    std::string extra_json = {};  // an object of further variables (chat_template_kwargs); may be empty
};

// Constant after load(); render() may be called by many threads at once. Copies share what was parsed.
class ChatTemplate {
public:
    // Reads chat_template.jinja (and additional_chat_templates/tool_use.jinja), else chat_template.json, else "chat_template" in
    // tokenizer_config.json: one template, or a list of named ones, of which "default" and, for requests with tools, "tool_use" are used.
    // nullopt if there is no template. Throws std::runtime_error that names the file and the line if a template is broken.
    static std::optional<ChatTemplate> load(const TextFolder& folder);
    static std::optional<ChatTemplate> load(const std::filesystem::path& model_folder) { return load(TextFolder(model_folder)); }

    // The prompt, to be encoded without adding special tokens. The error is for the sender of the job: the message of raise_exception, or
    // what failed in which line of the template.
    Expected<std::string, std::string> render(const ChatRequest& request) const;
    // Of all templates, as they are written: it shows how the model writes thoughts and tool calls.
    const std::string& source() const { return source_; }
    // Whether it renders every chat as the other one does, as far as their texts show: they are the same, and so are the special tokens in
    // them.
    bool renders_as(const ChatTemplate& other) const { return meaning_ == other.meaning_; }

private:
    struct Free {
        void operator()(lorry_text_chat_template* handle) const;
    };
    using Handle = std::unique_ptr<lorry_text_chat_template, Free>;

    ChatTemplate(Handle handle, std::string source, std::string meaning)
        : handle_(std::move(handle)), source_(std::move(source)), meaning_(std::move(meaning)) {}

    std::shared_ptr<const lorry_text_chat_template> handle_;
    std::string source_;
    std::string meaning_;
};

}  // namespace lorry::engine
