// The table of endpoints: the urls that a job may name, one row each, with every difference that a word or a number can express.
// Differences in code are switches over Endpoint or TextShape: none has a default, so that a new enumerator does not compile until each
// switch has a case for it. The codec reads jobs by this table; what is computed also depends on the model (consumer/work.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "schema/check.h"

namespace lorry::schema {

enum class Endpoint : std::uint8_t {
    chat_completions,
    completions,
    classify,
    embeddings,
    token_classify,
    score,
    rerank,
    fill_mask,
};

// What one entry of the result's list looks like where tokens are drawn.
enum class TextShape : std::uint8_t {
    message,  // {"index", "message": {"role", "content"}, "logprobs", "finish_reason"}
    text,     // {"index", "text", "logprobs", "finish_reason"}
};

// Of an endpoint that draws tokens.
struct GenerationRow {
    std::optional<std::int32_t> max_tokens_default;  // nullopt: the model's, or what the context holds
    TextShape shape;
    std::string_view chunk_object;  // of streamed chunks
};

struct EndpointRow {
    std::string_view url;
    // Of the job's body.
    std::string_view prompt_field;              // that holds the prompt
    std::string_view prompt_advice;             // what to do when it is missing
    bool takes_messages = false;                // `messages`, in place of prompt_field or as it
    std::optional<GenerationRow> generation{};  // nullopt: nothing is drawn
    // Of the result's body.
    std::string_view id_prefix;
    std::string_view object;
    std::string_view list_key;
};

// The table, as a function so that an enumerator without a row does not compile (-Wswitch). nullopt: not an enumerator.
constexpr std::optional<EndpointRow> find_endpoint_row(Endpoint endpoint) {
    constexpr std::string_view texts = "give a string or a list of strings";
    switch (endpoint) {
        case Endpoint::chat_completions:
            return EndpointRow{
                .url = "/v1/chat/completions",
                .prompt_field = "messages",
                .prompt_advice = "give the chat as a list of messages",
                .takes_messages = true,
                .generation =
                    GenerationRow{.max_tokens_default = std::nullopt, .shape = TextShape::message, .chunk_object = "chat.completion.chunk"},
                .id_prefix = "chatcmpl-",
                .object = "chat.completion",
                .list_key = "choices"};
        case Endpoint::completions:
            return EndpointRow{.url = "/v1/completions",
                               .prompt_field = "prompt",
                               .prompt_advice = "give a string, a list of strings or token ids",
                               .generation = GenerationRow{.max_tokens_default = 16,  // as OpenAI's API
                                                           .shape = TextShape::text,
                                                           .chunk_object = "text_completion"},
                               .id_prefix = "cmpl-",
                               .object = "text_completion",
                               .list_key = "choices"};
        case Endpoint::classify:  // as vLLM's
            return EndpointRow{.url = "/classify",
                               .prompt_field = "input",
                               .prompt_advice = "give 'input' or 'messages'",
                               .takes_messages = true,
                               .id_prefix = "classify-",
                               .object = "list",
                               .list_key = "data"};
        case Endpoint::embeddings:  // as OpenAI's
            return EndpointRow{.url = "/v1/embeddings",
                               .prompt_field = "input",
                               .prompt_advice = "give a string, a list of strings or token ids",
                               .id_prefix = "embd-",
                               .object = "list",
                               .list_key = "data"};
        case Endpoint::token_classify:
            return EndpointRow{.url = "/token_classify",
                               .prompt_field = "input",
                               .prompt_advice = texts,
                               .id_prefix = "tokclass-",
                               .object = "list",
                               .list_key = "data"};
        case Endpoint::score:  // as vLLM's
            return EndpointRow{.url = "/score",
                               .prompt_field = "text_1",
                               .prompt_advice = texts,
                               .id_prefix = "score-",
                               .object = "list",
                               .list_key = "data"};
        case Endpoint::rerank:  // as Jina's, Cohere's and vLLM's
            return EndpointRow{.url = "/rerank",
                               .prompt_field = "query",
                               .prompt_advice = "give the text to compare documents with",
                               .id_prefix = "rerank-",
                               .object = "list",
                               .list_key = "results"};
        case Endpoint::fill_mask:
            return EndpointRow{.url = "/fill_mask",
                               .prompt_field = "input",
                               .prompt_advice = texts,
                               .id_prefix = "fill-",
                               .object = "list",
                               .list_key = "data"};
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

// The endpoint of a job's url. Services differ in which of their urls begin with /v1, so each may be given with and without it.
constexpr std::optional<Endpoint> endpoint_at(std::string_view url) {
    constexpr auto unversioned = [](std::string_view text) {
        constexpr std::string_view version = "/v1";
        return text.starts_with("/v1/") ? text.substr(version.size()) : text;
    };
    for (const Endpoint endpoint : endpoints) {
        if (unversioned(url) == unversioned(row_of(endpoint).url)) return endpoint;
    }
    return std::nullopt;
}

}  // namespace lorry::schema
