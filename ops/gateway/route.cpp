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
constexpr std::string_view files_path = "/v1/files";
constexpr std::string_view batches_path = "/v1/batches";

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
    return gateway_error(404, fmt::format("there is nothing at {}: the urls are {}{}, {}, {} and /healthz", schema::shortened(path), known,
                                          models_path, files_path, batches_path));
}

// A path below /v1/files or /v1/batches: its id and what follows that.
struct Below {
    std::string_view id;
    std::string_view rest;  // "/content"
};
std::optional<Below> below(std::string_view path, std::string_view root) {
    if (!path.starts_with(root)) return std::nullopt;
    path.remove_prefix(root.size());
    if (path.empty()) return Below{};
    if (!path.starts_with('/') || path.size() == 1) return std::nullopt;
    path.remove_prefix(1);
    const std::size_t end = std::min(path.find('/'), path.size());
    return Below{.id = path.substr(0, end), .rest = path.substr(end)};
}

Expected<Route, HttpAnswer> file_route(std::string_view method, std::string_view path, const Query& query, const Below& at) {
    using Action = FileRoute::Action;
    const auto route = [&](Action action) { return Route(FileRoute{action, std::string(at.id), query}); };
    if (at.id.empty()) {
        if (method == "GET") return route(Action::list);
        if (method == "POST") return route(Action::upload);
        return unexpected(wrong_method(path, "GET, POST"));
    }
    if (at.rest == "/content")
        return method == "GET" ? Expected<Route, HttpAnswer>(route(Action::content)) : unexpected(wrong_method(path, "GET"));
    if (!at.rest.empty()) return unexpected(unknown_path(path));
    if (method == "GET") return route(Action::show);
    if (method == "DELETE") return route(Action::remove);
    return unexpected(wrong_method(path, "GET, DELETE"));
}

Expected<Route, HttpAnswer> batch_route(std::string_view method, std::string_view path, const Query& query, const Below& at) {
    using Action = BatchRoute::Action;
    const auto route = [&](Action action) { return Route(BatchRoute{action, std::string(at.id), query}); };
    if (at.id.empty()) {
        if (method == "GET") return route(Action::list);
        if (method == "POST") return route(Action::create);
        return unexpected(wrong_method(path, "GET, POST"));
    }
    if (at.rest == "/cancel")
        return method == "POST" ? Expected<Route, HttpAnswer>(route(Action::cancel)) : unexpected(wrong_method(path, "POST"));
    if (!at.rest.empty()) return unexpected(unknown_path(path));
    if (method == "GET") return route(Action::show);
    return unexpected(wrong_method(path, "GET"));
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
    const auto files = below(path, files_path);
    const auto batches = below(path, batches_path);
    if (!files && !batches) return unexpected(unknown_path(path));
    const auto query = query_of(target);
    if (!query) return unexpected(gateway_error(400, broken_query));
    return files ? file_route(method, path, *query, *files) : batch_route(method, path, *query, *batches);
}

}  // namespace lorry::ops
