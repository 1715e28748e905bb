// `lorry serve` and `lorry worker` as processes over an embedded broker, which a test ends and starts again; and what keeps a gateway from
// starting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ops/client/fixture.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/secret_file.h"
#include "tests/support/served.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tls_client.h"

namespace lorry::ops {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::Program;
using tests::Served;

TEST(Serve, ListensOnThisMachineAloneWithoutKeys) {
    for (const char* where : {"0.0.0.0:8000", ":8000", "192.168.1.7:8000", "gateway.example:8000"}) {
        const Call far =
            call({"serve", "--base-name", "tiny", "--brokers", "localhost:1", "--insecure-no-keys", "true", "--listen", where});
        EXPECT_EQ(far.code, 2);
        EXPECT_THAT(far.err, AllOf(HasSubstr(where), HasSubstr("127.0.0.1"))) << where;
    }
}

TEST(Serve, RefusesSettingsThatItCannotUse) {
    const auto serve = [](std::vector<std::string> more) {
        more.insert(more.begin(), {"serve", "--insecure-no-keys", "true"});
        const Call done = call(more);
        EXPECT_EQ(done.code, 2);
        return done.err;
    };
    EXPECT_THAT(serve({"--base-name", "tiny", "--brokers", "localhost:1", "--listen", "8000"}), HasSubstr("write HOST:PORT"));
    EXPECT_THAT(serve({"--base-name", "tiny", "--brokers", "localhost:1", "--listen", "localhost:70000"}), HasSubstr("write HOST:PORT"));
    EXPECT_THAT(serve({"--brokers", "localhost:1"}), HasSubstr("--base-name"));
    EXPECT_THAT(serve({"--base-name", "tiny"}), HasSubstr("brokers"));
}

TEST(Serve, RefusesSettingsOfCallersThatDoNotFitTogether) {
    const tests::TempFolder folder;
    const tests::CertificateAuthority authority(folder.path());
    const auto expired = authority.issue({.name = "expired", .begins = -2h, .ends = -1h});
    for (const auto& [flags, code, why] : std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
             {{"--tls-cert", "a.pem"}, 2, "both --tls-cert and --tls-key"},
             {{"--tls-key", "a.pem"}, 2, "both --tls-cert and --tls-key"},
             {{"--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"}, 1, "nowhere.pem: the certificate cannot be read"},
             {{"--tls-cert", expired.certificate, "--tls-key", expired.key}, 1, "the certificate expired on"},
             {{"--jwt-keys", "keys.json", "--jwt-issuer", "a"}, 2, "--jwt-audience is missing"},
             {{"--jwt-issuer", "a"}, 2, "--jwt-issuer is given without --jwt-keys"},
             {{"--jwt-keys", "keys.json", "--jwt-issuer", "a", "--jwt-audience", "b"}, 1, "keys.json: the keys cannot be read"},
             {{"--trusted-header", "X-User"}, 2, "both --trusted-header and --trusted-proxies"},
             {{"--trusted-header", "X-User", "--trusted-proxies", "proxy"}, 2, "--trusted-proxies: 'proxy' is no IP address"},
             {{"--trusted-header", "X-User", "--trusted-proxies", "::1", "--insecure-no-keys", "true"}, 2, "leave it out"},
         }) {
        // Processes of their own: some start the log, which a process does once.
        std::vector<std::string> command = {LORRY_PROGRAM, "serve", "--base-name", "tiny", "--brokers", "localhost:1"};
        command.insert(command.end(), flags.begin(), flags.end());
        const tests::ProgramResult done = tests::run_program_of(command);
        EXPECT_EQ(done.exit_code, code) << flags.front();
        EXPECT_THAT(done.err, HasSubstr(why)) << flags.front();
    }
}

TEST(Serve, EndsWhenNoBrokerAnswers) {
    const Call done =
        call({"serve", "--insecure-no-keys", "true", "--base-name", "tiny", "--brokers", "127.0.0.1:1", "--deadline-start", "1s"});
    EXPECT_EQ(done.code, 1);
    EXPECT_THAT(done.err, HasSubstr("127.0.0.1:1"));
}

class ServeOverEmbeddedBroker : public testing::Test {
protected:
    std::vector<std::string> worker() const {
        return {LORRY_PROGRAM,       "worker",
                "--model",           tiny.model.string(),
                "--adapters",        tiny.adapters.string(),
                "--base-name",       "tiny",
                "--brokers",         config.brokers,
                "--member",          "worker-1",
                "--metrics-address", "off",
                "--threads",         "1",
                "--ledger",          (tiny.folder / "ledger.sqlite").string()};
    }
    tests::TinyModel tiny;
    consumer::EmbeddedBroker broker{consumer::broker_options(3)};
    consumer::KafkaConfig config{.brokers = broker.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
};

TEST_F(ServeOverEmbeddedBroker, AnswersCallsListsModelsAndShowsItsPages) {
    consumer::register_adapters(config, "lorry.adapters", {{.name = "plain", .hash = "0f", .path = "plain", .base = "tiny"}});
    Served gateway({"--brokers", config.brokers});
    const Program running(worker());
    EXPECT_THAT(gateway.get("/v1/models").body, AllOf(HasSubstr(R"("id":"tiny")"), HasSubstr(R"("id":"plain")")));
    EXPECT_EQ(gateway.get("/healthz").body, "running\n");
    const auto reply = gateway.call("/v1/completions", R"({"model":"tiny","prompt":"w5 w6","max_tokens":6})");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_THAT(reply.body, HasSubstr(R"("object":"text_completion")"));
    const auto refused = gateway.call("/v1/completions", R"({"model":"tiny","prompt":"w5 w6","max_tokens":-6})");
    EXPECT_EQ(refused.status, 400) << refused.body;
    const std::string metrics = gateway.get("/metrics").body;
    EXPECT_THAT(metrics, HasSubstr("lorry_calls_sent_total 2"));
    EXPECT_THAT(metrics, HasSubstr("lorry_brokers_away 0"));
    EXPECT_THAT(metrics, HasSubstr(R"(lorry_requests_total{url="/v1/completions",status="200"} 1)"));
    const auto ended = gateway.stop();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("gateway_stopping"), HasSubstr("gateway_stopped")));
    EXPECT_THAT(ended.err, testing::Not(HasSubstr("w5"))) << "no prompt is logged";
}

TEST_F(ServeOverEmbeddedBroker, RefusesToStartWithoutKeysAndServesThoseWhoHaveOne) {
    const tests::ProgramResult none =
        tests::run_program_of({LORRY_PROGRAM, "serve", "--base-name", "tiny", "--brokers", config.brokers, "--listen", "127.0.0.1:0"});
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(none.err, AllOf(HasSubstr("lorry.keys has no keys"), HasSubstr("lorry keys create"), HasSubstr("--insecure-no-keys")));

    const Call made = call({"keys", "create", "--tenant", "search", "--name", "indexer", "--models", "base", "--brokers", config.brokers});
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string key = made.out.substr(0, made.out.find('\n'));
    Served gateway({"--brokers", config.brokers, "--insecure-no-keys", "false"});
    const Program running(worker());
    const std::string body = R"({"model":"base","prompt":"w5 w6","max_tokens":6})";
    const auto with = [&](const std::string& value) {
        return gateway.call("/v1/completions", body, "Authorization: Bearer " + value + "\r\n");
    };
    EXPECT_EQ(gateway.get("/healthz").status, 200);
    EXPECT_EQ(gateway.call("/v1/completions", body).status, 401);
    EXPECT_EQ(with(key.substr(0, key.size() - 1) + (key.ends_with('0') ? "1" : "0")).status, 401);
    const auto answered = with(key);
    EXPECT_EQ(answered.status, 200) << answered.body;
    const std::string id = key.substr(key.find('-') + 1, 16);
    ASSERT_EQ(call({"keys", "revoke", id, "--brokers", config.brokers}).code, 0);
    const auto deadline = consumer::Clock::now() + 60s;
    while (with(key).status != 401 && consumer::Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(with(key).status, 401);
    const auto ended = gateway.stop();
    EXPECT_THAT(ended.err, AllOf(HasSubstr(R"("tenant":"search")"), HasSubstr(id), testing::Not(HasSubstr(key))));
}

TEST_F(ServeOverEmbeddedBroker, GatewaysShareTheLimitsOfKeysWithThoseThatAreAlive) {
    const Call made = call({"keys", "create", "--tenant", "a", "--name", "n", "--requests-per-minute", "600", "--brokers", config.brokers});
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string field = "Authorization: Bearer " + made.out.substr(0, made.out.find('\n')) + "\r\n";
    const std::vector<std::string> flags = {"--brokers", config.brokers, "--insecure-no-keys", "false"};
    Served one(flags);
    const auto comes_to = [&](const std::string& limit) {
        const auto deadline = consumer::Clock::now() + 60s;
        // A call that no worker has to answer.
        const auto has_come = [&] {
            const std::string header = one.call("/v1/completions", "no JSON", field).header;
            return header.find("x-ratelimit-limit-requests: " + limit + "\r\n") != std::string::npos;
        };
        while (!has_come() && consumer::Clock::now() < deadline) std::this_thread::sleep_for(200ms);
        return has_come();
    };
    EXPECT_TRUE(comes_to("600"));
    Served two(flags);
    EXPECT_TRUE(comes_to("300"));
    EXPECT_EQ(two.stop().exit_code, 0);
    EXPECT_TRUE(comes_to("600"));
    EXPECT_THAT(one.stop().err, HasSubstr(R"("event":"gateways_changed","gateways":2)"));
}

TEST_F(ServeOverEmbeddedBroker, SpeaksTlsAndTakesTokensAndTrustedProxiesWithoutKeys) {
    const tests::CertificateAuthority authority(tiny.folder.path());
    const auto files = authority.issue({.name = "server"});
    const auto vectors = *schema::Json::parse(tests::read_whole(std::string(LORRY_SOURCE_DIR) + "/tests/data/jwt/vectors.json"));
    const std::string keys = (tiny.folder / "keys.json").string();
    tests::write_secret(keys, vectors.find("keys")->dump());
    Served gateway({"--brokers", config.brokers, "--insecure-no-keys", "false", "--tls-cert", files.certificate, "--tls-key", files.key,
                    "--jwt-keys", keys, "--jwt-issuer", "https://issuer.example", "--jwt-audience", "lorry", "--trusted-header",
                    "X-Remote-Tenant", "--trusted-proxies", "127.0.0.2"});
    tests::TlsClient client({.port = gateway.port(), .trusted = authority.file()});
    const auto models = [&](const std::string& field) {
        client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + field + "\r\n");
        return client.receive().value_or(tests::HttpReply{});
    };
    EXPECT_EQ(client.get("/healthz").status, 200);
    EXPECT_EQ(models("Authorization: Bearer " + *vectors.find("tokens")->find("for long")->as_string() + "\r\n").status, 200);
    tests::TlsClient other({.port = gateway.port(), .trusted = authority.file()});
    other.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Remote-Tenant: root\r\n\r\n");
    EXPECT_EQ(other.receive()->status, 401) << "127.0.0.1 is no trusted proxy";
    tests::write_text(keys, "{}");
    const auto renewed = authority.issue({.name = "renewed"});
    std::filesystem::rename(renewed.certificate, files.certificate);
    std::filesystem::rename(renewed.key, files.key);
    const auto deadline = consumer::Clock::now() + 60s;
    const auto serial_number = [&] { return tests::TlsClient({.port = gateway.port(), .trusted = authority.file()}).serial_number(); };
    while (serial_number() == client.serial_number() && consumer::Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_NE(serial_number(), client.serial_number());
    const auto ended = gateway.stop();
    EXPECT_THAT(ended.err, AllOf(HasSubstr("https://127.0.0.1"), HasSubstr("certificate_renewed"), HasSubstr("token_keys_not_renewed"),
                                 HasSubstr(R"("tenant":"ada")"), testing::Not(HasSubstr("root"))));
}

// Pins: a client that lost its answer paid for the call twice.
TEST_F(ServeOverEmbeddedBroker, ACallWithAnIdempotencyKeyRunsOnceWhicheverGatewayHasIt) {
    Served one({"--brokers", config.brokers});
    Served two({"--brokers", config.brokers});
    const std::string body = R"({"model":"tiny","prompt":"w5 w6","max_tokens":6})";
    const std::string key = "Idempotency-Key: order-17\r\n";
    const auto sent = [](Served& gateway) {
        const std::string metrics = gateway.get("/metrics").body;
        return metrics.substr(metrics.find("\nlorry_calls_sent_total ") + 1, 24);
    };
    tests::HttpClient waiting(one.port());
    waiting.send(Served::post("/v1/completions", body, key));
    const auto until = [&](Served& gateway, int status, const std::string& with, const std::string& what) {
        const auto deadline = consumer::Clock::now() + 60s;
        tests::HttpReply reply;
        do {
            reply = gateway.call("/v1/completions", with, key);
        } while (reply.status != status && consumer::Clock::now() < deadline);
        EXPECT_EQ(reply.status, status) << what << reply.body;
        return reply;
    };
    // There is no worker yet.
    const auto running = one.call("/v1/completions", body, key);
    EXPECT_EQ(running.status, 409);
    EXPECT_THAT(running.header, HasSubstr("Retry-After"));
    EXPECT_THAT(running.body, HasSubstr("call_running"));
    const Program worker_program(worker());
    const auto first = waiting.receive();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->status, 200) << first->body;
    EXPECT_EQ(one.call("/v1/completions", body, key).body, first->body);
    EXPECT_EQ(until(two, 200, body, "another gateway: ").body, first->body);
    EXPECT_EQ(sent(one), "lorry_calls_sent_total 1");
    for (Served* gateway : {&one, &two}) {
        const auto other = until(*gateway, 422, R"({"model":"tiny","prompt":"w7","max_tokens":6})", "another body: ");
        EXPECT_THAT(other.body, HasSubstr("idempotency_key_reused"));
    }
    EXPECT_EQ(one.call("/v1/completions", R"({"model":"tiny","prompt":"w5","stream":true})", "Idempotency-Key: s\r\n").status, 400);
    // What failed runs again.
    const std::string bad = R"({"model":"tiny","prompt":"w5","max_tokens":-1})";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(one.call("/v1/completions", bad, "Idempotency-Key: bad\r\n").status, 400);
    EXPECT_EQ(sent(one), "lorry_calls_sent_total 3");
}

// Pins: clients waited for brokers that were away, and the gateway had to be started again.
TEST_F(ServeOverEmbeddedBroker, Answers503WhileBrokersAreAwayAndGoesOnByItself) {
    Served gateway({"--brokers", config.brokers});
    const Program running(worker());
    const std::string body = R"({"model":"tiny","prompt":"w5 w6","max_tokens":6})";
    ASSERT_EQ(gateway.call("/v1/completions", body).status, 200);
    broker.set_down(true);
    const auto away = gateway.call("/v1/completions", body);
    EXPECT_EQ(away.status, 503) << away.body;
    EXPECT_THAT(away.header, HasSubstr("Retry-After: 5"));
    const auto deadline = consumer::Clock::now() + 60s;
    while (gateway.get("/healthz").status != 503 && consumer::Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    const auto next = gateway.call("/v1/completions", body);
    EXPECT_EQ(next.status, 503) << "at once: " << next.body;
    broker.set_down(false);
    int status = 0;
    while (status != 200 && consumer::Clock::now() < deadline) {
        status = gateway.call("/v1/completions", body).status;
        std::this_thread::sleep_for(200ms);
    }
    EXPECT_EQ(status, 200);
    EXPECT_EQ(gateway.get("/healthz").status, 200);
}

}  // namespace
}  // namespace lorry::ops
