// Knows callers by JSON Web Tokens, in the field `Authorization: Bearer TOKEN`. Made by `lorry serve`, used by authenticators.h.
#pragma once

#include <functional>
#include <string>

#include "ops/gateway/authenticator.h"
#include "ops/gateway/jwt.h"

namespace lorry::ops {

class JwtAuthenticator final : public Authenticator {
public:
    struct Options {
        const JwtVerifier& verifier;  // it outlives this
        std::string tenant_claim;     // whose text is the tenant
        std::string scope_claim;      // a list of words, as an array or with spaces between them
        std::function<schema::Timestamp()> now;
    };
    explicit JwtAuthenticator(Options options) : options_(std::move(options)) {}

    // The caller's id, by which its limits are counted, is "jwt:" and the claim `sub`, or the tenant if there is none.
    Expected<Caller, HttpAnswer> identify(const HttpRequest& request) const override;

private:
    const Options options_;
};

// What words say about a caller: those that begin with "lorry:". An unknown one is an error, as it may take rights away.
//   lorry:batches  lorry:admin  lorry:model:NAME  lorry:url:URL
//   lorry:requests-per-minute:N  lorry:tokens-per-minute:N  lorry:calls-at-once:N  lorry:batch-jobs:N
// The model '*' stands for all. Without a url, all are allowed.
Expected<void, std::string> apply_scope_word(std::string_view word, Caller& caller);

}  // namespace lorry::ops
