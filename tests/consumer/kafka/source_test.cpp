// KafkaSource by itself, against the embedded broker: behaviour that a member does not show from outside.
#include "consumer/kafka/source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <set>
#include <thread>

#include "consumer/kafka/producer.h"
#include "tests/support/kafka_source_fixture.h"

namespace lorry::consumer {
namespace {

// A request or a record batch, in Kafka's byte order.
class Bytes {
public:
    template <class Integer>
    Bytes& add(Integer value) {
        for (int shift = static_cast<int>(sizeof value) * 8 - 8; shift >= 0; shift -= 8)
            bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> shift);
        return *this;
    }
    Bytes& add(const std::string& bytes) {
        bytes_ += bytes;
        return *this;
    }
    // After its length.
    template <class Length>
    Bytes& add_counted(const std::string& bytes) {
        return add(static_cast<Length>(bytes.size())).add(bytes);
    }
    const std::string& get() const { return bytes_; }

private:
    std::string bytes_;
};

// Source: RFC 3720, appendix B.4.
std::uint32_t crc32c(const std::string& bytes) {
    std::uint32_t crc = ~0U;
    for (const char byte : bytes) {
        crc ^= static_cast<std::uint8_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 0 ? 0 : 0x82f63b78U);
    }
    return ~crc;
}

// Sends a batch of records whose payload is invalid for `codec` (0: none, 4: zstd, 5: unknown), with its checksum xor `damage`. The
// embedded broker stores it unchanged. Sources: Kafka's protocol guide, Produce version 3; KIP-98 for the batch.
void produce_unreadable(const std::string& address, const std::string& topic, std::int32_t partition, std::int16_t codec,
                        std::int32_t records = 1, std::uint32_t damage = 0) {
    Bytes checked;
    checked.add(codec).add(records - 1);                                                     // last offset delta
    checked.add(std::int64_t{0}).add(std::int64_t{0});                                       // timestamps
    checked.add(std::int64_t{-1}).add(std::int16_t{-1}).add(std::int32_t{-1}).add(records);  // producer; records
    checked.add(std::string(64, '?'));
    Bytes after_length;
    after_length.add(std::int32_t{-1}).add(std::int8_t{2}).add(crc32c(checked.get()) ^ damage).add(checked.get());
    Bytes batch;
    batch.add(std::int64_t{0}).add_counted<std::int32_t>(after_length.get());
    Bytes request;
    request.add(std::int16_t{0}).add(std::int16_t{3}).add(std::int32_t{1}).add(std::int16_t{-1});  // Produce, version 3
    request.add(std::int16_t{-1}).add(std::int16_t{1}).add(std::int32_t{5'000});                   // no transaction, acks, timeout
    request.add(std::int32_t{1}).add_counted<std::int16_t>(topic);
    request.add(std::int32_t{1}).add(partition).add_counted<std::int32_t>(batch.get());
    Bytes frame;
    frame.add_counted<std::int32_t>(request.get());

    const std::size_t mark = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    std::uint16_t port = 0;
    std::from_chars(address.data() + mark + 1, address.data() + address.size(), port);
    to.sin_port = htons(port);
    ASSERT_EQ(inet_pton(AF_INET, address.substr(0, mark).c_str(), &to.sin_addr), 1) << address;
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    ASSERT_EQ(::send(connection, frame.get().data(), frame.get().size(), 0), static_cast<ssize_t>(frame.get().size()));
    std::array<char, 256> answer{};
    ASSERT_GT(::recv(connection, answer.data(), answer.size(), 0), 0);
    ::close(connection);
}

class KafkaSourceTest : public KafkaSourceFixture {
protected:
    std::vector<Delivery> poll_for(KafkaSource& source, std::chrono::milliseconds time) {
        std::vector<Delivery> jobs;
        const auto end = Clock::now() + time;
        while (Clock::now() < end) {
            for (auto& job : source.poll(50ms, 100, handler)) jobs.push_back(std::move(job));
        }
        return jobs;
    }
    std::vector<Delivery> poll_until(KafkaSource& source, std::size_t count) {
        std::vector<Delivery> jobs;
        const auto deadline = Clock::now() + 30s;
        while (jobs.size() < count && Clock::now() < deadline) {
            for (auto& job : source.poll(50ms, 100, handler)) jobs.push_back(std::move(job));
        }
        return jobs;
    }
    void produce_readable(int count, std::int32_t partition = 0) {
        KafkaProducer producer(config, {});
        for (int i = 0; i < count; ++i) {
            ASSERT_TRUE(
                producer.send({.topic = topics.jobs(), .partition = partition, .key = {}, .value = job_line(i), .headers = {}, .tag = 0}));
        }
        producer.wait_all("writing");
    }
    // Submits all jobs to one partition, each followed by `padding` bytes that do not compress.
    void submit_to_one(int count, std::size_t padding = 0) {
        JobProducer producer(config, {.topic = topics.jobs()});
        std::uint32_t noise = 1;
        for (int i = 0; i < count; ++i) {
            std::string line = job_line(i);
            for (std::size_t byte = 0; byte < padding; ++byte) {
                noise = noise * 1'664'525U + 1'013'904'223U;
                line += static_cast<char>(noise >> 24);
            }
            producer.submit(line, "base", static_cast<std::uint64_t>(i));
        }
        producer.finish();
    }
};

// The client sometimes delivers records again when a rebalance interrupts it.
TEST_F(KafkaSourceTest, PassesOverWhatComesASecondTime) {
    submit_to_one(30);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    const auto first = poll_for(source, 3s);
    ASSERT_EQ(first.size(), 30U);
    const schema::Source& place = first[10].record.source;
    const PartitionListHandle back = list_of({{place.topic, place.partition}});
    back->elems[0].offset = place.offset;
    const ErrorHandle refused(rd_kafka_seek_partitions(source.connection().handle(), back.get(), 5'000));
    ASSERT_FALSE(refused);
    submit_to_one(5);
    EXPECT_EQ(poll_for(source, 3s).size(), 5U);
    EXPECT_EQ(tracker.incomplete(), 35U);
    source.close(handler, Clock::now() + 5s);
}

TEST_F(KafkaSourceTest, ReadsRecordsOfEveryCodec) {
    const std::vector<std::string> codecs{"none", "gzip", "snappy", "lz4", "zstd"};
    for (const std::string& codec : codecs) {
        KafkaConfig compressing = config;
        compressing.passthrough["compression.codec"] = codec;
        submit_jobs(compressing, topics, 0, 20);
    }
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    EXPECT_EQ(poll_until(source, 20 * codecs.size()).size(), 20 * codecs.size());
    EXPECT_TRUE(source.unreadable().empty());
    source.close(handler, Clock::now() + 5s);
}

// The client cannot read the record, so its partition is blocked, and the log names it; the others continue.
TEST_F(KafkaSourceTest, NamesTheRecordThatCannotBeReadAndReadsOtherPartitions) {
    produce_unreadable(broker.address(), topics.jobs(), 0, 4);
    produce_unreadable(broker.address(), topics.jobs(), 1, 5);
    submit_jobs(config, topics, 0, 60);
    testing::internal::CaptureStdout();
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    std::vector<Delivery> jobs;
    const auto deadline = Clock::now() + 20s;
    while ((jobs.empty() || source.unreadable().size() < 2) && Clock::now() < deadline) {
        for (auto& job : source.poll(50ms, 100, handler)) jobs.push_back(std::move(job));
    }
    const std::string log = testing::internal::GetCapturedStdout();
    EXPECT_FALSE(jobs.empty()) << log;
    for (const Delivery& job : jobs) EXPECT_EQ(job.record.source.partition, 2);
    const std::vector<UnreadableRecord> unreadable = source.unreadable();
    ASSERT_EQ(unreadable.size(), 2U);
    for (const std::int32_t partition : {0, 1}) {
        const UnreadableRecord& record = unreadable[static_cast<std::size_t>(partition)];
        EXPECT_EQ(record.partition, partition);
        EXPECT_EQ(record.offset, 0);
        EXPECT_THAT(record.reason, ::testing::HasSubstr(partition == 0 ? "zstd" : "0x5"));
        EXPECT_EQ(record.codec, partition == 0 ? "zstd" : "unknown");
        EXPECT_THAT(log, ::testing::HasSubstr(fmt::format("[{}]: the record at offset 0 cannot be read", partition)));
        EXPECT_THAT(log, ::testing::HasSubstr(fmt::format("lorry offsets skip --partition {} --offset 0`", partition)));
    }
    source.close(handler, Clock::now() + 5s);
}

// The records after it, in the same answer of the broker, must not be read either: the group would finish jobs above one that nobody saw.
TEST_F(KafkaSourceTest, ABatchWhoseChecksumIsWrongIsReportedAndBlocksItsPartition) {
    for (const std::int32_t partition : {0, 1}) {
        ASSERT_NO_FATAL_FAILURE(produce_readable(partition * 3, partition));
        produce_unreadable(broker.address(), topics.jobs(), partition, 0, 2, 1);
        ASSERT_NO_FATAL_FAILURE(produce_readable(3, partition));
    }
    testing::internal::CaptureStdout();
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    std::vector<Delivery> jobs = poll_until(source, 3);
    const auto deadline = Clock::now() + 20s;
    while (source.unreadable().size() < 2 && Clock::now() < deadline) {
        for (auto& job : source.poll(50ms, 100, handler)) jobs.push_back(std::move(job));
    }
    for (auto& job : poll_for(source, 500ms)) jobs.push_back(std::move(job));
    const std::string log = testing::internal::GetCapturedStdout();
    ASSERT_EQ(source.unreadable().size(), 2U);
    for (const UnreadableRecord& record : source.unreadable()) {
        EXPECT_EQ(record.offset, record.partition * 3);
        EXPECT_THAT(record.reason, ::testing::HasSubstr("CRC32C"));
        EXPECT_EQ(record.codec, "none");
    }
    EXPECT_EQ(jobs.size(), 3U) << "of partition 1, before the batch";
    EXPECT_THAT(log, ::testing::Not(::testing::HasSubstr("was truncated")))
        << "the client read on inside the batch and took its bytes for an offset";
    source.close(handler, Clock::now() + 5s);
}

// The client says only where a batch begins. Readable records between batches that are not must never count as part of one.
TEST_F(KafkaSourceTest, FindsWhereABatchEndsThatCannotBeRead) {
    const std::string jobs = topics.jobs();
    ASSERT_NO_FATAL_FAILURE(produce_readable(2));
    produce_unreadable(broker.address(), jobs, 0, 4, 11);  // 2 to 12
    produce_unreadable(broker.address(), jobs, 0, 5, 1);   // 13
    ASSERT_NO_FATAL_FAILURE(produce_readable(1));          // 14
    produce_unreadable(broker.address(), jobs, 0, 4, 40);  // 15 to 54
    constexpr std::int64_t end = 55;
    const auto found_at = [&](std::int64_t offset) -> std::pair<std::int64_t, std::int64_t> {
        const auto batch = unreadable_batch_at(config, jobs, 0, offset, end);
        return batch ? std::pair(batch->first, batch->end) : std::pair<std::int64_t, std::int64_t>(-1, -1);
    };
    const std::pair<std::int64_t, std::int64_t> none(-1, -1);
    EXPECT_EQ(found_at(0), none);
    EXPECT_EQ(found_at(2), std::pair(std::int64_t{2}, std::int64_t{13}));
    EXPECT_EQ(found_at(7), std::pair(std::int64_t{7}, std::int64_t{13})) << "only what the group has not finished";
    EXPECT_EQ(found_at(13), std::pair(std::int64_t{13}, std::int64_t{14}));
    EXPECT_EQ(found_at(14), none);
    EXPECT_EQ(found_at(15), std::pair(std::int64_t{15}, end)) << "up to the log's end";
    EXPECT_EQ(found_at(end), none);
}

// Pins: `lorry collect` and `lorry cancel` never ended once the jobs topic had such a record.
TEST_F(KafkaSourceTest, AReaderOfATopicCanGoOnBehindABatchThatCannotBeRead) {
    produce_unreadable(broker.address(), topics.jobs(), 0, 4, 3);
    submit_jobs(config, topics, 0, 30);
    produce_unreadable(broker.address(), topics.jobs(), 1, 5, 1);
    RecordReader reader(config, {.topics = {topics.jobs()}, .passes_unreadable = true});
    std::size_t records = 0;
    const auto deadline = Clock::now() + 30s;
    CatchUp catch_up(reader);
    while (!catch_up.is_done() && Clock::now() < deadline) records += reader.poll(100ms, 1000).size();
    EXPECT_EQ(records, 30U);
    EXPECT_TRUE(catch_up.is_done());
}

// A stuck job must not make the commit metadata overflow: reading stops before, names the job, and goes on when there is room.
TEST_F(KafkaSourceTest, StopsReadingAPartitionBeforeItsMetadataOverflowsAndGoesOnLater) {
    submit_to_one(60);
    OffsetTracker tracker(58);
    KafkaSource source(config, source_options(), tracker);
    testing::internal::CaptureStdout();
    auto jobs = poll_for(source, 3s);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), ::testing::HasSubstr("above the one at offset 0: reading waits at offset"));
    ASSERT_GT(jobs.size(), 4U);
    ASSERT_LT(jobs.size(), 30U);
    EXPECT_EQ(source.counters().held, 1U);
    // Every second job finishes: the worst case for the metadata string.
    std::set<std::int64_t> finished;
    const auto deadline = Clock::now() + 30s;
    std::vector<Delivery> waiting = jobs;
    while (finished.size() < 60 && Clock::now() < deadline) {
        for (std::size_t i = waiting.size(); i-- > 0;) {
            if (i % 2 == 0 && waiting.size() > 1) continue;
            tracker.finish(waiting[i].record.source, waiting[i].epoch);
            finished.insert(waiting[i].record.source.offset);
            waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
        }
        ASSERT_LE(tracker.metadata_chars(), 58U);
        for (auto& job : source.poll(50ms, 100, handler)) waiting.push_back(std::move(job));
    }
    EXPECT_EQ(finished.size(), 60U);
    EXPECT_EQ(source.counters().held, 0U);
    source.close(handler, Clock::now() + 1s);
}

TEST_F(KafkaSourceTest, GoesOnAtTheLogsStartWhenRetentionOvertakesIt) {
    submit_to_one(5);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    const auto first = poll_for(source, 2s);
    ASSERT_EQ(first.size(), 5U);
    // More than the client fetches ahead: most of what it has not fetched is deleted.
    submit_to_one(1'500, 2'000);
    broker.delete_records(topics.jobs(), first[0].record.source.partition, 1'400);
    const auto rest = poll_for(source, 5s);
    ASSERT_GE(rest.size(), 105U);
    EXPECT_LT(rest.size(), 1'500U) << "some were deleted before they were fetched";
    for (std::size_t i = 0; i < 105; ++i) {
        const Delivery& job = rest[rest.size() - 105 + i];
        EXPECT_EQ(job.record.source.offset, 1'400 + static_cast<std::int64_t>(i));
        EXPECT_EQ(job.epoch, first[0].epoch) << "what is in flight goes on";
    }
    for (const auto& job : first) EXPECT_TRUE(tracker.finish(job.record.source, job.epoch));
    source.close(handler, Clock::now() + 1s);
}

TEST_F(KafkaSourceTest, DrainsEverythingWhenClosedAndTheEpochsAreOver) {
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    const auto jobs = poll_for(source, 2s);
    ASSERT_EQ(jobs.size(), 4U);
    bool counted = false;
    handler.on_drain = [&] { counted = tracker.finish(jobs[0].record.source, jobs[0].epoch); };
    source.close(handler, Clock::now() + 1s);
    EXPECT_EQ(handler.drained.size(), inputs);
    EXPECT_TRUE(counted) << "during the drain work still counts";
    EXPECT_FALSE(tracker.finish(jobs[1].record.source, jobs[1].epoch));
    EXPECT_TRUE(tracker.partitions().empty());
}

// A member was suspended while it joined. By the time it is a member again, its partitions belong to another member, but its new
// generation would let it commit for them.
TEST_F(KafkaSourceTest, GivesUpWhatItHadWhenTheGroupDoesNotKnowItAnyMore) {
    constexpr std::int16_t join_group = 11;
    constexpr int unknown_member = 25;
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    const auto jobs = poll_for(source, 2s);
    ASSERT_EQ(jobs.size(), 4U);
    OffsetTracker tracker_two;
    auto options_two = source_options();
    options_two.member = "two";
    KafkaSource second(config, options_two, tracker_two);
    RecordingHandler handler_two;
    static_cast<void>(second.poll(500ms, 0, handler_two));  // asks to join, which makes the first one join again
    broker.fail_requests(join_group, {unknown_member});
    const auto deadline = Clock::now() + 30s;
    while (handler.lost_ones.empty() && Clock::now() < deadline) {
        static_cast<void>(source.poll(20ms, 0, handler));
        static_cast<void>(second.poll(20ms, 0, handler_two));
    }
    ASSERT_FALSE(handler.lost_ones.empty()) << "it kept its partitions";
    for (const Delivery& job : jobs) EXPECT_FALSE(tracker.finish(job.record.source, job.epoch)) << "nothing of it is published";
    source.close(handler, Clock::now() + 1s);
    second.close(handler_two, Clock::now() + 1s);
}

// The group has removed a member that gives up one partition. Its others are no longer its own either, and a new generation would let it
// commit for them.
TEST_F(KafkaSourceTest, LearnsInADrainThatTheGroupHasForgottenItAndGivesUpTheOtherPartitionsToo) {
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    ASSERT_EQ(poll_until(source, 4).size(), 4U);
    bool learned = false;
    handler.on_drain = [&] {
        broker.set_down(true);
        std::this_thread::sleep_for(source_options().session_timeout + 2s);
        broker.set_down(false);
        const auto deadline = Clock::now() + 20s;
        while (!source.has_lost_partitions() && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
        learned = source.has_lost_partitions();
    };
    OffsetTracker tracker_two;
    auto options_two = source_options();
    options_two.member = "two";
    KafkaSource second(config, options_two, tracker_two);
    RecordingHandler handler_two;
    const auto deadline = Clock::now() + 60s;
    while (handler.lost_ones.size() < inputs && Clock::now() < deadline) {
        static_cast<void>(source.poll(20ms, 0, handler));
        static_cast<void>(second.poll(20ms, 0, handler_two));
    }
    EXPECT_TRUE(learned);
    EXPECT_EQ(handler.drained.size(), inputs / 2);
    EXPECT_EQ(handler.lost_ones.size(), inputs) << "it kept the others";
    handler.on_drain = {};
    source.close(handler, Clock::now() + 1s);
    second.close(handler_two, Clock::now() + 1s);
}

// Kafka's newer group protocol: the group has fenced the member, which then rejoins.
TEST_F(KafkaSourceTest, GivesUpWhatItHadWhenTheNewerProtocolsGroupHasFencedIt) {
    constexpr std::int16_t group_heartbeat = 68;
    constexpr int fenced_member_epoch = 110;
    submit_to_one(4);
    OffsetTracker tracker;
    auto options = source_options();
    options.protocol = GroupProtocol::consumer;
    KafkaSource source(config, options, tracker);
    const auto jobs = poll_until(source, 4);
    ASSERT_EQ(jobs.size(), 4U);
    broker.fail_requests(group_heartbeat, {fenced_member_epoch});
    EXPECT_EQ(poll_until(source, 4).size(), 4U) << "it takes its partitions anew, with all that is not finished";
    EXPECT_FALSE(handler.lost_ones.empty()) << "it kept its partitions";
    for (const Delivery& job : jobs) EXPECT_FALSE(tracker.finish(job.record.source, job.epoch)) << "nothing of it is published";
    source.close(handler, Clock::now() + 1s);
}

// A permanent refusal: a worker that retried forever would look healthy but have no partitions.
struct GroupRefusal {
    const char* name;
    GroupProtocol protocol;
    int code;
    const char* says;
};
std::ostream& operator<<(std::ostream& out, const GroupRefusal& refusal) { return out << refusal.name; }

class KafkaSourceRefusals : public KafkaSourceTest, public ::testing::WithParamInterface<GroupRefusal> {};

TEST_P(KafkaSourceRefusals, EndTheWorkerWhichSaysWhatToDo) {
    constexpr std::int16_t join_group = 11;
    constexpr std::int16_t group_heartbeat = 68;
    const GroupRefusal& refusal = GetParam();
    OffsetTracker tracker;
    auto options = source_options();
    options.protocol = refusal.protocol;
    KafkaSource source(config, options, tracker);
    broker.fail_requests(refusal.protocol == GroupProtocol::classic ? join_group : group_heartbeat, {refusal.code});
    try {
        poll_for(source, 10s);
        FAIL() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(refusal.says));
    }
}

// The numbers are Kafka's ("Error Codes" of the protocol guide).
INSTANTIATE_TEST_SUITE_P(Table, KafkaSourceRefusals,
                         ::testing::Values(GroupRefusal{"InconsistentGroupProtocol", GroupProtocol::classic, 23, "another `group`"},
                                           GroupRefusal{"InvalidGroupId", GroupProtocol::classic, 24, "another `group`"},
                                           GroupRefusal{"InvalidSessionTimeout", GroupProtocol::classic, 26,
                                                        "group.max.session.timeout.ms"},
                                           GroupRefusal{"GroupMaxSizeReached", GroupProtocol::classic, 81, "group.max.size"},
                                           GroupRefusal{"GroupForbidden", GroupProtocol::classic, 30, "lacks the right"},
                                           GroupRefusal{"NewerGroupMaxSizeReached", GroupProtocol::consumer, 81, "group.max.size"},
                                           GroupRefusal{"NewerUnsupported", GroupProtocol::consumer, 35, "too old"}),
                         [](const auto& refusal) { return std::string(refusal.param.name); });

class AJobsTopicThatGoesMissing : public KafkaSourceTest {
protected:
    AJobsTopicThatGoesMissing() { config.passthrough = missing_topics_are_noticed(); }
};

// Brokers that are starting may not know the topic yet.
TEST_F(AJobsTopicThatGoesMissing, IsReadOnWhenItIsThereAgain) {
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    ASSERT_EQ(poll_until(source, 4).size(), 4U);
    broker.set_topic_error(topics.jobs(), unknown_topic);
    std::jthread bringing_back([&] {
        std::this_thread::sleep_for(1s);
        broker.set_topic_error(topics.jobs(), 0);
    });
    poll_for(source, 2s);
    bringing_back.join();
    submit_to_one(3);
    std::set<std::int64_t> offsets;
    const auto deadline = Clock::now() + 30s;
    while (!offsets.contains(6) && Clock::now() < deadline) {
        for (const auto& job : source.poll(50ms, 100, handler)) offsets.insert(job.record.source.offset);
    }
    EXPECT_TRUE(offsets.contains(4) && offsets.contains(5) && offsets.contains(6));
    source.close(handler, Clock::now() + 1s);
}

TEST_F(AJobsTopicThatGoesMissing, EndsTheWorkerInTheEndWhichNamesIt) {
    config.deadline_start = 2s;
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    ASSERT_EQ(poll_until(source, 4).size(), 4U);
    broker.set_topic_error(topics.jobs(), unknown_topic);
    try {
        poll_for(source, 15s);
        FAIL() << "the topic is not there";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(topics.jobs()));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry topics create"));
    }
}

// Without room for a job, poll must keep serving the group, and must not return at once, which would make its caller spin.
TEST_F(KafkaSourceTest, ServesTheGroupForTheWholeTimeoutAlsoWithoutRoomForAJob) {
    submit_to_one(4);
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    ASSERT_EQ(poll_for(source, 2s).size(), 4U);
    OffsetTracker tracker_two;
    auto options_two = source_options();
    options_two.member = "two";
    KafkaSource second(config, options_two, tracker_two);
    RecordingHandler handler_two;
    const auto deadline = Clock::now() + 30s;
    while (tracker_two.partitions().empty() && Clock::now() < deadline) {
        const auto start = Clock::now();
        EXPECT_EQ(source.poll(50ms, 0, handler).size(), 0U);
        EXPECT_GE(Clock::now() - start, 50ms);
        static_cast<void>(second.poll(10ms, 0, handler_two));
    }
    EXPECT_FALSE(tracker_two.partitions().empty());
    EXPECT_FALSE(handler.drained.empty()) << "the revoked partition was drained within poll";
    source.close(handler, Clock::now() + 1s);
    second.close(handler_two, Clock::now() + 1s);
}

TEST_F(KafkaSourceTest, ClosesCleanlyBeforeItEverGotAPartition) {
    OffsetTracker tracker;
    KafkaSource source(config, source_options(), tracker);
    source.poll(0ms, 1, handler);
    source.close(handler, Clock::now() + 1s);
    EXPECT_TRUE(handler.drained.empty());
}

}  // namespace
}  // namespace lorry::consumer
