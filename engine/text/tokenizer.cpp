// Implements Tokenizer with the crate's C functions.
#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "engine/files.h"
#include "engine/text/abi.h"
#include "engine/text/tokenizer_files.h"

namespace lorry::engine {

namespace {

// Of vocab.txt, a SentencePiece model and the like; the largest in use have 15 MB.
constexpr std::size_t vocabulary_bytes_max = std::size_t{64} << 20;

// A tokenizer.json made of the older files in the folder.
Expected<std::string, std::string> converted(const std::filesystem::path& model_folder, const std::string& settings) {
    std::string names;
    std::string error;
    const auto failed = [&] { return unexpected(model_folder.string() + ": " + error); };
    if (lorry_text_tokenizer_files(abi::view_of(settings), abi::sink_into(names), abi::sink_into(error)) != LORRY_TEXT_OK) return failed();
    std::vector<std::string> contents;
    for (const auto name : std::views::split(names, '\n')) {
        const auto file = model_folder / std::string_view(name.begin(), name.end());
        if (!std::filesystem::exists(file)) {
            return unexpected(file.string() + " is missing, and there is no tokenizer.json: every model needs one of them; transformers " +
                              "writes the latter with AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)");
        }
        auto content = read_text(file, {.bytes_max = vocabulary_bytes_max});
        if (!content) return unexpected(content.error());
        contents.push_back(std::move(*content));
    }
    std::vector<lorry_text_view> views;
    for (const auto& content : contents) views.push_back(abi::view_of(content));
    std::string json;
    if (lorry_text_convert(abi::view_of(settings), views.data(), views.size(), abi::sink_into(json), abi::sink_into(error)) !=
        LORRY_TEXT_OK)
        return failed();
    return json;
}

// Options of tokenizer_config.json, and the tokens that they add.
constexpr std::array<std::pair<const char*, const char*>, 2> edge_names = {
    {{"add_bos_token", "bos_token"}, {"add_eos_token", "eos_token"}}};

lorry_text_strategy strategy_of(TruncationStrategy strategy) {
    switch (strategy) {
        case TruncationStrategy::longest_first: return LORRY_TEXT_LONGEST_FIRST;
        case TruncationStrategy::only_first: return LORRY_TEXT_ONLY_FIRST;
        case TruncationStrategy::only_second: return LORRY_TEXT_ONLY_SECOND;
    }
    CHECK(false, "a strategy is one of these");
}

// One per window, at least one.
std::vector<Encoding> encodings_of(const std::vector<lorry_text_token>& tokens) {
    std::vector<Encoding> encodings(tokens.empty() ? 1 : static_cast<std::size_t>(tokens.back().window) + 1);
    for (const auto& token : tokens) {
        Encoding& encoding = encodings[static_cast<std::size_t>(token.window)];
        encoding.ids.push_back(token.id);
        encoding.types.push_back(token.type);
        encoding.spans.push_back({.begin = token.begin, .end = token.end, .text = token.text, .word = token.word});
    }
    return encodings;
}

}  // namespace

void Tokenizer::Free::operator()(lorry_text_tokenizer* handle) const { lorry_text_tokenizer_free(handle); }

Tokenizer Tokenizer::load(const TextFolder& folder) {
    const schema::Json config = read_json_object(folder.tokenizer_config());
    const schema::Json special_tokens = special_tokens_of(folder, config);
    const std::string settings = tokenizer_settings_of(folder, config, special_tokens).dump();
    const auto file = folder.vocabulary() / "tokenizer.json";
    const bool converts = !std::filesystem::exists(file);
    const auto json = converts ? converted(folder.vocabulary(), settings) : read_text(file);
    if (!json) throw std::runtime_error(json.error());
    lorry_text_tokenizer* handle = nullptr;
    std::string error;
    if (lorry_text_tokenizer_new(abi::view_of(*json), abi::view_of(settings), &handle, abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error((converts ? folder.vocabulary().string() + ": the tokenizer" : file.string()) +
                                 " cannot be used: " + error + "; take the file of the original model or save it again with transformers");
    }
    Tokenizer tokenizer{Handle(handle)};
    const schema::Json* const inputs = config.find("model_input_names");
    if (inputs != nullptr && inputs->is_array()) {
        tokenizer.types_listed_ = std::ranges::any_of(*inputs->as_array(), [](const schema::Json& input) {
            return input.as_string() != nullptr && *input.as_string() == "token_type_ids";
        });
    }
    if (const schema::Json* eos = special_tokens.find("eos_token")) tokenizer.eos_ = tokenizer.find(*eos->as_string());
    for (const auto& [name, token] : edge_names) {
        const schema::Json* const adds = config.find(name);
        const schema::Json* const text = special_tokens.find(token);
        if (adds == nullptr || !adds->as_bool() || text == nullptr) continue;
        tokenizer.edges_.push_back({.name = name, .token = tokenizer.find(*text->as_string()), .is_added = *adds->as_bool()});
    }
    return tokenizer;
}

std::optional<std::string> Tokenizer::difference_from(const Tokenizer& base) const {
    // Of the base, tokenizer.json alone decides; here transformers may have trained with what the option says.
    const auto around = encode("", true);
    for (const Edge& edge : edges_) {
        const bool adds = around && edge.token && std::ranges::find(*around, *edge.token) != around->end();
        const auto known = std::ranges::find(base.edges_, edge.name, &Edge::name);
        if (edge.is_added == adds || (known != base.edges_.end() && known->is_added == edge.is_added)) continue;
        throw std::runtime_error(
            fmt::format("tokenizer_config.json: {} = {} contradicts the post_processor of tokenizer.json, which {} that token; save the "
                        "tokenizer again with transformers",
                        edge.name, edge.is_added, adds ? "adds" : "does not add"));
    }
    std::string difference;
    std::string error;
    if (lorry_text_difference(handle_.get(), base.handle_.get(), abi::sink_into(difference), abi::sink_into(error)) != LORRY_TEXT_OK)
        throw std::runtime_error("comparing tokenizers failed: " + error);
    if (!difference.empty()) return difference;
    if (eos_ && eos_ != base.eos_) return fmt::format("its eos_token is \"{}\", which is not the base's", token_spelling(*eos_));
    if (types_listed_ && *types_listed_ != base.gives_types()) return "its model_input_names differ in token_type_ids";
    return std::nullopt;
}

Expected<std::vector<TokenId>, std::string> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    std::vector<TokenId> ids;
    std::string error;
    const auto status =
        lorry_text_encode(handle_.get(), abi::view_of(text), add_special_tokens, abi::sink_into(ids), abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
    return ids;
}

Expected<Encoding, std::string> Tokenizer::encode_pair(std::string_view first, std::optional<std::string_view> second,
                                                       std::optional<EncodeLimit> limit) const {
    const lorry_text_view second_view = abi::view_of(second.value_or(""));
    lorry_text_limit limit_view{};
    if (limit) {
        limit_view = {
            .max_tokens = limit->max_tokens, .keep_end = limit->side == TruncationSide::left, .strategy = strategy_of(limit->strategy)};
    }
    std::vector<lorry_text_token> tokens;
    std::string error;
    const auto status = lorry_text_encode_pair(handle_.get(), abi::view_of(first), second ? &second_view : nullptr,
                                               limit ? &limit_view : nullptr, abi::sink_into(tokens), abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
    return std::move(encodings_of(tokens).front());
}

Expected<std::vector<Encoding>, std::string> Tokenizer::encode_windows(std::string_view text, const WindowLimit& limit) const {
    const lorry_text_windows windows{
        .max_tokens = limit.max_tokens, .stride = limit.stride, .windows_max = limit.windows_max, .repeated = limit.repeated};
    std::vector<lorry_text_token> tokens;
    std::string error;
    const auto status =
        lorry_text_encode_windows(handle_.get(), abi::view_of(text), &windows, abi::sink_into(tokens), abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
    return encodings_of(tokens);
}

bool Tokenizer::takes_pairs() const { return lorry_text_takes_pairs(handle_.get()); }

std::int32_t Tokenizer::special_tokens_added(bool pair) const {
    return static_cast<std::int32_t>(lorry_text_special_tokens_added(handle_.get(), pair));
}

std::optional<TokenId> Tokenizer::named_token(std::string_view name) const {
    TokenId id = 0;
    if (!lorry_text_named_token(handle_.get(), abi::view_of(name), &id)) return std::nullopt;
    return id;
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

std::string Tokenizer::token_spelling(TokenId id) const {
    std::string spelling;
    lorry_text_token_spelling(handle_.get(), id, abi::sink_into(spelling));
    return spelling;
}

bool Tokenizer::marks_subwords() const { return lorry_text_marks_subwords(handle_.get()); }

}  // namespace lorry::engine
