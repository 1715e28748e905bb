// The ledger's loop against the embedded broker: the file holds what the topics say, even after it was deleted or is another cluster's.
#include "consumer/kafka/follow/ledger.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "schema/store/store.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

class LedgerTest : public KafkaTest {
protected:
    std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("ledger-{}.db", ::getpid());
    LedgerTest() { remove(); }
    ~LedgerTest() override { remove(); }
    void remove() const {
        for (const char* suffix : {"", "-wal", "-shm", ".lock"}) std::filesystem::remove(file.string() + suffix);
    }

    void say(const std::string& job, schema::JobState state, std::int64_t offset) { say_all({job}, state, offset); }
    void say_all(const std::vector<std::string>& jobs, schema::JobState state, std::int64_t offset) {
        JobProducer producer(config, {.topic = topics.status()});
        for (const std::string& job : jobs) {
            schema::Status status;
            status.run.job_id = job;
            status.run.model = "base";
            status.run.worker = "w";
            status.run.source = {topics.jobs(), 0, offset++};
            status.run.attempt = 1;
            status.state = state;
            producer.submit(schema::encode_status(status), job, 1);
        }
        producer.finish();
    }
    std::unique_ptr<Ledger> start(std::int64_t days = 30) { return Ledger::start(config, {.file = file, .topics = topics, .days = days}); }

    // Waits: the ledger writes its rows first and counts them afterwards.
    static bool comes_true(const std::function<bool()>& condition) {
        const auto deadline = Clock::now() + 20s;
        while (!condition() && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
        return condition();
    }
    bool applies(const Ledger& ledger, std::uint64_t records) const {
        return comes_true([&] { return ledger.stats().applied >= records; }) && ledger.stats().applied == records;
    }

    // "id:state" of every job in the file, sorted.
    std::vector<std::string> jobs() const {
        std::vector<std::string> rows;
        for (const auto& status : schema::Store::open(file, schema::Store::Mode::reader).jobs({}))
            rows.push_back(status.run.job_id + ":" + schema::name_of(status.state));
        std::sort(rows.begin(), rows.end());
        return rows;
    }
    // Waits until the jobs equal `expected` and returns them; after the deadline, returns the jobs as they are.
    std::vector<std::string> jobs_after_waiting_for(const std::vector<std::string>& expected) const {
        comes_true([&] { return jobs() == expected; });
        return jobs();
    }
    // Everything known about the jobs.
    std::string rows() const {
        std::vector<std::string> rows;
        for (const auto& status : schema::Store::open(file, schema::Store::Mode::reader).jobs({}))
            rows.push_back(schema::encode_status(status));
        std::sort(rows.begin(), rows.end());
        return fmt::format("{}", fmt::join(rows, "\n"));
    }
    void expect_jobs(const std::vector<std::string>& expected) const { EXPECT_EQ(jobs_after_waiting_for(expected), expected); }
};

TEST_F(LedgerTest, HoldsWhatTheTopicsSayAndGoesOnWhereItStopped) {
    say("a", schema::JobState::running, 0);
    say("a", schema::JobState::completed, 0);
    say("b", schema::JobState::failed, 1);
    register_adapters(
        config, topics.adapters(),
        {{.name = "tags", .hash = "aaaa", .path = "tags", .base = "small", .rank_max = 8, .targets = {"q"}, .bytes = 0, .registered = {}}});
    {
        const auto ledger = start();
        ASSERT_NE(ledger, nullptr);
        expect_jobs({"a:completed", "b:failed"});
        const auto store = schema::Store::open(file, schema::Store::Mode::reader);
        ASSERT_TRUE(comes_true([&] { return !store.adapters().empty(); }));
        ledger->set_adapter_state("tags", "aaaa", "failed", "no such folder");
        EXPECT_TRUE(comes_true([&] { return store.adapters().at(0).state == "failed"; }));
        EXPECT_EQ(store.adapters().at(0).error, "no such folder");
        EXPECT_FALSE(ledger->stats().failing);
    }
    say("c", schema::JobState::expired, 2);
    const auto ledger = start();
    expect_jobs({"a:completed", "b:failed", "c:expired"});
    EXPECT_TRUE(applies(*ledger, 1)) << "nothing is read twice";
}

// The topic also holds running statuses, redeliveries and repeated ends, in random order.
TEST_F(LedgerTest, IsRebuiltEqualInAllColumnsAfterItsFileWasDeleted) {
    constexpr int count = 40;
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const auto time = [&] { return schema::Timestamp(std::chrono::milliseconds(4'000'000'000'000 + static_cast<int>(random() % 1000))); };
    std::vector<std::string> said;
    for (int i = 0; i < count; ++i) {
        for (std::uint64_t times = 1 + random() % 3; times > 0; --times) {
            schema::Status status;
            status.run = {.job_id = fmt::format("job-{}", i),
                          .batch_id = i % 2 == 0 ? "batch" : "",
                          .model = "tags",
                          .adapter = "aaaa",
                          .worker = fmt::format("w{}", random() % 2),
                          .source = {topics.jobs(), i % 3, i},
                          .attempt = static_cast<std::int64_t>(random() % 5),
                          .submitted = time(),
                          .started = time(),
                          .finished = time()};
            const bool failed = random() % 2 == 0;
            status.state = failed ? schema::JobState::failed : schema::JobState::completed;
            status.usage = {.prompt_tokens = static_cast<std::int64_t>(random() % 50), .completion_tokens = 2, .cached_tokens = 1};
            if (failed) status.error = "adapter_failed: no such folder";
            said.push_back(schema::encode_status(status));
            status.state = schema::JobState::running;
            status.run.finished.reset();
            said.push_back(schema::encode_status(status));
        }
    }
    std::shuffle(said.begin(), said.end(), random);
    {
        JobProducer producer(config, {.topic = topics.status(), .spread = 16});
        for (std::size_t i = 0; i < said.size(); ++i) producer.submit(said[i], "key", i);
        producer.finish();
    }
    const auto read = [&] {
        const auto ledger = start();
        EXPECT_TRUE(applies(*ledger, said.size()));
        return rows();
    };
    const std::string live = read();
    EXPECT_EQ(static_cast<int>(std::count(live.begin(), live.end(), '\n')), count - 1);
    EXPECT_EQ(live.find("running"), std::string::npos) << live;
    remove();
    EXPECT_EQ(read(), live);
}

// Adds a row to the file that is in no topic, and changes the position up to which a partition was read.
class SpoiledLedger : public LedgerTest {
protected:
    SpoiledLedger() { say("here", schema::JobState::completed, 0); }
    void spoil(const std::string& topic_id, std::int64_t next) const {
        auto store = schema::Store::open(file, schema::Store::Mode::writer);
        schema::Status status;
        status.run.job_id = "elsewhere";
        status.run.source = {topics.jobs(), 0, 7};
        status.state = schema::JobState::completed;
        ASSERT_FALSE(store.offsets().empty());
        const schema::AppliedOffset applied = store.offsets().front();
        store.apply({.statuses = {status}, .adapters = {}, .offsets = {{applied.topic, topic_id, applied.partition, next}}});
    }
    std::vector<std::string> read(std::uint64_t records) {
        const auto ledger = start();
        EXPECT_TRUE(applies(*ledger, records)) << records << " records are read";
        return jobs();
    }
};

TEST_F(SpoiledLedger, IsRebuiltWhenATopicIsShorterThanItWas) {
    EXPECT_EQ(read(1), std::vector<std::string>{"here:completed"});
    spoil("", 1'000);
    EXPECT_EQ(read(1), std::vector<std::string>{"here:completed"});
}

// The ledger is kept because it holds more than the topics, whose records expire sooner.
TEST_F(SpoiledLedger, IsKeptWhereTheBrokersDoNotSayWhetherATopicWasMadeAnew) {
    EXPECT_EQ(read(1), std::vector<std::string>{"here:completed"});
    spoil("an id", 1);
    say("later", schema::JobState::completed, 1);
    EXPECT_EQ(read(1), (std::vector<std::string>{"elsewhere:completed", "here:completed", "later:completed"}));
}

TEST_F(LedgerTest, ForgetsJobsThatEndedTooLongAgo) {
    {
        JobProducer producer(config, {.topic = topics.status()});
        const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
        for (int age = 0; age < 6; ++age) {
            schema::Status status;
            status.run.job_id = fmt::format("{} days", age);
            status.run.source = {topics.jobs(), 0, age};
            status.run.finished = now - std::chrono::days(age);
            status.state = schema::JobState::completed;
            producer.submit(schema::encode_status(status), "key", 1);
        }
        producer.finish();
    }
    {
        const auto keeps_all = start(0);
        EXPECT_TRUE(applies(*keeps_all, 6));
        EXPECT_EQ(jobs().size(), 6U);
    }
    const auto ledger = start(3);
    expect_jobs({"0 days:completed", "1 days:completed", "2 days:completed"});
}

// A ledger that stopped for good would become stale while its worker is healthy.
TEST_F(LedgerTest, IsFollowedAgainWhenTheBrokersComeBack) {
    say("before", schema::JobState::completed, 0);
    config.deadline_start = 500ms;
    config.deadline_later = 500ms;
    const auto ledger = start();
    expect_jobs({"before:completed"});
    broker.set_down(true);
    EXPECT_TRUE(comes_true([&] { return ledger->stats().failing; }));
    broker.set_down(false);
    config.deadline_start = 15s;
    config.deadline_later = 20s;
    say("after", schema::JobState::completed, 1);
    expect_jobs({"after:completed", "before:completed"});
    EXPECT_TRUE(comes_true([&] { return !ledger->stats().failing; }));
    EXPECT_TRUE(applies(*ledger, 2)) << "nothing is read twice";
}

TEST_F(LedgerTest, IsRebuiltWhenItTellsOfAnotherCluster) {
    say("here", schema::JobState::completed, 0);
    {
        auto store = schema::Store::open(file, schema::Store::Mode::writer);
        store.set_cluster_id("another");
        schema::Status status;
        status.run.job_id = "elsewhere";
        status.run.source = {topics.jobs(), 0, 7};
        status.state = schema::JobState::completed;
        store.apply({.statuses = {status}, .adapters = {}, .offsets = {{topics.status(), "", 0, 3}}});
    }
    const auto ledger = start();
    EXPECT_TRUE(applies(*ledger, 1));
    expect_jobs({"here:completed"});
}

TEST_F(LedgerTest, IsLeftToTheProcessThatKeepsItAlready) {
    const auto first = start();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(start(), nullptr);
}

TEST_F(LedgerTest, CountsARecordThatIsNoStatusAndGoesOn) {
    {
        JobProducer producer(config, {.topic = topics.status()});
        producer.submit("nonsense", "x", 1);
        producer.finish();
    }
    say("good", schema::JobState::completed, 0);
    const auto ledger = start();
    expect_jobs({"good:completed"});
    EXPECT_TRUE(comes_true([&] { return ledger->stats().refused == 1; }));
}

}  // namespace
}  // namespace lorry::consumer
