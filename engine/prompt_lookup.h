// Guesses how a sequence goes on: as it did where its last tokens occurred before (prompt lookup, also called n-gram speculation). A text
// that copies from its prompt, or repeats itself, is guessed well. Each sequence that is drafted for (engine/sequence.h) has one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device_objects.h"

namespace lorry::engine {

using kernels::TokenId;

struct DraftLimits {
    std::int64_t count = 0;     // of guesses
    double chance_least = 0.0;  // that a guess and all before it are right
};

// The engine's thread only. Call extend() when the sequence has grown, then guess(). Takes 8 to 24 bytes a token.
class PromptLookup {
public:
    // tokens: all of the sequence. Takes constant time for each that is new, and notes which of them it would have guessed.
    void extend(std::span<const TokenId> tokens);
    // Sets the tokens that probably come next, none where nothing occurred before. tokens: as in the last call of extend().
    void guess(std::span<const TokenId> tokens, const DraftLimits& limits, std::vector<TokenId>& guesses) const;

private:
    // The longer the text that occurred before, the likelier it is to go on as it did. Classes of lengths from 2, 4, 8 and 16 tokens on.
    static constexpr std::size_t classes = 4;
    static std::size_t class_of(std::int64_t length);

    void judge(TokenId token, std::span<const TokenId> before);
    void find(std::span<const TokenId> tokens);
    void add(std::span<const TokenId> tokens);
    std::size_t bucket_of(std::span<const TokenId> tokens) const;

    // A place is a number of tokens, at least 2, of which the last two are looked up, as in deflate's hash chains. Chains end with place 0.
    std::vector<std::int32_t> latest_;  // by the hash of two tokens: the last place that ends with them, and maybe others
    std::vector<std::int32_t> before_;  // by place: the one before it in its chain
    struct Match {
        std::int64_t place = 0;
        std::int64_t length = 0;  // how many tokens before it are also the sequence's last ones
    };
    std::optional<Match> match_;
    std::array<double, classes> chances_{0.3, 0.5, 0.7, 0.9};  // that the token after a match comes again, from the matches so far
};

}  // namespace lorry::engine
