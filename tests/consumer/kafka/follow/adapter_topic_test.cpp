// What a job's model name means by the adapters topic, against the embedded broker.
#include "consumer/kafka/follow/adapter_topic.h"

#include <unistd.h>

#include <filesystem>

#include "consumer/kafka/client.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/producer.h"
#include "schema/codec.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

using Kind = ModelName::Kind;

class AdapterTopicTest : public KafkaTest {
protected:
    std::filesystem::path root = std::filesystem::temp_directory_path() / fmt::format("adapters-{}", ::getpid());
    AdapterTopicTest() { std::filesystem::create_directories(root / "inside"); }
    ~AdapterTopicTest() override { std::filesystem::remove_all(root); }

    void add(const std::string& name, const std::string& hash, const std::string& path) {
        register_adapters(
            config, topics.adapters(),
            {{.name = name, .hash = hash, .path = path, .base = "small", .rank_max = 8, .targets = {}, .bytes = 0, .registered = {}}});
    }
    AdapterTopic::Options options() {
        return {.topic = topics.adapters(), .adapters_root = root, .base_names = {"base", "small"}, .grace = 600ms};
    }
    static std::string text_of(const ModelName& name) {
        switch (name.kind) {
            case Kind::base: return "base";
            case Kind::adapter: return name.hash + " in " + name.folder.filename().string();
            case Kind::not_yet: return "not yet";
            case Kind::unknown: return "unknown";
            case Kind::refused: return "refused";
        }
        return "?";
    }
    static std::string eventually(const std::function<std::string()>& ask, const std::string& wanted) {
        const auto deadline = Clock::now() + 15s;
        while (ask() != wanted && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
        return ask();
    }
};

TEST_F(AdapterTopicTest, KnowsTheLatestRegistrationAndPinnedOlderOnes) {
    add("tags", "aaaa", "inside/old");
    add("tags", "bbbb", "inside/new");
    AdapterTopic directory(config, options());
    directory.wait_until_read(Clock::now() + 15s);
    const auto now = Clock::now();
    EXPECT_EQ(text_of(directory.resolve("base", now)), "base");
    EXPECT_EQ(text_of(directory.resolve("small", now)), "base");
    EXPECT_EQ(text_of(directory.resolve("tags", now)), "bbbb in new");
    EXPECT_EQ(text_of(directory.resolve("tags@aaaa", now)), "aaaa in old");
    EXPECT_EQ(text_of(directory.resolve("tags@bbbb", now)), "bbbb in new");
    EXPECT_EQ(directory.names(), std::vector<std::string>{"tags"});
    EXPECT_EQ(directory.counters().registered, 2U);
}

TEST_F(AdapterTopicTest, SaysWhichTextAndHowManyTokensAnAdapterHas) {
    register_adapters(config, topics.adapters(),
                      {{.name = "chats", .hash = "cccc", .path = "inside", .base = "small", .text = "0af3", .vocabulary = 500}});
    add("tags", "aaaa", "inside/old");
    AdapterTopic directory(config, options());
    directory.wait_until_read(Clock::now() + 15s);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(directory.resolve("chats", Clock::now()).text_hash, "0af3") << "asked " << i + 1 << " times";
    EXPECT_EQ(directory.resolve("chats", Clock::now()).vocabulary, 500);
    EXPECT_EQ(directory.resolve("chats", Clock::now()).text_key(), "0af3/500");
    EXPECT_EQ(directory.resolve("tags", Clock::now()).text_hash, "");
    EXPECT_EQ(directory.resolve("tags", Clock::now()).text_key(), "");
}

// A job may arrive before its adapter's registration: it waits for a while, and only then is the name unknown.
TEST_F(AdapterTopicTest, AnUnknownNameIsUnknownOnlyAfterTheTopicWasReadAndTheGraceIsOver) {
    AdapterTopic directory(config, options());
    directory.wait_until_read(Clock::now() + 15s);
    const auto polled = Clock::now();
    EXPECT_EQ(text_of(directory.resolve("late", polled)), "not yet");
    add("late", "cccc", "inside");
    EXPECT_EQ(eventually([&] { return text_of(directory.resolve("late", polled)); }, "cccc in inside"), "cccc in inside");
    const auto asked = Clock::now();
    EXPECT_EQ(text_of(directory.resolve("never", asked)), "not yet");
    EXPECT_EQ(eventually([&] { return text_of(directory.resolve("never", asked)); }, "unknown"), "unknown");
    EXPECT_GE(Clock::now() - asked, 600ms);
}

// Pins: thousands of jobs for a mistyped name waited ten seconds in each window and held up all other jobs.
TEST_F(AdapterTopicTest, JobsForANameThatWasWaitedForInVainWaitNoMoreUntilTheTopicTellsOfIt) {
    auto patient = options();
    patient.grace = 2s;
    AdapterTopic directory(config, patient);
    directory.wait_until_read(Clock::now() + 15s);
    const auto ask = [&](std::string_view model, Clock::time_point polled) { return text_of(directory.resolve(model, polled)); };
    // How long a job that arrives now has to wait.
    const auto wait_for_never = [&] {
        const auto polled = Clock::now();
        EXPECT_EQ(eventually([&] { return ask("never", polled); }, "unknown"), "unknown");
        return Clock::now() - polled;
    };
    EXPECT_GE(wait_for_never(), 2s);
    for (int job = 0; job < 3; ++job) EXPECT_LT(wait_for_never(), 1s) << "once the topic has been read, there is nothing more to wait for";
    add("other", "aaaa", "inside");
    EXPECT_EQ(eventually([&] { return ask("other", Clock::now()); }, "aaaa in inside"), "aaaa in inside");
    EXPECT_LT(wait_for_never(), 1s) << "no record has that name";

    add("never", "bbbb", "inside");
    EXPECT_EQ(eventually([&] { return ask("never", Clock::now()); }, "bbbb in inside"), "bbbb in inside");
    remove_adapter(config, topics.adapters(), "never");
    EXPECT_EQ(eventually([&] { return ask("never", Clock::now()); }, "not yet"), "not yet");
    EXPECT_GE(wait_for_never(), 1s) << "the name was registered before and may be again";
    std::this_thread::sleep_for(2100ms);
    EXPECT_GE(wait_for_never(), 2s) << "no job has asked for it lately, so its registration may be on the way";
}

// Pins: jobs for 40,000 different names waited, all of them, and everyone's jobs behind them.
TEST_F(AdapterTopicTest, NoFurtherNameIsWaitedForWhileAThousandAre) {
    AdapterTopic::Options patient = options();
    patient.grace = 600s;
    AdapterTopic directory(config, patient);
    directory.wait_until_read(Clock::now() + 15s);
    const auto polled = Clock::now();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(text_of(directory.resolve(fmt::format("ghost-{}", i), polled)), "not yet");
    EXPECT_EQ(eventually([&] { return text_of(directory.resolve("one-more", polled)); }, "unknown"), "unknown");
    EXPECT_EQ(text_of(directory.resolve("ghost-999", polled)), "not yet");
}

TEST_F(AdapterTopicTest, ATombstoneRemovesTheNameAndBadRecordsAreCountedNotTaken) {
    add("gone", "aaaa", "inside");
    remove_adapter(config, topics.adapters(), "gone");
    add("base", "dddd", "inside");
    {
        JobProducer producer(config, {.topic = topics.adapters()});
        producer.submit("not JSON", "broken", 1);
        producer.finish();
    }
    add("last", "eeee", "inside");
    AdapterTopic directory(config, options());
    directory.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(directory.names(), std::vector<std::string>{"last"});
    EXPECT_EQ(directory.counters().removed, 1U);
    EXPECT_EQ(directory.counters().refused, 2U);
    EXPECT_EQ(text_of(directory.resolve("base", Clock::now())), "base");
}

TEST_F(AdapterTopicTest, NoFolderOutsideTheRootIsEverReached) {
    std::filesystem::create_directory_symlink("/tmp", root / "link");
    EXPECT_EQ(folder_below(root, "inside"), std::filesystem::weakly_canonical(root) / "inside");
    EXPECT_TRUE(folder_below(root, "not/there/yet"));
    EXPECT_TRUE(folder_below(root, "inside/../inside"));
    EXPECT_FALSE(folder_below(root, "../elsewhere"));
    EXPECT_FALSE(folder_below(root, ".."));
    EXPECT_FALSE(folder_below(root, "inside/../../elsewhere"));
    EXPECT_FALSE(folder_below(root, "/etc"));
    EXPECT_FALSE(folder_below(root, "link/x"));
    EXPECT_FALSE(folder_below(root, "."));
    EXPECT_FALSE(folder_below(root, ""));
    EXPECT_FALSE(folder_below(root, "../" + root.filename().string() + "-twin"));
}

// Pins: an empty root was the folder in which the worker had been started.
TEST_F(AdapterTopicTest, WithoutARootNoAdapterIsLoaded) {
    add("tags", "aaaa", "inside");
    AdapterTopic::Options rootless = options();
    rootless.adapters_root.clear();
    AdapterTopic directory(config, rootless);
    directory.wait_until_read(Clock::now() + 15s);
    const ModelName model = directory.resolve("tags", Clock::now());
    EXPECT_EQ(model.kind, ModelName::Kind::refused);
    EXPECT_THAT(model.refusal, ::testing::HasSubstr("without --adapters"));
}

// Pins: a start with thousands of adapters must not wait for their folders, which may be on a network drive.
TEST_F(AdapterTopicTest, AFolderIsLookedUpWhenItsFirstJobAsksAndNotBefore) {
    constexpr std::uint64_t count = 1000;
    std::vector<schema::AdapterRegistration> many;
    for (std::uint64_t i = 0; i < count; ++i)
        many.push_back({.name = fmt::format("a{}", i),
                        .hash = "aaaa",
                        .path = fmt::format("later/{}", i),
                        .base = "small",
                        .rank_max = 8,
                        .targets = {},
                        .bytes = 0,
                        .registered = {}});
    register_adapters(config, topics.adapters(), many);
    AdapterTopic directory(config, options());
    directory.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(directory.counters().known, count);
    EXPECT_EQ(directory.counters().looked_up, 0U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of(directory.resolve("a7", Clock::now())), "aaaa in 7");
    EXPECT_EQ(directory.counters().looked_up, 1U);
    // What counts is the folder as it is now, not as it was when it was registered.
    std::filesystem::create_directory_symlink("/tmp", root / "later");
    EXPECT_EQ(text_of(directory.resolve("a8", Clock::now())), "refused");
}

TEST_F(AdapterTopicTest, SaysSoWhenTheTopicCannotBeReadInTime) {
    AdapterTopic directory(config, options());
    broker.set_down(true);
    EXPECT_THROW(directory.wait_until_read(Clock::now() + 700ms), KafkaError);
    broker.set_down(false);
}

class ControlTopicTest : public KafkaTest {
protected:
    // Writes records to one partition of the jobs topic.
    void fill(std::int32_t partition, int count) {
        KafkaProducer producer(config, {});
        for (int i = 0; i < count; ++i) {
            ASSERT_TRUE(
                producer.send({.topic = topics.jobs(), .partition = partition, .key = "k", .value = "{}", .headers = {}, .tag = 0}));
        }
        producer.wait_all("filling");
    }
    // As earlier versions sent it.
    void send_cancel_without_offsets(const std::string& id) { send({.id = id}); }
    void send(const schema::Cancel& cancel) {
        KafkaProducer producer(config, {});
        const std::string& id = cancel.id;
        const std::string value = schema::encode_cancel(cancel);
        ASSERT_TRUE(
            producer.send({.topic = topics.control(), .partition = std::nullopt, .key = id, .value = value, .headers = {}, .tag = 0}));
        producer.wait_all("cancelling");
    }
    schema::Job job_at(std::int32_t partition, std::int64_t offset, const std::string& id, const std::string& batch = "") const {
        schema::Job job;
        job.source = {.topic = topics.jobs(), .partition = partition, .offset = offset};
        job.id = id;
        job.batch_id = batch;
        job.submitted = now() + 1h;
        return job;
    }
    static schema::Timestamp now() { return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now()); }
};

// Pins: a job whose producer set a timestamp in the future could not be cancelled.
TEST_F(ControlTopicTest, CancelsJobsAndBatchesThatWereInTheJobsTopicBeforeWhateverTheirTimestamps) {
    fill(0, 3);
    fill(2, 1);
    send_cancels(config, topics, {{.id = "job-1"}, {.id = "batch-1", .is_batch = true}});
    ControlTopic cancels(config, {.topics = topics});
    cancels.wait_until_read(Clock::now() + 15s);
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 2, "job-1")));
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 3, "job-1"))) << "submitted again later";
    EXPECT_FALSE(cancels.is_cancelled(job_at(1, 0, "job-1"))) << "submitted again later";
    EXPECT_TRUE(cancels.is_cancelled(job_at(2, 0, "job-1")));
    EXPECT_FALSE(cancels.is_cancelled(job_at(partitions, 0, "job-1"))) << "a partition that was created later";
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 2, "job-2")));
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 0, "batch-1/job-9", "batch-1")));
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 3, "batch-1/job-9", "batch-1")));
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 0, "x", "job-1"))) << "the id of a job must not match a batch";
    fill(1, 1);
    const auto version = cancels.version();
    send_cancels(config, topics, {{.id = "job-1"}});
    const auto deadline = Clock::now() + 15s;
    while (cancels.version() == version && Clock::now() < deadline) std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(cancels.is_cancelled(job_at(1, 0, "job-1")));
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 2, "job-1")));
}

// Pins: a cancel of a job reached calls of the same id, and one of a call reached jobs.
TEST_F(ControlTopicTest, CancelsTheCallAtAPlace) {
    const auto call_at = [&](std::int32_t partition, std::int64_t offset) {
        schema::Job call = job_at(partition, offset, "call-1");
        call.source.topic = topics.calls();
        return call;
    };
    send({.id = "call-1", .call = call_at(1, 7).source});
    send({.id = "call-1", .call = schema::Source{"other.calls", 1, 7}});
    fill(0, 1);
    send_cancels(config, topics, {{.id = "job-1"}});
    ControlTopic cancels(config, {.topics = topics});
    cancels.wait_until_read(Clock::now() + 15s);
    EXPECT_TRUE(cancels.is_cancelled(call_at(1, 7)));
    EXPECT_FALSE(cancels.is_cancelled(call_at(1, 6)));
    EXPECT_FALSE(cancels.is_cancelled(call_at(2, 7)));
    EXPECT_FALSE(cancels.is_cancelled(job_at(1, 7, "call-1"))) << "a job of that id and place";
    schema::Job call = call_at(0, 0);
    call.id = "job-1";
    EXPECT_FALSE(cancels.is_cancelled(call)) << "a call of that id";
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 0, "job-1")));
    EXPECT_EQ(cancels.counters().known, 2U) << "not that of a topic which this worker does not read";
}

TEST_F(ControlTopicTest, ACancelWithoutOffsetsComparesTimestamps) {
    send_cancel_without_offsets("job-1");
    ControlTopic cancels(config, {.topics = topics});
    cancels.wait_until_read(Clock::now() + 15s);
    schema::Job job = job_at(0, 5, "job-1");
    EXPECT_FALSE(cancels.is_cancelled(job)) << "it seems to be submitted later";
    job.submitted = now() - 1h;
    EXPECT_TRUE(cancels.is_cancelled(job));
    job.submitted.reset();
    EXPECT_TRUE(cancels.is_cancelled(job));
}

// Pins: what is older was decided by timestamps, which producers set, and equal ones were all forgotten.
TEST_F(ControlTopicTest, ForgetsTheHalfThatItReadFirstInsteadOfGrowing) {
    fill(0, 1);
    std::vector<schema::Cancel> nine;
    for (int i = 0; i < 9; ++i) nine.push_back({.id = fmt::format("job-{}", i)});
    send_cancels(config, topics, nine);
    ControlTopic cancels(config, {.topics = topics, .cancels_max = 8});
    cancels.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(cancels.counters().known, 5U);
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 0, "job-8")));
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 0, "job-4")));
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 0, "job-3")));
    EXPECT_EQ(cancels.version(), 9U);
}

TEST_F(ControlTopicTest, ForgetsWhatTakesTooMuchMemory) {
    fill(0, 1);
    std::vector<schema::Cancel> long_ones;
    for (int i = 0; i < 9; ++i) long_ones.push_back({.id = std::string(900, 'x') + std::to_string(i)});
    send_cancels(config, topics, long_ones);
    ControlTopic cancels(config, {.topics = topics, .bytes_max = 9'000});
    cancels.wait_until_read(Clock::now() + 15s);
    EXPECT_EQ(cancels.counters().known, 5U);
    EXPECT_TRUE(cancels.is_cancelled(job_at(0, 0, long_ones[8].id)));
    EXPECT_FALSE(cancels.is_cancelled(job_at(0, 0, long_ones[0].id)));
}

}  // namespace
}  // namespace lorry::consumer
