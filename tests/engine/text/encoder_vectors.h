// The vectors of tests/data/text/encoders, and encodings as readable strings. Used by encoder_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/vectors.h"

namespace lorry::engine::text_vectors {

// Each is a folder; make_encoder_vectors.py says what it is for.
inline const std::vector<std::string> encoder_kinds = {"bert_uncased",   "bert_cased", "bert_accents",  "mpnet",      "roberta",
                                                       "roberta_prefix", "gpt2",       "qwen2",         "modernbert", "xlm_roberta",
                                                       "camembert",      "deberta_v2", "deberta_lower", "albert",     "t5"};

inline std::filesystem::path encoder_folder_of(std::string_view kind) { return folder_of("encoders") / kind; }
inline schema::Json encoder_vectors_of(std::string_view kind) { return read_json(encoder_folder_of(kind) / "vectors.json"); }

inline std::optional<std::string_view> optional_text(const schema::Json& object, std::string_view key) {
    const auto* value = member(object, key).as_string();
    return value == nullptr ? std::nullopt : std::optional<std::string_view>(*value);
}

// One line for each token: id, type, text, word, begin, end.
inline std::string readable(const Encoding& encoding) {
    std::ostringstream out;
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
        const auto& span = encoding.spans.at(i);
        out << encoding.ids[i] << ' ' << encoding.types.at(i) << ' ' << span.text << ' ' << span.word << ' ' << span.begin << ' '
            << span.end << '\n';
    }
    return std::move(out).str();
}

inline std::string expected(const schema::Json::Array& tokens) {
    std::ostringstream out;
    for (const auto& token : tokens) {
        const char* between = "";
        for (const auto& number : *token.as_array()) {
            out << between << *number.as_integer();
            between = " ";
        }
        out << '\n';
    }
    return std::move(out).str();
}

inline EncodeLimit limit_of(const schema::Json& entry) {
    const auto& strategy = text(entry, "strategy");
    return {.max_tokens = static_cast<std::size_t>(*member(entry, "max_tokens").as_integer()),
            .side = text(entry, "side") == "left" ? TruncationSide::left : TruncationSide::right,
            .strategy = strategy == "only_first"    ? TruncationStrategy::only_first
                        : strategy == "only_second" ? TruncationStrategy::only_second
                                                    : TruncationStrategy::longest_first};
}

// Returns how many were compared.
inline std::size_t compare_texts_and_pairs(const Tokenizer& tokenizer, const schema::Json& vectors) {
    for (const auto& entry : list(vectors, "single")) {
        const auto encoded = tokenizer.encode_pair(text(entry, "text"), std::nullopt, std::nullopt);
        EXPECT_EQ(encoded ? readable(*encoded) : encoded.error(), expected(list(entry, "tokens"))) << text(entry, "text");
    }
    for (const auto& entry : list(vectors, "pairs")) {
        const auto encoded = tokenizer.encode_pair(text(entry, "first"), text(entry, "second"), std::nullopt);
        EXPECT_EQ(encoded ? readable(*encoded) : encoded.error(), expected(list(entry, "tokens"))) << entry.dump();
    }
    return list(vectors, "single").size() + list(vectors, "pairs").size();
}

}  // namespace lorry::engine::text_vectors
