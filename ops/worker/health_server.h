// /metrics and /healthz over HTTP, on threads of its own. Started by command_worker.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace lorry::ops {

// What a probe is told.
struct Health {
    bool ok = false;
    std::string state;  // "starting", "running", "draining", or what is wrong
};

class HealthServer {
public:
    struct Options {
        std::string address;                   // host:port; port 0: any that is free
        std::function<std::string()> metrics;  // both are called from the server's threads
        std::function<Health()> health;
    };
    // Throws UsageError for an address that is none, std::runtime_error when it cannot be listened at.
    explicit HealthServer(Options options);
    ~HealthServer();

    int port() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::ops
