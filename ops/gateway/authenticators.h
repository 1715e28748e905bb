// Several ways to know callers, side by side. Made by `lorry serve`.
#pragma once

#include "ops/gateway/authenticator.h"
#include "ops/gateway/jwt_authenticator.h"
#include "ops/gateway/key_authenticator.h"
#include "ops/gateway/proxy_authenticator.h"

namespace lorry::ops {

class Authenticators final : public Authenticator {
public:
    // They outlive this; nullptr: the way is not in use.
    struct Options {
        const KeyAuthenticator& keys;
        const JwtAuthenticator* tokens = nullptr;
        const ProxyAuthenticator* proxy = nullptr;
    };
    explicit Authenticators(Options options) : options_(options) {}

    // A trusted proxy's word comes first, then an API key, then a token. One that is not good is refused: no other way is tried.
    Expected<Caller, HttpAnswer> identify(const HttpRequest& request) const override;

private:
    const Options options_;
};

}  // namespace lorry::ops
