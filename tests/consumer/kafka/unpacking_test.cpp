// What a small compressed batch may become in a worker's memory, against the embedded broker. ops/librdkafka.patch sets the limits.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "consumer/kafka/producer.h"
#include "tests/support/kafka_source_fixture.h"
#include "tests/support/labels.h"

namespace lorry::consumer {
namespace {

// Sanitizers take memory of their own.
const tests::Labelled measures_memory{"UnpackingTest.*", {tests::Label::not_asan, tests::Label::not_tsan}};

constexpr std::size_t mebibyte = 1u << 20;

// Bytes of this process that are in memory now.
std::size_t resident() {
    ::malloc_trim(0);
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0;
    std::size_t pages = 0;
    file >> all >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

class UnpackingTest : public KafkaSourceFixture {
protected:
    // Sends `records`, each with `value`, to one partition; one batch takes as many as fit into 64 MiB.
    void produce(const std::string& codec, const std::string& topic, int records, const std::string& value, std::int32_t partition = 0) {
        KafkaConfig compressing = config;
        compressing.passthrough = {{"compression.codec", codec},
                                   {"linger.ms", "2000"},
                                   {"batch.num.messages", "1000000"},
                                   {"queue.buffering.max.messages", "1000000"}};
        constexpr std::size_t batch = 64 * mebibyte;
        KafkaProducer producer(compressing, {.limits = {.record_bytes_max = batch, .batch_bytes_max = batch}});
        for (int i = 0; i < records; ++i)
            ASSERT_TRUE(producer.send({.topic = topic, .partition = partition, .key = {}, .value = value, .headers = {}, .tag = 0}));
        producer.wait_all("writing");
    }
    // The bytes that this process grows by while the client fetches what comes after the first job, which is polled.
    std::size_t growth_by_fetching(KafkaSource& source) {
        const std::size_t before = resident();
        std::vector<Delivery> jobs;
        const auto deadline = Clock::now() + 30s;
        while (jobs.empty() && Clock::now() < deadline) jobs = source.poll(50ms, 1, handler);
        EXPECT_EQ(jobs.size(), 1U);
        std::this_thread::sleep_for(1s);
        const std::size_t after = resident();
        return after - std::min(after, before);
    }
};

class UnpackingCodecTest : public UnpackingTest, public ::testing::WithParamInterface<std::string> {};

// Pins: only zstd had a limit, of 100 MB.
TEST_P(UnpackingCodecTest, ABatchMayUnpackTo32Mebibytes) {
    ASSERT_NO_FATAL_FAILURE(produce(GetParam(), topics.jobs(), 1, std::string(20 * mebibyte, '0')));
    ASSERT_NO_FATAL_FAILURE(produce(GetParam(), topics.jobs(), 1, std::string(40 * mebibyte, '0')));
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    std::size_t jobs = 0;
    const auto deadline = Clock::now() + 30s;
    while (source.unreadable().empty() && Clock::now() < deadline) jobs += source.poll(50ms, 100, handler).size();
    ASSERT_EQ(source.unreadable().size(), 1U);
    EXPECT_EQ(source.unreadable().front().offset, 1);
    EXPECT_THAT(source.unreadable().front().reason, ::testing::HasSubstr(GetParam()));
    EXPECT_THAT(source.unreadable().front().reason, ::testing::HasSubstr("receive.message.max.bytes"));
    EXPECT_EQ(jobs, 1U);
    source.close(handler, Clock::now() + 5s);
}

INSTANTIATE_TEST_SUITE_P(Codecs, UnpackingCodecTest, ::testing::Values("gzip", "snappy", "lz4", "zstd"),
                         [](const auto& codec) { return codec.param; });

// Pins: a response of half a megabyte became gigabytes, because the client unpacked all its records at once, several hundred bytes each.
TEST_F(UnpackingTest, ABatchOfManyRecordsIsReadAsTheQueueHasRoom) {
    constexpr int records = 600'000;
    ASSERT_NO_FATAL_FAILURE(produce("zstd", topics.jobs(), records, "x"));
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    EXPECT_LT(growth_by_fetching(source), 64 * mebibyte) << "600,000 records at once take over 200 MB";
    // Reading stops and starts again many times within the batch: nothing is left out or comes twice.
    std::int64_t next = 1;
    const auto deadline = Clock::now() + 30s;
    while (next < 50'000 && Clock::now() < deadline) {
        for (const Delivery& job : source.poll(50ms, 1'000, handler)) {
            ASSERT_EQ(job.record.source.offset, next++);
            tracker.finish(job.record.source, job.epoch);
        }
    }
    EXPECT_GE(next, 50'000);
    source.close(handler, Clock::now() + 5s);
}

// Pins: one poll copied the large records of all partitions before any of them was weighed.
TEST_F(UnpackingTest, LargeRecordsArePolledAFewAtATime) {
    for (std::int32_t one = 0; one < partitions; ++one)
        ASSERT_NO_FATAL_FAILURE(produce("zstd", topics.jobs(), 1, std::string(12 * mebibyte, '0'), one));
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    const auto deadline = Clock::now() + 30s;
    while (tracker.partitions().size() < static_cast<std::size_t>(partitions) && Clock::now() < deadline)
        static_cast<void>(source.poll(50ms, 0, handler));
    static_cast<void>(source.poll(2s, 0, handler));  // the client fetches a record of each
    EXPECT_EQ(source.poll(50ms, 100, handler).size(), 2U) << "of three that have arrived";
    EXPECT_EQ(source.poll(5s, 100, handler).size(), 1U);
    source.close(handler, Clock::now() + 5s);
}

// Pins: headers did not count, so the client went on fetching batches of nothing else.
TEST_F(UnpackingTest, HeadersCountAsWhatTheQueueHolds) {
    KafkaConfig compressing = config;
    compressing.passthrough = {{"compression.codec", "zstd"}, {"linger.ms", "0"}};
    KafkaProducer producer(compressing, {.limits = {.record_bytes_max = 32 * mebibyte, .batch_bytes_max = 32 * mebibyte}});
    const std::vector<schema::Header> headers{{"h", std::string(10 * mebibyte, '0')}};
    for (int i = 0; i < 40; ++i) {
        ASSERT_TRUE(producer.send({.topic = topics.jobs(), .partition = 0, .key = {}, .value = job_line(i), .headers = headers, .tag = 0}));
        producer.wait_all("writing");
    }
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    EXPECT_LT(growth_by_fetching(source), 128 * mebibyte) << "all 40 would take 400 MB";
    source.close(handler, Clock::now() + 5s);
}

}  // namespace
}  // namespace lorry::consumer
