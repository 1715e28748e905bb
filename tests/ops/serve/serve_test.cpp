// `lorry serve` and `lorry worker` as processes over an embedded broker, which a test ends and starts again; and what keeps a gateway from
// starting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ops/client/fixture.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/served.h"
#include "tests/support/tiny_model.h"

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
