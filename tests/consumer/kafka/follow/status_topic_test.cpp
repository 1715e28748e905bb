// The tokens of keys that follow the status topic, against the embedded broker.
#include "consumer/kafka/follow/status_topic.h"

#include "consumer/kafka/client.h"
#include "schema/codec.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

using std::chrono::days;

class StatusTopicTest : public KafkaTest {
protected:
    schema::Status status(std::int64_t offset, const std::string& key, std::int64_t tokens) const {
        schema::Status status;
        status.run = {.job_id = fmt::format("call-{}", offset),
                      .tenant = "search",
                      .key = key,
                      .model = "base",
                      .worker = "w",
                      .source = {topics.calls(), 0, offset},
                      .finished = now};
        status.state = schema::JobState::completed;
        status.usage = {.prompt_tokens = tokens - 1, .completion_tokens = 1};
        return status;
    }
    void write(const std::vector<schema::Status>& statuses) const {
        JobProducer producer(config, {.topic = topics.status()});
        for (const schema::Status& each : statuses) producer.submit(schema::encode_status(each), each.run.job_id, 1);
        producer.finish();
        ASSERT_EQ(producer.counts().delivered, statuses.size());
    }

    // Waits until that much is known to be used.
    static void expect_used(const StatusTopic& topic, const std::string& key, std::chrono::sys_days day, std::int64_t tokens) {
        const auto deadline = Clock::now() + StatusTopic::patience;
        while (topic.used(key, day) != tokens && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
        EXPECT_EQ(topic.used(key, day), tokens);
    }

    const schema::Timestamp now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const std::chrono::sys_days today = std::chrono::floor<days>(now);
    const std::string one = "0123456789abcdef";
    const std::string two = "ffffffffffffffff";
};

TEST_F(StatusTopicTest, AddsUpWhatEachKeyUsedOnADayAndHearsOfMoreWithinTenSeconds) {
    schema::Status running = status(0, one, 10);
    running.state = schema::JobState::running;
    schema::Status yesterday = status(1, one, 500);
    yesterday.run.finished = now - days(1);
    schema::Status long_ago = status(2, one, 500);
    long_ago.run.finished = now - days(3);
    schema::Status failed = status(3, two, 7);
    failed.state = schema::JobState::failed;
    failed.error = R"(bad: "key":"0123456789abcdef")";
    write({running, yesterday, long_ago, failed, status(0, one, 10), status(4, one, 30), status(5, "", 1'000)});
    StatusTopic topic(config, topics.status());
    expect_used(topic, one, today, 40);
    EXPECT_EQ(topic.used(two, today), 7);
    EXPECT_EQ(topic.used("eeeeeeeeeeeeeeee", today), 0);
    EXPECT_EQ(topic.used(one, today - days(1)), 500);
    EXPECT_EQ(topic.used(one, today - days(3)), 0);
    EXPECT_EQ(topic.used(one, today + days(1)), 0) << "after midnight";

    write({status(6, one, 5)});
    expect_used(topic, one, today, 45);
    EXPECT_NO_THROW(topic.check());
}

// As when a worker published a result a second time.
TEST_F(StatusTopicTest, AJobThatEndsTwiceCountsOnceInWhateverOrderJobsEnd) {
    std::vector<schema::Status> statuses;
    for (const int offset : {7, 3, 5, 4, 3, 6, 0, 7, 5, 1, 2, 0}) statuses.push_back(status(offset, one, 10));
    schema::Status other_topic = status(3, one, 1);
    other_topic.run.source.topic = topics.jobs();
    statuses.push_back(other_topic);
    for (const int offset : {1, 2, 6}) statuses.push_back(status(offset, one, 10));
    StatusTopic topic(config, topics.status());
    write(statuses);
    expect_used(topic, one, today, 81);
    write({status(8, one, 10)});
    expect_used(topic, one, today, 91);
}

TEST_F(StatusTopicTest, KnowsNothingWhileTheBrokersAreAway) {
    StatusTopic topic(config, topics.status());
    expect_used(topic, one, today, 0);
    broker.set_down(true);
    const auto becomes = [&](bool known) {
        const auto deadline = Clock::now() + StatusTopic::patience + 10s;
        while (topic.used(one, today).has_value() != known && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
        return topic.used(one, today).has_value() == known;
    };
    EXPECT_TRUE(becomes(false));
    broker.set_down(false);
    EXPECT_TRUE(becomes(true));
}

}  // namespace
}  // namespace lorry::consumer
