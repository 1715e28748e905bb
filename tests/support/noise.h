// Text that does not get smaller when producers compress it. Used by tests of consumer/kafka.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace lorry::tests {

// Letters and digits; the same for the same seed.
inline std::string noise(std::size_t bytes, int seed) {
    constexpr std::string_view letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::string text(bytes, ' ');
    for (char& letter : text) letter = letters[random() % letters.size()];
    return text;
}

}  // namespace lorry::tests
