// A model's tokenizer: converts text to ids and back, exactly as Hugging Face's tokenizers library does. Loaded once per model at start;
// used by consumer/text/ (encode), for logprobs (token_bytes), by Detokenizer, and by encoder models (encode_pair, encode_windows).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/encoding.h"
#include "engine/text/token.h"
#include "engine/text/tokenizer_files.h"
#include "schema/check.h"

struct lorry_text_tokenizer;

namespace lorry::engine {

// Constant after load(); all members may be called by many threads at once.
class Tokenizer {
public:
    // Reads tokenizer.json, which alone decides which special tokens encode() adds, and of tokenizer_config.json the eos_token, further
    // tokens (added_tokens_decoder) and, for classes that transformers reconfigures, options that differ from tokenizer.json:
    // do_lower_case, for example. Truncation and padding of the file are not applied. Where there is no tokenizer.json, the older files of
    // the tokenizer's class are converted as transformers does: vocab.txt, vocab.json with merges.txt, or a SentencePiece model. Throws
    // std::runtime_error that names the file and what to do if a file is missing or unusable, or the class if there is no conversion.
    static Tokenizer load(const TextFolder& folder);
    static Tokenizer load(const std::filesystem::path& model_folder) { return load(TextFolder(model_folder)); }

    // What makes this tokenizer of an adapter's folder give other ids or texts than its base's, as the rest of a sentence: "its decoder is
    // another one". nullopt: nothing does, however their files are written. The padding token and truncation do not matter, because neither
    // is applied here. Throws std::runtime_error if its add_bos_token or add_eos_token contradicts its post-processor, unlike the
    // base's: transformers may have trained with either.
    std::optional<std::string> difference_from(const Tokenizer& base) const;

    // Special tokens spelled out in `text` become their ids, as with Hugging Face. Text from a chat template already has special tokens:
    // encode it without adding any. The error says why the text cannot be encoded, for example because it is not UTF-8.
    Expected<std::vector<TokenId>, std::string> encode(std::string_view text, bool add_special_tokens) const;

    // One text or a pair, with special tokens and token types as the post-processor of tokenizer.json says. Truncates exactly as Hugging
    // Face does; nullopt: no limit. The error says why: a text is not UTF-8, the limit is less than the special tokens, or only_first or
    // only_second cannot reach it.
    Expected<Encoding, std::string> encode_pair(std::string_view first, std::optional<std::string_view> second,
                                                std::optional<EncodeLimit> limit) const;
    // The whole text in windows (Hugging Face's overflowing tokens). At least one window. The error says why there are none: the stride
    // does not fit into a window, or there would be too many.
    Expected<std::vector<Encoding>, std::string> encode_windows(std::string_view text, const WindowLimit& limit) const;
    // False: what the post-processor makes of a pair lacks one of its texts.
    bool takes_pairs() const;
    // Whether models are given the token types: not where model_input_names of tokenizer_config.json leaves them out.
    bool gives_types() const { return types_listed_.value_or(true); }
    // How many tokens the post-processor adds to one text or to a pair.
    std::int32_t special_tokens_added(bool pair) const;
    // As configured by tokenizer_config.json or special_tokens_map.json, else by the tokenizer's class in transformers.
    std::optional<TokenId> mask_token() const { return named_token("mask_token"); }
    std::optional<TokenId> pad_token() const { return named_token("pad_token"); }
    std::optional<TokenId> unknown_token() const { return named_token("unk_token"); }

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
    // The token as the vocabulary spells it: "##ing", "Ġword". Empty for ids without a token.
    std::string token_spelling(TokenId id) const;
    // True if the vocabulary marks the tokens that continue a word by a prefix, such as BERT's "##".
    bool marks_subwords() const;

private:
    friend class Detokenizer;
    friend class GrammarCompiler;
    struct Free {
        void operator()(lorry_text_tokenizer* handle) const;
    };
    using Handle = std::unique_ptr<lorry_text_tokenizer, Free>;

    explicit Tokenizer(Handle handle) : handle_(std::move(handle)) {}

    std::optional<TokenId> named_token(std::string_view name) const;

    Handle handle_;
    std::optional<TokenId> eos_;
    std::optional<bool> types_listed_;  // whether model_input_names has token_type_ids; nullopt: there is no such list
    // What tokenizer_config.json says of a token at an edge of each text: transformers makes a post-processor of it for some classes.
    struct Edge {
        std::string name;  // "add_bos_token"
        std::optional<TokenId> token;
        bool is_added = false;
    };
    std::vector<Edge> edges_;
};

}  // namespace lorry::engine
