// What the worker's two pages answer; ops/http serves them.
#include "ops/worker/health_server.h"

#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/event_log.h"
#include "ops/metrics.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

PageServer::Options server_options(const HealthServer::Options& options) {
    const std::string& address = options.address;
    const auto where = parse_host_and_port(address);
    if (!where) throw UsageError(fmt::format("--metrics-address {}: write HOST:PORT, or off", address));
    const auto metrics = [page = options.metrics] { return HttpAnswer{.type = Metrics::content_type, .body = page()}; };
    const auto health = [ask = options.health] {
        const Health answer = ask();
        return HttpAnswer{.status = answer.ok ? 200U : 503U, .body = answer.state + "\n"};
    };
    return {.host = where->host,
            .port = where->port,
            .pages = {{.path = "/metrics", .answer = metrics}, {.path = "/healthz", .answer = health}},
            .on_failure = [](const std::string& page, const std::string& reason) {
                log_warning("page_failed", {{"page", page}, {"message", reason}});
            }};
}

}  // namespace

HealthServer::HealthServer(const Options& options) try : server_(server_options(options)) {
} catch (const std::system_error& error) {
    throw std::runtime_error(
        fmt::format("cannot listen on {}: {}; give another --metrics-address, or off", options.address, error.code().message()));
}

}  // namespace lorry::ops
