// The HTTP server over TLS, with a real authority, certificates and handshakes: what clients are promised, and what those that are slow,
// old or confused can do.
#include "ops/http/tls.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <list>
#include <thread>

#include <fmt/format.h>

#include "ops/http/server.h"
#include "tests/support/http_client.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/tls_client.h"

namespace lorry::ops {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using tests::CertificateAuthority;
using tests::HttpClient;
using tests::TlsClient;
using namespace std::chrono_literals;

// Answers /stream with an event stream, /wait not at all, /large with 4 MB, and everything else with its body.
class Answers final : public HttpHandler {
public:
    std::optional<HttpAnswer> refuse(const HttpRequest&) override { return std::nullopt; }
    void handle(HttpRequestId id, HttpRequest request) override {
        if (request.target == "/wait") return;
        if (request.target == "/large") return server->answer(id, {.body = std::string(4'000'000, 'x')});
        if (request.target != "/stream") return server->answer(id, {.body = request.body + "\n"});
        server->begin(id, {.type = "text/event-stream", .body = {}});
        for (int i = 0; i < 3; ++i) server->write(id, fmt::format("data: {}\n\n", i));
        server->end(id);
    }
    void on_client_gone(HttpRequestId) override {
        ++gone;
        gone.notify_all();
    }
    HttpAnswer refusal(unsigned status, const std::string& text) override { return {.status = status, .body = text}; }

    HttpServer* server = nullptr;
    std::atomic<int> gone = 0;
};

struct TlsServer {
    explicit TlsServer(HttpLimits limits = {}) : server({.host = "127.0.0.1", .handler = answers, .limits = limits, .tls = &identity}) {
        answers.server = &server;
        server.start();
    }
    ~TlsServer() { server.stop(); }
    TlsClient::Options client() const { return {.port = server.port(), .trusted = authority.file()}; }

    tests::TempFolder folder;
    CertificateAuthority authority{folder.path()};
    CertificateAuthority::Identity files = authority.issue({.name = "server"});
    TlsIdentity identity{{.certificate = files.certificate, .key = files.key}};
    Answers answers;
    HttpServer server;
};

HttpLimits small_limits() {
    HttpLimits limits;
    limits.body_bytes = 1'000'000;
    return limits;
}

std::string post(std::size_t bytes) {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", bytes, std::string(bytes, 'b'));
}

TEST(Tls, AnswersWholeStreamedLargeAndPipelinedOnOneConnection) {
    const TlsServer served(small_limits());
    TlsClient client(served.client());
    EXPECT_EQ(client.version(), "TLSv1.3");
    EXPECT_EQ(client.get("/").body, "\n");
    client.send(post(300'000));
    EXPECT_EQ(client.receive()->body.size(), 300'001U);
    EXPECT_EQ(client.get("/large").body.size(), 4'000'000U);
    client.send("GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.receive()->status, 200);
    EXPECT_EQ(client.receive()->status, 200);
    client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(client.receive_all(), HasSubstr("data: 0\n\ndata: 1\n\ndata: 2\n\n"));
    EXPECT_TRUE(client.ended_well());
}

// What ends with the connection could otherwise be cut by whoever is between.
TEST(Tls, SaysThatAnAnswerOfHttp10HasEnded) {
    const TlsServer served;
    TlsClient client(served.client());
    client.send("GET /stream HTTP/1.0\r\n\r\n");
    EXPECT_THAT(client.receive_all(), HasSubstr("data: 2"));
    EXPECT_TRUE(client.ended_well());
}

TEST(Tls, ClientsKnowTheServerByItsHostAndAuthority) {
    const TlsServer served;
    const tests::TempFolder elsewhere;
    const CertificateAuthority other(elsewhere.path());
    const auto with = [&](auto change) {
        TlsClient::Options options = served.client();
        change(options);
        return tests::thrown_by([&] { const TlsClient client(options); });
    };
    EXPECT_EQ(with([](auto&) {}), "accepted");
    EXPECT_THAT(with([](auto& options) { options.host = "gateway.example"; }), HasSubstr("certificate verify failed"));
    EXPECT_THAT(with([&](auto& options) { options.trusted = other.file(); }), HasSubstr("certificate verify failed"));
}

TEST(Tls, RefusesOldProtocolsAndOtherProtocols) {
    const TlsServer served;
    TlsClient::Options old = served.client();
    old.only_version = "1.1";
    EXPECT_THAT(tests::thrown_by([&] { const TlsClient client(old); }), HasSubstr("protocol version"));
    TlsClient::Options two = served.client();
    two.protocols = "\x02h2";
    EXPECT_THAT(tests::thrown_by([&] { const TlsClient client(two); }), HasSubstr("no application protocol"));
    two.protocols = "\x02h2\x08http/1.1";
    EXPECT_EQ(TlsClient(two).get("/").status, 200);
}

// A handshake costs the server much more than the client.
TEST(Tls, RefusesFurtherHandshakesWithinAConnection) {
    const TlsServer served;
    TlsClient::Options before = served.client();
    before.only_version = "1.2";
    TlsClient client(before);
    EXPECT_EQ(client.version(), "TLSv1.2");
    EXPECT_EQ(client.get("/").status, 200);
    EXPECT_FALSE(client.renegotiate());
    EXPECT_EQ(TlsClient(before).get("/").status, 200);
}

TEST(Tls, TellsAClientOfPlainHttpWhatToDo) {
    const TlsServer served;
    HttpClient client(served.server.port());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 400);
    EXPECT_THAT(reply->body, HasSubstr("https://"));
    EXPECT_EQ(client.wait_for_end(), 0U);
    EXPECT_FALSE(client.was_reset());
    HttpClient noise(served.server.port());
    noise.send("\x16\x03\x01\xff\xff garbage that is no handshake");
    noise.end_sending();
    noise.wait_for_end();
    EXPECT_EQ(TlsClient(served.client()).get("/").status, 200);
}

// Pins: the time of a header began after the handshake, which had none.
TEST(Tls, EndsHandshakesThatTakeTooLong) {
    HttpLimits limits;
    limits.request_timeout = 200ms;
    limits.connections = 200;
    const TlsServer served(limits);
    std::list<HttpClient> silent;
    for (int i = 0; i < 100; ++i) silent.emplace_back(served.server.port());
    HttpClient slow(served.server.port());
    // A ClientHello that announces 512 bytes, a byte at a time: no byte begins the time anew.
    slow.send(std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
    const auto begin = std::chrono::steady_clock::now();
    while (slow.send("x") && std::chrono::steady_clock::now() < begin + 10s) std::this_thread::sleep_for(10ms);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    for (HttpClient& each : silent) EXPECT_EQ(each.wait_for_end(), 0U);
    EXPECT_EQ(TlsClient(served.client()).get("/").status, 200);
}

TEST(Tls, ManyConnectionsThatBeginNothingDoNotKeepOthersOut) {
    HttpLimits limits;
    limits.connections = 16;
    const TlsServer served(limits);
    std::list<HttpClient> silent;
    for (int i = 0; i < 100; ++i) silent.emplace_back(served.server.port());
    std::list<TlsClient> clients;
    for (int i = 0; i < 8; ++i) EXPECT_EQ(clients.emplace_back(served.client()).get("/").status, 200);
    for (TlsClient& client : clients) EXPECT_EQ(client.get("/").status, 200);
}

TEST(Tls, SeesClientsThatGoAwayHoweverTheyDo) {
    TlsServer served;
    const auto wait_for = [&](int count) {
        for (int now = served.answers.gone; now < count; now = served.answers.gone) served.answers.gone.wait(now);
    };
    {
        TlsClient client(served.client());
        client.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    wait_for(1);
    TlsClient client(served.client());
    client.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.end_sending();
    wait_for(2);
}

TEST(Tls, TakesANewCertificateWithoutAnEnd) {
    TlsServer served;
    TlsClient before(served.client());
    EXPECT_FALSE(served.identity.refresh());
    const auto next = served.authority.issue({.name = "next", .ends = 48h});
    std::filesystem::rename(next.certificate, served.files.certificate);
    // In between the two do not belong together: what was there stays.
    EXPECT_THAT(tests::thrown_by([&] { served.identity.refresh(); }), HasSubstr("does not belong to the certificate"));
    EXPECT_FALSE(served.identity.refresh()) << "it is said once";
    EXPECT_EQ(TlsClient(served.client()).serial_number(), before.serial_number());
    std::filesystem::rename(next.key, served.files.key);
    EXPECT_TRUE(served.identity.refresh());
    EXPECT_GT(served.identity.expires(), std::chrono::system_clock::now() + 24h);
    TlsClient after(served.client());
    EXPECT_NE(after.serial_number(), before.serial_number());
    EXPECT_EQ(after.get("/").status, 200);
    EXPECT_EQ(before.get("/").status, 200) << "a connection goes on as it began";
}

TEST(Tls, RefusesFilesThatCannotServe) {
    const tests::TempFolder folder;
    const CertificateAuthority authority(folder.path());
    const auto good = authority.issue({.name = "good"});
    const auto other = authority.issue({.name = "other"});
    const auto expired = authority.issue({.name = "expired", .begins = -2h, .ends = -1h});
    const auto early = authority.issue({.name = "early", .begins = 1h, .ends = 2h});
    const auto refusal = [](const std::string& certificate, const std::string& key) {
        return tests::thrown_by([&] { const TlsIdentity identity({.certificate = certificate, .key = key}); });
    };
    const std::string nowhere = (folder / "nowhere.pem").string();
    const std::string text = (folder / "text.pem").string();
    tests::write_text(text, "no PEM\n");
    EXPECT_EQ(refusal(good.certificate, good.key), "accepted");
    EXPECT_EQ(refusal(nowhere, good.key), nowhere + ": the certificate cannot be read: No such file or directory");
    EXPECT_EQ(refusal(good.certificate, nowhere), nowhere + ": the key cannot be read: No such file or directory");
    EXPECT_EQ(refusal(folder.path().string(), good.key), folder.path().string() + ": the certificate has to be a regular file");
    EXPECT_THAT(refusal(text, good.key), StartsWith(text + ": this is no certificate in PEM format"));
    chmod(good.certificate.c_str(), 0600);
    EXPECT_THAT(refusal(good.certificate, good.certificate), HasSubstr("this is no key in PEM format without a password"));
    EXPECT_EQ(refusal(good.certificate, other.key), other.key + ": the key does not belong to the certificate " + good.certificate);
    EXPECT_THAT(refusal(expired.certificate, expired.key), HasSubstr("the certificate expired on 20"));
    EXPECT_THAT(refusal(early.certificate, early.key), HasSubstr("is valid only from"));
    chmod(good.key.c_str(), 0644);
    EXPECT_THAT(refusal(good.certificate, good.key), HasSubstr("every user may read the key: run chmod o-r"));
    chmod(good.key.c_str(), 0622);
    EXPECT_THAT(refusal(good.certificate, good.key), HasSubstr("every user may change the key"));
}

}  // namespace
}  // namespace lorry::ops
