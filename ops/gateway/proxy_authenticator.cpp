// Looks at the address that a request comes from before it looks at the field.
#include "ops/gateway/proxy_authenticator.h"

#include <fmt/format.h>

#include "ops/gateway/bearer.h"

namespace lorry::ops {

bool ProxyAuthenticator::vouches_for(const HttpRequest& request) const {
    return request.count(options_.field) > 0 && options_.proxies.contains(request.from);
}

Expected<Caller, HttpAnswer> ProxyAuthenticator::identify(const HttpRequest& request) const {
    if (!vouches_for(request)) return unexpected(token_missing("sign in: requests come through a proxy that knows you"));
    const std::string& tenant = *request.field(options_.field);
    // Of two, one could be the client's own.
    if (request.count(options_.field) > 1 || schema::key_label_error("tenant", tenant))
        return unexpected(token_refused(
            fmt::format("the proxy has to send the field {} once, with 1 to 200 bytes without control characters", options_.field)));
    return Caller{.id = "proxy:" + tenant, .tenant = tenant, .scopes = {.batches = true}, .limits = {}};
}

}  // namespace lorry::ops
