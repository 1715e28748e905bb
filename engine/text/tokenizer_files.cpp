// Reads tokenizer_config.json, special_tokens_map.json, added_tokens.json and files of templates.
#include "engine/text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "engine/files.h"
#include "schema/codec_error.h"
#include "schema/whole_number.h"

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

bool is_named(const Json& special_tokens, std::string_view token) {
    return std::ranges::any_of(*special_tokens.as_object(), [&](const Json::Member& named) { return *named.second.as_string() == token; });
}

// The tokens of "added_tokens_decoder" in tokenizer_config.json.
std::map<std::int32_t, Json> tokens_of_decoder(const Json& decoder, const std::filesystem::path& file, const Json& special_tokens) {
    std::map<std::int32_t, Json> by_id;
    for (const auto& [key, value] : *decoder.as_object()) {
        const auto id = schema::parse_whole<std::int32_t>(key);
        const Json* content = value.find("content");
        if (!id || *id < 0 || content == nullptr || !content->is_string()) {
            throw std::runtime_error(file.string() + ": added_tokens_decoder." + schema::shortened(key) +
                                     " must be a token id with an object that has the string \"content\"");
        }
        const auto flag = [&](const char* name, bool absent) {
            const Json* set = value.find(name);
            return set == nullptr ? absent : set->as_bool().value_or(absent);
        };
        const bool special = flag("special", false);
        by_id[*id] = Json::object({{"id", *id},
                                   {"is_named", is_named(special_tokens, *content->as_string())},
                                   {"token", Json::object({{"content", *content},
                                                           {"single_word", flag("single_word", false)},
                                                           {"lstrip", flag("lstrip", false)},
                                                           {"rstrip", flag("rstrip", false)},
                                                           {"normalized", flag("normalized", !special)},
                                                           {"special", special}})}});
    }
    return by_id;
}

// The tokens of added_tokens.json, which models have that are older than "added_tokens_decoder" and tokenizer.json: {"<new>": 50265}.
std::map<std::int32_t, Json> tokens_of_file(const std::filesystem::path& file, const Json& special_tokens) {
    std::map<std::int32_t, Json> by_id;
    const Json ids = read_json_object(file);
    for (const auto& [token, value] : *ids.as_object()) {
        const auto id = value.as_integer();
        if (!id || *id < 0 || *id > std::numeric_limits<std::int32_t>::max())
            throw std::runtime_error(file.string() + ": " + schema::shortened(token) + " must be a token id");
        const bool special = is_named(special_tokens, token);
        by_id[static_cast<std::int32_t>(*id)] = Json::object({{"id", *id},
                                                              {"is_named", special},
                                                              {"token", Json::object({{"content", token},
                                                                                      {"single_word", false},
                                                                                      {"lstrip", false},
                                                                                      {"rstrip", false},
                                                                                      {"normalized", !special},
                                                                                      {"special", special}})}});
    }
    return by_id;
}

Json added_tokens_of(const TextFolder& folder, const Json& config, const Json& special_tokens) {
    std::map<std::int32_t, Json> by_id;
    if (const Json* decoder = config.find("added_tokens_decoder"); decoder != nullptr && decoder->is_object()) {
        by_id = tokens_of_decoder(*decoder, folder.tokenizer_config(), special_tokens);
    } else if (!std::filesystem::exists(folder.vocabulary() / "tokenizer.json")) {
        by_id = tokens_of_file(folder.vocabulary() / "added_tokens.json", special_tokens);
    }
    Json tokens = Json::array({});
    for (auto& [id, token] : by_id) tokens.push(std::move(token));
    return tokens;
}

// Whether the adapter's folder has a file that its base's lacks, or has with another content.
bool has_other(const std::filesystem::path& own, const std::filesystem::path& base) {
    if (!std::filesystem::exists(own)) return false;
    if (!std::filesystem::exists(base)) return true;
    const auto ours = read_text(own);
    const auto theirs = read_text(base);
    for (const auto* text : {&ours, &theirs}) {
        if (!*text) throw std::runtime_error(text->error());
    }
    return *ours != *theirs;
}

// The older files of vocabularies, one of each kind.
constexpr std::array older_vocabularies = {"vocab.txt",    "vocab.json", "tokenizer.model",
                                           "spiece.model", "spm.model",  "sentencepiece.bpe.model"};

}  // namespace

TextFolder::TextFolder(std::filesystem::path adapter, std::filesystem::path base)
    : base_(std::move(base)),
      own_(std::move(adapter)),
      has_vocabulary_(std::filesystem::exists(own_ / "tokenizer.json") ||
                      std::ranges::any_of(older_vocabularies, [&](const char* name) { return has_other(own_ / name, base_ / name); })),
      has_config_(std::filesystem::exists(own_ / "tokenizer_config.json")) {}

std::vector<std::filesystem::path> TextFolder::templates() const {
    if (own_ == base_) return {base_};
    return {own_, base_};
}

std::span<const char* const> text_files() {
    static constexpr std::array names = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "additional_chat_templates/tool_use.jinja",
                                         "chat_template.json",
                                         "vocab.txt",
                                         "vocab.json",
                                         "merges.txt",
                                         "tokenizer.model",
                                         "spiece.model",
                                         "spm.model",
                                         "sentencepiece.bpe.model"};
    return names;
}

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

Json special_tokens_of(const TextFolder& folder, const Json& config) {
    Json tokens = Json::object({});
    if (const auto base = folder.base()) tokens = special_tokens_of(*base, read_json_object(base->tokenizer_config()));
    add_special_tokens(config, tokens);
    // Only checkpoints older than this key have their tokens in a separate file.
    if (config.find("added_tokens_decoder") == nullptr) add_special_tokens(read_json_object(folder.special_tokens_map()), tokens);
    return tokens;
}

Json tokenizer_settings_of(const TextFolder& folder, const Json& config, const Json& special_tokens) {
    const Json model = read_json_object(folder.config());
    const auto text_of = [](const Json& object, const char* key) {
        const Json* value = object.find(key);
        return value != nullptr && value->is_string() ? *value->as_string() : std::string();
    };
    std::string class_name = text_of(config, "tokenizer_class");
    if (class_name.empty()) class_name = text_of(model, "tokenizer_class");
    return Json::object({{"class", std::move(class_name)},
                         {"model_type", text_of(model, "model_type")},
                         {"config", config},
                         {"special_tokens", special_tokens},
                         {"added_tokens", added_tokens_of(folder, config, special_tokens)}});
}

}  // namespace lorry::engine
