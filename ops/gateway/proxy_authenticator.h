// Knows callers by a field that a reverse proxy sets, after it has asked LDAP, SAML or OpenID Connect who they are. Made by `lorry serve`,
// used by authenticators.h.
#pragma once

#include <string>

#include "ops/gateway/address_ranges.h"
#include "ops/gateway/authenticator.h"

namespace lorry::ops {

class ProxyAuthenticator final : public Authenticator {
public:
    struct Options {
        std::string field;      // its name, in lower case; its value is the tenant
        AddressRanges proxies;  // who may set it
    };
    explicit ProxyAuthenticator(Options options) : options_(std::move(options)) {}

    // Whether a trusted proxy says who sends the request. What others write into the field is not looked at.
    bool vouches_for(const HttpRequest& request) const;
    // The caller may use all urls, files and batches of its tenant, names no models, and has no limits.
    Expected<Caller, HttpAnswer> identify(const HttpRequest& request) const override;

private:
    const Options options_;
};

}  // namespace lorry::ops
