// Finds the key of a request by its id, and compares its hash.
#include "ops/gateway/key_authenticator.h"

#include <utility>

#include "ops/gateway/bearer.h"
#include "ops/gateway/errors.h"

namespace lorry::ops {
namespace {

HttpAnswer unsent() { return token_missing("send one API key, as Authorization: Bearer lorry-…; `lorry keys create` makes keys"); }

}  // namespace

KeyAuthenticator::KeyAuthenticator(const consumer::KeyDirectory& keys, std::function<schema::Timestamp()> now)
    : keys_(keys), now_(std::move(now)) {}

Expected<Caller, HttpAnswer> KeyAuthenticator::identify(const HttpRequest& request) const {
    const auto token = bearer_token(request);
    if (!token) return unexpected(unsent());
    const auto id = schema::key_id_of(*token);
    if (!id)
        return unexpected(
            token_refused("the API key is not one of Lorry's: they begin with lorry- and are shown once, when they are made"));
    if (!keys_.is_current()) {
        return unexpected(
            with_retry(gateway_error(503, "the keys cannot be read at the moment, so this one may have been revoked: send it again later"),
                       std::chrono::seconds(5)));
    }
    const auto key = keys_.find(*id);
    // Compared for an unknown key as well: the time would tell which ids exist.
    const bool is_right = schema::is_equal(schema::sha256_of(*token), key ? key->hash : schema::Sha256{});
    if (!key || !is_right) return unexpected(token_refused("the API key is not known"));
    if (key->revoked) return unexpected(token_refused("the API key was revoked: ask for another"));
    if (key->expires && *key->expires <= now_()) return unexpected(token_refused("the API key has expired: ask for another"));
    return Caller{.id = key->id, .tenant = key->tenant, .scopes = key->scopes, .limits = key->limits};
}

}  // namespace lorry::ops
