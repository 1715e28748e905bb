// Reads keys, chooses one for a token, and checks the claims.
#include "ops/gateway/jwt.h"

#include <cjose/cjose.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schema/codec_error.h"
#include "schema/deleter.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::size_t file_bytes_max = 1 << 20;
constexpr std::size_t letters_of_2048_bits = 342;  // in base64url
constexpr std::size_t letters_of_256_bits = 43;

using Jwk = std::unique_ptr<cjose_jwk_t, schema::Deleter<cjose_jwk_release>>;
using Jws = std::unique_ptr<cjose_jws_t, schema::Deleter<cjose_jws_release>>;

// What signs tokens: each kind of key has one algorithm.
struct Kind {
    const char* type;       // "kty"
    const char* curve;      // "crv"; nullptr: it has none
    const char* algorithm;  // "alg"
    const char* number;     // the member whose length is that of the key; nullptr: the curve says it
    std::size_t letters_min;
};
constexpr std::array kinds = {
    Kind{"RSA", nullptr, "RS256", "n", letters_of_2048_bits},
    Kind{"EC", "P-256", "ES256", nullptr, 0},
    Kind{"oct", nullptr, "HS256", "k", letters_of_256_bits},
};

std::string text_at(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    return value == nullptr || !value->is_string() ? std::string() : *value->as_string();
}

struct Key {
    std::string id;  // "kid"; empty: none
    const Kind& kind;
    Jwk jwk;
};

// nullptr: it is for something else, such as encryption or another algorithm.
const Kind* kind_of(const Json& key) {
    const std::string type = text_at(key, "kty");
    const auto kind = std::ranges::find_if(
        kinds, [&](const Kind& each) { return type == each.type && (each.curve == nullptr || text_at(key, "crv") == each.curve); });
    if (kind == kinds.end()) return nullptr;
    if (key.find("use") != nullptr && text_at(key, "use") != "sig") return nullptr;
    if (key.find("alg") != nullptr && text_at(key, "alg") != kind->algorithm) return nullptr;
    return kind;
}

std::optional<Key> read_key(const Json& json) {
    const Kind* kind = kind_of(json);
    if (kind == nullptr) return std::nullopt;
    const std::string id = text_at(json, "kid");
    const auto refuse = [&](const char* why) { throw std::runtime_error(fmt::format("key '{}': {}", schema::shortened(id), why)); };
    if (std::string_view(kind->type) != "oct" && json.find("d") != nullptr)
        refuse("this is a private key: leave out all members but the public ones");
    if (kind->number != nullptr && text_at(json, kind->number).size() < kind->letters_min)
        refuse("it is too short: RSA takes 2048 bits, HS256 256");
    const std::string text = json.dump();
    Jwk jwk(cjose_jwk_import(text.data(), text.size(), nullptr));
    if (!jwk) refuse("its numbers are missing, or are no key");
    return Key{.id = id, .kind = *kind, .jwk = std::move(jwk)};
}

std::string read_file(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("the keys cannot be read");
    std::string text(file_bytes_max + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > file_bytes_max) throw std::runtime_error(fmt::format("it has more than {} bytes", file_bytes_max));
    return text;
}

std::vector<Key> read_keys(const std::string& text) {
    const auto set = Json::parse(text);
    const Json* list = set ? set->find("keys") : nullptr;
    if (list == nullptr || list->as_array() == nullptr)
        throw std::runtime_error("this is no JWKS: it has to be a JSON object with an array 'keys'");
    std::vector<Key> keys;
    for (const Json& json : *list->as_array()) {
        if (auto key = read_key(json)) keys.push_back(*std::move(key));
    }
    if (keys.empty()) throw std::runtime_error("none of its keys signs with RS256, ES256 or HS256");
    if (keys.size() == 1) return keys;
    for (const Key& key : keys) {
        if (key.id.empty() || std::ranges::count(keys, key.id, &Key::id) > 1)
            throw std::runtime_error("of several keys, each needs a 'kid' of its own, by which tokens name it");
    }
    return keys;
}

// Who may read the key of HS256 can make tokens with it.
void check_secrecy(const std::vector<Key>& keys, const std::string& file) {
    const bool has_secret = std::ranges::any_of(keys, [](const Key& key) { return std::string_view(key.kind.type) == "oct"; });
    if (has_secret && schema::every_user_may_read(file))
        throw std::runtime_error("it has a secret (of the kind oct), and every user may read it: run chmod o-r");
}

// Three parts of base64url with points between them (RFC 7515, 7.1).
bool is_compact(std::string_view token) {
    constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    return token.size() <= JwtVerifier::token_bytes_max && std::ranges::count(token, '.') == 2 && !token.starts_with('.') &&
           !token.ends_with('.') && token.find("..") == std::string_view::npos &&
           token.find_first_not_of(letters) == std::string_view::npos;
}

std::optional<double> seconds_at(const Json& claims, std::string_view name) {
    const Json* value = claims.find(name);
    return value == nullptr ? std::nullopt : value->as_number();
}

// RFC 7519, 4.1.
std::optional<std::string> find_fault(const Json& claims, const JwtVerifier::Options& options, schema::Timestamp now) {
    const double time = std::chrono::duration<double>(now.time_since_epoch()).count();
    const auto slack = static_cast<double>(JwtVerifier::leeway.count());
    if (text_at(claims, "iss") != options.issuer) return "it is of another issuer (iss)";
    const Json* audience = claims.find("aud");
    const auto is_ours = [&](const Json& each) { return each.is_string() && *each.as_string() == options.audience; };
    const bool is_for_us =
        audience != nullptr && (is_ours(*audience) || (audience->is_array() && std::ranges::any_of(*audience->as_array(), is_ours)));
    if (!is_for_us) return "it is for another audience (aud)";
    const auto expires = seconds_at(claims, "exp");
    if (!expires) return "it does not say when it expires (exp)";
    if (time >= *expires + slack) return "it has expired (exp): ask for another";
    for (const char* name : {"nbf", "iat"}) {
        if (claims.find(name) == nullptr) continue;
        const auto begins = seconds_at(claims, name);
        if (!begins) return fmt::format("its time '{}' is no number", name);
        if (time + slack < *begins) return fmt::format("it is not good yet ({})", name);
    }
    return std::nullopt;
}

}  // namespace

struct JwtVerifier::Keys {
    std::vector<Key> all;

    // The key that the token names; without a name the only one. nullptr: there is none.
    const Key* find(const char* id) const {
        if (id == nullptr) return all.size() == 1 ? &all.front() : nullptr;
        const auto place = std::ranges::find(all, std::string_view(id), [](const Key& key) { return std::string_view(key.id); });
        return place == all.end() ? nullptr : &*place;
    }
};

JwtVerifier::JwtVerifier(Options options) : options_(std::move(options)) { refresh(); }

JwtVerifier::~JwtVerifier() = default;

bool JwtVerifier::refresh() {
    // Taken before the file is read, so that a change in between is seen the next time.
    const auto now = schema::version_of(options_.keys);
    {
        const std::scoped_lock lock(mutex_);
        if (keys_ != nullptr && now == read_) return false;
        read_ = now;
    }
    try {
        auto list = read_keys(read_file(options_.keys));
        check_secrecy(list, options_.keys);
        auto read = std::make_shared<const Keys>(std::move(list));
        const std::scoped_lock lock(mutex_);
        keys_ = std::move(read);
        return true;
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{}: {}", options_.keys, error.what()));
    }
}

std::shared_ptr<const JwtVerifier::Keys> JwtVerifier::keys() const {
    const std::scoped_lock lock(mutex_);
    return keys_;
}

std::size_t JwtVerifier::count() const { return keys()->all.size(); }

Expected<Json, std::string> JwtVerifier::claims_of(std::string_view token, schema::Timestamp now) const {
    if (!is_compact(token)) return unexpected(std::string("it is no JSON Web Token with a signature"));
    const Jws jws(cjose_jws_import(token.data(), token.size(), nullptr));
    if (!jws) return unexpected(std::string("it is no JSON Web Token with a signature"));
    cjose_header_t* const header = cjose_jws_get_protected(jws.get());
    const std::unique_ptr<char, schema::Deleter<free>> critical(cjose_header_get_raw(header, "crit", nullptr));
    if (critical) return unexpected(std::string("it asks for extensions (crit), and none are supported"));
    const auto keys = this->keys();
    const Key* key = keys->find(cjose_header_get(header, CJOSE_HDR_KID, nullptr));
    if (key == nullptr) return unexpected(std::string("no key of that name (kid) is known"));
    const char* algorithm = cjose_header_get(header, CJOSE_HDR_ALG, nullptr);
    if (algorithm == nullptr || std::string_view(algorithm) != key->kind.algorithm)
        return unexpected(fmt::format("its key signs with {} alone (alg)", key->kind.algorithm));
    if (!cjose_jws_verify(jws.get(), key->jwk.get(), nullptr)) return unexpected(std::string("its signature is wrong"));
    std::uint8_t* payload = nullptr;
    std::size_t bytes = 0;
    if (!cjose_jws_get_plaintext(jws.get(), &payload, &bytes, nullptr)) return unexpected(std::string("it has no claims"));
    auto claims = Json::parse({reinterpret_cast<const char*>(payload), bytes});
    if (!claims || !claims->is_object()) return unexpected(std::string("its claims are no JSON object"));
    if (auto fault = find_fault(*claims, options_, now)) return unexpected(*std::move(fault));
    return *std::move(claims);
}

}  // namespace lorry::ops
