// Two pages on cpp-httplib's server.
#include "ops/worker/health_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <thread>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr std::size_t threads = 2;  // a scraper and a probe
constexpr std::int64_t port_max = 65535;

}  // namespace

struct HealthServer::State {
    Options options;
    httplib::Server server;
    int port = 0;
    std::thread thread;
};

HealthServer::HealthServer(Options options) : state_(std::make_unique<State>()) {
    State& state = *state_;
    state.options = std::move(options);
    const std::string& address = state.options.address;
    const std::size_t mark = address.rfind(':');
    const auto port = mark == std::string::npos ? std::nullopt : parse_integer(std::string_view(address).substr(mark + 1));
    if (!port || *port < 0 || *port > port_max) throw UsageError(fmt::format("--metrics-address {}: write HOST:PORT, or off", address));
    state.server.new_task_queue = [] { return new httplib::ThreadPool(threads); };
    state.server.Get("/metrics", [&state](const httplib::Request&, httplib::Response& response) {
        response.set_content(state.options.metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
    state.server.Get("/healthz", [&state](const httplib::Request&, httplib::Response& response) {
        const Health health = state.options.health();
        response.status = health.ok ? 200 : 503;
        response.set_content(health.state + "\n", "text/plain; charset=utf-8");
    });
    // Without SO_REUSEPORT, which the library sets: two workers could share a port, and a scraper would read sometimes one, sometimes the
    // other.
    state.server.set_socket_options([](socket_t socket) {
        const int on = 1;
        setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    const std::string host = address.substr(0, mark);
    if (*port == 0) {
        state.port = state.server.bind_to_any_port(host);
    } else if (state.server.bind_to_port(host, static_cast<int>(*port))) {
        state.port = static_cast<int>(*port);
    }
    if (state.port <= 0) {
        throw std::runtime_error(
            fmt::format("cannot listen on {}: another program may use that port; give another --metrics-address, or off", address));
    }
    state.thread = std::thread([&state] { state.server.listen_after_bind(); });
    // A stop() before the server listens would have no effect.
    while (!state.server.is_running()) std::this_thread::yield();
}

HealthServer::~HealthServer() {
    state_->server.stop();
    state_->thread.join();
}

int HealthServer::port() const { return state_->port; }

}  // namespace lorry::ops
