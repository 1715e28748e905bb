// Compares paths with the tables of urls.
#include "ops/gateway/route.h"

#include <array>
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

HttpAnswer wrong_method(std::string_view path, const std::string& allowed) {
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

// What stands below /v1/files and /v1/batches.
template <typename Stored>
struct StoredUrl {
    bool has_id;
    std::string_view rest;
    std::string_view method;
    typename Stored::Action action;
};
using FileAction = FileRoute::Action;
constexpr std::array file_urls = {
    StoredUrl<FileRoute>{false, "", "GET", FileAction::list}, StoredUrl<FileRoute>{false, "", "POST", FileAction::upload},
    StoredUrl<FileRoute>{true, "", "GET", FileAction::show}, StoredUrl<FileRoute>{true, "", "DELETE", FileAction::remove},
    StoredUrl<FileRoute>{true, "/content", "GET", FileAction::content}};
using BatchAction = BatchRoute::Action;
constexpr std::array batch_urls = {
    StoredUrl<BatchRoute>{false, "", "GET", BatchAction::list}, StoredUrl<BatchRoute>{false, "", "POST", BatchAction::create},
    StoredUrl<BatchRoute>{true, "", "GET", BatchAction::show}, StoredUrl<BatchRoute>{true, "/cancel", "POST", BatchAction::cancel}};

template <typename Stored, std::size_t count>
Expected<Route, HttpAnswer> stored_route(const std::array<StoredUrl<Stored>, count>& urls, std::string_view method, std::string_view target,
                                         const Below& at) {
    const auto query = query_of(target);
    if (!query) return unexpected(gateway_error(400, broken_query));
    std::string allowed;
    for (const StoredUrl<Stored>& url : urls) {
        if (url.has_id == at.id.empty() || url.rest != at.rest) continue;
        if (url.method == method) return Route(Stored{url.action, std::string(at.id), *query});
        allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", url.method);
    }
    return unexpected(allowed.empty() ? unknown_path(path_of(target)) : wrong_method(path_of(target), allowed));
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
    if (const auto at = below(path, files_path)) return stored_route(file_urls, method, target, *at);
    if (const auto at = below(path, batches_path)) return stored_route(batch_urls, method, target, *at);
    return unexpected(unknown_path(path));
}

}  // namespace lorry::ops
