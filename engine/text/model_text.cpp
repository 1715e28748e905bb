// Compares the texts of adapters with the base's, and keeps those that were used last.
#include "engine/text/model_text.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "engine/files.h"
#include "engine/text/tokenizer_files.h"
#include "schema/codec_error.h"

namespace lorry::engine {

namespace {

// Tokens of all texts that are kept, of which each takes about a kilobyte: 16 vocabularies of 128,000 tokens, or hundreds of small ones.
constexpr std::size_t tokens_kept_max = std::size_t{2} << 20;
// Folders of which is known what was found.
constexpr std::size_t seen_max = 256;

// Of all files with their names; empty: there are none, or each is as the base's.
std::string hash_of_files(const std::filesystem::path& own, const std::filesystem::path& base) {
    ContentHash hash;
    bool differs = false;
    for (const char* name : text_files()) {
        if (!std::filesystem::exists(own / name)) continue;
        const auto text = read_text(own / name);
        if (!text) throw std::runtime_error(text.error());
        hash.add_text(name);
        hash.add_text(*text);
        if (differs) continue;
        const auto known = read_text_if_there(base / name);
        differs = !known || *known != *text;
    }
    return differs ? hash.hex() : "";
}

// added_tokens.json repeats what the tokenizer has; a folder without that would be read as its base's.
void check_added_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
    const auto file = folder / "added_tokens.json";
    const schema::Json ids = read_json_object(file);
    for (const auto& [token, id] : *ids.as_object()) {
        const auto found = tokenizer.find(token);
        if (id.as_integer() && found && *id.as_integer() == *found) continue;
        throw std::runtime_error(
            fmt::format("{}: the tokenizer does not have the token \"{}\" with that id; save the tokenizer's "
                        "tokenizer.json beside it with transformers (save_pretrained)",
                        file.string(), schema::shortened(token)));
    }
}

std::string first_of(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
    const auto found = std::ranges::find_if(names, [&](const char* name) { return std::filesystem::exists(folder / name); });
    return found == names.end() ? "its files" : *found;
}

// As ModelText::difference.
std::string difference_of(const std::filesystem::path& folder, const ModelText& own, const ModelText& base) {
    if (const auto difference = own.tokenizer.difference_from(base.tokenizer)) {
        return fmt::format("{}: {}", first_of(folder, {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}), *difference);
    }
    if (!own.chat_template || (base.chat_template && own.chat_template->renders_as(*base.chat_template))) return {};
    return fmt::format("{}: its chat template is not the base's",
                       first_of(folder, {"chat_template.jinja", "chat_template.json", "tokenizer_config.json", "special_tokens_map.json"}));
}

}  // namespace

const ModelText& ModelTexts::base() const {
    std::call_once(base_read_, [&] {
        base_.emplace(ModelText{
            .tokenizer = Tokenizer::load(base_folder_), .chat_template = ChatTemplate::load(base_folder_), .hash = {}, .difference = {}});
    });
    return *base_;
}

Expected<std::shared_ptr<const ModelText>, std::string> ModelTexts::of(const std::filesystem::path& adapter_folder) const {
    try {
        const std::string hash = hash_of_files(adapter_folder, base_folder_);
        if (hash.empty()) return nullptr;
        auto seen = find(hash);
        if (!seen) {
            seen = Seen{.hash = hash, .text = compared(adapter_folder, hash)};
            remember(*seen);
        }
        return std::move(seen->text);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        return unexpected(error.what());
    }
}

std::shared_ptr<const ModelText> ModelTexts::compared(const std::filesystem::path& adapter_folder, const std::string& hash) const {
    const TextFolder files(adapter_folder, base_folder_);
    ModelText own{.tokenizer = Tokenizer::load(files), .chat_template = ChatTemplate::load(files), .hash = hash, .difference = {}};
    check_added_tokens(adapter_folder, own.tokenizer);
    own.difference = difference_of(adapter_folder, own, base());
    if (hash_of_files(adapter_folder, base_folder_) != hash)
        throw std::runtime_error(adapter_folder.string() + " changed while it was read");
    return own.difference.empty() ? nullptr : std::make_shared<const ModelText>(std::move(own));
}

std::optional<ModelTexts::Seen> ModelTexts::find(const std::string& hash) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(seen_, hash, &Seen::hash);
    if (found == seen_.end()) return std::nullopt;
    seen_.splice(seen_.begin(), seen_, found);
    return *found;
}

// Two threads may have compared the same files: both texts are good.
void ModelTexts::remember(Seen seen) const {
    const std::lock_guard lock(mutex_);
    seen_.push_front(std::move(seen));
    if (seen_.size() > seen_max) seen_.pop_back();
    std::size_t tokens = 0;
    std::erase_if(seen_, [&](const Seen& each) {
        if (each.text == nullptr) return false;
        tokens += each.text->tokenizer.vocabulary_size();
        return tokens > tokens_kept_max && &each != &seen_.front();
    });
}

}  // namespace lorry::engine
