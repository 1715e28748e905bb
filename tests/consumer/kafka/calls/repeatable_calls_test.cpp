// Repeated calls over an embedded broker, before a backend that the test plays: it ends calls as the test says, early or late.
#include "consumer/kafka/calls/repeatable_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "consumer/kafka/producer.h"
#include "schema/codec.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The events of all calls, as texts.
class RepeatListener final : public CallListener {
public:
    void on_chunk(const std::string& id, std::string chunk) override { add(id + " chunk " + chunk); }
    void on_end(const std::string& id, CallEnd end) override {
        if (const auto* result = std::get_if<CallResult>(&end)) return add(id + " " + result->body);
        add(id + (std::holds_alternative<CallRefusal>(end) ? " unavailable" : " failed"));
    }
    // The events since it was last asked, once there are so many.
    std::vector<std::string> take(std::size_t least) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, 30s, [&] { return events_.size() >= least; });
        return std::exchange(events_, {});
    }

private:
    void add(std::string event) {
        const std::lock_guard lock(mutex_);
        events_.push_back(std::move(event));
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> events_;  // guarded by mutex_
};

// One thread.
class PlayedCalls final : public CallBackend {
public:
    std::optional<CallRefusal> submit(Call call, CallListener& the_listener) override {
        if (refusal) return refusal;
        listener = &the_listener;
        runs.push_back(call.id);
        return std::nullopt;
    }
    void cancel(const std::string& id) override { cancelled.push_back(id); }
    void end(const std::string& run, CallEnd how) const { listener->on_end(run, std::move(how)); }

    std::optional<CallRefusal> refusal;
    CallListener* listener = nullptr;
    std::vector<std::string> runs;  // ids
    std::vector<std::string> cancelled;
};

class RepeatableCallsTest : public KafkaTest {
protected:
    RepeatableCalls::Options options() const { return {.topic = topics.repeats(), .running_for = 60s}; }
    static Call call_of(const std::string& id, const std::string& body) {
        return {.id = id, .url = "/v1/completions", .body = body, .tenant = {}, .key = {}, .repeatable = true};
    }
    static CallResult result_of(const std::string& body, std::optional<schema::Source> place) {
        return {.status = 200, .body = body, .place = std::move(place)};
    }
    schema::Source place_of(std::int64_t offset) const { return {.topic = topics.results(), .partition = 0, .offset = offset}; }
    // As the next record of the results' partition 0.
    void write_result(const std::string& run, const std::string& text) {
        schema::Completion completion;
        completion.custom_id = run;
        completion.run.job_id = run;
        completion.body = schema::Json::object({{"text", text}});
        const std::string value = schema::encode_completion(completion);
        ASSERT_TRUE(worker_.send({.topic = topics.results(), .partition = 0, .key = run, .value = value, .headers = {}, .tag = 0}));
        worker_.wait_all("writing");
    }
    static CallRefusal::Kind kind_of(const std::optional<CallRefusal>& refusal) {
        CHECK(refusal, "it was not refused");
        return refusal->kind;
    }

    RepeatListener listener;
    PlayedCalls backend;
    KafkaProducer worker_{config, {.limits = {}}};
};

// Pins: a call whose client had gone away ended the next call of the same key, which had another body, and was kept as its result.
TEST_F(RepeatableCallsTest, WhatComesLateForOneRunNeverEndsAnother) {
    RepeatableCalls calls(config, options(), backend);
    ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
    calls.cancel("call-k");
    ASSERT_FALSE(calls.submit(call_of("call-k", "B"), listener));
    ASSERT_EQ(backend.runs.size(), 2U);
    const std::string first = backend.runs[0];
    const std::string second = backend.runs[1];
    EXPECT_THAT(backend.cancelled, ElementsAre(first));
    EXPECT_THAT(first, ::testing::MatchesRegex("call-k-[0-9a-f]{32}"));
    EXPECT_NE(first, second);
    backend.listener->on_chunk(first, "{}");
    backend.end(first, result_of("A's", place_of(0)));
    backend.end(first, schema::BatchFailure::request_timeout);
    EXPECT_THAT(listener.take(0), IsEmpty());
    EXPECT_EQ(kind_of(calls.submit(call_of("call-k", "A"), listener)), CallRefusal::Kind::other_content);
    EXPECT_EQ(kind_of(calls.submit(call_of("call-k", "B"), listener)), CallRefusal::Kind::running);
    backend.listener->on_chunk(second, "{}");
    backend.end(second, result_of("B's", place_of(1)));
    EXPECT_THAT(listener.take(2), ElementsAre("call-k chunk {}", "call-k B's"));
    EXPECT_EQ(kind_of(calls.submit(call_of("call-k", "A"), listener)), CallRefusal::Kind::other_content);
    write_result(first, "A");
    write_result(second, "B");
    ASSERT_FALSE(calls.submit(call_of("call-k", "B"), listener));
    EXPECT_THAT(listener.take(1), ElementsAre(R"(call-k {"text":"B"})"));
    EXPECT_EQ(backend.runs.size(), 2U);
}

TEST_F(RepeatableCallsTest, AnotherGatewayHasTheResultOfTheRunThatCounts) {
    RepeatableCalls one(config, options(), backend);
    ASSERT_FALSE(one.submit(call_of("call-k", "A"), listener));
    one.cancel("call-k");
    ASSERT_FALSE(one.submit(call_of("call-k", "B"), listener));
    write_result(backend.runs[0], "A");
    write_result(backend.runs[1], "B");
    backend.end(backend.runs[0], result_of("A's", place_of(0)));
    backend.end(backend.runs[1], result_of("B's", place_of(1)));
    EXPECT_THAT(listener.take(1), ElementsAre("call-k B's"));
    one.close();
    PlayedCalls other_backend;
    RepeatableCalls two(config, options(), other_backend);
    two.wait_until_read(Clock::now() + 20s);
    EXPECT_EQ(kind_of(two.submit(call_of("call-k", "A"), listener)), CallRefusal::Kind::other_content);
    ASSERT_FALSE(two.submit(call_of("call-k", "B"), listener));
    EXPECT_THAT(listener.take(1), ElementsAre(R"(call-k {"text":"B"})"));
    EXPECT_THAT(other_backend.runs, IsEmpty());
}

TEST_F(RepeatableCallsTest, WhatWasRefusedOrHasFailedRunsAgain) {
    RepeatableCalls calls(config, options(), backend);
    backend.refusal = call_unavailable;
    EXPECT_EQ(kind_of(calls.submit(call_of("call-k", "A"), listener)), CallRefusal::Kind::unavailable);
    backend.refusal.reset();
    ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
    backend.end(backend.runs[0], schema::BatchFailure::request_timeout);
    EXPECT_THAT(listener.take(1), ElementsAre("call-k failed"));
    ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
    EXPECT_EQ(backend.runs.size(), 2U);
}

// Pins: when brokers were slow, a repeat forgot that there was a result, and the next one ran the call a second time.
TEST_F(RepeatableCallsTest, AResultThatCannotBeReadInTimeIsNotForgotten) {
    auto hasty = options();
    hasty.fetch_timeout = 500ms;
    RepeatableCalls calls(config, hasty, backend);
    ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
    backend.end(backend.runs[0], result_of("A's", place_of(0)));
    EXPECT_THAT(listener.take(1), ElementsAre("call-k A's"));
    ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
    EXPECT_THAT(listener.take(1), ElementsAre("call-k unavailable"));
    write_result(backend.runs[0], "A");
    std::vector<std::string> events;
    const auto deadline = Clock::now() + 30s;
    do {
        ASSERT_FALSE(calls.submit(call_of("call-k", "A"), listener));
        events = listener.take(1);
    } while (events == std::vector<std::string>{"call-k unavailable"} && Clock::now() < deadline);
    EXPECT_THAT(events, ElementsAre(R"(call-k {"text":"A"})"));
    EXPECT_EQ(backend.runs.size(), 1U);
}

TEST_F(RepeatableCallsTest, ACallWhoseResultIsNoLongerThereRunsAgain) {
    RepeatableCalls calls(config, options(), backend);
    ASSERT_FALSE(calls.submit(call_of("call-1", "A"), listener));
    ASSERT_FALSE(calls.submit(call_of("call-2", "A"), listener));
    write_result(backend.runs[0], "deleted");
    write_result("call-2-of another run", "another");
    backend.end(backend.runs[0], result_of("1", place_of(0)));
    backend.end(backend.runs[1], result_of("2", place_of(1)));
    EXPECT_EQ(listener.take(2).size(), 2U);
    broker.delete_records(topics.results(), 0, 1);
    for (const char* id : {"call-1", "call-2"}) {
        ASSERT_FALSE(calls.submit(call_of(id, "A"), listener));
        EXPECT_THAT(listener.take(1), ElementsAre(std::string(id) + " unavailable"));
        ASSERT_FALSE(calls.submit(call_of(id, "A"), listener));
        EXPECT_EQ(kind_of(calls.submit(call_of(id, "A"), listener)), CallRefusal::Kind::running);
    }
    EXPECT_EQ(backend.runs.size(), 4U);
}

// Pins: repeats queued without limit, and were read again although their clients had gone away.
TEST_F(RepeatableCallsTest, RepeatsAreRefusedBeyondTheirNumberAndCancelledOnesMakeRoom) {
    auto few = options();
    few.fetches_max = 2;
    few.fetch_timeout = 5s;
    RepeatableCalls calls(config, few, backend);
    const std::vector<std::string> ids = {"call-0", "call-1", "call-2", "call-3"};
    for (const std::string& id : ids) {
        ASSERT_FALSE(calls.submit(call_of(id, "A"), listener));
        backend.end(backend.runs.back(), result_of("once", place_of(0)));
    }
    EXPECT_EQ(listener.take(4).size(), 4U);
    ASSERT_FALSE(calls.submit(call_of(ids[0], "A"), listener));
    std::this_thread::sleep_for(500ms);  // it is being read, and there is nothing to read
    ASSERT_FALSE(calls.submit(call_of(ids[1], "A"), listener));
    ASSERT_FALSE(calls.submit(call_of(ids[2], "A"), listener));
    EXPECT_EQ(kind_of(calls.submit(call_of(ids[3], "A"), listener)), CallRefusal::Kind::full);
    calls.cancel(ids[0]);
    calls.cancel(ids[1]);
    ASSERT_FALSE(calls.submit(call_of(ids[3], "A"), listener));
    EXPECT_THAT(listener.take(2), ElementsAre("call-2 unavailable", "call-3 unavailable"));
    EXPECT_THAT(backend.runs, ::testing::SizeIs(4));
}

}  // namespace
}  // namespace lorry::consumer
