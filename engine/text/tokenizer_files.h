// Finds and reads the files of a model's folder that say how its tokenizer is used. Called by Tokenizer, ChatTemplate and ModelText.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schema/json.h"

namespace lorry::engine {

// Where the files of a tokenizer and its chat templates are: in a model's folder; or in an adapter's, as far as it has them, and else in
// that of its base.
class TextFolder {
public:
    // A model's.
    explicit TextFolder(std::filesystem::path model) : base_(std::move(model)), own_(base_) {}
    // An adapter's. Reads its older vocabularies, which count only if they differ from the base's. Throws std::runtime_error that names a
    // file that cannot be read.
    TextFolder(std::filesystem::path adapter, std::filesystem::path base);

    // With tokenizer.json, or with the older files of a vocabulary.
    const std::filesystem::path& vocabulary() const { return has_vocabulary_ ? own_ : base_; }
    std::filesystem::path tokenizer_config() const { return (has_config_ ? own_ : base_) / "tokenizer_config.json"; }
    std::filesystem::path special_tokens_map() const { return own_ / "special_tokens_map.json"; }
    // The model's: an adapter's names the labels of its head.
    std::filesystem::path config() const { return base_ / "config.json"; }
    // Of an adapter's base; nullopt: it is a model's own.
    std::optional<TextFolder> base() const { return own_ == base_ ? std::nullopt : std::optional(TextFolder(base_)); }
    // The first that has chat templates counts.
    std::vector<std::filesystem::path> templates() const;

private:
    std::filesystem::path base_;
    std::filesystem::path own_;
    bool has_vocabulary_ = true;
    bool has_config_ = true;
};

// The names of all files that say how texts become tokens, and what chats look like. Paths relative to the folder.
std::span<const char* const> text_files();

// The file's text; nullopt if it does not exist. Throws std::runtime_error that names the file if it is unreadable or not UTF-8.
std::optional<std::string> read_if_there(const std::filesystem::path& file);
// The file's object; an empty one if there is no such file. Throws std::runtime_error that names the file and says what to do.
schema::Json read_json_object(const std::filesystem::path& file);

// The texts of "bos_token", "eos_token" and the like, by these names, as far as they are known. config: of tokenizer_config.json; an old
// one leaves them to special_tokens_map.json. An adapter has those of its base that it does not name. Throws as read_json_object.
schema::Json special_tokens_of(const TextFolder& folder, const schema::Json& config);

// What tokenizer_config.json and config.json say about the tokenizer, as lorry_text_tokenizer_new takes it. special_tokens: of
// special_tokens_of. Throws std::runtime_error that names the entry.
schema::Json tokenizer_settings_of(const TextFolder& folder, const schema::Json& config, const schema::Json& special_tokens);

}  // namespace lorry::engine
