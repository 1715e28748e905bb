// What the program's own commands do with Kafka, against the embedded broker: submit, read, create topics and report errors.
#include "consumer/kafka/client.h"

#include <limits>
#include <set>
#include <thread>

#include "consumer/kafka/admin.h"
#include "consumer/kafka/producer.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

TEST(KafkaConfigTable, RefusesTheKeysThatTheProtocolOwnsAndSaysWhy) {
    const auto problem = [](const std::string& key, const std::string& value) -> std::string {
        try {
            check_kafka_config({.brokers = "localhost:1", .passthrough = {{key, value}}});
        } catch (const KafkaConfigError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_THAT(problem("isolation.level", "read_uncommitted"), ::testing::HasSubstr("must not see what was never committed"));
    EXPECT_THAT(problem("bootstrap.servers", "x"), ::testing::HasSubstr("--brokers"));
    EXPECT_THAT(problem("no.such.key", "1"), ::testing::HasSubstr("no.such.key"));
    EXPECT_THAT(problem("linger.ms", "soon"), ::testing::HasSubstr("linger.ms"));
    EXPECT_THAT(problem("security.protocol", "SASL_TLS"), ::testing::HasSubstr("\"SASL_TLS\"")) << "it chooses among words";
    EXPECT_EQ(problem("linger.ms", "7"), "");
    EXPECT_EQ(problem("sasl.pasword", "hunter2"), "[kafka] sasl.pasword: librdkafka has no such setting; check how it is spelt");
    for (const char* key : {"sasl.jaas.config", "bootstrap.servers", "transactional.id", "ssl.key.pem", "sasl.oauthbearer.config"}) {
        EXPECT_THAT(problem(key, "hunter2"), ::testing::Not(::testing::HasSubstr("hunter2"))) << "a secret must not be printed";
    }
    try {
        check_kafka_config({.brokers = "worker:hunter2@broker:9092"});
        FAIL() << "brokers with a password are refused";
    } catch (const KafkaConfigError& error) {
        EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("sasl.password"), ::testing::Not(::testing::HasSubstr("hunter2"))));
    }
    EXPECT_THROW(check_kafka_config({}), KafkaConfigError);
}

TEST(KafkaDeadline, NamesTheBrokersAndWhatToDoWhenNobodyAnswers) {
    // Nothing listens there: without a deadline the client would retry forever.
    const KafkaConfig config{.brokers = "127.0.0.1:1", .passthrough = {}, .deadline_start = 1500ms, .deadline_later = 2s};
    const auto start = Clock::now();
    try {
        describe_cluster(config);
        FAIL() << "there is no broker";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("127.0.0.1:1"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("Connection refused"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("Check that the brokers run"));
    }
    EXPECT_LT(Clock::now() - start, 8s);
}

using KafkaClientTest = KafkaTest;

// Pins: a worker took a topic for truncated when the brokers had been away, or when only records had arrived that it ignores.
TEST_F(KafkaClientTest, ReadingToAnEndIsQuietOnlyWhereNothingComesThoughBrokersAnswer) {
    const std::pair<std::string, std::int32_t> place{topics.jobs(), 0};
    RecordReader reader(config, {.positions = {{place.first, place.second, 0}}, .positions_only = true});
    std::size_t taken = 0;
    const auto read_until = [&](const std::function<bool(const RecordReader::Behind&)>& is_enough) {
        const auto deadline = Clock::now() + 15s;
        return reader.read_to(
            {{place, 100}}, [&](const auto& behind) { return Clock::now() < deadline && !is_enough(behind); },
            [&](const schema::JobRecord&) { ++taken; });
    };
    std::chrono::milliseconds quiet{0};
    EXPECT_FALSE(read_until([&](const RecordReader::Behind& behind) { return (quiet = behind.quiet) > 1s; }));
    EXPECT_GT(quiet, 1s);

    KafkaProducer producer(config, {});
    bool is_written = false;
    EXPECT_FALSE(read_until([&](const RecordReader::Behind& behind) {
        if (behind.quiet > 500ms && !std::exchange(is_written, true)) {
            EXPECT_TRUE(producer.send({.topic = place.first,
                                       .partition = place.second,
                                       .key = schema::filler_key,
                                       .value = std::nullopt,
                                       .headers = {},
                                       .tag = 0}));
            producer.wait_all("writing a filler");
        }
        quiet = behind.quiet;
        return behind.position.next > 0;
    }));
    EXPECT_TRUE(is_written);
    EXPECT_EQ(quiet, 0ms) << "a filler ends the quiet time";
    EXPECT_EQ(taken, 0U);

    broker.set_down(true);
    std::optional<Clock::time_point> away_since;
    EXPECT_FALSE(read_until([&](const RecordReader::Behind& behind) {
        if (!reader.is_away()) return false;
        if (!away_since) away_since = Clock::now();
        quiet = behind.quiet;
        return quiet > 0ms || Clock::now() > *away_since + 2s;
    }));
    EXPECT_TRUE(away_since);
    EXPECT_EQ(quiet, 0ms) << "time without a broker is not quiet time";
    broker.set_down(false);
}

// Pins: see StoreTest.ATimeBeyondTheYear9999CountsAsMissing. Producers set the times of their records.
TEST_F(KafkaClientTest, ARecordsTimeBeyondTheYear9999CountsAsNone) {
    constexpr std::int64_t last = 253'402'300'799'999;
    const KafkaConnection producer(config, KafkaConnection::Kind::producer, {});
    std::string text = "x";
    for (const std::int64_t time : {std::int64_t{1'000}, last, last + 1, std::numeric_limits<std::int64_t>::max()}) {
        ASSERT_EQ(rd_kafka_producev(producer.handle(), RD_KAFKA_V_TOPIC(topics.jobs().c_str()), RD_KAFKA_V_PARTITION(0),
                                    RD_KAFKA_V_VALUE(text.data(), text.size()), RD_KAFKA_V_TIMESTAMP(time), RD_KAFKA_V_END),
                  RD_KAFKA_RESP_ERR_NO_ERROR);
        ASSERT_EQ(rd_kafka_flush(producer.handle(), 10'000), RD_KAFKA_RESP_ERR_NO_ERROR);
    }
    std::vector<std::optional<std::int64_t>> times;
    for (const schema::JobRecord& record : read_all(config, topics.jobs())) {
        times.push_back(record.timestamp ? std::optional(record.timestamp->time_since_epoch().count()) : std::nullopt);
    }
    EXPECT_THAT(times, ::testing::ElementsAre(1'000, last, std::nullopt, std::nullopt));
}

// librdkafka only logs this and retries forever.
TEST_F(KafkaClientTest, SaysWhatTheBrokerDidNotUnderstandWhenSecurityIsSetWrong) {
    config.passthrough = {{"security.protocol", "ssl"}};
    config.deadline_start = 2s;
    try {
        describe_cluster(config);
        FAIL() << "the broker speaks no TLS";
    } catch (const KafkaError& error) {
        // The broker may close the connection first; then the client reports the state in which that happened.
        EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::HasSubstr("SSL handshake failed"), ::testing::HasSubstr("SSL_HANDSHAKE")));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("security.protocol"));
    }
}

TEST_F(KafkaClientTest, SubmitsLinesByteForByteUnderTheModelsKey) {
    const std::string odd = "{\"custom_id\": \"\xc3\xa4\",  \"x\":\t1}";
    JobProducer producer(config, {.topic = topics.jobs(), .batch_id = "batch-7", .deadline = schema::Timestamp(1234ms)});
    producer.submit(odd, "tagger", 1);
    producer.submit("second", "tagger", 2);
    producer.finish();
    const auto records = read_all(config, topics.jobs());
    ASSERT_EQ(records.size(), 2U);
    EXPECT_EQ(records[0].value, odd);
    EXPECT_EQ(records[0].key, "tagger");
    EXPECT_EQ(records[0].headers, (std::vector<schema::Header>{{"batch_id", "batch-7"}, {"deadline", "1234"}}));
    EXPECT_TRUE(records[0].timestamp.has_value());
    EXPECT_EQ(records[0].source.partition, records[1].source.partition) << "jobs of one model must be in one partition";
}

TEST_F(KafkaClientTest, SpreadsAHotModelOverKeys) {
    JobProducer producer(config, {.topic = topics.jobs(), .spread = 4});
    for (std::uint64_t i = 0; i < 8; ++i) producer.submit("{}", "hot", i);
    producer.finish();
    std::multiset<std::string> keys;
    for (const auto& record : read_all(config, topics.jobs())) keys.insert(record.key.value());
    EXPECT_EQ(keys, (std::multiset<std::string>{"hot#0", "hot#0", "hot#1", "hot#1", "hot#2", "hot#2", "hot#3", "hot#3"}));
}

TEST_F(KafkaClientTest, CountsALineThatIsTooLargeAsFailedAndSendsTheRest) {
    std::vector<std::string> failures;
    JobProducer producer(config,
                         {.topic = topics.jobs(), .message_bytes_max = 100'000, .on_failure = [&](const JobProducer::Failure& failure) {
                              failures.push_back(fmt::format("line {}: {}", failure.line, failure.reason));
                          }});
    producer.submit("first", "base", 1);
    producer.submit(std::string(200'000, 'x'), "base", 2);
    producer.submit("third", "base", 3);
    producer.finish();
    EXPECT_EQ(failures, std::vector<std::string>{"line 2: larger than topic lorry.jobs accepts"});
    EXPECT_EQ(producer.counts().delivered, 2U);
    EXPECT_EQ(producer.counts().failed, 1U);
    EXPECT_EQ(read_all(config, topics.jobs()).size(), 2U);
}

TEST_F(KafkaClientTest, ReadsFromTheStartFromTheEndAndFromWhereItWas) {
    submit_jobs(config, topics, 0, 20);
    RecordReader from_end(config, {.topics = {topics.jobs()}, .start = RecordReader::End{}});
    RecordReader first(config, {.topics = {topics.jobs()}});
    EXPECT_EQ(first.remaining(), 20);
    std::size_t read = 0;
    while (read < 12) read += first.poll(1s, 12 - read).size();
    EXPECT_FALSE(CatchUp(first).is_done());
    RecordReader second(config, {.topics = {topics.jobs()}, .positions = first.positions()});
    std::size_t rest = 0;
    const auto deadline = Clock::now() + 15s;
    for (CatchUp catch_up(second); !catch_up.is_done() && Clock::now() < deadline;) rest += second.poll(100ms, 100).size();
    EXPECT_EQ(rest, 8U);
    EXPECT_EQ(second.remaining(), 0);

    submit_jobs(config, topics, 20, 3);
    std::size_t fresh = 0;
    while (fresh < 3 && Clock::now() < deadline) fresh += from_end.poll(100ms, 100).size();
    EXPECT_EQ(fresh, 3U);
}

// Pins: a broker answers the requests of a connection in order, and a fetch that finds nothing takes 100 ms. A reader that fetched
// from one partition before it asked about the next would take 8 s here.
TEST(KafkaReader, BeginsWithManyPartitionsWithoutWaitingForTheirFetches) {
    const EmbeddedBroker broker(broker_options(80));
    const KafkaConfig config{.brokers = broker.address(), .passthrough = {}};
    const auto begin = Clock::now();
    const RecordReader reader(config, {.topics = {schema::Topics().jobs()}});
    EXPECT_EQ(reader.ends_at_start().size(), 80U);
    EXPECT_LT(Clock::now() - begin, 4s);
}

TEST_F(KafkaClientTest, LeavesOutRecordsFromBeforeTheTimeAskedFor) {
    submit_jobs(config, topics, 0, 5);
    std::this_thread::sleep_for(20ms);
    const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    submit_jobs(config, topics, 5, 4);
    RecordReader reader(config, {.topics = {topics.jobs()}, .start = now});
    std::size_t read = 0;
    const auto deadline = Clock::now() + 15s;
    for (CatchUp catch_up(reader); !catch_up.is_done() && Clock::now() < deadline;) read += reader.poll(100ms, 100).size();
    EXPECT_EQ(read, 4U);
}

// Pins: `lorry collect` and `lorry submit --wait` went on for as long as other batches wrote results.
TEST_F(KafkaClientTest, AReaderCatchesUpWhileOthersWrite) {
    submit_jobs(config, topics, 0, 4);
    RecordReader reader(config, {.topics = {topics.jobs()}});
    CatchUp catch_up(reader);
    EXPECT_FALSE(catch_up.is_done());
    std::size_t read = 0;
    int written = 4;
    const auto deadline = Clock::now() + 15s;
    while (!catch_up.is_done() && Clock::now() < deadline) {
        submit_jobs(config, topics, written++, 1);
        read += reader.poll(1s, 1).size();
    }
    EXPECT_TRUE(catch_up.is_done());
    EXPECT_GE(read, 4U);
    EXPECT_LT(read, static_cast<std::size_t>(written)) << "there is always more to read";
    catch_up.begin_again();
    EXPECT_FALSE(catch_up.is_done());
}

// Pins: the client reports no error for the partitions of a leader that does not answer, and no offset; that counted as an empty log.
TEST_F(KafkaClientTest, AnEndIsUnknownWhileItsLeaderDoesNotAnswer) {
    submit_jobs(config, topics, 0, 4);
    RecordReader reader(config, {.topics = {topics.jobs()}});
    const auto deadline = Clock::now() + 15s;
    while (!reader.ends_now(RecordReader::EndKind::readable) && Clock::now() < deadline) reader.poll(50ms);
    ASSERT_TRUE(reader.ends_now(RecordReader::EndKind::readable)) << "then the client knows the leaders";
    broker.set_down(true);
    EXPECT_FALSE(reader.ends_now(RecordReader::EndKind::readable));
    CatchUp catch_up(reader);
    EXPECT_FALSE(catch_up.is_done());
}

TEST_F(KafkaClientTest, SaysHowToCreateATopicThatIsMissing) {
    try {
        RecordReader reader(config, {.topics = {"lorri.results"}});
        FAIL() << "there is no such topic";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("has no topic lorri.results"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry topics create"));
    }
}

// Brokers that are starting may not know the topic yet.
TEST_F(KafkaClientTest, ReadsOnWhenATopicThatWentMissingIsThereAgain) {
    submit_jobs(config, topics, 0, 5);
    auto restless = config;
    restless.passthrough = missing_topics_are_noticed();
    RecordReader reader(restless, {.topics = {topics.jobs()}});
    std::size_t read = 0;
    const auto deadline = Clock::now() + 30s;
    while (read < 5 && Clock::now() < deadline) read += reader.poll(100ms, 100).size();
    broker.set_topic_error(topics.jobs(), unknown_topic);
    std::jthread bringing_back([&] {
        std::this_thread::sleep_for(1s);
        broker.set_topic_error(topics.jobs(), 0);
    });
    const auto missing_end = Clock::now() + 2s;
    while (Clock::now() < missing_end) read += reader.poll(100ms, 100).size();
    bringing_back.join();
    submit_jobs(config, topics, 5, 3);
    while (read < 8 && Clock::now() < deadline) read += reader.poll(100ms, 100).size();
    EXPECT_EQ(read, 8U);
}

TEST_F(KafkaClientTest, CreatesTopicsOnTheEmbeddedBrokerByAskingForThem) {
    EXPECT_TRUE(describe_cluster(config).embedded);
    const auto outcomes = create_topics(
        config, {{.name = topics.jobs(), .partitions = partitions, .config = {}}, {.name = "fresh", .partitions = 4, .config = {}}});
    ASSERT_EQ(outcomes.size(), 2U);
    EXPECT_EQ(outcomes[0].kind, TopicOutcome::Kind::exists);
    EXPECT_TRUE(outcomes[0].differences.empty());
    EXPECT_NO_THROW(RecordReader(config, {.topics = {"fresh"}}));
}

}  // namespace
}  // namespace lorry::consumer
