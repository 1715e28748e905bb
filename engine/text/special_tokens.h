// The special tokens that a model's tokenizer files name. Used by chat templates, and to find the tokens that end a text.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/text/token.h"
#include "engine/text/tokenizer.h"
#include "schema/json.h"

namespace lorry::engine {

// The file's text; nullopt if there is no such file. Throws std::runtime_error that names the file if it cannot be read
// or is not UTF-8.
std::optional<std::string> read_if_there(const std::filesystem::path& file);
// The file's object; an empty one if there is no such file. Throws std::runtime_error that names the file and says what to do.
schema::Json read_json_object(const std::filesystem::path& file);

// The texts of "bos_token", "eos_token" and the like, by these names, as far as they are known. From tokenizer_config.json; with an old
// one, also from special_tokens_map.json. Throws as read_json_object.
schema::Json special_tokens_of(const std::filesystem::path& model_folder);

// The tokens that end a text, as in vLLM: those of the configuration, and the tokenizer's eos_token. The latter often ends turns where a
// fine-tuned model kept its base's configuration. Throws as read_json_object.
std::vector<TokenId> end_tokens_of(const std::filesystem::path& model_folder, std::span<const TokenId> configured,
                                   const Tokenizer& tokenizer);

}  // namespace lorry::engine
