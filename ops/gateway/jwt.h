// JSON Web Tokens (RFC 7519) of an identity provider, whose public keys are in a file (JWKS, RFC 7517). Used by jwt_authenticator.h. The
// library cjose verifies signatures; only jwt.cpp sees it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "schema/file_version.h"
#include "schema/job.h"
#include "schema/json.h"

namespace lorry::ops {

// Any thread.
class JwtVerifier {
public:
    struct Options {
        std::string issuer;    // has to be the claim `iss`
        std::string audience;  // has to be the claim `aud`, or among its elements
        std::string keys;      // the file
    };
    // Of clocks that differ.
    static constexpr std::chrono::seconds leeway{60};
    static constexpr std::size_t token_bytes_max = 8 << 10;

    // Throws std::runtime_error if the file cannot be read, is not a JWKS, or has no key that can be used.
    explicit JwtVerifier(Options options);
    ~JwtVerifier();

    // The claims of a token whose signature, issuer, audience and times are good. A key verifies with one algorithm, which the file says;
    // the token cannot choose. The error is for the client, and repeats nothing of the token.
    Expected<schema::Json, std::string> claims_of(std::string_view token, schema::Timestamp now) const;

    // Reads the file again if it has changed since. True if other keys are good from now on. Throws as the constructor does, once for each
    // change; the former keys then stay.
    bool refresh();
    std::size_t count() const;

private:
    struct Keys;
    std::shared_ptr<const Keys> keys() const;

    const Options options_;
    mutable std::mutex mutex_;
    std::optional<schema::FileVersion> read_;  // guarded by mutex_
    std::shared_ptr<const Keys> keys_;         // guarded by mutex_
};

}  // namespace lorry::ops
