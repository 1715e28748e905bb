// tokenizer.json and tokenizer_config.json of a model, and a text. An accepted tokenizer encodes to ids that it has, and its decoders
// agree.
#include <stdexcept>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

void check(const Tokenizer& tokenizer, std::string_view text) {
    const auto ids = tokenizer.encode(text, true);
    if (!ids) {
        fuzz::check_message(ids.error());
        return;
    }
    for (const TokenId id : *ids) {
        CHECK(id >= 0 && static_cast<std::size_t>(id) < tokenizer.vocabulary_size(), "an id is in the vocabulary");
        static_cast<void>(tokenizer.token_bytes(id));
    }
    const std::string decoded = tokenizer.decode(*ids, true);
    CHECK(schema::is_valid_utf8(decoded), "a decoded text is UTF-8");
    Detokenizer detokenizer(tokenizer, true);
    std::string pushed;
    for (const TokenId id : *ids) pushed += detokenizer.push(id);
    pushed += detokenizer.finish();
    CHECK(schema::is_valid_utf8(pushed), "a streamed text is UTF-8");
    if (decoded.find(replacement) == decoded.npos) CHECK(pushed == decoded, "the streamed text is the whole text");
}

}  // namespace
}  // namespace lorry::engine

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const lorry::tests::TempFolder folder;
    const auto [json, config, text] = lorry::fuzz::parts_of<3>(lorry::fuzz::text_of(data, size));
    lorry::tests::write_text(folder / "tokenizer.json", std::string(json));
    lorry::tests::write_text(folder / "tokenizer_config.json", config.empty() ? "{}" : std::string(config));
    try {
        lorry::engine::check(lorry::engine::Tokenizer::load(folder.path()), text);
    } catch (const std::runtime_error& error) {
        lorry::fuzz::check_message(error.what());
    }
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
