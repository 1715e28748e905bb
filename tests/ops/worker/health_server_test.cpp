// The worker's two pages, as probes and scrapers see them.
#include "ops/worker/health_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include <fmt/format.h>

#include "ops/command.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using tests::HttpClient;
using tests::HttpReply;

HealthServer::Options options_of(const std::string& address) {
    return {.address = address,
            .metrics = [] { return std::string("a 1\n"); },
            .health = [] { return Health{.ok = true, .state = "running"}; }};
}

TEST(HealthServer, TellsProbesWhatTheWorkerSays) {
    std::atomic<bool> runs = false;
    HealthServer::Options options = options_of("127.0.0.1:0");
    options.health = [&] { return runs ? Health{.ok = true, .state = "running"} : Health{.ok = false, .state = "starting"}; };
    const HealthServer server(options);
    HttpClient client(server.port());
    const HttpReply starting = client.get("/healthz");
    EXPECT_EQ(starting.status, 503);
    EXPECT_EQ(starting.body, "starting\n");
    runs = true;
    const HttpReply running = client.get("/healthz");
    EXPECT_EQ(running.status, 200);
    EXPECT_EQ(running.body, "running\n");
    const HttpReply metrics = client.get("/metrics");
    EXPECT_EQ(metrics.body, "a 1\n");
    EXPECT_NE(metrics.header.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos) << metrics.header;
    EXPECT_EQ(client.get("/elsewhere").status, 404);
}

TEST(HealthServer, SaysWhatIsWrongWithTheAddress) {
    const HealthServer first(options_of("localhost:0"));
    const std::string taken = fmt::format("localhost:{}", first.port());
    const auto error_of = [](const std::string& address) {
        try {
            const HealthServer server(options_of(address));
            return std::string("none");
        } catch (const UsageError& error) {
            return fmt::format("usage: {}", error.what());
        } catch (const std::runtime_error& error) {
            return std::string(error.what());
        }
    };
    for (const char* address : {"9464", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:-1", "127.0.0.1:65536"})
        EXPECT_EQ(error_of(address), fmt::format("usage: --metrics-address {}: write HOST:PORT, or off", address));
    EXPECT_EQ(error_of(taken), fmt::format("cannot listen on {}: Address already in use; give another --metrics-address, or off", taken));
}

}  // namespace
}  // namespace lorry::ops
