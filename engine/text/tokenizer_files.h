// Reads the files of a model's folder that say how its tokenizer is used. Called by Tokenizer and ChatTemplate.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "schema/json.h"

namespace lorry::engine {

// The file's text; nullopt if it does not exist. Throws std::runtime_error that names the file if it is unreadable or not UTF-8.
std::optional<std::string> read_if_there(const std::filesystem::path& file);
// The file's object; an empty one if there is no such file. Throws std::runtime_error that names the file and says what to do.
schema::Json read_json_object(const std::filesystem::path& file);

// The texts of "bos_token", "eos_token" and the like, by these names, as far as they are known. config: of tokenizer_config.json; an old
// one leaves them to special_tokens_map.json. Throws as read_json_object.
schema::Json special_tokens_of(const std::filesystem::path& model_folder, const schema::Json& config);

// What tokenizer_config.json and config.json say about the tokenizer, as lorry_text_tokenizer_new takes it. special_tokens: of
// special_tokens_of. Throws std::runtime_error that names the entry.
schema::Json tokenizer_settings_of(const std::filesystem::path& model_folder, const schema::Json& config,
                                   const schema::Json& special_tokens);

}  // namespace lorry::engine
