// Producers that wait for readers, over an embedded broker, which drops what was not read.
#include "consumer/reading_pace.h"

#include <numeric>
#include <thread>
#include <vector>

#include "consumer/kafka/producer.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/noise.h"

namespace lorry::consumer {
namespace {

class ReadingPaceTest : public KafkaTest {
protected:
    ReadingPace pace;
    ReadingPaceTest() { config.pace = &pace; }
    void write(KafkaProducer& producer, const std::string& value) {
        ASSERT_TRUE(producer.send({.topic = topics.results(), .partition = 0, .key = "key", .value = value, .headers = {}, .tag = 0}));
    }
};

TEST_F(ReadingPaceTest, NothingIsDroppedBeforeItIsRead) {
    constexpr int count = 80;  // of 300 kB: 24 MB. The partition keeps 5 MiB, and the client of a reader fetches 16 MiB ahead
    const std::string value = tests::noise(300'000, 0);
    RecordReader reader(config, {.topics = {topics.results()}, .is_waited_for = true});
    std::jthread writing([&] {
        KafkaProducer producer(config, {});
        for (int i = 0; i < count; ++i) write(producer, value);
        producer.wait_all("a test");
    });
    std::vector<std::int64_t> read;
    const auto deadline = Clock::now() + 30s;
    while (read.size() < count && Clock::now() < deadline) {
        std::this_thread::sleep_for(10ms);  // it is slow
        for (const auto& record : reader.poll(100ms, 2)) read.push_back(record.source.offset);
    }
    std::vector<std::int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(read, all);
}

TEST_F(ReadingPaceTest, OnlyReadersThatAreThereAreWaitedFor) {
    KafkaProducer producer(config, {});
    const RecordReader of_others(config, {.topics = {topics.status()}, .is_waited_for = true});
    { const RecordReader gone(config, {.topics = {topics.results()}, .is_waited_for = true}); }
    const RecordReader another(config, {.topics = {topics.results()}});
    const auto begin = Clock::now();
    for (int i = 0; i < 10; ++i) write(producer, tests::noise(300'000, i));
    producer.wait_all("a test");
    EXPECT_LT(Clock::now() - begin, 15s);
}

TEST_F(ReadingPaceTest, AReaderThatDoesNotReadIsAnError) {
    config.deadline_later = 200ms;
    KafkaProducer producer(config, {});
    const RecordReader reader(config, {.topics = {topics.results()}, .is_waited_for = true});
    try {
        for (int i = 0; i < 10; ++i) write(producer, tests::noise(300'000, i));
        ADD_FAILURE() << "nothing was waited for";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("what was written before is not read"));
    }
}

}  // namespace
}  // namespace lorry::consumer
