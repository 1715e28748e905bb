// Compares paths with the tables of urls.
#include "ops/gateway/route.h"

#include <optional>

#include <fmt/format.h>

#include "ops/gateway/errors.h"
#include "ops/gateway/query.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

constexpr std::string_view models_path = "/v1/models";

// The path of "/path?query" and of "http://host/path?query" (RFC 9112, 3.2.2).
std::string_view path_of(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!target.starts_with(scheme)) continue;
        target.remove_prefix(scheme.size());
        target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
        break;
    }
    return target.substr(0, target.find('?'));
}

std::optional<Route> page_at(std::string_view path) {
    if (path == "/healthz") return HealthRoute{};
    if (path == "/metrics") return MetricsRoute{};
    if (path == "/v1/usage") return UsageRoute{};
    if (path == models_path) return ModelsRoute{};
    if (!path.starts_with(models_path) || !path.substr(models_path.size()).starts_with('/')) return std::nullopt;
    auto id = unescaped(path.substr(models_path.size() + 1));
    if (!id || id->empty()) return std::nullopt;
    return ModelRoute{std::move(*id)};
}

HttpAnswer wrong_method(std::string_view path, const char* allowed) {
    HttpAnswer answer = gateway_error(405, fmt::format("{} takes {}", schema::shortened(path), allowed));
    answer.fields = {{"Allow", allowed}};
    return answer;
}

HttpAnswer unknown_path(std::string_view path) {
    if (path == "/v1/responses" || path.starts_with("/v1/responses/"))
        return gateway_error(404, "the Responses API is not served: use /v1/chat/completions");
    std::string known;
    for (const schema::Endpoint endpoint : schema::endpoints) known += fmt::format("{}, ", schema::row_of(endpoint).url);
    return gateway_error(
        404, fmt::format("there is nothing at {}: the urls are {}{} and /healthz", schema::shortened(path), known, models_path));
}

}  // namespace

Expected<Route, HttpAnswer> route_of(std::string_view method, std::string_view target) {
    const std::string_view path = path_of(target);
    if (auto page = page_at(path)) {
        if (method == "GET" || method == "HEAD") return *std::move(page);
        return unexpected(wrong_method(path, "GET, HEAD"));
    }
    if (const auto endpoint = schema::endpoint_at(path)) {
        if (method == "POST") return Route(CallRoute{*endpoint});
        return unexpected(wrong_method(path, "POST"));
    }
    return unexpected(unknown_path(path));
}

}  // namespace lorry::ops
