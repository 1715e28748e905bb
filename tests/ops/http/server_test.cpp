// The HTTP server over real sockets: what it answers and refuses, and what clients that are slow, idle or many can take from others.
#include "ops/http/pages.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using tests::HttpClient;
using tests::HttpReply;
using namespace std::chrono_literals;

HttpPage page_of(const std::string& path, const std::string& body) {
    return {.path = path, .answer = [body] { return HttpAnswer{.body = body}; }};
}

PageServer::Options options_of(std::vector<HttpPage> pages, HttpLimits limits = {}) {
    pages.push_back(page_of("/healthz", "running\n"));
    return {.host = "127.0.0.1", .pages = std::move(pages), .limits = limits};
}

// The status of the answer to `request`, and whether the connection ended with it: "405 closed".
std::string answer_to(int port, std::string_view request) {
    HttpClient client(port);
    client.send(request);
    const auto reply = client.receive(!request.starts_with("HEAD"));
    if (!reply) return "closed";
    const bool closes = reply->header.find("Connection: close\r\n") != std::string::npos;
    EXPECT_EQ(closes ? client.wait_for_end() : 0U, 0U) << "bytes after the last answer";
    return fmt::format("{}{}", reply->status, closes ? " closed" : "");
}

int number_of(const std::string& text) {
    int number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// This process's sockets that are bound to the port: the listening one, and the server's ends of connections.
std::vector<int> sockets_of(int port) {
    std::vector<int> sockets;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        sockaddr_in local{};
        socklen_t size = sizeof local;
        const int descriptor = number_of(entry.path().filename().string());
        if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &size) != 0) continue;
        if (local.sin_family == AF_INET && ntohs(local.sin_port) == port) sockets.push_back(descriptor);
    }
    return sockets;
}

// Sets how many descriptors this process may have, until it is destroyed.
class DescriptorLimit {
public:
    explicit DescriptorLimit(rlim_t limit) {
        getrlimit(RLIMIT_NOFILE, &before_);
        set({.rlim_cur = limit, .rlim_max = before_.rlim_max});
    }
    ~DescriptorLimit() { set(before_); }
    static rlim_t lowest_free() {
        const int descriptor = dup(STDERR_FILENO);
        close(descriptor);
        return static_cast<rlim_t>(descriptor);
    }

private:
    static void set(const rlimit& limit) { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0) << limit.rlim_cur; }
    rlimit before_{};
};

// Of RUSAGE_SELF, the process, or RUSAGE_THREAD, the calling thread.
std::chrono::microseconds processor_time(int of) {
    rusage usage{};
    getrusage(of, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(HttpServer, AnswersGetAndHeadOnOneConnection) {
    const PageServer server(options_of({page_of("/metrics", "a 1\n")}));
    HttpClient client(server.port());
    EXPECT_EQ(client.get("/metrics").body, "a 1\n");
    EXPECT_EQ(client.get("/metrics?name=a").body, "a 1\n");
    EXPECT_EQ(client.get("/elsewhere").status, 404);
    client.send("HEAD /metrics HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
    const auto head = client.receive(false);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->status, 200);
    EXPECT_NE(head->header.find("Content-Length: 4\r\n"), std::string::npos) << head->header;
    EXPECT_NE(head->header.find("Content-Type: text/plain; charset=utf-8\r\n"), std::string::npos) << head->header;
    const auto second = client.receive();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->body, "running\n");
    EXPECT_EQ(answer_to(server.port(), "GET /healthz HTTP/1.0\r\n\r\n"), "200 closed");
    EXPECT_EQ(answer_to(server.port(), "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"), "200 closed");
}

// Pins: bodies of any size were read, and gzip bodies inflated: 1.5 MB became 2.4 GB.
TEST(HttpServer, RefusesOtherMethodsAndBodiesWithoutReadingThem) {
    const PageServer server(options_of({}));
    for (const auto& [request, answer] : std::vector<std::pair<std::string, std::string>>{
             {"POST /healthz HTTP/1.1\r\n\r\n", "405 closed"},
             {"PUT /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405 closed"},
             {"OPTIONS * HTTP/1.1\r\n\r\n", "405 closed"},
             {"CONNECT elsewhere:80 HTTP/1.1\r\n\r\n", "405 closed"},
             {"BREW /healthz HTTP/1.1\r\n\r\n", "405 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "200"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "413 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", "413 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", "413 closed"},
             {"HEAD /healthz HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1500000\r\n\r\n", "413 closed"},
             {"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "413 closed"},
             {"GET /healthz HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "413 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400 closed"},
             {"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "400 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "400 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400 closed"},
             {"GET /healthz HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n", "400 closed"},
         })
        EXPECT_EQ(answer_to(server.port(), request), answer) << request;

    HttpClient client(server.port());
    client.send("DELETE /healthz HTTP/1.1\r\n\r\n");
    EXPECT_NE(client.receive()->header.find("Allow: GET, HEAD\r\n"), std::string::npos);

    // A client that sends its body all the same is cut off long before the end.
    HttpClient sender(server.port());
    sender.send("GET /healthz HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
    const std::string piece(1'000'000, 'x');
    int pieces = 0;
    while (pieces < 1000 && sender.send(piece)) ++pieces;
    EXPECT_LT(pieces, 100);
}

// Closing with bytes unread would reset the connection.
TEST(HttpServer, LetsARefusedClientReadItsAnswer) {
    const PageServer server(options_of({}));
    HttpClient client(server.port());
    client.send("GET /healthz HTTP/1.1\r\nContent-Length: 20000\r\n\r\n" + std::string(20'000, 'x'));
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 413);
    EXPECT_EQ(client.wait_for_end(), 0U);
    EXPECT_FALSE(client.was_reset());
}

TEST(HttpServer, RefusesWhatIsNotHttp) {
    const PageServer server(options_of({}));
    for (const std::string& request : {
             std::string("\r\n\r\n"),
             std::string("hello\r\n\r\n"),
             std::string("GET /healthz\r\n\r\n"),
             std::string("GET /health z HTTP/1.1\r\n\r\n"),
             std::string("GET /healthz HTTP/2.0\r\n\r\n"),
             std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
             std::string("GET /healthz HTTP/1.1\r\nno colon\r\n\r\n"),
             std::string("GET /healthz HTTP/1.1\r\nname : space\r\n\r\n"),
             std::string("GET /healthz HTTP/1.1\r\nname: \x01\r\n\r\n"),
             std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
         })
        EXPECT_EQ(answer_to(server.port(), request), "400 closed") << request;
    EXPECT_EQ(HttpClient(server.port()).get("/healthz").status, 200);
}

TEST(HttpServer, AnswersUncompressedWhateverIsAccepted) {
    const std::string body(100'000, 'x');
    const PageServer server(options_of({page_of("/metrics", body)}));
    HttpClient client(server.port());
    client.send("GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\r\n");
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_TRUE(reply->body == body);
    EXPECT_EQ(reply->header.find("Content-Encoding"), std::string::npos) << reply->header;
}

TEST(HttpServer, BoundsTheHeader) {
    const PageServer server(options_of({}, {.header_bytes = 1000}));
    const auto with_field = [](std::size_t bytes) { return "GET /healthz HTTP/1.1\r\na: " + std::string(bytes, 'x') + "\r\n\r\n"; };
    EXPECT_EQ(answer_to(server.port(), with_field(900)), "200");
    EXPECT_EQ(answer_to(server.port(), with_field(1'100)), "431 closed");
    EXPECT_EQ(answer_to(server.port(), with_field(10'000'000)), "431 closed");
    EXPECT_EQ(answer_to(server.port(), "GET /" + std::string(2'000, 'x')), "431 closed");
    std::string many = "GET /healthz HTTP/1.1\r\n";
    for (int i = 0; i < 1'000; ++i) many += "a:\r\n";
    EXPECT_EQ(answer_to(server.port(), many + "\r\n"), "431 closed");
}

// Pins: 1,100 idle connections took the descriptors that Kafka's connections needed.
TEST(HttpServer, AnswersAProbeAmong1100IdleConnectionsWithinItsDescriptors) {
    const DescriptorLimit enough(4096);
    const HttpLimits limits;
    const PageServer server(options_of({}, limits));
    std::list<HttpClient> idle;
    HttpClient scraper(server.port(), "127.0.0.2");
    EXPECT_EQ(scraper.get("/healthz").status, 200);
    for (int i = 0; i < 1'100; ++i) {
        idle.emplace_back(server.port());
        if (i % 100 == 99) {
            EXPECT_EQ(HttpClient(server.port()).get("/healthz").status, 200) << i;
            EXPECT_LE(sockets_of(server.port()).size(), limits.connections + 1) << i;
        }
    }
    // One address cannot drive out another.
    EXPECT_EQ(scraper.get("/healthz").status, 200);
    // The first clients were closed for the last.
    EXPECT_EQ(idle.front().wait_for_end(), 0U);
    EXPECT_EQ(idle.back().get("/healthz").status, 200);
}

TEST(HttpServer, TakesTheDescriptorsThatItSays) {
    const auto descriptors = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    };
    const std::size_t before = descriptors();
    const PageServer server(options_of({}));
    EXPECT_EQ(HttpClient(server.port()).get("/healthz").status, 200);
    EXPECT_LE(descriptors(), before + HttpServer::descriptors_own + 1);
}

TEST(HttpServer, ClosesTheConnectionThatWasQuietForLongest) {
    const PageServer server(options_of({}, {.connections = 3}));
    HttpClient first(server.port());
    HttpClient second(server.port());
    HttpClient third(server.port());
    EXPECT_EQ(third.get("/healthz").status, 200);
    EXPECT_EQ(second.get("/healthz").status, 200);
    EXPECT_EQ(first.get("/healthz").status, 200);
    EXPECT_EQ(HttpClient(server.port()).get("/healthz").status, 200);
    EXPECT_EQ(third.wait_for_end(), 0U);
    EXPECT_EQ(first.get("/healthz").status, 200);
}

// Pins: two clients that did not read their page stopped /healthz, and a liveness probe would have killed the worker.
TEST(HttpServer, AnswersWhileOthersReadOrWriteSlowly) {
    const PageServer server(options_of({page_of("/large", std::string(16'000'000, 'x'))}, {.request_timeout = 60s, .write_timeout = 60s}));
    std::list<HttpClient> slow;
    for (int i = 0; i < 8; ++i) {
        slow.emplace_back(server.port());
        slow.back().send("GET /large HTTP/1.1\r\n\r\n");
        slow.emplace_back(server.port());
        slow.back().send("GET /healthz HT");
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(HttpClient(server.port()).get("/healthz").body, "running\n");
    // Nobody was closed for it.
    slow.back().send("TP/1.1\r\n\r\n");
    EXPECT_EQ(slow.back().receive()->body, "running\n");
    EXPECT_EQ(slow.front().receive()->body.size(), 16'000'000U);
}

TEST(HttpServer, AnswersWhileAnotherPageIsSlow) {
    std::promise<void> released;
    const std::shared_future<void> release = released.get_future().share();
    const HttpPage slow{.path = "/metrics", .answer = [release] {
                            release.wait();
                            return HttpAnswer{.body = "a 1\n"};
                        }};
    PageServer::Options options = options_of({slow});
    options.waiting = 3;
    const PageServer server(options);
    std::atomic<int> refused = 0;
    std::list<std::future<int>> statuses;
    for (int i = 0; i < 5; ++i) {
        statuses.push_back(std::async(std::launch::async, [&] {
            const int status = HttpClient(server.port()).get("/metrics").status;
            if (status == 503) ++refused;
            refused.notify_all();
            return status;
        }));
    }
    for (int count = refused; count < 2; count = refused) refused.wait(count);
    EXPECT_EQ(HttpClient(server.port()).get("/healthz").status, 200);
    released.set_value();
    std::map<int, int> counts;
    for (auto& status : statuses) ++counts[status.get()];
    EXPECT_EQ(counts, (std::map<int, int>{{200, 3}, {503, 2}}));
}

TEST(HttpServer, EndsConnectionsThatDoNothingForTooLong) {
    {
        const PageServer server(options_of({}, {.request_timeout = 20ms}));
        HttpClient silent(server.port());
        EXPECT_EQ(silent.wait_for_end(), 0U);
        HttpClient unfinished(server.port());
        unfinished.send("GET /healthz HTTP/1.1\r\na:");
        EXPECT_EQ(unfinished.wait_for_end(), 0U);
    }
    {
        const PageServer server(options_of({}, {.idle_timeout = 20ms}));
        HttpClient idle(server.port());
        EXPECT_EQ(idle.get("/healthz").status, 200);
        EXPECT_EQ(idle.wait_for_end(), 0U);
    }
    {
        const PageServer server(options_of({page_of("/large", std::string(16'000'000, 'x'))}, {.write_timeout = 20ms}));
        HttpClient slow(server.port());
        EXPECT_EQ(slow.get("/healthz").status, 200);
        slow.send("GET /large HTTP/1.1\r\n\r\n");
        // The page is larger than what the system buffers, so only the timeout ends its writing.
        while (sockets_of(server.port()).size() > 1) std::this_thread::sleep_for(1ms);
    }
}

// Pins: a client that vanished without a word, as by a broken network, held its connection until its answer came. The system finds out; no
// network breaks here, so the test reads what the system was asked for.
TEST(HttpServer, AsksSilentClientsWhetherTheyAreStillThere) {
    const PageServer server(options_of({}, {.write_timeout = 7s}));
    HttpClient client(server.port());
    EXPECT_EQ(client.get("/healthz").status, 200);
    int connections = 0;
    for (const int socket : sockets_of(server.port())) {
        const auto value_of = [&](int level, int name) {
            int value = -1;
            socklen_t size = sizeof value;
            return getsockopt(socket, level, name, &value, &size) == 0 ? value : -1;
        };
        if (value_of(SOL_SOCKET, SO_ACCEPTCONN) != 0) continue;
        ++connections;
        EXPECT_EQ(value_of(SOL_SOCKET, SO_KEEPALIVE), 1);
        EXPECT_EQ(value_of(IPPROTO_TCP, TCP_KEEPIDLE), 15);
        EXPECT_EQ(value_of(IPPROTO_TCP, TCP_KEEPINTVL), 5);
        EXPECT_EQ(value_of(IPPROTO_TCP, TCP_USER_TIMEOUT), 7'000);
    }
    EXPECT_EQ(connections, 1);
}

TEST(HttpServer, WaitsForADescriptorWithoutSpinning) {
    const PageServer server(options_of({}));
    std::optional<DescriptorLimit> limit(DescriptorLimit::lowest_free() + 1);
    HttpClient client(server.port());  // takes the last one
    client.send("GET /healthz HTTP/1.1\r\n\r\n");
    // This thread computes for a while. A thread of the server that spins gets as much of the processor, however busy the machine is.
    const auto process = processor_time(RUSAGE_SELF);
    const auto own = processor_time(RUSAGE_THREAD);
    while (processor_time(RUSAGE_THREAD) - own < 300ms) continue;
    const auto others = processor_time(RUSAGE_SELF) - process - (processor_time(RUSAGE_THREAD) - own);
    EXPECT_LT(others, 100ms);
    limit.reset();
    EXPECT_EQ(client.receive()->status, 200);
}

TEST(HttpServer, GivesUpAConnectionOfItsOwnWhenTheProcessHasNoDescriptors) {
    const PageServer server(options_of({}));
    HttpClient idle(server.port());
    EXPECT_EQ(idle.get("/healthz").status, 200);
    const DescriptorLimit limit(DescriptorLimit::lowest_free() + 1);
    HttpClient client(server.port());  // takes the last one
    EXPECT_EQ(client.get("/healthz").status, 200);
    EXPECT_EQ(idle.wait_for_end(), 0U);
}

TEST(HttpServer, AnswersAFailingPageWith500) {
    const HttpPage failing{.path = "/metrics", .answer = []() -> HttpAnswer { throw std::runtime_error("the disk is full"); }};
    PageServer::Options options = options_of({failing});
    std::string failure;
    options.on_failure = [&](const std::string& path, const std::string& reason) { failure = path + ": " + reason; };
    const PageServer server(options);
    HttpClient client(server.port());
    const HttpReply reply = client.get("/metrics");
    EXPECT_EQ(reply.status, 500);
    EXPECT_EQ(failure, "/metrics: the disk is full");
    EXPECT_EQ(reply.body.find("disk"), std::string::npos) << reply.body;
    EXPECT_EQ(client.get("/healthz").status, 200);
}

TEST(HttpServer, EndsWhileClientsAreConnected) {
    std::promise<void> began;
    std::promise<void> released;
    HttpPage slow{.path = "/metrics", .answer = [&] {
                      began.set_value();
                      released.get_future().wait();
                      return HttpAnswer{};
                  }};
    auto server = std::make_unique<PageServer>(options_of({slow}));
    HttpClient idle(server->port());
    HttpClient unfinished(server->port());
    unfinished.send("GET /hea");
    HttpClient waiting(server->port());
    waiting.send("GET /metrics HTTP/1.1\r\n\r\n");
    began.get_future().wait();
    std::thread ending([&] { server.reset(); });
    EXPECT_EQ(idle.wait_for_end(), 0U);
    EXPECT_EQ(unfinished.wait_for_end(), 0U);
    released.set_value();
    ending.join();
    EXPECT_EQ(waiting.wait_for_end(), 0U);
}

TEST(HttpServer, SaysWhyItCannotListen) {
    const PageServer first(options_of({}));
    const auto reason = [](const std::string& host, std::uint16_t port) {
        try {
            const PageServer server({.host = host, .port = port});
            return std::string("none");
        } catch (const std::system_error& error) {
            return error.code().message();
        }
    };
    EXPECT_EQ(reason("127.0.0.1", first.port()), "Address already in use");
    EXPECT_EQ(reason("192.0.2.1", 0), "Cannot assign requested address");
    EXPECT_NE(reason("no such host", 0).find("not found"), std::string::npos) << reason("no such host", 0);
    EXPECT_EQ(reason("localhost", 0), "none");
    EXPECT_EQ(reason("", 0), "none");
}

}  // namespace
}  // namespace lorry::ops
