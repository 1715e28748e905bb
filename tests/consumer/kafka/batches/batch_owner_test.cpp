// Owners of batches over an embedded broker; the test plays the workers.
#include "consumer/kafka/batches/batch_owner.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <set>

#include "consumer/kafka/batches/batch_topics.h"
#include "consumer/kafka/producer.h"
#include "consumer/reading_pace.h"
#include "schema/secret.h"
#include "tests/support/fake_batches.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/noise.h"

namespace lorry::consumer {
namespace {

using schema::BatchRecord;
using schema::BatchState;
using testing::IsEmpty;
using testing::Le;

constexpr std::string_view line_number_header = "batch_line";

std::string input_of(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += fmt::format(R"({{"custom_id":"id-{}","method":"POST","url":"/v1/completions","body":{{}}}})", i) + "\n";
    return text;
}

class BatchOwnerTest : public testing::Test {
protected:
    // One partition of jobs, so that they have one order.
    explicit BatchOwnerTest(int partitions = 1, ReadingPace* pace = nullptr)
        : broker(broker_options(partitions)),
          config{.brokers = broker.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s, .pace = pace} {}

    BatchOwner::Options options() const {
        return {.topics = topics, .run = {.base_name = "tiny", .ahead = 10, .slice_lines = 5, .part_bytes = 600}};
    }
    using Change = std::function<void(BatchRecord&)>;
    BatchRecord create(const std::string& tenant, int count, const Change& change = {}) { return create(tenant, input_of(count), change); }
    // Its input is stored, but nobody knows of it yet.
    BatchRecord draft(const std::string& tenant, const std::string& input) {
        BatchRecord batch = {.id = schema::draw_batch_id(),
                             .tenant = tenant,
                             .input_file = schema::draw_file_id(),
                             .endpoint = schema::Endpoint::completions,
                             .created = 1,
                             .expires = 4'000'000'000};
        store.put(batch.input_file, input);
        return batch;
    }
    BatchRecord create(const std::string& tenant, const std::string& input, const Change& change = {}) {
        BatchRecord batch = draft(tenant, input);
        if (change) change(batch);
        EXPECT_TRUE(known.add_file({.id = batch.input_file, .tenant = tenant, .created = 1}));
        EXPECT_TRUE(known.add_batch(batch));
        return batch;
    }
    // Jobs that came since the last call. All are remembered in `sent`.
    std::size_t read_jobs() {
        const auto records = jobs.poll(50ms);
        sent.insert(sent.end(), records.begin(), records.end());
        return records.size();
    }
    static std::string header_of(const schema::JobRecord& job, std::string_view name) {
        const std::string* value = schema::find_header(job.headers, name);
        return value == nullptr ? "" : *value;
    }
    // Answers the jobs that have no answer yet.
    void answer() {
        const std::string id = tests::noise(result_id_bytes, 0);
        for (; answered < sent.size(); ++answered) {
            const schema::JobRecord& job = sent[answered];
            const std::string result = fmt::format(
                R"({{"id":"{}","custom_id":"id-{}","response":{{"status_code":200,"request_id":"r","body":{{}}}},"error":null}})", id,
                header_of(job, line_number_header));
            std::vector<schema::Header> headers;
            for (const std::string_view name : {schema::batch_id_header, line_number_header})
                headers.emplace_back(std::string(name), header_of(job, name));
            ASSERT_TRUE(worker.send({.topic = topics.results(), .partition = 0, .key = "r", .value = result, .headers = headers}));
        }
        worker.wait_all("answering");
    }
    std::size_t sent_of(const std::string& tenant) const {
        return static_cast<std::size_t>(
            std::ranges::count_if(sent, [&](const auto& job) { return header_of(job, schema::tenant_header) == tenant; }));
    }
    BatchState state_of(const BatchRecord& batch) { return known.find_batch(batch.tenant, batch.id)->state; }
    bool ends_by_work(const BatchRecord& batch) {
        const auto deadline = Clock::now() + 60s;
        while (!schema::is_final(state_of(batch)) && Clock::now() < deadline) {
            read_jobs();
            answer();
        }
        return schema::is_final(state_of(batch));
    }
    // Each line of the batch was sent once, and has one row.
    void expect_all_once(const BatchRecord& batch, std::size_t count) {
        std::multiset<std::string> numbers;
        for (const auto& job : sent) {
            if (header_of(job, schema::batch_id_header) == batch.id) numbers.insert(header_of(job, line_number_header));
        }
        EXPECT_EQ(numbers.size(), count);
        EXPECT_EQ(std::set<std::string>(numbers.begin(), numbers.end()).size(), count);
        const BatchRecord end = *known.find_batch(batch.tenant, batch.id);
        EXPECT_EQ(name_of(end.state), "completed");
        EXPECT_EQ(end.succeeded, static_cast<std::int64_t>(count));
        const std::string output = store.contents().at(end.output_file.value());
        EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(output, '\n')), count);
        EXPECT_TRUE(known.find_file(batch.tenant, *end.output_file));
    }

    EmbeddedBroker broker;
    schema::Topics topics;
    KafkaConfig config;
    BatchTopics known{config, topics};
    tests::MemoryStore store;
    RecordReader jobs{config, {.topics = {topics.jobs()}}};
    KafkaProducer worker{config, {.limits = {}}};
    std::vector<schema::JobRecord> sent;
    std::size_t answered = 0;
    std::size_t result_id_bytes = 1;
};

class BatchOwnersTest : public BatchOwnerTest {
protected:
    BatchOwnersTest() : BatchOwnerTest(3) {}
};

TEST_F(BatchOwnersTest, AnotherOneGoesOnWhereTheFirstWasEnded) {
    std::optional<BatchOwner> first(std::in_place, config, options(), known, store);
    const BatchRecord batch = create("search", 40);
    const auto deadline = Clock::now() + 60s;
    while (sent.size() < 20 && Clock::now() < deadline) {
        read_jobs();
        answer();
    }
    first.reset();
    BatchTopics others(config, topics);
    const BatchOwner second(config, options(), others, store);
    EXPECT_TRUE(ends_by_work(batch));
    expect_all_once(batch, 40);
    EXPECT_EQ(second.failure(), std::nullopt);
}

TEST_F(BatchOwnersTest, TwoShareTheBatches) {
    BatchTopics others(config, topics);
    const BatchOwner first(config, options(), known, store);
    const BatchOwner second(config, options(), others, store);
    std::vector<BatchRecord> batches;
    for (int i = 0; i < 6; ++i) batches.push_back(create(fmt::format("tenant-{}", i), 12));
    for (const BatchRecord& batch : batches) {
        EXPECT_TRUE(ends_by_work(batch));
        expect_all_once(batch, 12);
    }
}

// Pins: the batches that ran had no results any more, and the next owner of one would not have known from where to read them.
TEST_F(BatchOwnersTest, ResultsAreReadOnWhileTheyCannotBeReadFromEarlierOn) {
    constexpr int leader_not_available = 5;
    BatchOwner::Options each_stored = options();
    each_stored.run.part_bytes = 1;
    KafkaConfig impatient = config;
    impatient.deadline_start = 1s;
    KafkaProducer writer(config, {.limits = {}});
    const auto put = [&](const BatchRecord& batch, std::int32_t partition) {
        ASSERT_TRUE(
            writer.send({.topic = topics.batches(), .partition = partition, .key = batch.id, .value = schema::encode_batch(batch)}));
        writer.wait_all("writing a batch");
    };
    const BatchOwner owner(impatient, each_stored, known, store);
    const BatchRecord running = draft("search", input_of(30));
    put(running, 0);
    const auto deadline = Clock::now() + 60s;
    while (sent.size() < 5 && Clock::now() < deadline) read_jobs();
    answer();
    const auto succeeded = [&] { return known.find_batch("search", running.id)->succeeded; };
    while (succeeded() < 5 && Clock::now() < deadline) std::this_thread::sleep_for(10ms);

    broker.set_topic_error(topics.results(), leader_not_available);
    BatchRecord earlier = draft("another", input_of(30));
    earlier.state = BatchState::in_progress;
    earlier.lines = 30;
    earlier.results_at = {{0, 0}};
    put(earlier, 1);
    std::this_thread::sleep_for(2s);
    known.cancel_batch(running);
    while (state_of(running) != BatchState::cancelling && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(state_of(running), BatchState::cancelling);
    EXPECT_GE(known.find_batch("search", running.id)->results_at[0], 5) << "all results before were taken";

    broker.set_topic_error(topics.results(), 0);
    EXPECT_TRUE(ends_by_work(running));
    EXPECT_TRUE(ends_by_work(earlier));
    expect_all_once(earlier, 30);
}

// Pins: a tenant with many batches had as many times the jobs in Kafka.
TEST_F(BatchOwnerTest, TenantsTakeTurnsHoweverManyBatchesTheyHave) {
    std::vector<BatchRecord> batches;
    for (int i = 0; i < 4; ++i) batches.push_back(create("many", 30));
    batches.push_back(create("one", 30));
    const BatchOwner owner(config, options(), known, store);
    const auto deadline = Clock::now() + 60s;
    while ((sent_of("many") < 10 || sent_of("one") < 10) && Clock::now() < deadline) read_jobs();
    for (int i = 0; i < 10; ++i) read_jobs();
    EXPECT_EQ(sent_of("many"), 10U) << "batch_ahead is a tenant's, not a batch's";
    EXPECT_EQ(sent_of("one"), 10U);
    while (sent_of("one") < 30 && Clock::now() < deadline) {
        answer();
        read_jobs();
    }
    EXPECT_EQ(sent_of("one"), 30U);
    const auto is_of_one = [](const auto& job) { return header_of(job, schema::tenant_header) == "one"; };
    const auto last_of_one = std::find_if(sent.rbegin(), sent.rend(), is_of_one).base();
    EXPECT_THAT(std::count_if(sent.begin(), last_of_one, std::not_fn(is_of_one)), Le(50)) << "of 120";
    for (const BatchRecord& batch : batches) {
        EXPECT_TRUE(ends_by_work(batch));
        expect_all_once(batch, 30);
    }
}

// Pins: the owner looked only at what it had read of its own records, and carried out many times as many jobs.
TEST_F(BatchOwnerTest, BatchesThatComeTogetherKeepToTheJobsOfTheirKey) {
    std::vector<BatchRecord> batches;
    for (int i = 0; i < 6; ++i) {
        batches.push_back(create("search", 7, [](BatchRecord& batch) {
            batch.key = "key_1";
            batch.key_jobs_max = 7;
        }));
    }
    const BatchOwner owner(config, options(), known, store);
    const auto has_failed = [&](const BatchRecord& batch) { return state_of(batch) == BatchState::failed; };
    const auto deadline = Clock::now() + 60s;
    while (std::ranges::count_if(batches, has_failed) < 5 && Clock::now() < deadline) read_jobs();
    EXPECT_EQ(std::ranges::count_if(batches, has_failed), 5);
    EXPECT_THAT(sent.size(), Le(7U));
}

TEST_F(BatchOwnerTest, ACancelStopsWhatRuns) {
    const BatchOwner owner(config, options(), known, store);
    const BatchRecord batch = create("search", 40);
    const auto deadline = Clock::now() + 60s;
    while (sent.size() < 10 && Clock::now() < deadline) read_jobs();
    known.cancel_batch(batch);
    while (state_of(batch) != BatchState::cancelling && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(ends_by_work(batch)) << "the ten that run may still end";
    EXPECT_EQ(state_of(batch), BatchState::cancelled);
    EXPECT_LE(sent.size(), 15U);
    const auto cancels = read_all(config, topics.control());
    EXPECT_EQ(
        std::ranges::count_if(cancels, [&](const auto& record) { return record.key.value_or("").find(batch.id) != std::string::npos; }), 1);
}

// As under `lorry up`: what waits is bounded, and the broker keeps 5 MiB.
class BatchOwnerUpTest : public BatchOwnerTest {
protected:
    BatchOwnerUpTest() : BatchOwnerTest(1, &reading_pace) {}

private:
    inline static ReadingPace reading_pace;  // outlives the clients of the base
};

TEST_F(BatchOwnerUpTest, NeitherLinesNorResultsAreDroppedThatTheBrokerHasNoRoomFor) {
    constexpr int count = 8;  // 7.2 MB, and as much of results
    BatchOwner::Options bounded = options();
    bounded.run.ahead = 2'000;
    bounded.run.ahead_bytes = std::int64_t{2} << 20;
    bounded.run.part_bytes = std::size_t{4} << 20;
    result_id_bytes = 900'000;
    std::string input;
    for (int i = 0; i < count; ++i) {
        input += fmt::format(R"({{"custom_id":"id-{}","method":"POST","url":"/v1/completions","body":{{"prompt":"{}"}}}})", i,
                             tests::noise(900'000, i)) +
                 "\n";
    }
    const BatchOwner owner(config, bounded, known, store);
    const BatchRecord batch = create("search", input);
    const auto deadline = Clock::now() + 60s;
    while (state_of(batch) == BatchState::validating && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(200ms);
    jobs = RecordReader(config, {.topics = {topics.jobs()}});  // a worker that comes once the owner has sent all that it may
    EXPECT_TRUE(ends_by_work(batch));
    expect_all_once(batch, count);
}

// Passes calls on, and counts when contents are listed.
class ListedStore final : public FileStore {
public:
    explicit ListedStore(FileStore& store) : store_(store) {}
    std::atomic<int> lists = 0;
    std::unique_ptr<Writer> create(const std::string& name) override { return store_.create(name); }
    std::unique_ptr<Reader> open(const std::string& name, std::int64_t from) override { return store_.open(name, from); }
    void remove(const std::string& name) override { store_.remove(name); }
    std::vector<std::string> older_than(std::chrono::seconds age) override {
        ++lists;
        return store_.older_than(age);
    }

private:
    FileStore& store_;
};

// Pins: topics that were emptied made all contents orphans.
TEST_F(BatchOwnerTest, RemovesOrphansButNothingWhereNoFileIsKnown) {
    const std::string orphan = schema::draw_file_id();
    store.put(orphan, "x");
    const auto tidy = [&] {
        ListedStore listed(store);
        // Its destructor waits for what its thread is at.
        const BatchOwner owner(config, options(), known, listed);
        const auto deadline = Clock::now() + 60s;
        while (listed.lists == 0 && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
        EXPECT_EQ(listed.lists, 1);
    };
    tidy();
    EXPECT_TRUE(store.contents().contains(orphan));
    const std::string used = schema::draw_file_id();
    store.put(used, "y");
    ASSERT_TRUE(known.add_file({.id = used, .tenant = "search", .created = 1}));
    tidy();
    EXPECT_FALSE(store.contents().contains(orphan));
    EXPECT_TRUE(store.contents().contains(used));
}

}  // namespace
}  // namespace lorry::consumer
