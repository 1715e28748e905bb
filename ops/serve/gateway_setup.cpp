// Limits of descriptors, and the event of a request.
#include "ops/serve/gateway_setup.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "ops/event_log.h"

namespace lorry::ops {
namespace {

// Besides those of calls: connections that are idle, files and the event loop.
constexpr std::size_t descriptors_besides = 256;

std::size_t connections_of(const Settings& settings) {
    const std::size_t wanted = static_cast<std::size_t>(settings.calls_max) + descriptors_besides;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::system_error(errno, std::generic_category(), "RLIMIT_NOFILE");
    limit.rlim_cur = std::min<rlim_t>(std::max<rlim_t>(limit.rlim_cur, wanted + descriptors_besides), limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, fewer connections are open at a time
    return std::min(wanted, static_cast<std::size_t>(limit.rlim_cur) - std::min<std::size_t>(descriptors_besides, limit.rlim_cur / 2));
}

}  // namespace

HttpLimits http_limits_of(const Settings& settings) {
    return {.connections = connections_of(settings),
            .header_bytes = std::size_t{16} << 10,
            .body_bytes = settings.job_bytes_max.count,
            .write_timeout = std::chrono::seconds(60),
            .answer_timeout = settings.call_timeout.count() > 0 ? std::optional(settings.call_timeout) : std::nullopt};
}

std::int64_t start_time() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void log_request(const RequestReport& report) {
    log_event("request", {{"id", report.id},
                          {"method", schema::repair_utf8(report.method)},
                          {"url", report.url},
                          {"key", report.key},
                          {"tenant", schema::repair_utf8(report.tenant)},
                          {"status", static_cast<std::int64_t>(report.status)},
                          {"seconds", static_cast<double>(report.took.count()) / 1e6},
                          {"stream", report.is_stream},
                          {"traceparent", report.traceparent},
                          {"client_gone", report.client_gone}});
}

std::unique_ptr<Gateway> listen(const Gateway::Options& options, consumer::CallBackend& calls, const std::string& flag) {
    try {
        return std::make_unique<Gateway>(options, calls);
    } catch (const std::system_error& error) {
        throw std::runtime_error(
            fmt::format("cannot listen on {}:{}: {}; give another {}", options.host, options.port, error.code().message(), flag));
    }
}

}  // namespace lorry::ops
