// Tokenizes, and turns what can go wrong into the job's error.
#include "consumer/text/text_encoder.h"

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

using schema::ErrorCode;
using schema::JobError;

// Tokenizing a megabyte takes half a second, in which no other job is read. No text has this many bytes for each of its tokens: the longest
// tokens in use stand for 128 spaces.
constexpr std::size_t token_bytes_max = 128;

}  // namespace

JobError error_at(ErrorCode code, std::string_view param, std::string message) {
    return {.code = code, .param = std::string(param), .message = std::move(message)};
}

Expected<void, JobError> TextEncoder::check_bytes(std::size_t bytes, std::string_view field) const {
    if (bytes / token_bytes_max <= static_cast<std::size_t>(context_max_)) return {};
    return unexpected(error_at(ErrorCode::context_length_exceeded, field,
                               fmt::format("this model takes {} tokens; a text of {} bytes has more: shorten it", context_max_, bytes)));
}

Expected<std::vector<engine::TokenId>, JobError> TextEncoder::encode(std::string_view text, bool add_special_tokens,
                                                                     std::string_view field) const {
    if (auto fits = check_bytes(text.size(), field); !fits) return unexpected(fits.error());
    auto tokens = tokenizer_.encode(text, add_special_tokens);
    if (!tokens) return unexpected(error_at(ErrorCode::invalid_text, field, tokens.error()));
    // A tokenizer may know more tokens than the model.
    if (auto valid = check_tokens(*tokens, field); !valid) return unexpected(valid.error());
    return std::move(*tokens);
}

Expected<engine::Encoding, JobError> TextEncoder::encode_pair(std::string_view first, std::optional<std::string_view> second,
                                                              const std::optional<engine::EncodeLimit>& limit,
                                                              std::string_view field) const {
    // A text that is cut may be longer, but not without limit: all of it is tokenized first.
    constexpr std::size_t cut_factor = 4;
    const std::size_t bytes = first.size() + second.value_or("").size();
    if (auto fits = check_bytes(bytes, field); !fits && (!limit || !check_bytes(bytes / cut_factor, field)))
        return unexpected(fits.error());
    if (second && !tokenizer_.takes_pairs()) {
        return unexpected(
            error_at(ErrorCode::unsupported_by_model, field,
                     "this model's tokenizer takes no pairs of texts: the post_processor of its tokenizer.json leaves one out"));
    }
    auto encoding = tokenizer_.encode_pair(first, second, limit);
    if (!encoding) {
        // Without the limit the same texts may be fine: then the limit is at fault.
        if (limit && tokenizer_.encode_pair(first, second, std::nullopt)) {
            return unexpected(
                error_at(ErrorCode::invalid_value, "truncate_prompt_tokens", "field 'truncate_prompt_tokens': " + encoding.error()));
        }
        return unexpected(error_at(ErrorCode::invalid_text, field, encoding.error()));
    }
    if (auto valid = check_tokens(encoding->ids, field); !valid) return unexpected(valid.error());
    return std::move(*encoding);
}

Expected<std::vector<engine::Encoding>, JobError> TextEncoder::encode_windows(std::string_view text, const engine::WindowLimit& limit,
                                                                              std::string_view field) const {
    auto windows = tokenizer_.encode_windows(text, limit);
    if (!windows) {
        if (auto whole = tokenizer_.encode_pair(text, std::nullopt, std::nullopt); !whole) {
            return unexpected(error_at(ErrorCode::invalid_text, field, whole.error()));
        }
        return unexpected(
            error_at(ErrorCode::invalid_value, "stride",
                     fmt::format("field 'stride' is {}, and '{}' cannot be split that way: {}", limit.stride, field, windows.error())));
    }
    for (const engine::Encoding& window : *windows) {
        if (auto valid = check_tokens(window.ids, field); !valid) return unexpected(valid.error());
    }
    return std::move(*windows);
}

Expected<void, JobError> TextEncoder::check_tokens(const std::vector<std::int32_t>& ids, std::string_view field) const {
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= vocabulary_) {
            return unexpected(
                error_at(ErrorCode::unknown_token, field,
                         "token id " + std::to_string(id) + " is not in the vocabulary of " + std::to_string(vocabulary_) + " tokens"));
        }
    }
    return {};
}

}  // namespace lorry::consumer
