// The gateway over real sockets with a backend that the test plays: answers, event streams, errors, and clients that go away or are slow.
#include "ops/gateway/gateway.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <list>
#include <thread>

#include <fmt/format.h>

#include "tests/support/fake_calls.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using consumer::CallRefusal;
using consumer::CallResult;
using schema::Json;
using tests::FakeCalls;
using tests::HttpClient;
using tests::HttpReply;
using tests::post;
using namespace std::chrono_literals;

constexpr std::string_view chat = "/v1/chat/completions";

// "404 unknown_url" of an answer with an error object, "200" of one without.
std::string ending(const HttpReply& reply) {
    const auto body = Json::parse(reply.body);
    if (!body) return fmt::format("{} {}", reply.status, reply.body);
    const Json* error = body->find("error");
    if (error == nullptr) return std::to_string(reply.status);
    for (const char* member : {"message", "type"}) EXPECT_TRUE(error->find(member)->is_string()) << reply.body;
    EXPECT_NE(error->find("param"), nullptr) << reply.body;
    EXPECT_NE(reply.header.find("Content-Type: application/json\r\n"), std::string::npos) << reply.header;
    return fmt::format("{} {}", reply.status, *error->find("code")->as_string());
}

struct GatewayRig {
    explicit GatewayRig(HttpLimits limits = {.header_bytes = 4096, .body_bytes = 10'000},
                        std::function<BodyReaders::Body(const std::string&)> read = read_body)
        : gateway({.host = "127.0.0.1",
                   .base_name = "tiny",
                   .created = 1'700'000'000,
                   .limits = limits,
                   .adapters =
                       [] {
                           return std::vector<std::string>{"mail", "größe"};
                       },
                   .health = [] { return HttpAnswer{.status = 503, .body = "starting\n"}; },
                   .metrics = [] { return HttpAnswer{.body = "a 1\n"}; },
                   .on_request = [this](const RequestReport& report) { add(report); },
                   .read_body = std::move(read)},
                  calls) {}

    std::string ending_of(std::string_view request) {
        HttpClient client(gateway.port());
        client.send(request);
        const auto reply = client.receive(!request.starts_with("HEAD"));
        return reply ? ending(*reply) : "closed";
    }
    void add(const RequestReport& report) {
        const std::lock_guard lock(mutex);
        times.push_back(report.took);
        reports.push_back(fmt::format("{} {} {}{}{}", report.method, report.url, report.status, report.is_stream ? " stream" : "",
                                      report.client_gone ? " gone" : ""));
    }
    std::vector<std::string> reported() {
        const std::lock_guard lock(mutex);
        return reports;
    }

    FakeCalls calls;
    std::mutex mutex;
    std::vector<std::string> reports;              // guarded by mutex
    std::vector<std::chrono::microseconds> times;  // guarded by mutex
    Gateway gateway;
};

TEST(Gateway, AnswersACallWithItsResult) {
    GatewayRig rig;
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"model":"tiny","messages":[]})"));
    const consumer::Call call = rig.calls.next();
    EXPECT_EQ(call.url, chat);
    EXPECT_EQ(call.body, R"({"model":"tiny","messages":[]})");
    rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = R"({"id":"chatcmpl-1"})"});
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, R"({"id":"chatcmpl-1"})");
    EXPECT_NE(reply->header.find(fmt::format("x-request-id: {}\r\n", call.id)), std::string::npos) << reply->header;

    // The connection goes on; a url without /v1 is the same; an error keeps its status.
    client.send(post("/chat/completions", "{}"));
    rig.calls.end_next(CallResult{.status = 404, .body = R"({"error":{"code":"model_not_found"}})"});
    EXPECT_EQ(client.receive()->status, 404);
    EXPECT_THAT(rig.reported(), testing::ElementsAre("POST /v1/chat/completions 200", "POST /v1/chat/completions 404"));
}

TEST(Gateway, StreamsChunksAsEvents) {
    GatewayRig rig;
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"stream":true})", "Connection: close\r\n"));
    const consumer::Call call = rig.calls.next();
    rig.calls.listener().on_chunk(call.id, R"({"n":1})");
    rig.calls.listener().on_chunk(call.id, R"({"n":2})");
    const auto head = client.receive(false);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->status, 200);
    EXPECT_NE(head->header.find("Content-Type: text/event-stream; charset=utf-8\r\n"), std::string::npos) << head->header;
    EXPECT_NE(head->header.find("Transfer-Encoding: chunked\r\n"), std::string::npos) << head->header;
    rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = "{}"});
    std::string text = client.receive_all();
    for (const std::string event : {"data: {\"n\":1}\n\n", "data: {\"n\":2}\n\n", "data: [DONE]\n\n"}) {
        const std::size_t place = text.find(event);
        ASSERT_NE(place, std::string::npos) << event << " in " << text;
        text.erase(0, place + event.size());
    }
    EXPECT_EQ(text, "\r\n0\r\n\r\n");
    EXPECT_THAT(rig.reported(), testing::ElementsAre("POST /v1/chat/completions 200 stream"));
}

TEST(Gateway, EndsAStreamThatFailsWithAnErrorEvent) {
    GatewayRig rig;
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"stream":true})", "Connection: close\r\n"));
    const consumer::Call call = rig.calls.next();
    rig.calls.listener().on_chunk(call.id, "{}");
    rig.calls.listener().on_end(call.id, schema::BatchFailure::request_timeout);
    const std::string text = client.receive_all();
    EXPECT_NE(text.find(R"(data: {"error":{"message":"call )"), std::string::npos) << text;
    EXPECT_EQ(text.find("[DONE]"), std::string::npos) << text;
}

// A call that fails before its first chunk has a status of its own.
TEST(Gateway, AnswersAStreamThatIsRefusedWithItsStatus) {
    GatewayRig rig;
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"stream":true})"));
    rig.calls.end_next(CallResult{.status = 400, .body = R"({"error":{"code":"invalid_value"}})"});
    EXPECT_EQ(client.receive()->status, 400);
}

TEST(Gateway, SaysWhyACallIsNotRun) {
    GatewayRig rig;
    std::optional<CallRefusal> refusal = CallRefusal{.retry_after = 7s};
    rig.calls.at_submit = [&](const consumer::Call&, consumer::CallListener&) { return refusal; };
    HttpClient client(rig.gateway.port());
    client.send(post(chat, "{}"));
    const auto full = client.receive();
    EXPECT_EQ(ending(*full), "429 too_many_calls");
    EXPECT_NE(full->header.find("Retry-After: 7\r\n"), std::string::npos) << full->header;
    refusal = CallRefusal{.kind = CallRefusal::Kind::unavailable};
    client.send(post(chat, "{}"));
    const auto away = client.receive();
    EXPECT_EQ(ending(*away), "503 unavailable");
    EXPECT_NE(away->header.find("Retry-After: 1\r\n"), std::string::npos) << away->header;

    rig.calls.at_submit = nullptr;
    for (const auto& [failure, answer] :
         std::vector<std::pair<schema::BatchFailure, std::string>>{{schema::BatchFailure::cancelled, "409 cancelled"},
                                                                   {schema::BatchFailure::expired, "504 request_timeout"},
                                                                   {schema::BatchFailure::request_timeout, "504 request_timeout"}}) {
        client.send(post(chat, "{}"));
        rig.calls.end_next(failure);
        EXPECT_EQ(ending(*client.receive()), answer);
    }
}

TEST(Gateway, CancelsTheCallOfAClientThatGoesAway) {
    GatewayRig rig;
    std::string waiting;
    {
        HttpClient client(rig.gateway.port());
        client.send(post(chat, "{}"));
        waiting = rig.calls.next().id;
    }
    EXPECT_EQ(rig.calls.next_cancelled(), waiting);
    std::string streaming;
    {
        HttpClient client(rig.gateway.port());
        client.send(post(chat, R"({"stream":true})"));
        streaming = rig.calls.next().id;
        rig.calls.listener().on_chunk(streaming, "{}");
        EXPECT_TRUE(client.receive(false));
    }
    EXPECT_EQ(rig.calls.next_cancelled(), streaming);
    // Late events of such calls are dropped.
    rig.calls.listener().on_chunk(streaming, "{}");
    rig.calls.listener().on_end(waiting, CallResult{.body = "{}"});
    EXPECT_EQ(rig.ending_of("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), "503 starting\n");
    EXPECT_THAT(rig.reported(), testing::ElementsAre("POST /v1/chat/completions 499 gone", "POST /v1/chat/completions 499 stream gone",
                                                     "GET /healthz 503"));
}

TEST(Gateway, CancelsACallThatTakesTooLong) {
    GatewayRig rig({.body_bytes = 1000, .answer_timeout = 50ms});
    HttpClient client(rig.gateway.port());
    client.send(post(chat, "{}"));
    const std::string id = rig.calls.next().id;
    const auto reply = client.receive();
    EXPECT_EQ(ending(*reply), "504 request_timeout");
    EXPECT_NE(reply->body.find(id), std::string::npos) << reply->body;
    EXPECT_EQ(rig.calls.next_cancelled(), id);
    client.send(post(chat, R"({"stream":true})"));
    const std::string stream = rig.calls.next().id;
    rig.calls.listener().on_chunk(stream, "{}");
    EXPECT_TRUE(client.receive(false));
    EXPECT_EQ(rig.calls.next_cancelled(), stream);
}

// The stream of a client that does not read takes bounded memory, and then ends.
TEST(Gateway, CutsOffAClientThatReadsTooSlowly) {
    GatewayRig rig({.body_bytes = 1000, .unsent_bytes = 100'000, .write_timeout = 1h});
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"stream":true})"));
    const std::string id = rig.calls.next().id;
    const std::string chunk = fmt::format("\"{}\"", std::string(10'000, 'x'));
    // The system's buffers take some megabytes.
    std::thread writer([&] {
        for (int i = 0; i < 5'000; ++i) {
            rig.calls.listener().on_chunk(id, chunk);
            if (i % 8 == 0) std::this_thread::sleep_for(100us);  // so that a write waits when it is cut off
        }
    });
    EXPECT_EQ(rig.calls.next_cancelled(), id);
    writer.join();
    EXPECT_LT(client.wait_for_end(), 40'000'000U);
}

TEST(Gateway, ListsModels) {
    GatewayRig rig;
    HttpClient client(rig.gateway.port());
    EXPECT_EQ(client.get("/v1/models").body,
              R"({"object":"list","data":[{"id":"tiny","object":"model","created":1700000000,"owned_by":"lorry"},)"
              R"({"id":"mail","object":"model","created":1700000000,"owned_by":"lorry","parent":"tiny"},)"
              R"({"id":"größe","object":"model","created":1700000000,"owned_by":"lorry","parent":"tiny"}]})");
    EXPECT_EQ(client.get("/v1/models/mail").status, 200);
    EXPECT_EQ(client.get("/v1/models/base").body, client.get("/v1/models/tiny").body);
    EXPECT_EQ(client.get("/v1/models/base").status, 200);
    EXPECT_EQ(client.get("/v1/models/gr%C3%B6%c3%9Fe").status, 200);
    EXPECT_EQ(ending(client.get("/v1/models/nobody")), "404 model_not_found");
    EXPECT_EQ(client.get("/metrics").body, "a 1\n");
    for (const char* broken : {"/v1/models/", "/v1/models/%", "/v1/models/%f", "/v1/models/%zz", "/v1/models/%ff"})
        EXPECT_EQ(ending(HttpClient(rig.gateway.port()).get(broken)), "404 unknown_url") << broken;
}

TEST(Gateway, RefusesUrlsAndMethods) {
    GatewayRig rig;
    for (const auto& [line, answer] : std::vector<std::pair<std::string, std::string>>{
             {"GET / HTTP/1.1", "404 unknown_url"},
             {"POST /v1/responses HTTP/1.1", "404 unknown_url"},
             {"POST /v1/images/generations HTTP/1.1", "404 unknown_url"},
             {"GET /v1/chat/completions HTTP/1.1", "405 method_not_allowed"},
             {"PUT /v1/chat/completions HTTP/1.1", "405 method_not_allowed"},
             {"POST /v1/models HTTP/1.1", "405 method_not_allowed"},
             {"DELETE /v1/models/mail HTTP/1.1", "405 method_not_allowed"},
             {"GET /v1/files HTTP/1.1", "404 not_kept"},
             {"GET /v1/batches/batch_1 HTTP/1.1", "404 not_kept"},
             {"PUT /v1/batches HTTP/1.1", "405 method_not_allowed"},
             {"OPTIONS * HTTP/1.1", "404 unknown_url"},
             {"CONNECT elsewhere:443 HTTP/1.1", "404 unknown_url"},
             {"BREW /v1/models HTTP/1.1", "405 method_not_allowed"},
             // Nothing is unescaped or normalized on the way to a table's url.
             {"GET /v1/../v1/models HTTP/1.1", "404 unknown_url"},
             {"GET /v1/models/../../etc/passwd HTTP/1.1", "404 model_not_found"},
             {"GET /v1/models/%2e%2e%2fpasswd HTTP/1.1", "404 model_not_found"},
             {"GET /v1%2fmodels HTTP/1.1", "404 unknown_url"},
             {"GET //v1/models HTTP/1.1", "404 unknown_url"},
             {"GET /V1/Models HTTP/1.1", "404 unknown_url"},
             {"GET file:///etc/passwd HTTP/1.1", "404 unknown_url"},
             // The absolute form names a host that is not looked at.
             {"GET http://elsewhere/v1/models HTTP/1.1", "200"},
             {"GET http://elsewhere:1/v1/models?limit=1 HTTP/1.1", "200"},
             {"GET http://elsewhere HTTP/1.1", "404 unknown_url"},
             {"GET /v1/models HTTP/1.0", "200"},
             {"GET /v1/models HTTP/2.0", "400 bad_request"},
             {"GET /v1/models", "400 bad_request"},
         })
        EXPECT_EQ(rig.ending_of(line + "\r\nHost: localhost\r\n\r\n"), answer) << line;
    EXPECT_EQ(rig.calls.count(), 0U);
    HttpClient client(rig.gateway.port());
    client.send("GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(client.receive()->header.find("Allow: POST\r\n"), std::string::npos);
    // HEAD has a header only.
    HttpClient head(rig.gateway.port());
    head.send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(head.receive(false)->status, 200);
    EXPECT_EQ(head.receive()->body, "a 1\n");
}

TEST(Gateway, RefusesHeaders) {
    GatewayRig rig;
    const auto with = [](std::string_view fields, std::string_view body = "") {
        return fmt::format("POST /v1/completions HTTP/1.1\r\n{}\r\n{}", fields, body);
    };
    constexpr std::string_view host = "Host: 127.0.0.1:8000\r\n";
    constexpr std::string_view json = "Host: 127.0.0.1:8000\r\nContent-Type: application/json\r\n";
    for (const auto& [request, answer] : std::vector<std::pair<std::string, std::string>>{
             {with("Content-Length: 2\r\n", "{}"), "400 bad_request"},                             // no Host
             {with(fmt::format("{}Host: localhost\r\n", host)), "400 bad_request"},                // two of them
             {with("Host: evil.example\r\nContent-Length: 2\r\n", "{}"), "403 host_not_allowed"},  // a name that was rebound
             {with("Host: 127.0.0.1.evil.example\r\n"), "403 host_not_allowed"},
             {with("Host: \r\n"), "403 host_not_allowed"},
             {with(fmt::format("{}Content-Length: 2\r\n", host), "{}"), "415 unsupported_media_type"},  // no type
             {with(fmt::format("{}Sec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n", json), "{}"), "403 cross_site"},
             {with(fmt::format("{}Sec-Fetch-Site: same-site\r\nContent-Length: 2\r\n", json), "{}"), "403 cross_site"},
             {with(fmt::format("{}Origin: https://evil.example\r\nContent-Length: 2\r\n", json), "{}"), "403 cross_site"},
             {with(fmt::format("{}Origin: null\r\nContent-Length: 2\r\n", json), "{}"), "403 cross_site"},
             {with(fmt::format("{}Origin: http://127.0.0.1:8000\r\nContent-Length: 1\r\n", json), "{"), "400 invalid_json"},
             {with(fmt::format("{}Content-Type: text/plain\r\nContent-Length: 2\r\n", host), "{}"), "415 unsupported_media_type"},
             {with(fmt::format("{}Content-Encoding: gzip\r\nContent-Length: 2\r\n", json), "{}"), "415 unsupported_media_type"},
             {with(fmt::format("{}Content-Length: 10001\r\n", json)), "413 payload_too_large"},
             {with(fmt::format("{}Content-Length: 18446744073709551615\r\n", json)), "413 payload_too_large"},
             {with(fmt::format("{}Content-Length: -1\r\n", json)), "400 bad_request"},
             {with(fmt::format("{}Content-Length: 2\r\nContent-Length: 3\r\n", json), "{}"), "400 bad_request"},
             {with(fmt::format("{}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", json), "{}"), "400 bad_request"},
             {with(fmt::format("{}Transfer-Encoding: gzip\r\n", json)), "501 unsupported_encoding"},
             {with(fmt::format("{}Expect: miracles\r\nContent-Length: 2\r\n", json), "{}"), "417 expectation_failed"},
             {with(fmt::format("{}name : space\r\n", json)), "400 bad_request"},
             {with(fmt::format("{}x: a\rb\r\n", json)), "400 bad_request"},
             {with(fmt::format("{}x: {}\r\n", json, std::string(5'000, 'x'))), "431 header_too_large"},
             {with(std::string(json)), "400 invalid_json"},  // no length: no body
             {"GET /v1/models HTTP/1.1\r\nHost: [::1]:8000\r\nContent-Length: 2\r\n\r\n{}", "400 bad_request"},
         })
        EXPECT_EQ(rig.ending_of(request), answer) << request;
    EXPECT_EQ(rig.calls.count(), 0U);
}

// Pins: who sent a body with the shell's quotes, or half of one, was given a number of bytes to count.
TEST(Gateway, ShowsWhereABodyStopsBeingJson) {
    GatewayRig rig;
    const auto message = [&](const std::string& body) {
        HttpClient client(rig.gateway.port());
        client.send(post(chat, body));
        return *Json::parse(client.receive()->body)->find("error")->find("message")->as_string();
    };
    EXPECT_EQ(message(R"('{"model":"a"}')"),
              "the request's body has to be a JSON object: syntax error while parsing value - invalid literal (at byte 1), near: "
              R"('{"model":"a"}'; the single quotes around it are the shell's, and cmd.exe knows double ones only)");
    EXPECT_THAT(message("{\"model\":\"a\",\n \"messages\":[{\"role\":"),
                testing::AllOf(testing::HasSubstr("line 2, column 22"), testing::HasSubstr("unexpected end of input"),
                               testing::EndsWith("(at byte 36), near: …\",  \"messages\":[{\"role\":")));
    EXPECT_EQ(message("[]"), "the request's body has to be a JSON object: it is not an object, but array");
    EXPECT_EQ(message(""), "the request's body has to be a JSON object: it is empty");
}

TEST(Gateway, RefusesBodies) {
    GatewayRig rig;
    for (const auto& [body, answer] : std::vector<std::pair<std::string, std::string>>{
             {"", "400 invalid_json"},
             {"nonsense", "400 invalid_json"},
             {"[]", "400 invalid_json"},
             {"null", "400 invalid_json"},
             {R"({"model":"a"} {})", "400 invalid_json"},
             {R"({},"url":"/v1/embeddings","body":{})", "400 invalid_json"},  // would add members to the job
             {"{\"model\":\"\xff\"}", "400 invalid_json"},
             {R"({"n":1e999})", "400 invalid_json"},
             {std::string(9'999, '['), "400 invalid_json"},
             // Pins: as deep as a body may be, and too deep for the job's record, so that the call was never answered.
             {R"({"a":)" + std::string(99, '[') + std::string(99, ']') + "}", "400 invalid_json"},
         })
        EXPECT_EQ(rig.ending_of(post("/v1/completions", body)), answer) << body;
    EXPECT_EQ(rig.calls.count(), 0U);
}

// Pins: behind a proxy that does not read chunks of HTTP/1.0, their text was the next request.
TEST(Gateway, TakesNoChunksOfHttp10) {
    GatewayRig rig;
    EXPECT_EQ(rig.ending_of("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n"
                            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
              "400 bad_request");
    EXPECT_EQ(rig.calls.count(), 0U);
}

TEST(Gateway, ReadsBodiesInChunksAndOnDemand) {
    GatewayRig rig;
    rig.calls.at_submit = [](const consumer::Call& call, consumer::CallListener& listener) {
        listener.on_end(call.id, CallResult{.body = call.body});
        return std::nullopt;
    };
    const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\n";
    HttpClient client(rig.gateway.port());
    client.send(head + "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n5;x=y\r\n\":[1]\r\n1\r\n}\r\n0\r\nlast: one\r\n\r\n");
    EXPECT_EQ(client.receive()->body, R"({"a":[1]})");
    client.send(head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(client.receive(false)->status, 100);
    client.send("{}");
    EXPECT_EQ(client.receive()->body, "{}");
    // Two requests in one piece are answered in their order.
    client.send(post("/v1/completions", R"({"n":1})") + post("/v1/completions", R"({"n":2})"));
    EXPECT_EQ(client.receive()->body, R"({"n":1})");
    EXPECT_EQ(client.receive()->body, R"({"n":2})");
    for (const auto& [chunks, answer] : std::vector<std::pair<std::string, std::string>>{
             {"zz\r\n{}\r\n0\r\n\r\n", "400 bad_request"},
             {"ffffffffffffffffff\r\n{}\r\n", "400 bad_request"},
             {"-2\r\n{}\r\n0\r\n\r\n", "400 bad_request"},
             {"2\r\n{}0\r\n\r\n", "400 bad_request"},
             {"7530\r\n" + std::string(30'000, ' ') + "\r\n0\r\n\r\n", "413 payload_too_large"}})
        EXPECT_EQ(rig.ending_of(head + "Transfer-Encoding: chunked\r\n\r\n" + chunks), answer) << chunks.substr(0, 100);
}

TEST(Gateway, EndsClientsThatSendTooSlowly) {
    GatewayRig rig({.body_bytes = 1000, .request_timeout = 200ms, .body_timeout = 200ms});
    const std::string header = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for (const std::string& begin : {std::string("POST /v1/completions HTTP/1.1\r\nHost: loc"), header + "Content-Length: 1000\r\n\r\n{"}) {
        HttpClient silent(rig.gateway.port());
        silent.send(begin);
        EXPECT_EQ(silent.wait_for_end(), 0U);
    }
    // A byte at a time (slowloris): no byte begins the time anew.
    for (const std::string& begin : {std::string("GET /v1/models HTTP/1.1\r\nX-A: "), header + "Content-Length: 1000\r\n\r\n{",
                                     header + "Transfer-Encoding: chunked\r\n\r\n3e0\r\n"}) {
        HttpClient slow(rig.gateway.port());
        slow.send(begin);
        const auto start = std::chrono::steady_clock::now();
        while (slow.send("x") && std::chrono::steady_clock::now() < start + 5s) std::this_thread::sleep_for(10ms);
        EXPECT_LT(std::chrono::steady_clock::now() - start, 4s) << begin;
    }
    EXPECT_EQ(rig.calls.count(), 0U);
    EXPECT_EQ(rig.ending_of(post("/v1/completions", "[]")), "400 invalid_json");
}

std::string part_of_a_body(std::string_view part) {
    return fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{}", part);
}

// A body counts with what came of it: clients that only announce large ones take nothing from others.
TEST(Gateway, BoundsBodiesThatAreBeingRead) {
    GatewayRig rig({.body_bytes = 1000, .bodies_bytes = 1500});
    std::list<HttpClient> announced;
    for (int i = 0; i < 5; ++i) {
        announced.emplace_back(rig.gateway.port());
        announced.back().send(part_of_a_body("{"));
    }
    EXPECT_EQ(rig.ending_of(post("/v1/completions", '[' + std::string(900, ' ') + ']')), "400 invalid_json");
    announced.back().send(std::string(900, ' '));
    std::string ending = "400 invalid_json";  // until what was just sent has come
    while (ending == "400 invalid_json") ending = rig.ending_of(post("/v1/completions", '[' + std::string(900, ' ') + ']'));
    EXPECT_EQ(ending, "503 unavailable");
    EXPECT_EQ(rig.ending_of(post("/v1/completions", "[]")), "400 invalid_json");
}

TEST(Gateway, EndsABodyThatMakesNoProgress) {
    GatewayRig rig({.body_bytes = 1000, .body_pause = 50ms, .body_timeout = 1h});
    HttpClient client(rig.gateway.port());
    client.send(part_of_a_body("{"));
    EXPECT_EQ(client.wait_for_end(), 0U);
}

// It kept the network's thread from everybody: health was answered seconds late while large bodies were parsed.
TEST(Gateway, AnswersOthersWhileALargeBodyIsParsed) {
    std::promise<void> go_on;
    const std::shared_future<void> gone_on = go_on.get_future().share();
    std::atomic<int> parsed = 0;
    GatewayRig rig({.body_bytes = 100'000, .bodies_bytes = 150'000}, [&](const std::string& body) {
        if (body.size() > 50'000 && ++parsed <= 2) gone_on.wait();
        return read_body(body);
    });
    const std::string large = R"({"a":")" + std::string(60'000, 'x') + R"("})";
    HttpClient first(rig.gateway.port());
    HttpClient second(rig.gateway.port());
    first.send(post(chat, large));
    second.send(post(chat, large));
    while (parsed < 2) std::this_thread::sleep_for(1ms);
    HttpClient other(rig.gateway.port());
    EXPECT_EQ(other.get("/healthz").body, "starting\n");
    other.send(post(chat, "{}"));
    rig.calls.end_next(CallResult{.body = "{}"});
    EXPECT_EQ(other.receive()->status, 200);
    EXPECT_EQ(rig.ending_of(post(chat, large)), "429 too_many_calls") << "two are parsed already";
    go_on.set_value();
    for (int i = 0; i < 2; ++i) {
        const consumer::Call call = rig.calls.next();
        EXPECT_EQ(call.body, large);
        rig.calls.listener().on_end(call.id, CallResult{.body = "{}"});
    }
    EXPECT_EQ(first.receive()->status, 200);
    EXPECT_EQ(second.receive()->status, 200);
    EXPECT_EQ(rig.ending_of(post(chat, '[' + std::string(60'000, ' ') + ']')), "400 invalid_json");
}

TEST(Gateway, DropsTheBodyOfAClientThatWentAwayWhileItWasParsed) {
    std::promise<void> go_on;
    const std::shared_future<void> gone_on = go_on.get_future().share();
    GatewayRig rig({.body_bytes = 100'000}, [&](const std::string& body) {
        gone_on.wait();
        return read_body(body);
    });
    {
        HttpClient client(rig.gateway.port());
        client.send(post(chat, R"({"a":")" + std::string(60'000, 'x') + R"("})"));
    }
    while (rig.reported().empty()) std::this_thread::sleep_for(1ms);
    EXPECT_THAT(rig.reported(), testing::ElementsAre("POST /v1/chat/completions 499 gone"));
    go_on.set_value();
    HttpClient client(rig.gateway.port());
    client.send(post(chat, R"({"b":1})"));
    EXPECT_EQ(rig.calls.next().body, R"({"b":1})") << "no call for the other";
}

// Calls are not ended for new connections, which are closed instead; those that only stay open are.
TEST(Gateway, KeepsCallsWhenAllConnectionsAreTaken) {
    GatewayRig rig({.connections = 2, .body_bytes = 1000});
    HttpClient idle(rig.gateway.port());
    EXPECT_EQ(idle.get("/metrics").status, 200);
    std::list<HttpClient> callers;
    std::vector<std::string> ids;
    for (int i = 0; i < 2; ++i) {
        callers.emplace_back(rig.gateway.port());
        callers.back().send(post(chat, "{}"));
        ids.push_back(rig.calls.next().id);
    }
    EXPECT_EQ(idle.wait_for_end(), 0U);
    HttpClient refused(rig.gateway.port());
    refused.wait_for_end();
    for (const std::string& id : ids) rig.calls.listener().on_end(id, CallResult{.body = "{}"});
    for (HttpClient& caller : callers) EXPECT_EQ(caller.receive()->status, 200);
}

// Answers that are complete are still written; calls that run are not waited for.
TEST(Gateway, EndsWhileCallsRun) {
    auto rig = std::make_unique<GatewayRig>();
    HttpClient ended(rig->gateway.port());
    ended.send(post(chat, "{}"));
    const std::string id = rig->calls.next().id;
    HttpClient running(rig->gateway.port());
    running.send(post(chat, "{}"));
    rig->calls.next();
    rig->calls.listener().on_end(id, CallResult{.body = "{}"});
    rig.reset();
    EXPECT_EQ(ended.receive()->status, 200);
    EXPECT_FALSE(running.receive());
}

TEST(Gateway, ATraceTravelsWithItsCall) {
    GatewayRig rig;
    const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const auto trace_of = [&](const std::string& fields) {
        HttpClient client(rig.gateway.port());
        client.send(post(chat, "{}", fields));
        const consumer::Call call = rig.calls.next();
        rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = "{}"});
        client.receive();
        std::string text;
        for (const auto& [name, value] : call.trace) text += fmt::format("{}={};", name, value);
        return text;
    };
    EXPECT_EQ(trace_of(fmt::format("traceparent: {}\r\n", parent)), fmt::format("traceparent={};", parent));
    EXPECT_EQ(trace_of(fmt::format("Traceparent: {}\r\ntracestate: vendor=1\r\n", parent)),
              fmt::format("traceparent={};tracestate=vendor=1;", parent));
    const std::string later = "01" + parent.substr(2) + "-more";
    EXPECT_EQ(trace_of(fmt::format("traceparent: {}\r\n", later)), fmt::format("traceparent={};", later)) << "a later version";
    const std::string zeros = "00-" + std::string(32, '0') + parent.substr(35);
    for (const std::string& wrong : {std::string("00-1"), zeros, "ff" + parent.substr(2), parent + "-more", parent + "x",
                                     "00-4BF92F3577B34DA6A3CE929D0E0E4736" + parent.substr(35)}) {
        EXPECT_EQ(trace_of(fmt::format("traceparent: {}\r\ntracestate: vendor=1\r\n", wrong)), "") << wrong;
    }
    EXPECT_EQ(trace_of(fmt::format("traceparent: {0}\r\ntraceparent: {0}\r\n", parent)), "") << "there may be one";
    EXPECT_EQ(trace_of("tracestate: vendor=1\r\n"), "");
}

// Pins: pages and refusals took no time, so that lorry_request_seconds had zeros.
TEST(Gateway, EachReportSaysHowLongItsRequestTook) {
    GatewayRig rig;
    for (const char* path : {"/v1/models", "/nothing"}) {
        rig.ending_of(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
    }
    const std::lock_guard lock(rig.mutex);
    EXPECT_THAT(rig.times, testing::ElementsAre(testing::Gt(0us), testing::Gt(0us)));
}

TEST(Gateway, WithoutALedgerUsageIsA404ThatNamesTheSetting) {
    GatewayRig rig;
    EXPECT_EQ(rig.ending_of("GET /v1/usage HTTP/1.1\r\nHost: localhost\r\n\r\n"), "404 not_kept");
}

}  // namespace
}  // namespace lorry::ops
