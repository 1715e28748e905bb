// Usage in the ledger's file: each job counts once, whatever happens to its statuses and to the file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schema/store/store.h"
#include "tests/support/temp_folder.h"

namespace lorry::schema {
namespace {

using std::chrono::days;
using std::chrono::sys_days;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr sys_days first = std::chrono::year(2026) / 11 / 1;

struct Ended {
    std::int64_t offset = 0;
    int day = 0;  // after the first
    std::string tenant = "search";
    std::string key = "k1";
    std::string model = "section";
    std::string adapter = "hash";
    JobState state = JobState::completed;
    std::int64_t attempt = 1;
    std::int64_t prompt_tokens = 10;
};

Status status_of(const Ended& ended) {
    Status status;
    const Timestamp begin = first + days(ended.day) + std::chrono::hours(5);
    status.run = {.job_id = fmt::format("job-{}", ended.offset),
                  .tenant = ended.tenant,
                  .key = ended.key,
                  .model = ended.model,
                  .adapter = ended.adapter,
                  .worker = "w",
                  .source = {.topic = "lorry.calls", .partition = 0, .offset = ended.offset},
                  .attempt = ended.attempt,
                  .submitted = begin,
                  .started = begin,
                  .finished = is_terminal(ended.state) ? std::optional(begin + std::chrono::milliseconds(ended.attempt)) : std::nullopt};
    status.state = ended.state;
    const bool has_run = ended.prompt_tokens > 0;
    status.usage = {.prompt_tokens = ended.prompt_tokens, .completion_tokens = has_run ? 5 : 0, .cached_tokens = has_run ? 4 : 0};
    return status;
}

std::vector<std::string> described(const std::vector<UsageRow>& rows) {
    std::vector<std::string> texts;
    for (const UsageRow& row : rows) {
        texts.push_back(fmt::format("{} {}/{} {}@{}: {} jobs {}+{} ({})", (row.day - first).count(), row.tenant, row.key, row.model,
                                    row.adapter, row.jobs, row.usage.prompt_tokens, row.usage.completion_tokens, row.usage.cached_tokens));
    }
    return texts;
}

class UsageTest : public ::testing::Test {
protected:
    std::filesystem::path file() const { return folder_.path() / "ledger.db"; }
    Store writer() const { return Store::open(file(), Store::Mode::writer); }
    Store reader() const { return Store::open(file(), Store::Mode::reader); }
    static void apply(Store& store, const std::vector<Ended>& jobs) {
        StoreUpdate update;
        for (const Ended& job : jobs) update.statuses.push_back(status_of(job));
        store.apply(update);
    }

    tests::TempFolder folder_;
};

TEST_F(UsageTest, IsByDayTenantKeyModelAndAdapter) {
    Store store = writer();
    apply(store, {{.offset = 1},
                  {.offset = 2},
                  {.offset = 3, .day = 1},
                  {.offset = 4, .tenant = "mail"},
                  {.offset = 5, .key = ""},
                  {.offset = 6, .adapter = "other"},
                  {.offset = 7, .model = "section@hash"},
                  {.offset = 8, .model = "tiny", .adapter = ""},
                  {.offset = 9, .model = "base", .adapter = ""}});
    EXPECT_THAT(described(store.usage({})),
                ElementsAre("0 mail/k1 section@hash: 1 jobs 10+5 (4)", "0 search/ section@hash: 1 jobs 10+5 (4)",
                            "0 search/k1 base@: 2 jobs 20+10 (8)", "0 search/k1 section@hash: 3 jobs 30+15 (12)",
                            "0 search/k1 section@other: 1 jobs 10+5 (4)", "1 search/k1 section@hash: 1 jobs 10+5 (4)"));
    EXPECT_THAT(described(store.usage({.since = first + days(1)})), ElementsAre("1 search/k1 section@hash: 1 jobs 10+5 (4)"));
    EXPECT_EQ(store.usage({.until = first}).size(), 5U);
    EXPECT_THAT(described(store.usage({.until = first, .tenant = "mail"})), ElementsAre("0 mail/k1 section@hash: 1 jobs 10+5 (4)"));
    EXPECT_THAT(store.usage({.tenant = ""}), IsEmpty());
}

TEST_F(UsageTest, JobsThatRunOrTookNothingAreNotInIt) {
    Store store = writer();
    apply(store, {{.offset = 1, .state = JobState::running}, {.offset = 2, .state = JobState::failed, .prompt_tokens = 0}});
    EXPECT_THAT(store.usage({}), IsEmpty());
    apply(store, {{.offset = 1, .state = JobState::cancelled}});
    EXPECT_EQ(store.usage({}).at(0).jobs, 1) << "it took tokens until it was cancelled";
}

// Pins: statuses that came twice, in another order, or again after days were closed and jobs deleted.
TEST_F(UsageTest, EachJobCountsOnceInWhateverOrderItsStatusesCome) {
    std::vector<Ended> statuses;
    for (int i = 0; i < 60; ++i) {
        const Ended job{.offset = i, .day = i % 4, .key = i % 3 == 0 ? "k1" : "k2"};
        Ended running = job;
        running.state = JobState::running;
        Ended again = job;  // another attempt, which ended later and counts for nothing
        again.attempt = 2;
        again.prompt_tokens = 1'000;
        statuses.insert(statuses.end(), {job, running, again, job});
    }
    std::vector<std::string> wanted;
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 5; ++round) {
        std::ranges::shuffle(statuses, random);
        std::filesystem::remove(file());
        Store store = writer();
        for (std::size_t i = 0; i < statuses.size(); i += 7) {
            apply(store, {statuses.begin() + static_cast<std::ptrdiff_t>(i),
                          statuses.begin() + static_cast<std::ptrdiff_t>(std::min(i + 7, statuses.size()))});
        }
        const auto open = described(store.usage({}));
        if (wanted.empty()) wanted = open;
        EXPECT_EQ(open, wanted);
        store.close_days(first + days(2) + std::chrono::hours(3));  // two days, not the third
        EXPECT_EQ(described(store.usage({})), wanted);
        apply(store, {statuses.begin(), statuses.begin() + 50});
        EXPECT_EQ(described(store.usage({})), wanted);
        EXPECT_EQ(store.forget_jobs(first + days(9), 1'000), 30U) << "those of the two days";
        EXPECT_EQ(described(store.usage({})), wanted);
        store.reset();  // rebuilt from what the topics hold
        apply(store, statuses);
        store.close_days(first + days(1));
        EXPECT_EQ(described(store.usage({})), wanted);
        store.close_days(first + days(9));
        EXPECT_EQ(described(store.usage({})), wanted);
    }
    EXPECT_EQ(wanted.size(), 8U);
    EXPECT_EQ(wanted[0], "0 search/k1 section@hash: 5 jobs 50+25 (20)");
}

TEST_F(UsageTest, OutlivesItsJobsAndTheLedgersOfOtherClusters) {
    Store store = writer();
    store.set_cluster_id("one");
    apply(store, {{.offset = 1}, {.offset = 2, .day = 3}});
    store.close_days(first + days(1));
    store.set_cluster_id("two");
    EXPECT_THAT(described(store.usage({})), ElementsAre("0 search/k1 section@hash: 1 jobs 10+5 (4)"));
    EXPECT_EQ(described(reader().usage({})), described(store.usage({})));
    EXPECT_EQ(store.closed_until(), first + days(1));
}

}  // namespace
}  // namespace lorry::schema
