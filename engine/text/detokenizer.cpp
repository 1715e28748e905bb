// Implements Detokenizer with the crate's C functions.
#include "engine/text/detokenizer.h"

#include <stdexcept>

#include "engine/text/abi.h"
#include "engine/text/tokenizer.h"

namespace lorry::engine {

void Detokenizer::Free::operator()(lorry_text_detokenizer* handle) const { lorry_text_detokenizer_free(handle); }

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : handle_(lorry_text_detokenizer_new(tokenizer.handle_.get(), skip_special_tokens)) {}

void Detokenizer::prime(std::span<const TokenId> prompt) {
    std::string error;
    if (lorry_text_detokenizer_prime(handle_.get(), prompt.data(), prompt.size(), abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error("decoding the end of the prompt failed: " + error);
    }
}

std::string Detokenizer::push(TokenId id) {
    std::string text;
    std::string error;
    if (lorry_text_detokenizer_push(handle_.get(), id, abi::sink_into(text), abi::sink_into(error)) != LORRY_TEXT_OK) {
        throw std::runtime_error("decoding token " + std::to_string(id) + " failed: " + error);
    }
    return text;
}

std::string Detokenizer::finish() {
    std::string text;
    lorry_text_detokenizer_finish(handle_.get(), abi::sink_into(text));
    return text;
}

}  // namespace lorry::engine
