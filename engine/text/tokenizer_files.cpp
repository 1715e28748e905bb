// Reads tokenizer_config.json, special_tokens_map.json and files of templates.
#include "engine/text/tokenizer_files.h"

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

Json special_tokens_of(const std::filesystem::path& model_folder, const Json& config) {
    Json tokens = Json::object({});
    add_special_tokens(config, tokens);
    // Only checkpoints older than this key have their tokens in a separate file.
    if (config.find("added_tokens_decoder") == nullptr)
        add_special_tokens(read_json_object(model_folder / "special_tokens_map.json"), tokens);
    return tokens;
}

}  // namespace lorry::engine
