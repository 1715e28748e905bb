// The table of keys that follows the keys topic, against the embedded broker.
#include "consumer/kafka/follow/key_topic.h"

#include "consumer/kafka/client.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

class KeyTopicTest : public KafkaTest {
protected:
    static schema::KeyRecord key(const std::string& id, const std::string& tenant) {
        return {.id = id, .tenant = tenant, .name = "test", .hash = schema::sha256_of(id)};
    }
    void write(const schema::KeyRecord& record) const { write_keys(config, topics.keys(), {record}); }
    // Writes any value under any key.
    void write(const std::string& id, const std::string& value) const {
        JobProducer producer(config, {.topic = topics.keys()});
        producer.submit(value, id, 1);
        producer.finish();
        ASSERT_EQ(producer.counts().delivered, 1U);
    }
    static std::string text_of(const KeyTopic& keys, const std::string& id) {
        const auto found = keys.find(id);
        if (!found) return "unknown";
        return found->tenant + (found->revoked ? ", revoked" : "");
    }
    static void expect_soon(const KeyTopic& keys, const std::string& id, const std::string& wanted) {
        const auto deadline = Clock::now() + 5s;
        while (text_of(keys, id) != wanted && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
        EXPECT_EQ(text_of(keys, id), wanted);
    }

    const std::string one = "0123456789abcdef";
    const std::string two = "ffffffffffffffff";
};

TEST_F(KeyTopicTest, KnowsTheKeysThatAreThereAndHearsOfNewAndRevokedOnesWithinFiveSeconds) {
    write(key(one, "old name"));
    write(key(one, "search"));
    KeyTopic keys(config, topics.keys());
    keys.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(text_of(keys, one), "search") << "the last record counts";
    EXPECT_EQ(text_of(keys, two), "unknown");

    write(key(two, "mail"));
    expect_soon(keys, two, "mail");
    schema::KeyRecord revoked = key(one, "search");
    revoked.revoked = schema::Timestamp(1s);
    write(revoked);
    expect_soon(keys, one, "search, revoked");
    EXPECT_EQ(keys.counters().known, 2U);
    EXPECT_EQ(keys.counters().refused, 0U);
    EXPECT_NO_THROW(keys.check());
}

// A gateway of an older version cannot tell whether the record revokes the key.
TEST_F(KeyTopicTest, ARecordThatCannotBeReadTakesItsKeyAway) {
    write(key(one, "search"));
    write(key(two, "mail"));
    write(one, R"({"id":"0123456789abcdef","state":"new"})");
    write(two, schema::encode_key(key(one, "mail")));  // another key's record
    KeyTopic keys(config, topics.keys());
    keys.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(text_of(keys, one), "unknown");
    EXPECT_EQ(text_of(keys, two), "unknown");
    EXPECT_EQ(keys.counters().refused, 2U);
    write(key(one, "search"));
    expect_soon(keys, one, "search");
}

TEST_F(KeyTopicTest, IsCurrentWhileTheBrokersAnswerAndAgainAfterwards) {
    write(key(one, "search"));
    KeyTopic keys(config, topics.keys());
    keys.wait_until_read(Clock::now() + 15s);
    EXPECT_TRUE(keys.is_current());
    std::this_thread::sleep_for(KeyTopic::patience + 1s);
    EXPECT_TRUE(keys.is_current()) << "nobody has asked meanwhile";
    broker.set_down(true);
    const auto becomes = [&](bool wanted) {
        const auto deadline = Clock::now() + 15s;
        while (keys.is_current() != wanted && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
        return keys.is_current() == wanted;
    };
    EXPECT_TRUE(becomes(false));
    broker.set_down(false);
    EXPECT_TRUE(becomes(true));
    EXPECT_EQ(text_of(keys, one), "search");
}

TEST_F(KeyTopicTest, AMissingTopicIsAnErrorThatNamesIt) {
    try {
        const KeyTopic keys(config, "other.keys");
        ADD_FAILURE() << "it read a topic that does not exist";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("other.keys"));
    }
}

}  // namespace
}  // namespace lorry::consumer
