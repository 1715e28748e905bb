// A vocabulary of a model without tokenizer.json, with tokenizer_config.json, merges and a text. What is converted encodes to ids that it
// has, and its spans lie in the text.
#include <algorithm>
#include <stdexcept>

#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

std::int32_t characters_of(std::string_view text) {
    return static_cast<std::int32_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

void check(const Tokenizer& tokenizer, const Encoding& encoding, std::string_view text) {
    CHECK(encoding.types.size() == encoding.ids.size() && encoding.spans.size() == encoding.ids.size(), "each token has all parts");
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
        const TokenId id = encoding.ids[i];
        const TokenSpan& span = encoding.spans[i];
        CHECK(id >= 0 && static_cast<std::size_t>(id) < tokenizer.vocabulary_size(), "an id is in the vocabulary");
        CHECK(span.text >= -1 && span.text <= 1, "a token is of the first text, of the second, or added");
        CHECK(0 <= span.begin && span.begin <= span.end && span.end <= characters_of(text), "a span is in the text");
        CHECK(span.text >= 0 || span.end == 0, "an added token has no span");
    }
}

void check(const Tokenizer& tokenizer, std::string_view text) {
    constexpr std::size_t max_tokens = 12;
    const auto whole = tokenizer.encode_pair(text, text, std::nullopt);
    if (!whole) {
        fuzz::check_message(whole.error());
        return;
    }
    check(tokenizer, *whole, text);
    const auto limited = tokenizer.encode_pair(text, text, EncodeLimit{.max_tokens = max_tokens, .side = TruncationSide::left});
    CHECK(limited.has_value() && limited->ids.size() <= max_tokens, "any pair can be shortened to the limit");
    check(tokenizer, *limited, text);
    const auto windows = tokenizer.encode_windows(text, {.max_tokens = max_tokens, .stride = 2, .windows_max = std::size_t{1} << 20});
    CHECK(windows.has_value() && !windows->empty(), "a text has windows");
    for (const Encoding& window : *windows) {
        CHECK(window.ids.size() <= max_tokens, "a window has no more tokens than the limit");
        check(tokenizer, window, text);
    }
}

}  // namespace
}  // namespace lorry::engine

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const lorry::tests::TempFolder folder;
    // The vocabulary is last, because that of SentencePiece may have the separator's byte.
    const auto [config, text, merges, vocabulary] = lorry::fuzz::parts_of<4>(lorry::fuzz::text_of(data, size));
    lorry::tests::write_text(folder / "tokenizer_config.json", config.empty() ? "{}" : std::string(config));
    lorry::tests::write_text(folder / "merges.txt", std::string(merges));
    for (const char* name : {"vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"})
        lorry::tests::write_text(folder / name, std::string(vocabulary));
    try {
        lorry::engine::check(lorry::engine::Tokenizer::load(folder.path()), text);
    } catch (const std::runtime_error& error) {
        lorry::fuzz::check_message(error.what());
    }
    return 0;
}
