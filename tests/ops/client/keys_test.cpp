// `lorry keys`: what it writes, what it shows, and what it refuses.
#include <thread>

#include "consumer/kafka/follow/key_topic.h"
#include "schema/key.h"
#include "tests/ops/client/fixture.h"
#include "tests/support/labels.h"
#include "tests/support/real_broker.h"

namespace lorry::ops {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

class KeyCommands : public ClientTest {
protected:
    std::vector<schema::KeyRecord> stored() const {
        std::vector<schema::KeyRecord> keys;
        for (const schema::JobRecord& record : records(topics.keys())) {
            const auto key = schema::parse_key(record.value.value());
            EXPECT_TRUE(key) << key.error();
            if (!key) continue;
            EXPECT_EQ(record.key, key->id);
            keys.push_back(*key);
        }
        return keys;
    }
};

TEST_F(KeyCommands, AKeyIsMadeShownOnceListedAndRevoked) {
    const Call create = lorry({"keys", "create", "--tenant", "search", "--name", "indexer"});
    ASSERT_EQ(create.code, 0) << create.err;
    const std::string key = trimmed(create.out);
    EXPECT_THAT(key, MatchesRegex("lorry-[0-9a-f]{16}-[0-9a-f]{64}"));
    const std::string id = key.substr(6, 16);
    EXPECT_THAT(create.err, AllOf(HasSubstr(id), HasSubstr("Keep it now"), HasSubstr("does not expire"), Not(HasSubstr(key.substr(23)))));

    const auto keys = stored();
    ASSERT_THAT(keys, SizeIs(1));
    EXPECT_EQ(keys[0].id, id);
    EXPECT_EQ(keys[0].hash, schema::sha256_of(key));
    EXPECT_EQ(keys[0].tenant, "search");
    EXPECT_FALSE(keys[0].scopes.models || keys[0].scopes.batches || keys[0].scopes.admin || keys[0].expires)
        << "nothing that was not asked for";
    for (const schema::JobRecord& record : records(topics.keys())) EXPECT_THAT(*record.value, Not(HasSubstr(key.substr(23))));

    const Call list = lorry({"keys", "list"});
    EXPECT_THAT(list.out, AllOf(HasSubstr(id), HasSubstr("indexer"), HasSubstr("valid"), HasSubstr("shared models")));
    for (const Call& call : {list, lorry({"keys", "list", "--json"})}) {
        EXPECT_THAT(call.out, Not(HasSubstr(schema::to_hex(keys[0].hash))));
        EXPECT_THAT(call.out, Not(HasSubstr(key.substr(23))));
    }

    const Call revoke = lorry({"keys", "revoke", id});
    EXPECT_EQ(revoke.code, 0) << revoke.err;
    EXPECT_THAT(revoke.err, HasSubstr(id + ": revoked; it was indexer of tenant search"));
    EXPECT_TRUE(stored().back().revoked);
    EXPECT_EQ(stored().back().hash, keys[0].hash) << "the rest of the record stays";
    EXPECT_THAT(lorry({"keys", "list"}).out, HasSubstr("revoked"));
    const Call again = lorry({"keys", "revoke", id});
    EXPECT_EQ(again.code, 0);
    EXPECT_THAT(again.err, HasSubstr("was revoked at"));
    EXPECT_THAT(stored(), SizeIs(2));
}

TEST_F(KeyCommands, ScopesLimitsAndExpiryAreWrittenAndShown) {
    const auto create = [&](const std::string& urls) {
        return lorry({"keys",
                      "create",
                      "--tenant",
                      "a",
                      "--name",
                      "n",
                      "--models",
                      "mail,base",
                      "--urls",
                      urls,
                      "--batches",
                      "--admin",
                      "--expires",
                      "90d",
                      "--requests-per-minute",
                      "60",
                      "--tokens-per-minute",
                      "10000",
                      "--calls-at-once",
                      "4",
                      "--batch-jobs",
                      "100000",
                      "--json"});
    };
    const Call wrong = create("/v1/embeddings,classify");
    EXPECT_EQ(wrong.code, 2) << "urls begin with '/'";
    EXPECT_THAT(wrong.err, HasSubstr("--urls: 'classify' is not served; allowed are /v1/chat/completions, "));
    const Call right = create("/v1/embeddings,/classify");
    ASSERT_EQ(right.code, 0) << right.err;
    const auto keys = stored();
    ASSERT_THAT(keys, SizeIs(1));
    EXPECT_THAT(*keys[0].scopes.models, ElementsAre("mail", "base"));
    EXPECT_THAT(*keys[0].scopes.endpoints, ElementsAre(schema::Endpoint::embeddings, schema::Endpoint::classify));
    EXPECT_EQ(*keys[0].expires - keys[0].created, std::chrono::days(90));
    EXPECT_EQ(keys[0].limits.requests_per_minute, 60);
    EXPECT_EQ(keys[0].limits.tokens_per_minute, 10'000);
    EXPECT_EQ(keys[0].limits.calls_at_once, 4);
    EXPECT_EQ(keys[0].limits.batch_jobs, 100'000);
    // --json: the record without its hash, and the key.
    const auto object = schema::Json::parse(right.out);
    ASSERT_TRUE(object);
    EXPECT_EQ(schema::sha256_of(*object->find("key")->as_string()), keys[0].hash);
    EXPECT_EQ(object->find("sha256"), nullptr);
    EXPECT_THAT(lorry({"keys", "list"}).out, AllOf(HasSubstr("models mail,base; urls /v1/embeddings,/classify; batches; admin"),
                                                   HasSubstr("60 requests/min, 10,000 tokens/min, 4 at once, 100,000 batch jobs")));
}

TEST_F(KeyCommands, AStarStandsForAllModels) {
    ASSERT_EQ(lorry({"keys", "create", "--tenant", "a", "--name", "n", "--models", "*"}).code, 0);
    EXPECT_TRUE(schema::allows_all_models(stored().at(0).scopes));
    EXPECT_THAT(lorry({"keys", "list"}).out, HasSubstr("all models"));
}

TEST_F(KeyCommands, ListsByTenantAndSaysWhatHasExpiredOrCannotBeRead) {
    for (const char* tenant : {"b", "a"}) ASSERT_EQ(lorry({"keys", "create", "--tenant", tenant, "--name", "n"}).code, 0);
    consumer::write_keys(config, topics.keys(),
                         {{.id = "0000000000000001", .tenant = "a", .name = "late", .expires = schema::Timestamp(1s)}});
    publish(topics.keys(), "broken", {"{}"});
    const Call all = lorry({"keys", "list"});
    EXPECT_EQ(all.code, 0);
    EXPECT_THAT(lines_of(all.out), ElementsAre(HasSubstr("ID"), HasSubstr("expired"), HasSubstr(" a "), HasSubstr(" b ")));
    EXPECT_THAT(all.err, HasSubstr("the record of \"broken\" in lorry.keys"));
    EXPECT_THAT(lines_of(lorry({"keys", "list", "--tenant", "b", "--json"}).out), ElementsAre(HasSubstr(R"("tenant":"b")")));
    EXPECT_THAT(lorry({"keys", "list", "--tenant", "c"}).err, HasSubstr("there are no keys"));
}

TEST_F(KeyCommands, WhatIsNoKeyIsRefused) {
    const std::vector<std::string> create = {"keys", "create", "--tenant", "a", "--name", "n"};
    const auto refused = [&](std::vector<std::string> more) {
        std::vector<std::string> arguments = create;
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Call call = lorry(arguments);
        EXPECT_EQ(call.code, 2) << call.out;
        return call.err;
    };
    EXPECT_THAT(refused({"--expires", "soon"}), HasSubstr("--expires is 'soon'; allowed is a time such as 90d"));
    EXPECT_THAT(refused({"--expires", "0s"}), HasSubstr("--expires"));
    EXPECT_THAT(refused({"--models", "a/b"}), HasSubstr("--models: 'a/b' cannot be an adapter's name"));
    EXPECT_THAT(refused({"--requests-per-minute", "0"}), HasSubstr("--requests-per-minute"));
    EXPECT_EQ(lorry({"keys", "create", "--tenant", "a"}).code, 2) << "a name is needed";
    EXPECT_THAT(lorry({"keys", "create", "--tenant", "a\nb", "--name", "n"}).err, HasSubstr("cannot be a key's tenant"));
    EXPECT_THAT(lorry({"keys", "create", "--tenant", std::string(201, 'x'), "--name", "n"}).err, HasSubstr("1 to 200 bytes"));
    EXPECT_THAT(stored(), IsEmpty());

    const Call unknown = lorry({"keys", "revoke", "0123456789abcdef"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("there is no key of that id"));
    // A key on the command line is not repeated in the message.
    const std::string key = "lorry-0123456789abcdef-" + std::string(64, 'a');
    const Call whole = lorry({"keys", "revoke", key});
    EXPECT_EQ(whole.code, 2);
    EXPECT_THAT(whole.err, AllOf(HasSubstr("takes ids, not keys"), Not(HasSubstr("aaaa"))));
}

const tests::Labelled keys_on_a_real_broker{"RealKafkaKeys.*", {tests::Label::real_kafka}};

// The embedded broker has no compaction and no topic creation.
TEST(RealKafkaKeys, AreKeptInACompactedTopicThatTopicsCreateMakes) {
    const auto broker = tests::real_broker();
    if (!broker) GTEST_SKIP() << tests::no_real_broker;
    const std::string& address = broker->address;
    const std::string prefix = fmt::format("keys-{}", getpid());
    const auto lorry = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--brokers", address, "--prefix", prefix});
        return call(std::move(arguments));
    };
    const Call missing = lorry({"keys", "create", "--tenant", "a", "--name", "n"});
    EXPECT_EQ(missing.code, 1);
    EXPECT_THAT(missing.err, HasSubstr(prefix + ".keys"));
    const Call created = lorry({"topics", "create", "--partitions", "1"});
    ASSERT_EQ(created.code, 0) << created.err;
    EXPECT_THAT(created.out, HasSubstr(prefix + ".keys"));
    const Call make = lorry({"keys", "create", "--tenant", "a", "--name", "n"});
    ASSERT_EQ(make.code, 0) << make.err;
    const std::string id = make.out.substr(6, 16);

    // A gateway that follows the topic hears of the revocation in time.
    consumer::KeyTopic keys({.brokers = address}, prefix + ".keys");
    keys.wait_until_read(std::chrono::steady_clock::now() + 30s);
    ASSERT_TRUE(keys.find(id));
    EXPECT_FALSE(keys.find(id)->revoked);
    ASSERT_EQ(lorry({"keys", "revoke", id}).code, 0);
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!keys.find(id)->revoked && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(keys.find(id)->revoked);
    EXPECT_TRUE(keys.is_current());
    EXPECT_THAT(lorry({"keys", "list"}).out, AllOf(HasSubstr(id), HasSubstr("revoked")));
}

}  // namespace
}  // namespace lorry::ops
