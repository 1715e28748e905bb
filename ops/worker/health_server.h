// Serves /metrics and /healthz over HTTP, on threads of its own. Started by `lorry worker`.
#pragma once

#include <functional>
#include <string>

#include "ops/http/pages.h"

namespace lorry::ops {

// The answer to a probe.
struct Health {
    bool ok = false;
    std::string state;  // "starting", "running", "draining", "degraded" with the blocked partitions, or the fault
};

class HealthServer {
public:
    struct Options {
        std::string address;                   // host:port; port 0: any free one
        std::function<std::string()> metrics;  // each is called from a thread of the server
        std::function<Health()> health;
    };
    // Throws UsageError for an address that is not HOST:PORT, std::runtime_error when it cannot listen there.
    explicit HealthServer(const Options& options);

    int port() const { return server_.port(); }

private:
    PageServer server_;
};

}  // namespace lorry::ops
