// The gateway with keys, over real sockets: who is let in, what is counted, and what a tenant sees.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "ops/gateway/gateway.h"
#include "ops/gateway/key_authenticator.h"
#include "tests/support/fake_calls.h"
#include "tests/support/fake_daily_tokens.h"
#include "tests/support/fake_keys.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using consumer::CallResult;
using schema::Json;
using schema::Timestamp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::FakeCalls;
using tests::FakeKeys;
using tests::HttpClient;
using tests::HttpReply;
using tests::post;
using namespace std::chrono_literals;

constexpr std::string_view completions = "/v1/completions";
constexpr const char* used_up = R"({"usage":{"total_tokens":7}})";

std::string bearer(int key) { return fmt::format("Authorization: Bearer {}\r\n", FakeKeys::text(key)); }

std::string get(std::string_view path, std::string_view fields) {
    return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
}

const schema::Prices prices{.currency = "EUR", .models = {{"mail", {.prompt = 2.0, .completion = 8.0}}}};

std::vector<schema::UsageRow> usage_of(const schema::UsageFilter& filter) {
    if (filter.since && filter.until && *filter.since > *filter.until) throw std::runtime_error("the disk is full");
    std::vector<schema::UsageRow> rows;
    for (const char* tenant : {"search", "mails"}) {
        if (filter.tenant && *filter.tenant != tenant) continue;
        rows.push_back({.day = std::chrono::year(2026) / 11 / 27,
                        .tenant = tenant,
                        .key = "1111111111111111",
                        .model = "mail",
                        .adapter = "hash",
                        .jobs = 2,
                        .usage = {.prompt_tokens = 100'000, .completion_tokens = 50'000, .cached_tokens = 10'000}});
    }
    return rows;
}

std::string code_of(const HttpReply& reply) {
    const auto body = Json::parse(reply.body);
    const Json* error = body ? body->find("error") : nullptr;
    return fmt::format("{}{}", reply.status, error == nullptr ? "" : " " + *error->find("code")->as_string());
}

struct KeyedGateway {
    explicit KeyedGateway(bool shares_adapters = false) : shares_adapters_(shares_adapters) {
        keys.set(1, {.tenant = "search", .name = "all", .scopes = {.models = {{"*"}}, .batches = true, .admin = true}});
        keys.set(
            2, {.tenant = "mails", .name = "mail only", .scopes = {.models = {{"mail"}}, .endpoints = {{schema::Endpoint::completions}}}});
        const schema::KeyScopes all{.models = {{"*"}}};
        keys.set(3, {.tenant = "slow", .name = "limited", .scopes = all, .limits = {.requests_per_minute = 2, .tokens_per_minute = 6'000}});
        keys.set(4, {.tenant = "slow", .name = "one at a time", .scopes = all, .limits = {.tokens_per_minute = 6'000, .calls_at_once = 1}});
        keys.set(6, {.tenant = "daily", .name = "a day", .scopes = all, .limits = {.tokens_per_day = 500}});
        keys.set(5, {.tenant = "gone", .name = "revoked", .revoked = Timestamp(1s)});
        keys.set(7, {.tenant = "plain", .name = "names no models"});
    }
    HttpReply ask(const std::string& request) {
        HttpClient client(gateway.port());
        client.send(request);
        return client.receive(!request.starts_with("HEAD")).value_or(HttpReply{});
    }
    // Sends a call that the test ends, and returns its reply.
    HttpReply call(int key, const std::string& body = used_up) {
        HttpClient client(gateway.port());
        client.send(post(completions, R"({"model":"mail"})", bearer(key)));
        calls.end_next(CallResult{.status = 200, .body = body});
        return client.receive().value_or(HttpReply{});
    }

    const bool shares_adapters_;
    FakeCalls calls;
    FakeKeys keys;
    tests::FakeDailyTokens daily{FakeKeys::id(6)};
    KeyAuthenticator authenticator{keys, [] { return Timestamp(1s); }};
    std::mutex mutex;
    std::vector<std::string> reports;  // guarded by mutex
    Gateway gateway{{.host = "127.0.0.1",
                     .base_name = "tiny",
                     .authenticator = &authenticator,
                     .shares_adapters = shares_adapters_,
                     .remembers = true,
                     .limits = {.body_bytes = 10'000},
                     .adapters =
                         [] {
                             return std::vector<std::string>{"mail", "news"};
                         },
                     .health = [] { return HttpAnswer{.body = "running\n"}; },
                     .metrics = [] { return HttpAnswer{.body = "a 1\n"}; },
                     .usage = {.read = [](const schema::UsageFilter& filter) { return usage_of(filter); }, .prices = prices},
                     .daily_tokens = &daily,
                     .on_request =
                         [this](const RequestReport& report) {
                             const std::lock_guard lock(mutex);
                             reports.push_back(fmt::format("{} {} key={} tenant={}", report.url, report.status, report.key, report.tenant));
                         }},
                    calls};
};

TEST(GatewayKeys, ACallBelongsToItsKeysTenant) {
    KeyedGateway rig;
    HttpClient client(rig.gateway.port());
    client.send(post(completions, R"({"model":"mail"})", bearer(1)));
    const consumer::Call call = rig.calls.next();
    EXPECT_EQ(call.tenant, "search");
    EXPECT_EQ(call.key, "1111111111111111");
    EXPECT_EQ(call.body, R"({"model":"mail"})");
    rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = "{}"});
    const auto reply = client.receive();
    EXPECT_EQ(reply->status, 200);
    EXPECT_THAT(reply->header, Not(HasSubstr("x-ratelimit")));
    EXPECT_THAT(rig.reports, ElementsAre("/v1/completions 200 key=1111111111111111 tenant=search"));
}

// Before the body is read: a stranger cannot make the gateway hold bodies.
TEST(GatewayKeys, WhoHasNoGoodKeyIsRefusedByTheHeaderAlone) {
    KeyedGateway rig;
    std::string wrong = bearer(1);
    wrong[wrong.size() - 3] = '0';
    for (const std::string& fields : {std::string(), wrong, bearer(5), std::string("Authorization: Bearer sk-other\r\n")}) {
        HttpClient client(rig.gateway.port());
        client.send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n{}\r\n",
                                completions, fields));
        const auto reply = client.receive();
        ASSERT_TRUE(reply) << fields;
        EXPECT_EQ(code_of(*reply), "401 invalid_api_key");
        EXPECT_THAT(reply->header, HasSubstr("WWW-Authenticate: Bearer realm=\"lorry\""));
        EXPECT_THAT(reply->body, Not(HasSubstr("sk-other")));
    }
    for (const char* path : {"/v1/models", "/v1/models/mail", "/metrics"})
        EXPECT_EQ(code_of(rig.ask(get(path, ""))), "401 invalid_api_key") << path;
    EXPECT_EQ(rig.ask(get("/healthz", "")).status, 200) << "load balancers have no keys";
    EXPECT_EQ(code_of(rig.ask(get("/v1/nothing", ""))), "404 unknown_url");
    EXPECT_EQ(rig.calls.count(), 0U);
}

TEST(GatewayKeys, AKeyThatIsRevokedWhileTheBodyComesIsRefused) {
    KeyedGateway rig;
    const std::string request = post(completions, R"({"model":"mail"})", bearer(1));
    HttpClient client(rig.gateway.port());
    client.send(request.substr(0, request.size() - 1));
    EXPECT_EQ(rig.ask(get("/v1/models", bearer(1))).status, 200) << "by now the header of the first was read";
    rig.keys.set(1, {.tenant = "search", .name = "all", .revoked = Timestamp(1s)});
    client.send(request.substr(request.size() - 1));
    EXPECT_EQ(code_of(*client.receive()), "401 invalid_api_key");
    EXPECT_EQ(rig.calls.count(), 0U);
}

TEST(GatewayKeys, ScopesLimitUrlsModelsAndPages) {
    KeyedGateway rig;
    EXPECT_EQ(code_of(rig.ask(post("/v1/embeddings", R"({"model":"mail"})", bearer(2)))), "403 permission_denied");
    const HttpReply other = rig.ask(post(completions, R"({"model":"news"})", bearer(2)));
    EXPECT_EQ(code_of(other), "403 permission_denied");
    EXPECT_THAT(other.body, HasSubstr(R"("param":"model")"));
    // Pins: a refusal did not say what the key has.
    EXPECT_THAT(other.body,
                HasSubstr("the caller may not use the model 'news': that takes an API key made with --models news, or a token with "
                          "lorry:model:news; this one has: models mail; urls"));
    EXPECT_THAT(rig.ask(get("/metrics", bearer(2))).body,
                HasSubstr("made with --admin, or a token with lorry:admin; this one has: models mail"));
    for (const char* body : {R"({"model":"base"})", R"({"model":"tiny"})", R"({"model":"mail","model":"news"})"}) {
        EXPECT_EQ(code_of(rig.ask(post(completions, body, bearer(2)))), "403 permission_denied") << body;
    }
    EXPECT_EQ(code_of(rig.ask(get("/metrics", bearer(2)))), "403 permission_denied");
    EXPECT_EQ(rig.calls.count(), 0U);

    EXPECT_EQ(rig.call(2).status, 200);
    EXPECT_EQ(rig.ask(get("/metrics", bearer(1))).status, 200);
    const HttpReply models = rig.ask(get("/v1/models", bearer(2)));
    EXPECT_THAT(models.body, HasSubstr(R"("id":"mail")"));
    for (const char* hidden : {R"("id":"news")", R"("id":"tiny")"}) EXPECT_THAT(models.body, Not(HasSubstr(hidden)));
    EXPECT_EQ(rig.ask(get("/v1/models/mail", bearer(2))).status, 200);
    for (const char* hidden : {"/v1/models/news", "/v1/models/tiny"}) {
        EXPECT_EQ(code_of(rig.ask(get(hidden, bearer(2)))), "404 model_not_found") << "as one that does not exist";
    }
    EXPECT_THAT(rig.ask(get("/v1/models", bearer(1))).body, HasSubstr(R"("id":"tiny")"));
}

// Pins: a key without --models could call every adapter, and so learn from answers and times what other tenants trained.
TEST(GatewayKeys, AdaptersAreNotSharedUnlessTheGatewayIsToldTo) {
    for (const bool shares : {false, true}) {
        KeyedGateway rig(shares);
        const auto answer_to = [&](int key, const char* model) {
            HttpClient client(rig.gateway.port());
            client.send(post(completions, fmt::format(R"({{"model":"{}"}})", model), bearer(key)));
            if (key == 1 || shares || std::string_view(model) != "mail") rig.calls.end_next(CallResult{.status = 200, .body = used_up});
            return code_of(client.receive().value_or(HttpReply{}));
        };
        EXPECT_EQ(answer_to(7, "mail"), shares ? "200" : "403 permission_denied");
        for (const char* base : {"base", "tiny"}) EXPECT_EQ(answer_to(7, base), "200");
        EXPECT_EQ(answer_to(1, "mail"), "200") << "made with --models '*'";
        const std::string models = rig.ask(get("/v1/models", bearer(7))).body;
        EXPECT_EQ(models.find(R"("id":"mail")") != std::string::npos, shares);
        EXPECT_THAT(models, HasSubstr(R"("id":"tiny")"));
        EXPECT_EQ(code_of(rig.ask(get("/v1/models/mail", bearer(7)))), shares ? "200" : "404 model_not_found");
        EXPECT_EQ(code_of(rig.ask(post(completions, R"({"model":"news"})", bearer(2)))), "403 permission_denied")
            << "models that a key names stay all that it may call";
    }
}

// Pins: any key went before all other tenants by a negative priority.
TEST(GatewayKeys, NobodyGoesBeforeOthersByPriority) {
    KeyedGateway rig;
    for (const char* priority : {"-1", "-0.5", "-1e0", "-99999999999999999999", "0,\"priority\":-1"}) {
        const HttpReply refused = rig.ask(post(completions, fmt::format(R"({{"model":"mail","priority":{}}})", priority), bearer(1)));
        EXPECT_EQ(code_of(refused), "403 permission_denied") << priority;
        EXPECT_THAT(refused.body, HasSubstr(R"("param":"priority")"));
    }
    for (const char* priority : {"0", "5", "-0.0", "\"-1\"", "null"}) {
        HttpClient client(rig.gateway.port());
        client.send(post(completions, fmt::format(R"({{"model":"mail","priority":{}}})", priority), bearer(1)));
        rig.calls.end_next(CallResult{.status = 200, .body = used_up});
        EXPECT_EQ(client.receive()->status, 200) << priority << ": what is no number is refused by the worker, as every wrong field";
    }
}

TEST(GatewayKeys, AnswersSayWhatIsLeftAndTooManyRequestsAreRefusedUntilLater) {
    KeyedGateway rig;
    const HttpReply first = rig.call(3);
    EXPECT_EQ(first.status, 200);
    for (const char* field : {"x-ratelimit-limit-requests: 2\r\n", "x-ratelimit-remaining-requests: 1\r\n", "x-ratelimit-reset-requests: ",
                              "x-ratelimit-limit-tokens: 6000\r\n", "x-ratelimit-remaining-tokens: 5993\r\n"}) {
        EXPECT_THAT(first.header, HasSubstr(field));
    }
    EXPECT_EQ(code_of(rig.ask(post(completions, "no JSON", bearer(3)))), "400 invalid_json") << "it counts as well";
    const HttpReply third = rig.ask(post(completions, R"({"model":"mail"})", bearer(3)));
    EXPECT_EQ(code_of(third), "429 rate_limit_exceeded");
    EXPECT_THAT(third.body, HasSubstr("its limit of requests per minute"));
    EXPECT_THAT(third.header, HasSubstr("x-ratelimit-remaining-requests: 0\r\n"));
    EXPECT_THAT(third.header, ::testing::ContainsRegex("Retry-After: (29|30)\r\n"));
    EXPECT_EQ(rig.ask(get("/v1/models", bearer(3))).status, 200) << "only calls are counted";
    EXPECT_EQ(rig.call(4).status, 200) << "another key has limits of its own";
}

TEST(GatewayKeys, CallsAtOnceAreCountedUntilTheyEndOrTheirClientGoes) {
    KeyedGateway rig;
    const std::string request = post(completions, R"({"model":"mail"})", bearer(4));
    HttpClient first(rig.gateway.port());
    first.send(request);
    const consumer::Call open = rig.calls.next();
    EXPECT_EQ(code_of(rig.ask(request)), "429 rate_limit_exceeded");
    rig.calls.listener().on_end(open.id, CallResult{.status = 500, .body = "{}"});
    EXPECT_EQ(first.receive()->status, 500);
    {
        HttpClient leaving(rig.gateway.port());
        leaving.send(request);
        rig.calls.next();
    }
    rig.calls.next_cancelled();
    EXPECT_EQ(rig.call(4).status, 200);
    rig.calls.at_submit = [](const consumer::Call&, consumer::CallListener&) { return std::optional(consumer::CallRefusal{}); };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(rig.ask(request)), "429 too_many_calls") << "a refused call is over";
}

TEST(GatewayKeys, StreamsSayWhatIsLeftAndAreCountedByTheirUsage) {
    KeyedGateway rig;
    HttpClient client(rig.gateway.port());
    client.send(post(completions, R"({"model":"mail","stream":true})", bearer(4) + "Connection: close\r\n"));
    const consumer::Call call = rig.calls.next();
    rig.calls.listener().on_chunk(call.id, "{}");
    const auto head = client.receive(false);
    EXPECT_THAT(head->header, HasSubstr("x-ratelimit-remaining-tokens: 6000\r\n"));
    rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = R"({"usage":{"total_tokens":4000}})"});
    EXPECT_THAT(client.receive_all(), HasSubstr("[DONE]"));
    EXPECT_THAT(rig.call(4).header, ::testing::ContainsRegex("x-ratelimit-remaining-tokens: (199|20)[0-9]+\r\n"));
}

// Pins: an answer that was computed and then too large for its topic took the worker's time, and nothing from the limit.
TEST(GatewayKeys, AnErrorCountsForTheTokensThatWereComputedForIt) {
    KeyedGateway rig;
    HttpClient client(rig.gateway.port());
    client.send(post(completions, R"({"model":"mail"})", bearer(4)));
    rig.calls.end_next(CallResult{.status = 500, .body = "{}", .failed_tokens = 4'000});
    EXPECT_EQ(client.receive()->status, 500U);
    EXPECT_THAT(rig.call(4).header, ::testing::ContainsRegex("x-ratelimit-remaining-tokens: (199|20)[0-9]+\r\n"));
}

// Otherwise a client could take any number of tokens by going away before the end.
TEST(GatewayKeys, AStreamThatIsLeftEarlyCountsForWhatWasSeenOfIt) {
    KeyedGateway rig;
    {
        HttpClient client(rig.gateway.port());
        client.send(
            post(completions, fmt::format(R"({{"model":"mail","stream":true,"prompt":"{}"}})", std::string(8'000, 'x')), bearer(4)));
        const consumer::Call call = rig.calls.next();
        for (int i = 0; i < 500; ++i) rig.calls.listener().on_chunk(call.id, "{}");
        client.receive(false);
    }
    rig.calls.next_cancelled();
    const std::string header = rig.call(4).header;
    EXPECT_THAT(header, ::testing::ContainsRegex("x-ratelimit-remaining-tokens: 3[4-9][0-9][0-9]\r\n"))
        << "2,011 of the prompt, up to 500 chunks";
}

TEST(GatewayKeys, TokensPerDayAreRefusedUntilMidnight) {
    KeyedGateway rig;
    rig.daily.tokens = 499;
    const HttpReply last = rig.call(6);
    EXPECT_EQ(last.status, 200);
    EXPECT_THAT(last.header, HasSubstr("x-ratelimit-remaining-tokens-day: 1\r\n"));
    rig.daily.tokens = 506;
    const HttpReply refused = rig.ask(post(completions, R"({"model":"mail"})", bearer(6)));
    EXPECT_EQ(code_of(refused), "429 rate_limit_exceeded");
    EXPECT_THAT(refused.body, HasSubstr("its limit of tokens per day"));
    EXPECT_THAT(refused.header, ::testing::ContainsRegex("Retry-After: [0-9]+\r\n"));
    EXPECT_THAT(refused.header, HasSubstr("x-ratelimit-limit-tokens-day: 500\r\n"));
    EXPECT_EQ(rig.call(1).status, 200) << "keys without the limit are not asked for";
    rig.daily.is_known = false;
    const HttpReply unknown = rig.ask(post(completions, R"({"model":"mail"})", bearer(6)));
    EXPECT_EQ(code_of(unknown), "503 unavailable");
    EXPECT_THAT(unknown.header, HasSubstr("Retry-After: 5\r\n"));
}

TEST(GatewayKeys, ATenantSeesItsOwnUsageAndAnAdministratorThatOfAll) {
    KeyedGateway rig;
    const HttpReply own = rig.ask(get("/v1/usage", bearer(2)));
    EXPECT_EQ(own.body, R"({"object":"list","data":[{"day":"2026-11-27","tenant":"mails","key":"1111111111111111","model":"mail","jobs":2,)"
                        R"("prompt_tokens":100000,"completion_tokens":50000,"cached_tokens":10000,"cost":0.600000}],"currency":"EUR"})");
    EXPECT_EQ(code_of(rig.ask(get("/v1/usage?tenant=search", bearer(2)))), "403 permission_denied");
    EXPECT_EQ(rig.ask(get("/v1/usage?tenant=mails", bearer(2))).body, own.body);
    EXPECT_THAT(rig.ask(get("/v1/usage", bearer(1))).body, HasSubstr(R"("tenant":"search")"));
    EXPECT_EQ(rig.ask(get("/v1/usage?tenant=mails", bearer(1))).body, own.body);
    const HttpReply csv = rig.ask(get("/v1/usage?by=model,tenant&format=csv&since=2026-11-01&until=2026-11-30", bearer(1)));
    EXPECT_EQ(csv.body,
              "model,tenant,jobs,prompt_tokens,completion_tokens,cached_tokens,cost,currency\r\n"
              "mail,mails,2,100000,50000,10000,0.600000,EUR\r\nmail,search,2,100000,50000,10000,0.600000,EUR\r\n");
    EXPECT_THAT(csv.header, HasSubstr("Content-Type: text/csv"));
    for (const auto& [query, wrong] :
         {std::pair("since=yesterday", "a day in UTC"), std::pair("by=colour", "there is no column 'colour'"),
          std::pair("format=xml", "json or csv"), std::pair("from=2026-11-01", "no field 'from'"),
          std::pair("by=%ZZ", "query has a broken escape"), std::pair("by=day&by=key", "names a field twice")}) {
        const HttpReply reply = rig.ask(get(fmt::format("/v1/usage?{}", query), bearer(1)));
        EXPECT_EQ(code_of(reply), "400 bad_request");
        EXPECT_THAT(reply.body, HasSubstr(wrong));
    }
    const HttpReply broken = rig.ask(get("/v1/usage?since=2026-11-02&until=2026-11-01", bearer(1)));
    EXPECT_EQ(code_of(broken), "503 unavailable");
    EXPECT_THAT(broken.body, HasSubstr("the disk is full"));
    EXPECT_EQ(code_of(rig.ask(post("/v1/usage", "{}", bearer(1)))), "405 method_not_allowed");
}

TEST(GatewayKeys, AGatewayGivesItsShareOfTheLimits) {
    KeyedGateway rig;
    rig.gateway.set_share(0.5);
    EXPECT_THAT(rig.call(3).header, HasSubstr("x-ratelimit-limit-tokens: 3000\r\n"));
    EXPECT_EQ(code_of(rig.ask(post(completions, R"({"model":"mail"})", bearer(3)))), "429 rate_limit_exceeded");
}

// The id stands for tenant and key: tenants cannot reach each other's calls.
TEST(GatewayKeys, AnIdempotencyKeyNamesACallOfItsTenant) {
    KeyedGateway rig;
    const auto call_of = [&](int key, const std::string& name) {
        HttpClient client(rig.gateway.port());
        client.send(post(completions, R"({"model":"mail"})", bearer(key) + "Idempotency-Key: " + name + "\r\n"));
        const consumer::Call call = rig.calls.next();
        EXPECT_TRUE(call.repeatable);
        // While it runs here, nobody else asks the backend.
        EXPECT_EQ(code_of(rig.ask(post(completions, "{}", bearer(key) + "Idempotency-Key: " + name + "\r\n"))), "409 call_running");
        rig.calls.listener().on_end(call.id, CallResult{.status = 200, .body = used_up});
        EXPECT_EQ(client.receive()->status, 200);
        return call.id;
    };
    const std::string first = call_of(1, "order-17");
    EXPECT_EQ(call_of(1, "order-17"), first);
    EXPECT_NE(call_of(1, "order-18"), first);
    EXPECT_NE(call_of(2, "order-17"), first);
    EXPECT_THAT(first, testing::MatchesRegex("call-[0-9a-f]{32}"));
}

TEST(GatewayKeys, RefusesIdempotencyKeysThatCannotName) {
    KeyedGateway rig;
    const auto answer_to = [&](const std::string& fields, const std::string& body = R"({"model":"mail"})") {
        return code_of(rig.ask(post(completions, body, bearer(1) + fields)));
    };
    for (const std::string& fields : {std::string("Idempotency-Key:\r\n"), std::string("Idempotency-Key: a\r\nIdempotency-Key: a\r\n"),
                                      "Idempotency-Key: " + std::string(256, 'a') + "\r\n", std::string("Idempotency-Key: \xc3\xa4\r\n")})
        EXPECT_EQ(answer_to(fields), "400 bad_request") << fields;
    EXPECT_EQ(answer_to("Idempotency-Key: a\r\n", R"({"model":"mail","stream":true})"), "400 bad_request");
    EXPECT_EQ(rig.calls.count(), 0U);
}

TEST(GatewayKeys, SaysWhyARepeatIsRefused) {
    KeyedGateway rig;
    using Kind = consumer::CallRefusal::Kind;
    Kind kind = Kind::running;
    rig.calls.at_submit = [&](const consumer::Call&, consumer::CallListener&) { return consumer::CallRefusal{.kind = kind}; };
    const std::string repeat = post(completions, R"({"model":"mail"})", bearer(1) + "Idempotency-Key: a\r\n");
    const HttpReply running = rig.ask(repeat);
    EXPECT_EQ(code_of(running), "409 call_running");
    EXPECT_THAT(running.header, HasSubstr("Retry-After: 1\r\n"));
    kind = Kind::other_content;
    EXPECT_EQ(code_of(rig.ask(repeat)), "422 idempotency_key_reused");
}

}  // namespace
}  // namespace lorry::ops
