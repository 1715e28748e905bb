// Finds the key of a request by its id, and compares its hash.
#include "ops/gateway/key_authenticator.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "ops/gateway/errors.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

constexpr std::string_view scheme = "bearer";

// The token of "Bearer TOKEN" (RFC 6750, 2.1); nullopt: the field has another form.
std::optional<std::string_view> token_of(std::string_view field) {
    const bool is_bearer =
        field.size() > scheme.size() && field[scheme.size()] == ' ' && schema::lower_case(field.substr(0, scheme.size())) == scheme;
    if (!is_bearer) return std::nullopt;
    field.remove_prefix(std::min(field.find_first_not_of(' ', scheme.size()), field.size()));
    return field;
}

// `challenge`: RFC 6750, 3.
HttpAnswer unauthorized(const std::string& message, const char* challenge) {
    HttpAnswer answer = gateway_error(401, message);
    answer.fields = {{"WWW-Authenticate", challenge}};
    return answer;
}

HttpAnswer unsent() {
    return unauthorized("send one API key, as Authorization: Bearer lorry-…; `lorry keys create` makes keys", R"(Bearer realm="lorry")");
}

HttpAnswer invalid(const std::string& message) { return unauthorized(message, R"(Bearer realm="lorry", error="invalid_token")"); }

}  // namespace

KeyAuthenticator::KeyAuthenticator(const consumer::KeyDirectory& keys, std::function<schema::Timestamp()> now)
    : keys_(keys), now_(std::move(now)) {}

Expected<Caller, HttpAnswer> KeyAuthenticator::identify(const HttpRequest& request) const {
    if (request.count("authorization") != 1) return unexpected(unsent());
    const auto token = token_of(*request.field("authorization"));
    if (!token) return unexpected(unsent());
    const auto id = schema::key_id_of(*token);
    if (!id) return unexpected(invalid("the API key is not one of Lorry's: they begin with lorry- and are shown once, when they are made"));
    if (!keys_.is_current()) {
        HttpAnswer answer =
            gateway_error(503, "the keys cannot be read at the moment, so this one may have been revoked: send it again later");
        answer.fields = {{"Retry-After", "5"}};
        return unexpected(std::move(answer));
    }
    const auto key = keys_.find(*id);
    // Compared for an unknown key as well: the time would tell which ids exist.
    const bool is_right = schema::is_equal(schema::sha256_of(*token), key ? key->hash : schema::Sha256{});
    if (!key || !is_right) return unexpected(invalid("the API key is not known"));
    if (key->revoked) return unexpected(invalid("the API key was revoked: ask for another"));
    if (key->expires && *key->expires <= now_()) return unexpected(invalid("the API key has expired: ask for another"));
    return Caller{.id = key->id, .tenant = key->tenant, .scopes = key->scopes, .limits = key->limits};
}

}  // namespace lorry::ops
