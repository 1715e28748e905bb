// The field `Authorization: Bearer TOKEN` (RFC 6750). Used by key_authenticator.cpp, jwt_authenticator.cpp and authenticators.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ops/http/server.h"

namespace lorry::ops {

// The token of a request, which lives as long as it; nullopt: it has no such field, several, or one of another form.
std::optional<std::string_view> bearer_token(const HttpRequest& request);

// 401 for a request without a token, and for a token that is not good.
HttpAnswer token_missing(const std::string& message);
HttpAnswer token_refused(const std::string& message);

}  // namespace lorry::ops
