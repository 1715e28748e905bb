// Random secrets, their hashes and their comparison. The only file that sees OpenSSL is secret.cpp. Used by key.h, `lorry keys` and
// ops/gateway. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::schema {

using Sha256 = std::array<std::uint8_t, 32>;
Sha256 sha256_of(std::string_view text);
// In a time that does not depend on the values.
bool is_equal(const Sha256& one, const Sha256& other);
std::string to_hex(const Sha256& hash);                        // 64 lower-case digits
std::optional<Sha256> sha256_from_hex(std::string_view text);  // nullopt: it is not such a text

// A key: "lorry-", its id, '-', and 256 random bits, as lower-case hexadecimal digits.
inline constexpr std::size_t key_id_digits = 16;
struct NewKey {
    std::string id;
    std::string text;  // the whole key, to be shown once
};
// From OpenSSL's generator for secrets. Throws std::runtime_error if it has no randomness.
NewKey draw_key();
// 128 random bits as 32 lower-case hexadecimal digits, which cannot be guessed. Throws as draw_key().
std::string draw_random_id();
bool is_random_id(std::string_view text);

bool is_key_id(std::string_view text);
// The id of a text that has the form of a key; nullopt: it does not have that form.
std::optional<std::string_view> key_id_of(std::string_view key);

}  // namespace lorry::schema
