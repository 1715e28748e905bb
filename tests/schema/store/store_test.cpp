// The ledger's file: reads return what was applied, in any order, by several processes, through crashes and damage.
#include "schema/store/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <limits>
#include <random>
#include <thread>

#include "schema/codec.h"
#include "schema/store/store_sqlite.h"
#include "tests/support/full_disk.h"
#include "tests/support/thrown.h"

namespace lorry::schema {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t day = 86'400'000;  // ms

Timestamp at(std::int64_t milliseconds) { return Timestamp(std::chrono::milliseconds(milliseconds)); }

Status status_of(const std::string& id, std::int64_t offset, JobState state, std::int64_t attempt = 1) {
    Status status;
    status.run = {.job_id = id,
                  .batch_id = "b",
                  .model = "section",
                  .adapter = "hash",
                  .worker = "w",
                  .source = {.topic = "lorry.jobs", .partition = 0, .offset = offset},
                  .attempt = attempt,
                  .submitted = at(1000 + offset),
                  .started = at(2000 + attempt),
                  .finished = is_terminal(state) ? std::optional(at(3000 + attempt)) : std::nullopt};
    status.state = state;
    status.usage = {.prompt_tokens = 10, .completion_tokens = attempt, .cached_tokens = 4};
    if (state == JobState::failed) status.error = "bad: reason";
    return status;
}

AdapterRegistration adapter_of(const std::string& name, const std::string& hash, std::int64_t registered = 1) {
    return {.name = name,
            .hash = hash,
            .path = name + "/v1",
            .base = "tiny",
            .rank_max = 8,
            .targets = {"v_proj", "q_proj"},
            .bytes = 1234,
            .registered = at(registered)};
}

std::string described(const std::vector<Status>& jobs) {
    std::string text;
    for (const Status& job : jobs) text += encode_status(job) + "\n";
    return text;
}

std::vector<std::string> described(const std::vector<AdapterRow>& rows) {
    std::vector<std::string> texts;
    for (const AdapterRow& row : rows) texts.push_back(fmt::format("{} {} {}", encode_adapter(row.registration), row.state, row.error));
    return texts;
}

class StoreTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "lorry_store_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path file() const { return folder_ / "ledger.db"; }
    Store writer() const { return Store::open(file(), Store::Mode::writer); }
    Store reader() const { return Store::open(file(), Store::Mode::reader); }

    // Changes the file as another program would.
    void sql(const std::string& statements) const { Database(file(), Database::Access::write).execute(statements); }

    std::filesystem::path folder_;
};

TEST_F(StoreTest, JobsAreReadAsTheyWereAppliedAlsoAfterReopening) {
    const std::vector<Status> statuses = {status_of("a", 1, JobState::running), status_of("b", 2, JobState::completed),
                                          status_of("c", 3, JobState::failed), status_of("d", 4, JobState::expired),
                                          status_of("e", 5, JobState::cancelled)};
    std::vector<Status> newest_first(statuses.rbegin(), statuses.rend());
    {
        Store store = writer();
        store.apply({.statuses = statuses, .adapters = {}, .offsets = {{"lorry.status", "id", 0, 5}}});
        EXPECT_EQ(described(store.jobs({})), described(newest_first));
    }
    const Store store = reader();
    EXPECT_EQ(described(store.jobs({})), described(newest_first));
    ASSERT_EQ(store.offsets().size(), 1U);
    EXPECT_EQ(store.offsets()[0].next, 5);
    EXPECT_EQ(store.offsets()[0].topic_id, "id");
    const JobCounts counts = store.count({});
    EXPECT_EQ(fmt::format("{} {} {} {} {}", counts.running, counts.completed, counts.failed, counts.expired, counts.cancelled),
              "1 1 1 1 1");
    EXPECT_EQ(counts.finished(), 4);
}

TEST_F(StoreTest, MissingValuesStayMissing) {
    Status bare;
    bare.run.job_id = "x";
    bare.run.source.topic = "t";
    Store store = writer();
    store.apply({.statuses = {bare}, .adapters = {}, .offsets = {}});
    EXPECT_EQ(described(store.jobs({})), encode_status(bare) + "\n");
}

// Pins: dates and differences of times that a stranger chose overflowed where `lorry jobs` showed them.
TEST_F(StoreTest, ATimeBeyondTheYear9999CountsAsMissing) {
    constexpr std::int64_t last = 253'402'300'799'999;
    Status status = status_of("x", 0, JobState::completed);
    status.run.submitted = at(std::numeric_limits<std::int64_t>::min());
    status.run.started = at(last);
    status.run.finished = at(last + 1);
    Store store = writer();
    store.apply({.statuses = {status}, .adapters = {}, .offsets = {}});
    const auto run = store.jobs({}).front().run;
    EXPECT_EQ(run.submitted, std::nullopt);
    EXPECT_EQ(run.started, at(last));
    EXPECT_EQ(run.finished, std::nullopt);
}

TEST_F(StoreTest, JobsAreFilteredByIdBatchStateAndModelAndLimited) {
    Store store = writer();
    StoreUpdate update;
    for (int i = 0; i < 20; ++i) {
        Status status = status_of(fmt::format("job-{}", i), i, i % 2 == 0 ? JobState::completed : JobState::failed);
        status.run.batch_id = i < 10 ? "first" : "";
        status.run.model = i % 5 == 0 ? "tags" : "section";
        update.statuses.push_back(status);
    }
    store.apply(update);
    const auto ids = [&](const JobFilter& filter) {
        std::string text;
        for (const Status& job : store.jobs(filter)) text += job.run.job_id + " ";
        return text;
    };
    JobFilter filter;
    filter.limit = 3;
    EXPECT_EQ(ids(filter), "job-19 job-18 job-17 ");
    filter.batch_id = "first";
    EXPECT_EQ(ids(filter), "job-9 job-8 job-7 ");
    filter.state = JobState::failed;
    EXPECT_EQ(ids(filter), "job-9 job-7 job-5 ");
    filter.model = "tags";
    EXPECT_EQ(ids(filter), "job-5 ");
    EXPECT_EQ(store.count(filter).failed, 1);
    filter.id = "job-6";
    EXPECT_EQ(ids(filter), "");
    JobFilter by_id;
    by_id.id = "job-6";
    EXPECT_EQ(ids(by_id), "job-6 ");
    JobFilter by_model;
    by_model.model = "tags";
    by_model.limit = 1;
    EXPECT_EQ(store.count(by_model).finished(), 4);
}

TEST_F(StoreTest, EqualIdsAreARowEachAndTheNewestComesFirst) {
    Store store = writer();
    store.apply(
        {.statuses = {status_of("same", 7, JobState::failed), status_of("same", 5, JobState::completed)}, .adapters = {}, .offsets = {}});
    JobFilter filter;
    filter.id = "same";
    const auto jobs = store.jobs(filter);
    ASSERT_EQ(jobs.size(), 2U);
    EXPECT_EQ(jobs[0].run.source.offset, 7);
    EXPECT_EQ(jobs[1].run.source.offset, 5);
}

TEST_F(StoreTest, TerminalWinsOverRunningAndLaterRunningOverEarlier) {
    Store store = writer();
    const auto state = [&](std::vector<Status> statuses) {
        store.reset();
        store.apply({.statuses = std::move(statuses), .adapters = {}, .offsets = {}});
        const Status job = store.jobs({}).at(0);
        return fmt::format("{} {}", name_of(job.state), job.run.attempt);
    };
    EXPECT_EQ(state({status_of("a", 1, JobState::completed, 1), status_of("a", 1, JobState::running, 2)}), "completed 1");
    EXPECT_EQ(state({status_of("a", 1, JobState::running, 2), status_of("a", 1, JobState::running, 1)}), "running 2");
    EXPECT_EQ(state({status_of("a", 1, JobState::running, 1), status_of("a", 1, JobState::running, 2)}), "running 2");
    EXPECT_EQ(state({status_of("a", 1, JobState::failed, 2), status_of("a", 1, JobState::cancelled, 1)}), "cancelled 1");
}

// A rebuilt ledger must equal the live one, whatever order the topic's partitions are read in and however often a record comes.
TEST_F(StoreTest, TheOrderAndRepetitionOfStatusesDoNotMatter) {
    const std::uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << "\n";
    std::mt19937_64 random(seed);
    std::vector<Status> statuses;
    constexpr JobState states[] = {JobState::running, JobState::running, JobState::completed, JobState::failed, JobState::cancelled};
    for (int i = 0; i < 200; ++i) {
        const auto offset = static_cast<std::int64_t>(random() % 30);
        Status status = status_of(fmt::format("job-{}", offset), offset, states[random() % 5], static_cast<std::int64_t>(random() % 4));
        status.run.worker = fmt::format("w{}", random() % 3);
        statuses.push_back(status);
    }
    Store store = writer();
    std::string expected;
    for (int round = 0; round < 5; ++round) {
        std::shuffle(statuses.begin(), statuses.end(), random);
        store.reset();
        for (std::size_t start = 0; start < statuses.size(); start += 40) {
            const auto first = statuses.begin() + static_cast<std::ptrdiff_t>(start);
            store.apply({.statuses = {first, first + 40}, .adapters = {}, .offsets = {}});
            store.apply({.statuses = {first, first + static_cast<std::ptrdiff_t>(random() % 40)}, .adapters = {}, .offsets = {}});
        }
        if (round == 0) expected = described(store.jobs({}));
        ASSERT_EQ(described(store.jobs({})), expected) << "round " << round;
    }
}

TEST_F(StoreTest, AdaptersAreRegisteredReplacedLoadedAndRemoved) {
    Store store = writer();
    const auto change = [&](const std::string& name, std::optional<AdapterRegistration> registration) {
        store.apply({.statuses = {}, .adapters = {{name, std::move(registration)}}, .offsets = {}});
    };
    const std::string v1 = encode_adapter(adapter_of("section", "h1"));
    const std::string v2 = encode_adapter(adapter_of("section", "h2", 2));
    change("section", adapter_of("section", "h1"));
    change("alpha", adapter_of("alpha", "h9"));
    EXPECT_THAT(described(store.adapters()), ElementsAre(encode_adapter(adapter_of("alpha", "h9")) + " registered ", v1 + " registered "));
    change("alpha", std::nullopt);
    EXPECT_EQ(described(store.adapters())[0], encode_adapter(adapter_of("alpha", "h9")) + " removed ");
    store.reset();

    change("section", adapter_of("section", "h1"));
    store.set_adapter_state("section", "h1", "failed", "rank 7 is odd");
    EXPECT_THAT(described(store.adapters()), ElementsAre(v1 + " failed rank 7 is odd"));
    change("section", adapter_of("section", "h1"));  // redelivered
    EXPECT_THAT(described(store.adapters()), ElementsAre(v1 + " failed rank 7 is odd"));
    change("section", adapter_of("section", "h2", 2));
    store.set_adapter_state("section", "h1", "ready", "");  // a load that ended too late
    EXPECT_THAT(described(store.adapters()), ElementsAre(v2 + " registered "));
    store.set_adapter_state("section", "h2", "ready", "");
    EXPECT_THAT(described(store.adapters()), ElementsAre(v2 + " ready "));
    change("section", std::nullopt);
    store.set_adapter_state("section", "h2", "ready", "");
    EXPECT_THAT(described(store.adapters()), ElementsAre(v2 + " removed "));
    change("section", adapter_of("section", "h2", 2));
    EXPECT_THAT(described(store.adapters()), ElementsAre(v2 + " registered "));
}

TEST_F(StoreTest, OffsetsOnlyGoForwardUnlessTheTopicWasMadeAnew) {
    Store store = writer();
    const auto next_after = [&](const std::string& topic_id, std::int64_t next) {
        store.apply({.statuses = {}, .adapters = {}, .offsets = {{"t", topic_id, 0, next}}});
        return store.offsets().at(0).next;
    };
    EXPECT_EQ(next_after("one", 10), 10);
    EXPECT_EQ(next_after("one", 7), 10);
    EXPECT_EQ(next_after("one", 12), 12);
    EXPECT_EQ(next_after("two", 3), 3);
}

TEST_F(StoreTest, AnotherClusterEmptiesTheLedgerAndTheSameOneDoesNot) {
    Store store = writer();
    EXPECT_EQ(store.cluster_id(), "");
    store.set_cluster_id("one");
    const StoreUpdate update = {
        .statuses = {status_of("a", 1, JobState::completed)}, .adapters = {{"x", adapter_of("x", "h")}}, .offsets = {{"t", "", 0, 1}}};
    store.apply(update);
    store.set_cluster_id("one");
    store.set_cluster_id("");
    EXPECT_EQ(store.cluster_id(), "one");
    EXPECT_EQ(store.jobs({}).size(), 1U);
    store.set_cluster_id("two");
    EXPECT_EQ(store.cluster_id(), "two");
    EXPECT_THAT(store.jobs({}), IsEmpty());
    EXPECT_THAT(store.adapters(), IsEmpty());
    EXPECT_THAT(store.offsets(), IsEmpty());
    store.apply(update);
    store.reset();
    EXPECT_EQ(store.cluster_id(), "two");
    EXPECT_THAT(store.jobs({}), IsEmpty());
}

// Brokers that gave no id may give one later.
TEST_F(StoreTest, LearningItsClusterDoesNotEmptyTheLedger) {
    Store store = writer();
    store.apply({.statuses = {status_of("a", 1, JobState::completed)}, .adapters = {}, .offsets = {{"t", "", 0, 1}}});
    store.set_cluster_id("one");
    EXPECT_EQ(store.cluster_id(), "one");
    EXPECT_EQ(store.jobs({}).size(), 1U);
}

TEST_F(StoreTest, ReadersSeeWholeTransactionsWhileAWriterWrites) {
    Store store = writer();
    constexpr std::int64_t per_update = 50;
    std::jthread writing([&] {
        for (std::int64_t round = 0; round < 40; ++round) {
            StoreUpdate update;
            for (std::int64_t i = 0; i < per_update; ++i)
                update.statuses.push_back(status_of("j", round * per_update + i, JobState::completed));
            store.apply(update);
        }
    });
    const Store watching = reader();
    std::int64_t seen = 0;
    while (seen < 40 * per_update) {
        const std::int64_t now = watching.count({}).completed;
        ASSERT_GE(now, seen);
        ASSERT_EQ(now % per_update, 0);
        seen = now;
    }
}

TEST_F(StoreTest, OneProcessWritesAndAKilledOneLetsGo) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Store store = writer();
        store.apply({.statuses = {status_of("child", 1, JobState::completed)}, .adapters = {}, .offsets = {}});
        const char done = 'x';
        if (write(ready[1], &done, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_THAT(tests::thrown_by([&] { writer(); }),
                AllOf(HasSubstr(file().string()), HasSubstr(fmt::format("in use by process {}", child))));
    EXPECT_EQ(reader().jobs({}).size(), 1U);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(ready[0]);
    close(ready[1]);
    EXPECT_EQ(writer().jobs({}).at(0).run.job_id, "child");
}

TEST_F(StoreTest, ForgetsJobsThatEndedBeforeATimeALittleAtOnce) {
    Store store = writer();
    StoreUpdate update;
    // The times depend on the attempt: the jobs end at 3001, 3002, ….
    for (int i = 1; i <= 9; ++i) update.statuses.push_back(status_of(fmt::format("job-{}", i), i, JobState::completed, i));
    update.statuses.push_back(status_of("failed", 10, JobState::failed, 3));
    update.statuses.push_back(status_of("running", 11, JobState::running, 1));
    store.apply(update);
    EXPECT_EQ(store.forget_jobs(at(3005), 3), 0U) << "their usage was not summed up";
    store.close_days(at(day));
    EXPECT_EQ(store.forget_jobs(at(3005), 3), 3U);
    EXPECT_EQ(store.count({}).finished(), 7);
    EXPECT_EQ(store.forget_jobs(at(3005), 3), 2U);
    EXPECT_EQ(store.forget_jobs(at(3005), 3), 0U);
    std::vector<std::string> left;
    for (const Status& job : store.jobs({})) left.push_back(job.run.job_id);
    EXPECT_THAT(left, testing::UnorderedElementsAre("running", "job-5", "job-6", "job-7", "job-8", "job-9"));
}

TEST_F(StoreTest, AnOlderSchemaIsBroughtUpToDateAndKeepsWhatItHolds) {
    writer().apply({.statuses = {status_of("kept", 1, JobState::completed)}, .adapters = {}, .offsets = {}});
    sql("DROP TABLE usage; ALTER TABLE jobs DROP COLUMN tenant; ALTER TABLE jobs DROP COLUMN key; DROP INDEX jobs_by_end; "
        "PRAGMA user_version = 1");
    EXPECT_THAT(tests::thrown_by([&] { reader(); }), HasSubstr("start a worker of this version"));
    Store store = writer();
    EXPECT_EQ(store.usage({}).at(0).jobs, 1);
    store.close_days(at(day));
    EXPECT_EQ(store.forget_jobs(at(1'000'000), 10), 1U);
}

TEST_F(StoreTest, FilesThatAreNoLedgerAreRefusedAndLeftAlone) {
    EXPECT_THAT(tests::thrown_by([&] { reader(); }), HasSubstr("does not exist; give the ledger's path"));
    EXPECT_THAT(tests::thrown_by([&] { Store::open(folder_ / "missing" / "x.db", Store::Mode::writer); }),
                HasSubstr("check that the folder exists"));

    sql("CREATE TABLE foreign_table (x); PRAGMA user_version = 1;");
    const auto bytes = [&] {
        std::ifstream in(file(), std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string before = bytes();
    EXPECT_THAT(tests::thrown_by([&] { writer(); }), AllOf(HasSubstr(file().string()), HasSubstr("not a ledger")));
    EXPECT_THAT(tests::thrown_by([&] { reader(); }), HasSubstr("not a ledger"));
    EXPECT_EQ(bytes(), before);

    std::ofstream(file(), std::ios::binary | std::ios::trunc) << std::string(8192, 'x');
    EXPECT_THAT(tests::thrown_by([&] { writer(); }), AllOf(HasSubstr(file().string()), HasSubstr("rebuilt from the topics")));
}

TEST_F(StoreTest, ANewerSchemaIsRefusedByWritersAndReaders) {
    writer();
    sql("PRAGMA user_version = 99");
    EXPECT_THAT(tests::thrown_by([&] { writer(); }), AllOf(HasSubstr("schema version 99"), HasSubstr("use a newer lorry")));
    EXPECT_THAT(tests::thrown_by([&] { reader(); }), HasSubstr("schema version 99"));
}

TEST_F(StoreTest, AnEmptyFileIsNotYetALedgerForReadersAndBecomesOneForWriters) {
    std::ofstream(file()).flush();
    EXPECT_THAT(tests::thrown_by([&] { reader(); }), HasSubstr("start a worker"));
    EXPECT_THAT(writer().jobs({}), IsEmpty());
    EXPECT_THAT(reader().jobs({}), IsEmpty());
}

TEST_F(StoreTest, ADamagedFileIsToldByNameWithWhatToDo) {
    {
        Store store = writer();
        StoreUpdate update;
        for (int i = 0; i < 2000; ++i) update.statuses.push_back(status_of(fmt::format("job-{}", i), i, JobState::completed));
        store.apply(update);
    }
    {
        std::fstream out(file(), std::ios::binary | std::ios::in | std::ios::out);
        out.seekp(8192);
        out << std::string(200'000, '\xa5');
    }
    EXPECT_THAT(tests::thrown_by([&] {
                    JobFilter all;
                    all.limit = 10'000;
                    writer().jobs(all);
                }),
                AllOf(HasSubstr(file().string()), HasSubstr("malformed"), HasSubstr("move the file")));
}

TEST_F(StoreTest, AFullDiskIsAnErrorAndWhatWasCommittedStays) {
    Store store = writer();
    store.apply({.statuses = {status_of("kept", 1, JobState::completed)}, .adapters = {}, .offsets = {{"t", "", 0, 1}}});
    StoreUpdate large;
    for (int i = 0; i < 5000; ++i) large.statuses.push_back(status_of(std::string(200, 'x'), 10 + i, JobState::completed));
    large.offsets = {{"t", "", 0, 5000}};
    const std::string error = tests::thrown_with_full_disk(256 << 10, [&] { store.apply(large); });
    EXPECT_THAT(error, AllOf(HasSubstr(file().string()), HasSubstr("disk")));
    EXPECT_EQ(store.jobs({}).size(), 1U);
    EXPECT_EQ(store.offsets().at(0).next, 1);
    store.apply(large);
    EXPECT_EQ(store.count({}).completed, 5001);
}

TEST_F(StoreTest, TwentyThousandStatusesAreOneQuickTransaction) {
    Store store = writer();
    StoreUpdate update;
    for (int i = 0; i < 20'000; ++i) update.statuses.push_back(status_of(fmt::format("job-{}", i), i, JobState::completed));
    const auto start = std::chrono::steady_clock::now();
    store.apply(update);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << "statuses per second: " << static_cast<int>(20'000 / seconds.count()) << "\n";
    EXPECT_LT(seconds.count(), 10);
}

}  // namespace
}  // namespace lorry::schema
