// Implements Tokenizer with the crate's C functions.
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <stdexcept>

#include "engine/files.h"
#include "engine/text/abi.h"
#include "engine/text/tokenizer_files.h"

namespace lorry::engine {

void Tokenizer::Free::operator()(lorry_text_tokenizer* handle) const { lorry_text_tokenizer_free(handle); }

Tokenizer Tokenizer::load(const std::filesystem::path& model_folder) {
    const auto file = model_folder / "tokenizer.json";
    if (!std::filesystem::exists(file)) {
        throw std::runtime_error(file.string() + " is missing: every model needs it; transformers writes it with " +
                                 "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)");
    }
    const auto json = read_text(file);
    if (!json) throw std::runtime_error(json.error());
    const schema::Json config = read_json_object(model_folder / "tokenizer_config.json");
    const schema::Json special_tokens = special_tokens_of(model_folder, config);
    const std::string added_tokens = added_tokens_of(model_folder, config, special_tokens).dump();
    lorry_text_tokenizer* handle = nullptr;
    std::string error;
    if (lorry_text_tokenizer_new(abi::view_of(*json), abi::view_of(added_tokens), &handle, abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error(file.string() + " cannot be used: " + error + "; take the file of the original model or save it again " +
                                 "with transformers");
    }
    Tokenizer tokenizer{Handle(handle)};
    if (const schema::Json* eos = special_tokens.find("eos_token")) tokenizer.eos_ = tokenizer.find(*eos->as_string());
    return tokenizer;
}

Expected<std::vector<TokenId>, std::string> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    std::vector<TokenId> ids;
    std::string error;
    const auto status =
        lorry_text_encode(handle_.get(), abi::view_of(text), add_special_tokens, abi::sink_into(ids), abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
    return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
    std::string text;
    std::string error;
    const auto status =
        lorry_text_decode(handle_.get(), ids.data(), ids.size(), skip_special_tokens, abi::sink_into(text), abi::sink_into(error));
    if (status != LORRY_TEXT_OK) throw std::runtime_error("decoding tokens failed: " + error);
    return text;
}

std::size_t Tokenizer::vocabulary_size() const { return lorry_text_vocabulary_size(handle_.get()); }

std::vector<TokenId> Tokenizer::end_tokens(std::span<const TokenId> configured, std::int64_t vocabulary) const {
    std::vector<TokenId> ids(configured.begin(), configured.end());
    if (eos_ && std::ranges::find(ids, *eos_) == ids.end()) ids.push_back(*eos_);
    std::erase_if(ids, [&](TokenId id) { return id >= vocabulary; });
    return ids;
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
    TokenId id = 0;
    if (!lorry_text_find(handle_.get(), abi::view_of(token), &id)) return std::nullopt;
    return id;
}

std::string Tokenizer::token_bytes(TokenId id) const {
    std::string bytes;
    lorry_text_token_bytes(handle_.get(), id, abi::sink_into(bytes));
    return bytes;
}

bool Tokenizer::is_special(TokenId id) const { return lorry_text_is_special(handle_.get(), id); }

}  // namespace lorry::engine
