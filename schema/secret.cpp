// Draws, hashes and compares keys with OpenSSL.
#include "schema/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schema/hex.h"

namespace lorry::schema {
namespace {

constexpr std::string_view prefix = "lorry-";
constexpr std::size_t secret_digits = 64;
constexpr std::size_t random_id_digits = 32;

template <std::size_t Size>
std::array<std::uint8_t, Size> draw() {
    std::array<std::uint8_t, Size> bytes{};
    if (RAND_priv_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
        throw std::runtime_error("OpenSSL has no random bytes: no secret was made");
    }
    return bytes;
}

template <std::size_t Size>
std::string hex_of(const std::array<std::uint8_t, Size>& bytes) {
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool is_hex(std::string_view text) {
    return std::ranges::all_of(text, [](char letter) { return hex_digit_of(letter).has_value(); });
}

}  // namespace

Sha256 sha256_of(std::string_view text) {
    Sha256 hash{};
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
    return hash;
}

bool is_equal(const Sha256& one, const Sha256& other) { return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0; }

std::string to_hex(const Sha256& hash) { return hex_of(hash); }

std::optional<Sha256> sha256_from_hex(std::string_view text) {
    Sha256 hash{};
    if (text.size() != 2 * hash.size() || !is_hex(text)) return std::nullopt;
    for (std::size_t i = 0; i < hash.size(); ++i) {
        hash[i] = static_cast<std::uint8_t>(*hex_digit_of(text[2 * i]) * 16 + *hex_digit_of(text[2 * i + 1]));
    }
    return hash;
}

NewKey draw_key() {
    const std::string id = hex_of(draw<key_id_digits / 2>());
    return {.id = id, .text = fmt::format("{}{}-{}", prefix, id, hex_of(draw<secret_digits / 2>()))};
}

std::string draw_random_id() { return hex_of(draw<random_id_digits / 2>()); }

bool is_random_id(std::string_view text) { return text.size() == random_id_digits && is_hex(text); }

bool is_key_id(std::string_view text) { return text.size() == key_id_digits && is_hex(text); }

std::optional<std::string_view> key_id_of(std::string_view key) {
    if (!key.starts_with(prefix) || key.size() != prefix.size() + key_id_digits + 1 + secret_digits) return std::nullopt;
    const std::string_view id = key.substr(prefix.size(), key_id_digits);
    const std::string_view secret = key.substr(key.size() - secret_digits);
    if (key[prefix.size() + key_id_digits] != '-' || !is_key_id(id) || !is_hex(secret)) return std::nullopt;
    return id;
}

}  // namespace lorry::schema
