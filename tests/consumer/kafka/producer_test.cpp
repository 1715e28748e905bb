// The producer of chunks, running statuses and the program's own commands: errors that affect more than one record.
#include "consumer/kafka/producer.h"

#include <memory>
#include <thread>

#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

class KafkaProducerTest : public KafkaTest {
protected:
    int delivered = 0;
    std::unique_ptr<KafkaProducer> producer;

    KafkaProducerTest() {
        config.passthrough = missing_topics_are_noticed();
        config.deadline_later = 5s;
        producer =
            std::make_unique<KafkaProducer>(config, KafkaProducer::Options{.on_delivery = [this](const KafkaProducer::Delivery& one) {
                                                EXPECT_EQ(one.error, RD_KAFKA_RESP_ERR_NO_ERROR);
                                                ++delivered;
                                            }});
    }
    void send() {
        const auto sent =
            producer->send({.topic = topics.chunks(), .partition = std::nullopt, .key = "key", .value = "{}", .headers = {}, .tag = 0});
        EXPECT_TRUE(sent.has_value());
    }
    void send_and_wait() {
        send();
        producer->wait_all("a test");
    }
};

TEST_F(KafkaProducerTest, WaitsForATopicThatWentMissing) {
    send_and_wait();
    lose(topics.chunks());
    std::jthread bringing_back([&] {
        std::this_thread::sleep_for(1s);
        broker.set_topic_error(topics.chunks(), 0);
    });
    send_and_wait();
    bringing_back.join();
    EXPECT_EQ(delivered, 2);
}

TEST_F(KafkaProducerTest, NamesTheTopicThatDoesNotComeBack) {
    send_and_wait();
    lose(topics.chunks());
    try {
        send();
        FAIL() << "the topic is not there";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(topics.chunks()));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry topics create"));
    }
}

// The client gives back records that wait to be sent again, and nobody keeps them, so the producer fails at once.
TEST_F(KafkaProducerTest, EndsAtOnceWhenARecordWasOnItsWayToTheTopicThatWentMissing) {
    constexpr std::int16_t produce_request = 0;
    constexpr int not_leader = 6;
    send_and_wait();
    broker.fail_requests(produce_request, std::vector<int>(1'000, not_leader));
    send();
    lose(topics.chunks());
    try {
        producer->wait_all("a test");
        FAIL() << "the topic is not there";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(fmt::format("writing to {}: ", topics.chunks())));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry topics create"));
    }
    EXPECT_EQ(delivered, 1);
}

TEST_F(KafkaProducerTest, EndsWhatIsSentWhenTheClientCannotGoOn) {
    send_and_wait();
    rd_kafka_test_fatal_error(producer->connection().handle(), RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, "a test");
    try {
        send_and_wait();
        FAIL() << "the client is of no use any more";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("the client cannot continue"));
    }
}

}  // namespace
}  // namespace lorry::consumer
