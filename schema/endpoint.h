// The table of endpoints: the urls that a job may name, one row each, with everything that differs between them in a word or a number.
// What differs in code is a switch over a row's Work or AnswerShape, or over Endpoint: none has a default, so that a new enumerator does
// not compile until each has its case. The codec reads jobs by it, consumer/preparer.cpp prepares them, consumer/reply.cpp answers them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "schema/check.h"

namespace lorry::schema {

enum class Endpoint : std::uint8_t { chat_completions, completions, classify };

// What is computed for a job.
enum class Work : std::uint8_t {
    draw,           // tokens that continue each prompt, n times
    score_choices,  // the log-probability of each choice after each prompt
};

// What one entry of the result's list looks like.
enum class AnswerShape : std::uint8_t {
    message,  // {"index", "message": {"role", "content"}, "logprobs", "finish_reason"}
    text,     // {"index", "text", "logprobs", "finish_reason"}
    label,    // {"index", "label", "probs", "num_classes", "logprobs"}
};

struct EndpointRow {
    std::string_view url;
    // Of the job's body.
    std::string_view prompt_field;   // that holds the prompt
    std::string_view prompt_advice;  // what to do when it is missing
    bool takes_messages;             // `messages`, in place of prompt_field or as it
    std::optional<std::int32_t> max_tokens_default;  // nullopt: the model's, or what the context holds
    Work work;
    // Of the result's body and of streamed chunks.
    std::string_view id_prefix;
    std::string_view object;
    std::optional<std::string_view> chunk_object;  // nullopt: answers are not streamed
    std::string_view list_key;
    AnswerShape answer;
};

// The table, as a function so that an enumerator without a row does not compile (-Wswitch). nullopt: not an enumerator.
constexpr std::optional<EndpointRow> find_endpoint_row(Endpoint endpoint) {
    switch (endpoint) {
        case Endpoint::chat_completions:
            return EndpointRow{.url = "/v1/chat/completions",
                               .prompt_field = "messages",
                               .prompt_advice = "give the chat as a list of messages",
                               .takes_messages = true,
                               .max_tokens_default = std::nullopt,
                               .work = Work::draw,
                               .id_prefix = "chatcmpl-",
                               .object = "chat.completion",
                               .chunk_object = "chat.completion.chunk",
                               .list_key = "choices",
                               .answer = AnswerShape::message};
        case Endpoint::completions:
            return EndpointRow{.url = "/v1/completions",
                               .prompt_field = "prompt",
                               .prompt_advice = "give a string, a list of strings or token ids",
                               .takes_messages = false,
                               .max_tokens_default = 16,  // as OpenAI's API
                               .work = Work::draw,
                               .id_prefix = "cmpl-",
                               .object = "text_completion",
                               .chunk_object = "text_completion",
                               .list_key = "choices",
                               .answer = AnswerShape::text};
        case Endpoint::classify:  // as vLLM's
            return EndpointRow{.url = "/classify",
                               .prompt_field = "input",
                               .prompt_advice = "give 'input' or 'messages'",
                               .takes_messages = true,
                               .max_tokens_default = std::nullopt,
                               .work = Work::score_choices,
                               .id_prefix = "classify-",
                               .object = "list",
                               .chunk_object = std::nullopt,
                               .list_key = "data",
                               .answer = AnswerShape::label};
    }
    return std::nullopt;
}

inline constexpr std::size_t endpoint_count = [] {
    std::size_t count = 0;
    while (find_endpoint_row(static_cast<Endpoint>(count))) ++count;
    return count;
}();

// All endpoints, in the order of the enumerators.
inline constexpr auto endpoints = [] {
    std::array<Endpoint, endpoint_count> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Endpoint>(i);
    return all;
}();

constexpr EndpointRow row_of(Endpoint endpoint) {
    const auto row = find_endpoint_row(endpoint);
    CHECK(row, "each enumerator has a row");
    return *row;
}

}  // namespace lorry::schema
