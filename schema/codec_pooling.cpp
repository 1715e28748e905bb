// The words and texts of embeddings, classification and scoring.
#include "schema/codec_pooling.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lorry::schema {
namespace {

// The place of the word among `words`.
Expected<std::size_t, JobError> read_word(std::string_view field, const Json& value, std::span<const std::string_view> words) {
    const auto* word = value.as_string();
    if (word == nullptr) return unexpected(wrong_type(field, "a string", value));
    const auto found = std::ranges::find(words, *word);
    if (found == words.end()) return unexpected(wrong_value(field, value, fmt::format("one of {}", fmt::join(words, ", "))));
    return static_cast<std::size_t>(found - words.begin());
}

}  // namespace

Expected<std::string, JobError> read_text(std::string_view field, const Json& value) {
    const auto* text = value.as_string();
    if (text == nullptr) return unexpected(wrong_type(field, "a string", value));
    if (text->empty()) {
        return unexpected(JobError{.code = ErrorCode::empty_prompt,
                                   .param = std::string(field),
                                   .message = fmt::format("field '{}' is an empty text; give at least one character", field)});
    }
    return *text;
}

Expected<std::vector<std::string>, JobError> read_texts(std::string_view field, const Json& value) {
    const auto* values = value.as_array();
    if (values == nullptr) {
        if (!value.is_string()) return unexpected(wrong_type(field, "a string or a list of strings", value));
        auto text = read_text(field, value);
        if (!text) return unexpected(std::move(text.error()));
        return std::vector<std::string>{std::move(*text)};
    }
    if (values->empty()) return unexpected(invalid(field, fmt::format("field '{}' is empty; give at least one text", field)));
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < values->size(); ++i) {
        auto text = read_text(fmt::format("{}[{}]", field, i), (*values)[i]);
        if (!text) return unexpected(std::move(text.error()));
        texts.push_back(std::move(*text));
    }
    return texts;
}

Expected<std::vector<std::string>, JobError> read_documents(const Json& value) {
    const auto* values = value.as_array();
    if (values == nullptr) return unexpected(wrong_type("documents", "an array of strings or of objects with a text", value));
    if (values->empty()) return unexpected(invalid("documents", "field 'documents' is empty; give at least one document"));
    std::vector<std::string> documents;
    for (std::size_t i = 0; i < values->size(); ++i) {
        const Json& one = (*values)[i];
        std::string place = fmt::format("documents[{}]", i);
        if (!one.is_string() && !one.is_object()) return unexpected(wrong_type(place, "a string or an object with a text", one));
        const Json* text = &one;
        if (const auto* members = one.as_object()) {
            for (const auto& [name, member] : *members) {
                if (name == "text") continue;
                return unexpected(unsupported(
                    place + "." + name, fmt::format("field '{}.{}' is not supported; a document has a text", place, shortened(name))));
            }
            place += ".text";
            text = one.find("text");
            if (text == nullptr || text->is_null()) return unexpected(missing(place, text, "it is what the document says"));
        }
        auto document = read_text(place, *text);
        if (!document) return unexpected(std::move(document.error()));
        documents.push_back(std::move(*document));
    }
    return documents;
}

Expected<std::string, JobError> read_hypothesis_template(const Json& value) {
    const auto* text = value.as_string();
    if (text == nullptr) return unexpected(wrong_type("hypothesis_template", "a string", value));
    if (text->find("{}") == std::string::npos) {
        return unexpected(wrong_value("hypothesis_template", value, "a text with {}, where the choice goes"));
    }
    return *text;
}

Expected<bool, JobError> read_is_base64(const Json& value) {
    constexpr std::array<std::string_view, 2> formats{"float", "base64"};
    const auto read = read_word("encoding_format", value, formats);
    if (!read) return unexpected(read.error());
    return *read == 1;
}

Expected<bool, JobError> read_keeps_end(const Json& value) {
    constexpr std::array<std::string_view, 2> sides{"right", "left"};
    const auto read = read_word("truncation_side", value, sides);
    if (!read) return unexpected(read.error());
    return *read == 1;
}

Expected<Aggregation, JobError> read_aggregation(const Json& value) {
    constexpr std::array<std::string_view, 5> names{"none", "simple", "first", "average", "max"};
    constexpr std::array values{Aggregation::none, Aggregation::simple, Aggregation::first, Aggregation::average, Aggregation::max};
    const auto read = read_word("aggregation_strategy", value, names);
    if (!read) return unexpected(read.error());
    return values[*read];
}

Expected<std::optional<std::int64_t>, JobError> read_truncation_tokens(const Json& value) {
    if (!value.is_number()) return unexpected(wrong_type("truncate_prompt_tokens", "an integer", value));
    const auto tokens = value.as_integer();
    if (!tokens || *tokens < -1 || *tokens == 0) {
        return unexpected(
            wrong_value("truncate_prompt_tokens", value, "a number of tokens, 1 or more, or -1 for as many as the model takes"));
    }
    if (*tokens == -1) return std::optional<std::int64_t>();
    return std::optional(*tokens);
}

}  // namespace lorry::schema
