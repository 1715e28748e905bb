// The ledger's loop against the embedded broker: what the topics say is in the file, also after the file was deleted or belongs elsewhere.
#include "consumer/ledger.h"

#include <unistd.h>

#include <filesystem>

#include "schema/store.h"
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
    std::unique_ptr<Ledger> start() { return Ledger::start(config, {.file = file, .topics = topics}); }

    // Waits until the ledger holds that many jobs; "id:state" of each, sorted.
    std::vector<std::string> jobs(std::size_t count) {
        std::vector<std::string> rows;
        const auto deadline = Clock::now() + 20s;
        do {
            std::this_thread::sleep_for(50ms);
            rows.clear();
            for (const auto& status : schema::Store::open(file, schema::Store::Mode::reader).jobs({})) {
                rows.push_back(status.run.job_id + ":" + schema::name_of(status.state));
            }
        } while (rows.size() < count && Clock::now() < deadline);
        std::sort(rows.begin(), rows.end());
        return rows;
    }
};

TEST_F(LedgerTest, HoldsWhatTheTopicsSayAndGoesOnWhereItStopped) {
    say("a", schema::JobState::running, 0);
    say("a", schema::JobState::completed, 0);
    say("b", schema::JobState::failed, 1);
    register_adapter(
        config, topics.adapters(),
        {.name = "tags", .hash = "aaaa", .path = "tags", .base = "small", .rank_max = 8, .targets = {"q"}, .bytes = 0, .registered = {}});
    const std::vector<std::string> two{"a:completed", "b:failed"};
    {
        const auto ledger = start();
        ASSERT_NE(ledger, nullptr);
        EXPECT_EQ(jobs(2), two);
        const auto deadline = Clock::now() + 15s;
        const auto store = schema::Store::open(file, schema::Store::Mode::reader);
        while (store.adapters().empty() && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
        ledger->set_adapter_state("tags", "aaaa", "failed", "no such folder");
        while (store.adapters().at(0).state != "failed" && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
        EXPECT_EQ(store.adapters().at(0).error, "no such folder");
        EXPECT_FALSE(ledger->stats().failing);
    }
    say("c", schema::JobState::expired, 2);
    const auto ledger = start();
    EXPECT_EQ(jobs(3), (std::vector<std::string>{"a:completed", "b:failed", "c:expired"}));
    EXPECT_EQ(ledger->stats().applied, 1U) << "nothing is read twice";
}

TEST_F(LedgerTest, IsRebuiltAfterItsFileWasDeleted) {
    std::vector<std::string> names;
    for (int i = 0; i < 20; ++i) names.push_back(fmt::format("job-{:02}", i));
    say_all(names, schema::JobState::completed, 0);
    std::vector<std::string> live;
    {
        const auto ledger = start();
        live = jobs(20);
        ASSERT_EQ(live.size(), 20U);
    }
    remove();
    const auto ledger = start();
    EXPECT_EQ(jobs(20), live);
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
    const auto deadline = Clock::now() + 15s;
    while (ledger->stats().applied == 0 && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
    EXPECT_EQ(jobs(1), std::vector<std::string>{"here:completed"});
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
    EXPECT_EQ(jobs(1), std::vector<std::string>{"good:completed"});
    const auto deadline = Clock::now() + 15s;
    while (ledger->stats().refused == 0 && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
    EXPECT_EQ(ledger->stats().refused, 1U);
}

}  // namespace
}  // namespace lorry::consumer
