// Renders pairs as messages, after it has seen that other texts give other prompts.
#include "consumer/pair_template.h"

#include <fmt/format.h>

#include "consumer/text/text_encoder.h"
#include "schema/json.h"

namespace lorry::consumer {

using schema::ErrorCode;
using schema::JobError;
using schema::Json;

PairTemplate::PairTemplate(const std::optional<engine::ChatTemplate>& chat_template, const engine::TokenScore& score)
    : chat_template_(chat_template), score_(score) {
    if (!chat_template_) {
        obstacle_ = "there is none";
        return;
    }
    // As sentence-transformers finds out: a role that the template does not show changes nothing.
    const auto base = text_of({.query = "one", .document = "two"});
    const auto query = text_of({.query = "three", .document = "two"});
    const auto document = text_of({.query = "one", .document = "three"});
    const auto instruction = text_of({.query = "one", .document = "two", .instruction = "four"});
    for (const auto* text : {&base, &query, &document, &instruction}) {
        if (!*text) obstacle_ = "it fails: " + text->error();
    }
    if (!obstacle_.empty()) return;
    if (*query == *base) obstacle_ = "it does not show the query";
    if (*document == *base) obstacle_ = "it does not show the document";
    shows_instruction_ = *instruction != *base;
}

Expected<std::string, JobError> PairTemplate::render(const PairTexts& pair) const {
    if (!obstacle_.empty()) {
        return unexpected(error_at(ErrorCode::no_chat_template, "model",
                                   fmt::format("this model's chat template cannot show a pair of texts: {}; its chat_template.jinja needs "
                                               "messages of the roles query and document",
                                               obstacle_)));
    }
    if (pair.instruction && !shows_instruction_) {
        return unexpected(error_at(ErrorCode::unsupported_field, "instruction",
                                   "field 'instruction' is not supported: this model's chat template shows no system message beside a "
                                   "query and a document; leave it out"));
    }
    auto text = text_of(pair);
    if (!text) return unexpected(error_at(ErrorCode::chat_template_failed, "model", "the chat template failed: " + text.error()));
    return std::move(*text);
}

Expected<std::string, std::string> PairTemplate::text_of(const PairTexts& pair) const {
    Json messages = Json::array({});
    const auto add = [&](const char* role, std::string_view text) {
        messages.push(Json::object({{"role", role}, {"content", std::string(text)}}));
    };
    const std::string instruction = pair.instruction.value_or(score_.instruction);
    if (!instruction.empty()) add("system", instruction);
    add("query", pair.query);
    add("document", pair.document);
    return chat_template_->render({.messages_json = messages.dump(), .add_generation_prompt = score_.adds_generation_prompt});
}

}  // namespace lorry::consumer
