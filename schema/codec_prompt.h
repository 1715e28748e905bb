// Reads prompts: chats, texts, token ids, choices and lists of words. Called by the field table of codec_body.cpp.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

struct ReadMessages {
    std::string json;
    std::string last_text;  // of the last message; of several parts, the last one's
};
// An array of chat messages as JSON text, with the arguments of tool calls as objects. Unknown members are passed on to the template.
Expected<ReadMessages, JobError> read_messages(const Json& value);

// A string, a list of strings, a list of token ids or a list of such lists.
Expected<std::vector<TextPrompt>, JobError> read_prompts(std::string_view field, const Json& value);

// 0 or more. place: of the value, for the error.
Expected<std::int32_t, JobError> read_token_id(std::string_view place, const Json& value);
// An array of at least one.
Expected<std::vector<std::int32_t>, JobError> read_token_ids(std::string_view field, const Json& value);

// Strings, none empty.
struct WordLimits {
    std::size_t words = 0;      // the most
    std::size_t bytes = 0;      // of each
    std::size_t all_bytes = 0;  // of all together
    bool single = false;        // a string alone will do
};
Expected<std::vector<std::string>, JobError> read_words(std::string_view field, const Json& value, const WordLimits& limits);

// At least two distinct strings, none empty.
Expected<std::vector<std::string>, JobError> read_choices(const Json& value);

}  // namespace lorry::schema
