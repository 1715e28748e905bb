// Who sends a request, by its header. Used by gateway.cpp; implemented by key_authenticator.h.
#pragma once

#include <string>

#include "ops/http/server.h"
#include "schema/check.h"
#include "schema/key.h"

namespace lorry::ops {

struct Caller {
    std::string id;      // what limits are counted by, and what the log names: a key's id
    std::string tenant;  // whose calls they are
    schema::KeyScopes scopes = {};
    schema::KeyLimits limits = {};
};

class Authenticator {
public:
    virtual ~Authenticator() = default;
    // The error is an answer: 401, or 503 while callers cannot be known. On the network's thread; it must not block.
    virtual Expected<Caller, HttpAnswer> identify(const HttpRequest& request) const = 0;
};

}  // namespace lorry::ops
