// A model's tokenizer: converts text to ids and back, exactly as Hugging Face's tokenizers library does. Loaded once per model at start;
// used by consumer/preparer.cpp (encode), for logprobs (token_bytes) and by Detokenizer.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/token.h"
#include "schema/check.h"

struct lorry_text_tokenizer;

namespace lorry::engine {

// Constant after load(); all members may be called by many threads at once.
class Tokenizer {
public:
    // Reads tokenizer.json, which alone decides which special tokens encode() adds, and of tokenizer_config.json the eos_token and
    // further tokens (added_tokens_decoder). Truncation and padding are not applied. Throws std::runtime_error that names the file and what
    // to do if the file is missing or unusable.
    static Tokenizer load(const std::filesystem::path& model_folder);

    // Special tokens spelled out in `text` become their ids, as with Hugging Face. Text from a chat template already has special tokens:
    // encode it without adding any. The error says why the text cannot be encoded, for example because it is not UTF-8.
    Expected<std::vector<TokenId>, std::string> encode(std::string_view text, bool add_special_tokens) const;
    // The result is always UTF-8; invalid bytes become U+FFFD. Ids without a token are skipped.
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

    // The highest id + 1; the model's logits may have more columns.
    std::size_t vocabulary_size() const;
    // The tokens that end a text, as in vLLM: the configured ones, and the eos_token of tokenizer_config.json, which often ends turns where
    // a fine-tuned model kept its base's configuration. Without ids that the model cannot draw. vocabulary: of the model.
    std::vector<TokenId> end_tokens(std::span<const TokenId> configured, std::int64_t vocabulary) const;
    // The id of exactly this token, spelled as in tokenizer.json.
    std::optional<TokenId> find(std::string_view token) const;
    // The bytes that the token stands for after other tokens, with byte-level spelling and byte fallback decoded; possibly part of a
    // character. Empty for ids without a token.
    std::string token_bytes(TokenId id) const;
    bool is_special(TokenId id) const;

private:
    friend class Detokenizer;
    struct Free {
        void operator()(lorry_text_tokenizer* handle) const;
    };
    using Handle = std::unique_ptr<lorry_text_tokenizer, Free>;

    explicit Tokenizer(Handle handle) : handle_(std::move(handle)) {}

    Handle handle_;
    std::optional<TokenId> eos_;
};

}  // namespace lorry::engine
