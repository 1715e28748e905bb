// Finds special tokens in tokenizer_config.json and special_tokens_map.json.
#include "engine/text/special_tokens.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "engine/files.h"

namespace lorry::engine {

using schema::Json;

namespace {

void add_special_tokens(const Json& config, Json& tokens) {
    constexpr std::array names = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    for (const char* name : names) {
        const Json* value = config.find(name);
        if (value != nullptr && value->is_object()) value = value->find("content");
        if (value != nullptr && value->is_string()) tokens.set(name, *value);
    }
}

}  // namespace

std::optional<std::string> read_if_there(const std::filesystem::path& file) {
    if (!std::filesystem::exists(file)) return std::nullopt;
    auto text = read_text(file);
    if (!text) throw std::runtime_error(text.error());
    if (!schema::is_valid_utf8(*text))
        throw std::runtime_error(file.string() + " is not valid UTF-8; save it as UTF-8, or take the file of the original model");
    return std::move(*text);
}

Json read_json_object(const std::filesystem::path& file) {
    const auto text = read_if_there(file);
    if (!text) return Json::object({});
    auto json = Json::parse(*text);
    if (!json) throw std::runtime_error(file.string() + " is not valid JSON: " + json.error() + "; take the file of the original model");
    if (!json->is_object()) throw std::runtime_error(file.string() + " must hold a JSON object, not " + json->kind());
    return std::move(*json);
}

Json special_tokens_of(const std::filesystem::path& model_folder) {
    const Json config = read_json_object(model_folder / "tokenizer_config.json");
    Json tokens = Json::object({});
    add_special_tokens(config, tokens);
    // Only checkpoints older than this key have their tokens in a separate file.
    if (config.find("added_tokens_decoder") == nullptr)
        add_special_tokens(read_json_object(model_folder / "special_tokens_map.json"), tokens);
    return tokens;
}

std::vector<TokenId> end_tokens_of(const std::filesystem::path& model_folder, std::span<const TokenId> configured,
                                   const Tokenizer& tokenizer) {
    std::vector<TokenId> ids(configured.begin(), configured.end());
    const Json tokens = special_tokens_of(model_folder);
    if (const Json* text = tokens.find("eos_token")) {
        const auto id = tokenizer.find(*text->as_string());
        if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
    }
    return ids;
}

}  // namespace lorry::engine
