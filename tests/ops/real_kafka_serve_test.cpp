// `lorry serve` with workers over a real Kafka: calls and streams end once, whatever happens to clients, workers and gateways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "schema/json.h"
#include "tests/ops/real_kafka_fixture.h"
#include "tests/support/labels.h"
#include "tests/support/program.h"
#include "tests/support/served.h"

namespace lorry::ops {
namespace {

using schema::Json;
using testing::HasSubstr;
using tests::HttpClient;
using tests::Program;
using tests::Served;
using Clock = std::chrono::steady_clock;

const tests::Labelled serve_on_a_real_broker{"*", {tests::Label::real_kafka}};

class RealKafkaServe : public RealKafkaProgram {
protected:
    std::vector<std::string> broker_flags() const { return {"--brokers", address, "--prefix", topics.prefix}; }
    std::vector<std::string> worker() const {
        std::vector<std::string> command = worker_command(tiny, tiny.folder / "ledger.sqlite");
        const auto flags = broker_flags();
        command.insert(command.end(), flags.begin(), flags.end());
        return command;
    }
    static std::string prompt(int i, int tokens, const std::string& more = "") {
        return fmt::format(R"({{"model":"tiny","prompt":"w{} w{}","max_tokens":{},"temperature":0,"ignore_eos":true{}}})", i % 131,
                           i * 7 % 131, tokens, more);
    }
    static std::string text_of(const std::string& body) {
        const auto json = Json::parse(body);
        if (!json || json->find("choices") == nullptr) return "not an answer: " + body;
        return *json->find("choices")->as_array()->front().find("text")->as_string();
    }
    // The data of a stream's events.
    static std::vector<std::string> events_of(const std::string& body) {
        std::vector<std::string> events;
        for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
            const std::size_t end = body.find("\n\n", at);
            events.push_back(body.substr(at + 6, end - at - 6));
            at = end;
        }
        return events;
    }
    // The text of a whole stream; empty if it did not end with [DONE].
    static std::string text_of_stream(const std::string& body) {
        const auto events = events_of(body);
        if (events.empty() || events.back() != "[DONE]") return "";
        std::string text;
        for (std::size_t i = 0; i + 1 < events.size(); ++i) text += text_of(events[i]);
        return text;
    }
    static std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }
    // How many committed results name a call.
    std::size_t results() const { return consumer::read_all(config, topics.results()).size(); }

    tests::TinyModel tiny;
};

TEST_F(RealKafkaServe, AnswersCallsAndStreamsWithTheSameText) {
    Served gateway(broker_flags());
    const Program running(worker());
    const auto whole = gateway.call("/v1/completions", prompt(3, 40));
    ASSERT_EQ(whole.status, 200) << whole.body;
    HttpClient client(gateway.port());
    client.send(Served::post_stream("/v1/completions", prompt(3, 40, R"(,"stream":true)")));
    EXPECT_EQ(text_of_stream(client.receive_all()), text_of(whole.body));
    EXPECT_EQ(results(), 2U);
}

// Pins: results of two gateways on the same topics went to one of them.
TEST_F(RealKafkaServe, TwoGatewaysServeTheirOwnClientsAtTheSameTime) {
    Served one(broker_flags());
    Served two(broker_flags());
    const Program running(worker());
    ASSERT_EQ(one.call("/v1/completions", prompt(0, 4)).status, 200);
    std::map<int, std::future<std::string>> texts;
    for (int i = 0; i < 24; ++i) {
        texts[i] = std::async(std::launch::async,
                              [&, i] { return text_of((i % 2 == 0 ? one : two).call("/v1/completions", prompt(i / 2, 12)).body); });
    }
    for (int i = 0; i < 24; i += 2) EXPECT_EQ(texts[i].get(), texts[i + 1].get()) << "the same prompt at both";
    EXPECT_EQ(results(), 25U);
}

// Pins: jobs that wait in their topic held up calls.
TEST_F(RealKafkaServe, AnswersBeforeTheJobsThatWait) {
    constexpr int waiting = 3'000;
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs(), .spread = 8});
        for (int i = 0; i < waiting; ++i) {
            producer.submit(fmt::format(R"({{"custom_id":"job-{}","method":"POST","url":"/v1/completions","body":{}}})", i, prompt(i, 100)),
                            "tiny", static_cast<std::uint64_t>(i));
        }
        producer.finish();
    }
    Served gateway(broker_flags());
    const Program running(worker());
    const auto reply = gateway.call("/v1/completions", prompt(5, 10));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_LT(results(), std::size_t{waiting}) << "the jobs had ended before";
}

// Pins: a client that went away left its job running to the end.
TEST_F(RealKafkaServe, AClientThatGoesAwayCancelsItsJob) {
    Served gateway(broker_flags());
    const Program running(worker());
    ASSERT_EQ(gateway.call("/v1/completions", prompt(0, 4)).status, 200);
    {
        HttpClient client(gateway.port());
        client.send(Served::post("/v1/completions", prompt(1, 600, R"(,"stream":true,"n":16)")));
        ASSERT_TRUE(client.receive(false)) << "the stream has begun";
    }
    consumer::RecordReader reader(config, {.topics = {topics.results()}});
    std::vector<std::string> ends;
    const auto deadline = Clock::now() + 60s;
    while (ends.size() < 2 && Clock::now() < deadline) {
        for (const auto& record : reader.poll(50ms)) ends.push_back(*record.value);
    }
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_THAT(ends[1], HasSubstr("batch_cancelled"));
}

// Pins: a call that took too long was answered without its id, and ran on.
TEST_F(RealKafkaServe, ACallThatTakesTooLongIsA504WithItsIdAndIsCancelled) {
    auto flags = broker_flags();
    flags.insert(flags.end(), {"--call-timeout", "2s"});
    Served gateway(flags);  // and no worker
    const auto reply = gateway.call("/v1/completions", prompt(0, 4));
    EXPECT_EQ(reply.status, 504);
    EXPECT_THAT(reply.body, HasSubstr("call-"));
    const auto deadline = Clock::now() + 20s;
    while (consumer::read_all(config, topics.control()).empty() && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    const auto cancels = consumer::read_all(config, topics.control());
    ASSERT_EQ(cancels.size(), 1U);
    EXPECT_THAT(*cancels[0].value, HasSubstr(R"("call":{"topic":")"));
}

// Pins: a stream whose worker was killed ended, hung, or told its client the same words twice.
TEST_F(RealKafkaServe, AStreamGoesOnAfterItsWorkerWasKilled) {
    Served gateway(broker_flags());
    std::optional<Program> first(std::in_place, worker());
    const auto expected = gateway.call("/v1/completions", prompt(9, 600));
    ASSERT_EQ(expected.status, 200) << expected.body;
    HttpClient client(gateway.port());
    client.send(Served::post_stream("/v1/completions", prompt(9, 600, R"(,"stream":true)")));
    consumer::RecordReader chunks(config, {.topics = {topics.chunks()}});
    std::size_t seen = 0;
    const auto deadline = Clock::now() + 60s;
    while (seen < 5 && Clock::now() < deadline) seen += chunks.poll(5ms).size();
    first->signal(SIGKILL);
    EXPECT_EQ(first->wait().exit_code, 128 + SIGKILL);
    ASSERT_EQ(results(), 1U) << "the worker was killed only after its stream had ended";
    const Program second(worker());
    const std::string stream = client.receive_all();
    EXPECT_EQ(text_of_stream(stream), text_of(expected.body));
    EXPECT_EQ(results(), 2U);
    EXPECT_NE(gateway.get("/metrics").body.find("lorry_streams_restarted_total 1\n"), std::string::npos);
}

// Pins: a gateway that was killed took its clients' jobs along, or the next one answered them.
TEST_F(RealKafkaServe, AKilledGatewayDisturbsNoOther) {
    std::optional<Served> first(std::in_place, broker_flags());
    {
        HttpClient client(first->port());
        client.send(Served::post("/v1/completions", prompt(1, 8)));
        std::this_thread::sleep_for(300ms);  // no worker runs yet
        first->program().signal(SIGKILL);
        EXPECT_EQ(first->program().wait().exit_code, 128 + SIGKILL);
    }
    Served second(broker_flags());
    const Program running(worker());
    EXPECT_EQ(second.call("/v1/completions", prompt(2, 8)).status, 200);
    const auto deadline = Clock::now() + 30s;
    while (results() < 2 && Clock::now() < deadline) std::this_thread::sleep_for(100ms);
    EXPECT_EQ(results(), 2U) << "the first one's call ran as well, and has one result";
    EXPECT_EQ(second.stop().exit_code, 0);
}

// Pins: calls that ran when a gateway was told to end were cut off.
TEST_F(RealKafkaServe, AGatewayThatEndsLetsItsCallsFinish) {
    Served gateway(broker_flags());
    const Program running(worker());
    ASSERT_EQ(gateway.call("/v1/completions", prompt(0, 4)).status, 200);
    HttpClient client(gateway.port());
    client.send(Served::post("/v1/completions", prompt(1, 400)));
    std::this_thread::sleep_for(50ms);
    gateway.program().signal(SIGTERM);
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200) << reply->body;
    EXPECT_EQ(gateway.program().wait(60s).exit_code, 0);
}

// Pins: statuses did not say with which key a job was called, and a trace ended at the gateway.
TEST_F(RealKafkaServe, ACallCarriesItsKeyAndTraceAndCountsForItsKeysDayAndForUsage) {
    const std::string key = first_line_of(lorry({"keys", "create", "--tenant", "search", "--name", "daily", "--tokens-per-day", "30"}).out);
    const std::string key_id = key.substr(6, 16);
    const std::string ledger = (tiny.folder / "usage.sqlite").string();
    auto flags = broker_flags();
    flags.insert(flags.end(), {"--insecure-no-keys", "false", "--usage-ledger", ledger});
    Served gateway(flags);
    const Program running(worker());
    const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const std::string fields = fmt::format("Authorization: Bearer {}\r\n", key);
    const auto first = gateway.call("/v1/completions", prompt(3, 40), fields + fmt::format("traceparent: {}\r\n", trace));
    ASSERT_EQ(first.status, 200) << first.body;
    EXPECT_THAT(first.header, HasSubstr("x-ratelimit-limit-tokens-day: 30\r\n"));
    const auto headers = consumer::read_all(config, topics.results()).at(0).headers;
    EXPECT_THAT(headers, testing::IsSupersetOf({schema::Header("traceparent", trace), schema::Header("tenant", "search"),
                                                schema::Header("api_key_id", key_id)}));
    EXPECT_THAT(*consumer::read_all(config, topics.status()).back().value, HasSubstr(fmt::format(R"("key":"{}")", key_id)));

    tests::HttpReply refused = first;
    const auto deadline = Clock::now() + 10s;
    while (refused.status == 200 && Clock::now() < deadline) refused = gateway.call("/v1/completions", prompt(3, 1), fields);
    EXPECT_EQ(refused.status, 429) << "10 s after it was used up";
    EXPECT_THAT(refused.body, HasSubstr("tokens per day"));

    const auto usage = [&](const std::string& query) {
        HttpClient client(gateway.port());
        client.send(fmt::format("GET /v1/usage{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", query, fields));
        return client.receive().value_or(tests::HttpReply{}).body;
    };
    const std::string wanted = fmt::format(R"("tenant":"search","key":"{}","model":"base","jobs":)", key_id);
    const auto end = Clock::now() + 10s;
    while (usage("").find(wanted) == std::string::npos && Clock::now() < end) std::this_thread::sleep_for(50ms);
    EXPECT_THAT(usage(""), HasSubstr(wanted));
    const Call shown = call({"usage", "--ledger", ledger, "--by", "tenant,key,model", "--csv"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_EQ(shown.out, usage("?by=tenant,key,model&format=csv"));
}

}  // namespace
}  // namespace lorry::ops
