// Reads the field, and names the scheme in refusals.
#include "ops/gateway/bearer.h"

#include <algorithm>

#include "ops/gateway/errors.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

constexpr std::string_view scheme = "bearer";

// `challenge`: RFC 6750, 3.
HttpAnswer unauthorized(const std::string& message, const char* challenge) {
    HttpAnswer answer = gateway_error(401, message);
    answer.fields = {{"WWW-Authenticate", challenge}};
    return answer;
}

}  // namespace

std::optional<std::string_view> bearer_token(const HttpRequest& request) {
    if (request.count("authorization") != 1) return std::nullopt;
    std::string_view field = *request.field("authorization");
    const bool is_bearer =
        field.size() > scheme.size() && field[scheme.size()] == ' ' && schema::lower_case(field.substr(0, scheme.size())) == scheme;
    if (!is_bearer) return std::nullopt;
    field.remove_prefix(std::min(field.find_first_not_of(' ', scheme.size()), field.size()));
    return field;
}

HttpAnswer token_missing(const std::string& message) { return unauthorized(message, R"(Bearer realm="lorry")"); }

HttpAnswer token_refused(const std::string& message) { return unauthorized(message, R"(Bearer realm="lorry", error="invalid_token")"); }

}  // namespace lorry::ops
