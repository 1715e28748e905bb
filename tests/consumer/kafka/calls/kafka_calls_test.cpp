// Calls over an embedded broker, with workers that the test plays: it reads the calls topic and writes results and chunks.
#include "consumer/kafka/calls/kafka_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "consumer/kafka/producer.h"
#include "schema/codec.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

using ::testing::ElementsAre;

// Collects the events of calls, as texts.
class Listener final : public CallListener {
public:
    void on_chunk(const std::string& id, std::string chunk) override { add(id, std::move(chunk)); }
    void on_end(const std::string& id, CallEnd end) override {
        std::string text = "end ";
        if (const auto* result = std::get_if<CallResult>(&end)) {
            text += std::to_string(result->status) + " " + result->body;
        } else if (const auto* failure = std::get_if<schema::BatchFailure>(&end)) {
            text += name_of(schema::code_of(*failure));
        } else {
            text += std::get<CallRefusal>(end).kind == CallRefusal::Kind::full ? "full" : "unavailable";
        }
        add(id, std::move(text));
    }
    // All events of a call once it has so many.
    std::vector<std::string> events_of(const std::string& id, std::size_t least) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, 30s, [&] { return events_[id].size() >= least; });
        return events_[id];
    }

private:
    void add(const std::string& id, std::string event) {
        const std::lock_guard lock(mutex_);
        events_[id].push_back(std::move(event));
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::vector<std::string>> events_;  // guarded by mutex_
};

consumer::Call call_of(const std::string& id) {
    return {.id = id, .url = "/v1/completions", .body = R"({"model":"base","prompt":"x"})", .tenant = {}};
}

class KafkaCallsTest : public KafkaTest {
protected:
    KafkaCalls::Options options() { return {.topics = topics, .calls_max = 3, .call_timeout = 60s, .send_timeout = 3s}; }

    // What the worker reads next.
    schema::JobRecord next_call() {
        const auto deadline = Clock::now() + 20s;
        while (read_.empty() && Clock::now() < deadline) {
            for (auto& record : calls_.poll(50ms)) read_.push_back(std::move(record));
        }
        CHECK(!read_.empty(), "no call came");
        schema::JobRecord record = std::move(read_.front());
        read_.erase(read_.begin());
        return record;
    }
    void answer(const schema::JobRecord& call, std::int64_t attempt, std::optional<std::int64_t> chunks = {},
                const std::string& body = "{}") {
        schema::Completion completion;
        completion.id = "id";
        completion.custom_id = *call.key;
        completion.run.job_id = *call.key;
        completion.run.source = call.source;
        completion.run.attempt = attempt;
        completion.chunks = chunks;
        completion.body = schema::Json::parse(body).value();
        write(topics.results(), *call.key, schema::encode_completion(completion), schema::completion_headers(completion));
    }
    void stream(const schema::JobRecord& call, std::int64_t attempt, std::int64_t seq, const std::string& text) {
        write(topics.chunks(), *call.key,
              schema::encode_chunk({.job_id = *call.key,
                                    .custom_id = *call.key,
                                    .attempt = attempt,
                                    .seq = seq,
                                    .chunk = schema::Json::parse(chunk(text)).value()}),
              {});
    }
    static std::string chunk(const std::string& text) { return fmt::format(R"({{"choices":[{{"index":0,"text":"{}"}}]}})", text); }
    void write(const std::string& topic, const std::string& key, const std::string& value, const std::vector<schema::Header>& headers) {
        ASSERT_TRUE(worker_.send({.topic = topic, .partition = std::nullopt, .key = key, .value = value, .headers = headers, .tag = 0}));
        worker_.wait_all("writing");
    }

    Listener listener;
    RecordReader calls_{config, {.topics = {topics.calls()}}};
    KafkaProducer worker_{config, {}};
    std::vector<schema::JobRecord> read_;
};

TEST_F(KafkaCallsTest, AreJobsWithADeadlineAndComeBackAsTheirResults) {
    KafkaCalls calls(config, options());
    consumer::Call call = call_of("call-1");
    call.tenant = "acme";
    ASSERT_FALSE(calls.submit(std::move(call), listener));
    const schema::JobRecord record = next_call();
    EXPECT_EQ(*record.value, R"({"custom_id":"call-1","method":"POST","url":"/v1/completions","body":{"model":"base","prompt":"x"}})");
    EXPECT_EQ(*record.key, "call-1");
    EXPECT_EQ(*schema::find_header(record.headers, schema::tenant_header), "acme");
    EXPECT_NE(schema::find_header(record.headers, schema::deadline_header), nullptr);
    EXPECT_EQ(calls.stats().open, 1U);
    answer(record, 5, {}, R"({"text":"y"})");
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre(R"(end 200 {"text":"y"})"));
    EXPECT_EQ(calls.stats().open, 0U);
    EXPECT_EQ(calls.stats().sent, 1U);
}

// Pins: gateways that share the topics answered each other's calls.
TEST_F(KafkaCallsTest, OfTwoGatewaysComeBackToTheirOwn) {
    KafkaCalls one(config, options());
    KafkaCalls two(config, options());
    Listener of_two;
    ASSERT_FALSE(one.submit(call_of("call-1"), listener));
    const schema::JobRecord first = next_call();
    ASSERT_FALSE(two.submit(call_of("call-2"), of_two));
    const schema::JobRecord second = next_call();
    EXPECT_NE(first.source.partition, -1);
    answer(second, 1);
    EXPECT_THAT(of_two.events_of("call-2", 1), ElementsAre("end 200 {}"));
    answer(first, 1);
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre("end 200 {}"));
    EXPECT_TRUE(of_two.events_of("call-1", 0).empty());
}

TEST_F(KafkaCallsTest, GoRoundThePartitions) {
    KafkaCalls calls(config, options());
    std::set<std::int32_t> seen;
    for (int i = 0; i < partitions; ++i) {
        ASSERT_FALSE(calls.submit(call_of("call-" + std::to_string(i)), listener));
        seen.insert(next_call().source.partition);
    }
    EXPECT_EQ(seen.size(), std::size_t{partitions});
}

// For a broker that keeps no more: what a worker has not read counts, also if nobody waits for it any more.
TEST_F(KafkaCallsTest, AreRefusedWhereTooManyBytesWait) {
    KafkaCalls::Options bounded = options();
    bounded.calls_max = 100;
    bounded.partition_bytes_max = 4'000;
    KafkaCalls calls(config, bounded);
    const auto large = [](int number) {
        consumer::Call call = call_of("call-" + std::to_string(number));
        call.body = fmt::format(R"({{"prompt":"{}"}})", std::string(3'000, 'x'));
        return call;
    };
    for (int i = 0; i < partitions; ++i) ASSERT_FALSE(calls.submit(large(i), listener));
    const auto refusal = calls.submit(large(9), listener);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->kind, CallRefusal::Kind::full);
    const schema::JobRecord first = next_call();
    calls.cancel(*first.key);
    EXPECT_TRUE(calls.submit(large(9), listener)) << "it may not have been read yet";
    answer(first, 1);
    const auto deadline = Clock::now() + 20s;
    while (calls.submit(large(9), listener) && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
    std::string last;
    while (last != "call-9" && Clock::now() < deadline) last = *next_call().key;
    EXPECT_EQ(last, "call-9");
}

TEST_F(KafkaCallsTest, MoreAreRefusedAtTheEndWhileThoseThatRunGoOn) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    calls.refuse_more();
    const auto refusal = calls.submit(call_of("call-2"), listener);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->kind, CallRefusal::Kind::unavailable);
    answer(next_call(), 1);
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre("end 200 {}"));
}

// Pins: a stream ended without its last chunks, as its result was read first.
TEST_F(KafkaCallsTest, AStreamEndsAfterItsLastChunk) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    stream(record, 7, 0, "a");
    answer(record, 7, 2);
    EXPECT_EQ(listener.events_of("call-1", 1).size(), 1U);
    std::this_thread::sleep_for(300ms);
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre(chunk("a")));
    stream(record, 7, 1, "b");
    EXPECT_THAT(listener.events_of("call-1", 3), ElementsAre(chunk("a"), chunk("b"), "end 200 {}"));
}

TEST_F(KafkaCallsTest, AStreamGoesOnWithTheNextAttempt) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    stream(record, 7, 0, "ab");
    stream(record, 8, 0, "a");
    stream(record, 8, 1, "bc");
    answer(record, 8, 2);
    EXPECT_THAT(listener.events_of("call-1", 3), ElementsAre(chunk("ab"), chunk("c"), "end 200 {}"));
    EXPECT_EQ(calls.stats().restarted, 1U);
    EXPECT_EQ(calls.stats().broken, 0U);
}

TEST_F(KafkaCallsTest, AStreamEndsWithAnErrorIfTheNextAttemptDiffers) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    stream(record, 7, 0, "ab");
    stream(record, 8, 0, "ax");
    answer(record, 8, 1);
    const auto events = listener.events_of("call-1", 2);
    ASSERT_EQ(events.size(), 2U);
    EXPECT_THAT(events[1], ::testing::AllOf(::testing::HasSubstr("end 500"), ::testing::HasSubstr("answer_changed")));
    EXPECT_EQ(calls.stats().broken, 1U);
}

TEST_F(KafkaCallsTest, ErrorsAndFailuresOfJobsEndThem) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    ASSERT_FALSE(calls.submit(call_of("call-2"), listener));
    ASSERT_FALSE(calls.submit(call_of("call-3"), listener));
    schema::Completion completion;
    for (int i = 0; i < 3; ++i) {
        const schema::JobRecord record = next_call();
        completion = {};
        completion.custom_id = *record.key;
        completion.run.source = record.source;
        if (*record.key == "call-1") completion.failure = schema::BatchFailure::request_timeout;
        if (*record.key == "call-2")
            schema::set_error(completion, {.code = schema::ErrorCode::model_not_found, .param = {}, .message = "m"});
        const std::string value = *record.key == "call-3" ? "garbage" : schema::encode_completion(completion);
        write(topics.results(), *record.key, value, schema::completion_headers(completion));
    }
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre("end request_timeout"));
    EXPECT_THAT(listener.events_of("call-2", 1), ElementsAre(::testing::HasSubstr("end 404")));
    EXPECT_THAT(listener.events_of("call-3", 1), ElementsAre(::testing::HasSubstr("result_unreadable")));
}

// Pins: a producer of ordinary jobs answered calls by using their ids.
TEST_F(KafkaCallsTest, AResultOfAnotherTopicIsNotTheirs) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    schema::JobRecord record = next_call();
    const schema::Source place = std::exchange(record.source, {topics.jobs(), 0, 0});
    answer(record, 1, {}, R"({"text":"forged"})");
    record.source = place;
    answer(record, 1, {}, R"({"text":"own"})");
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre(R"(end 200 {"text":"own"})"));
}

TEST_F(KafkaCallsTest, ACancelNamesThePlaceOfItsCall) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    calls.cancel("call-1");
    calls.cancel("call-1");
    calls.cancel("unknown");
    const auto deadline = Clock::now() + 10s;
    while (calls.stats().open > 0 && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    const auto cancels = [&] { return read_all(config, topics.control()); };
    while (cancels().empty() && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    ASSERT_EQ(cancels().size(), 1U);
    EXPECT_EQ(schema::parse_cancel(*cancels()[0].value, {})->call, record.source);
    answer(record, 1);
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(listener.events_of("call-1", 0).empty()) << "nobody waits for it";
    EXPECT_EQ(calls.stats().cancelled, 1U);
}

TEST_F(KafkaCallsTest, AreRefusedBeyondTheirNumber) {
    KafkaCalls calls(config, options());
    for (int i = 0; i < 3; ++i) ASSERT_FALSE(calls.submit(call_of("call-" + std::to_string(i)), listener));
    const auto refused = calls.submit(call_of("call-4"), listener);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, CallRefusal::Kind::full);
    EXPECT_EQ(calls.stats().refused, 1U);
    answer(next_call(), 1);
    const auto deadline = Clock::now() + 10s;
    while (calls.stats().open == 3 && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(calls.submit(call_of("call-5"), listener));
}

// Pins: a gateway ended, or its clients waited for minutes, when the brokers were away.
TEST_F(KafkaCallsTest, AreUnavailableWhileBrokersAreAwayAndComeBackByThemselves) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    broker.set_down(true);
    std::optional<CallRefusal> refused;
    int number = 10;
    const auto try_one = [&] { return refused = calls.submit(call_of("call-" + std::to_string(++number)), listener); };
    const auto deadline = Clock::now() + 30s;
    while ((!try_one() || refused->kind == CallRefusal::Kind::full) && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, CallRefusal::Kind::unavailable);
    EXPECT_GT(refused->retry_after, std::chrono::seconds(0));
    EXPECT_TRUE(calls.stats().is_away);
    for (int i = 11; i < number; ++i) {
        const auto events = listener.events_of("call-" + std::to_string(i), 0);
        EXPECT_THAT(events, ::testing::Each("end unavailable")) << "they were not taken in time";
    }
    broker.set_down(false);
    while (calls.stats().is_away && Clock::now() < deadline + 30s) std::this_thread::sleep_for(50ms);
    answer(record, 1);
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre("end 200 {}")) << "it was taken before, and waited";
    EXPECT_FALSE(calls.failure());
}

TEST_F(KafkaCallsTest, ThatAreLeftAtTheEndAreCancelled) {
    KafkaCalls calls(config, options());
    ASSERT_FALSE(calls.submit(call_of("call-1"), listener));
    const schema::JobRecord record = next_call();
    while (calls.stats().open == 0) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(200ms);  // the brokers have said where it is
    calls.close(50ms);
    EXPECT_THAT(listener.events_of("call-1", 1), ElementsAre("end unavailable"));
    ASSERT_TRUE(calls.submit(call_of("call-2"), listener));
    ASSERT_EQ(read_all(config, topics.control()).size(), 1U);
}

TEST_F(KafkaCallsTest, NeedTheirTopics) {
    EmbeddedBroker other{{.topics = {{"lorry.results", 1}, {"lorry.chunks", 1}, {"lorry.control", 1}}}};
    KafkaConfig elsewhere = config;
    elsewhere.brokers = other.address();
    elsewhere.deadline_start = 3s;
    try {
        KafkaCalls calls(elsewhere, options());
        FAIL() << "without the calls topic";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry.calls"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("topics create"));
    }
}

}  // namespace
}  // namespace lorry::consumer
