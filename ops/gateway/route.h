// Which requests the gateway takes: what a method and a target mean. Used by gateway.cpp. A pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "ops/gateway/query.h"
#include "ops/http/server.h"
#include "schema/endpoint.h"

namespace lorry::ops {

struct CallRoute {
    schema::Endpoint endpoint;
};
struct ModelsRoute {};
struct ModelRoute {
    std::string id;
};
struct HealthRoute {};
struct MetricsRoute {};
struct UsageRoute {};  // usage_pages.h reads the target's query
// An id is what stands in the path: perhaps none.
struct FileRoute {
    enum class Action : std::uint8_t { upload, list, show, content, remove };
    Action action;
    std::string id;
    Query parameters;
};
struct BatchRoute {
    enum class Action : std::uint8_t { create, list, show, cancel };
    Action action;
    std::string id;
    Query parameters;
};
using Route = std::variant<CallRoute, ModelsRoute, ModelRoute, HealthRoute, MetricsRoute, UsageRoute, FileRoute, BatchRoute>;

// A target is a path, or a url with a host that is not looked at. Paths are compared as they are: nothing is unescaped but a model's name.
// An error has status 404, or 405 with the field Allow.
Expected<Route, HttpAnswer> route_of(std::string_view method, std::string_view target);

}  // namespace lorry::ops
