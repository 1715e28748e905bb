// Writes GPT-2's tokenizer.json with other special tokens.
#include "tests/support/harmony_tokenizer.h"

#include <filesystem>

#include "engine/text/harmony.h"
#include "schema/json.h"
#include "tests/support/temp_folder.h"

namespace lorry::tests {

const engine::Tokenizer& harmony_tokenizer() {
    using schema::Json;
    static const engine::Tokenizer loaded = [] {
        constexpr int first = 480;
        auto json = Json::parse(read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/gpt2/tokenizer.json"));
        CHECK(json.has_value(), "the tokenizer is JSON");
        Json::Array added;
        for (const std::string_view mark : engine::harmony_marks) {
            added.push_back(Json::object({{"id", first + static_cast<int>(added.size())},
                                          {"content", mark},
                                          {"single_word", false},
                                          {"lstrip", false},
                                          {"rstrip", false},
                                          {"normalized", false},
                                          {"special", true}}));
        }
        json->set("added_tokens", std::move(added));
        const TempFolder folder;
        write_text(folder / "tokenizer.json", json->dump());
        return engine::Tokenizer::load(folder.path());
    }();
    return loaded;
}

engine::TokenId harmony_token(std::string_view mark) {
    const auto token = harmony_tokenizer().find(mark);
    CHECK(token.has_value(), "the tokenizer has all marks");
    return *token;
}

}  // namespace lorry::tests
