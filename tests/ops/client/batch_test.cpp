// submit, collect and cancel against the embedded broker.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <thread>

#include "consumer/file/lock.h"
#include "ops/client/batch_follower.h"
#include "ops/client/batch_id.h"
#include "schema/json.h"
#include "tests/ops/client/fixture.h"
#include "tests/support/program.h"

namespace lorry::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string header_of(const schema::JobRecord& record, std::string_view name) {
    const std::string* value = schema::find_header(record.headers, name);
    return value == nullptr ? "none" : *value;
}

TEST(BatchId, TellsItsTimeAndSortsByIt) {
    const schema::Timestamp at(std::chrono::sys_days(std::chrono::year(2026) / 11 / 21) + 10h + 15min + 30s + 250ms);
    const std::string id = make_batch_id(at, 0xAB4F7A2C);
    EXPECT_EQ(id, "20261121T101530Z-4f7a2c");
    EXPECT_EQ(time_of_batch_id(id), std::chrono::floor<std::chrono::seconds>(at));
    EXPECT_LT(id, make_batch_id(at + 1s, 0));
    for (const char* other : {"", "my-batch", "20261321T101530Z-4f7a2c", "20261121T101530Z-4f7a2", "20261121T101530Z-4F7A2C"}) {
        EXPECT_EQ(time_of_batch_id(other), std::nullopt) << other;
    }
}

TEST_F(ClientTest, SubmitSendsEachLineUntouchedUnderItsModelWithTheBatchInItsHeaders) {
    const std::vector<std::string> lines = {job_line("a"), job_line("b", "section"), job_line("c", "section")};
    const Call submit = lorry({"submit", write("jobs.jsonl", lines), "--deadline", "2h", "--tenant", "Müller & Co"});
    ASSERT_EQ(submit.code, 0) << submit.err;
    const std::string batch = trimmed(submit.out);
    EXPECT_TRUE(time_of_batch_id(batch)) << batch;
    EXPECT_THAT(submit.err, HasSubstr("3 jobs for 2 models sent to lorry.jobs"));

    std::vector<std::string> seen;
    for (const schema::JobRecord& record : records(topics.jobs())) {
        EXPECT_EQ(header_of(record, "batch_id"), batch);
        EXPECT_EQ(header_of(record, "batch_jobs"), "3");
        EXPECT_NE(header_of(record, "deadline"), "none");
        const auto job = schema::parse_job(record, {});
        ASSERT_TRUE(job) << job.error().error.message;
        EXPECT_EQ(record.key, job->model);
        EXPECT_EQ(job->tenant, "Müller & Co");
        EXPECT_GT(*job->deadline, *record.timestamp + 119min);
        seen.push_back(*record.value);
    }
    EXPECT_THAT(seen, UnorderedElementsAre(lines[0], lines[1], lines[2]));
}

TEST_F(ClientTest, SubmitSendsNothingForATenantThatWorkersWouldRefuse) {
    const std::string file = write("jobs.jsonl", {job_line("a")});
    for (const std::string& tenant : {std::string(513, 'x'), std::string("\xff")}) {
        const Call refused = lorry({"submit", file, "--tenant", tenant});
        EXPECT_EQ(refused.code, 2);
        EXPECT_THAT(refused.err, HasSubstr("allowed is UTF-8 of up to 512 bytes"));
    }
    EXPECT_THAT(records(topics.jobs()), IsEmpty());
}

TEST_F(ClientTest, SubmitRefusesADeadlineThatIsAPointInTime) {
    const std::string file = write("jobs.jsonl", {job_line("a")});
    const auto refusal = [&](const std::string& deadline) {
        const Call refused = lorry({"submit", file, "--deadline", deadline});
        EXPECT_EQ(refused.code, 2) << deadline;
        return refused.err;
    };
    EXPECT_THAT(refusal("1795676338"),
                HasSubstr("--deadline is '1795676338', which looks like seconds since 1970; allowed is a time from now"));
    EXPECT_THAT(refusal("1795676338000"), HasSubstr("which looks like milliseconds since 1970"));
    EXPECT_THAT(refusal("1795676338000000"), HasSubstr("which looks like microseconds or nanoseconds since 1970"));
    for (const std::string deadline : {"0", "soon", "9000h"})
        EXPECT_THAT(refusal(deadline), HasSubstr("--deadline is '" + deadline + "'; allowed is a time from now of up to a year"));
    EXPECT_THAT(records(topics.jobs()), IsEmpty());
    EXPECT_EQ(lorry({"submit", file, "--deadline", "8760h"}).code, 0);
}

TEST_F(ClientTest, SpreadGivesAModelSeveralKeys) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b"), job_line("c")}), "--spread", "2"}).code, 0);
    std::multiset<std::string> keys;
    for (const schema::JobRecord& record : records(topics.jobs())) keys.insert(record.key.value());
    EXPECT_THAT(keys, ElementsAre("base#0", "base#0", "base#1"));
}

TEST_F(ClientTest, SubmitNamesBadLinesAndSendsNothingUnlessToldTo) {
    const std::string jobs = write("jobs.jsonl", {job_line("a"), "{\"custom_id\":", "", job_line("a"), job_line("b")});
    const Call refused = lorry({"submit", jobs});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_THAT(refused.err, HasSubstr("jobs.jsonl, line 2: invalid_json"));
    EXPECT_THAT(refused.err, HasSubstr("jobs.jsonl, line 4: duplicate_custom_id"));
    EXPECT_THAT(refused.err, HasSubstr("2 of 4 lines are not jobs; nothing was sent"));
    EXPECT_THAT(records(topics.jobs()), IsEmpty());

    const Call kept_going = lorry({"submit", jobs, "--keep-going"});
    EXPECT_EQ(kept_going.code, 1) << "a script must notice the bad lines";
    EXPECT_EQ(records(topics.jobs()).size(), 2U);
}

// Pins: a custom_id was quoted whole, and it may have 512 bytes.
TEST_F(ClientTest, SubmitQuotesTheBeginningOfALongIdThatOccursTwice) {
    const std::string id(500, 'x');
    const Call refused = lorry({"submit", write("jobs.jsonl", {job_line(id), job_line(id)})});
    EXPECT_THAT(refused.err, AllOf(HasSubstr("custom_id '" + std::string(60, 'x') + "…' was used"), Not(HasSubstr(std::string(70, 'x')))));
}

// Pins: an empty id was taken for none: all jobs were sent again, or shown.
TEST_F(ClientTest, AnEmptyValueOfAFlagIsAWrongCall) {
    const std::string jobs = write("jobs.jsonl", {job_line("a")});
    for (const std::vector<std::string>& words : {std::vector<std::string>{"submit", jobs, "--retry-failed", ""},
                                                  {"submit", jobs, "--batch", ""},
                                                  {"submit", jobs, "--deadline", ""},
                                                  {"cancel", ""},
                                                  {"jobs", "--batch", ""}}) {
        const Call empty = lorry(words);
        EXPECT_EQ(empty.code, 2);
        EXPECT_THAT(empty.err, HasSubstr("it is empty: give a value, or leave it out"));
    }
    EXPECT_TRUE(records(topics.jobs()).empty());
}

TEST_F(ClientTest, SubmitOfAFileThatIsNotThereIsAWrongCall) {
    const Call missing = lorry({"submit", file("missing.jsonl")});
    EXPECT_EQ(missing.code, 2);
    EXPECT_THAT(missing.err, HasSubstr("missing.jsonl: there is no such file"));
    EXPECT_EQ(lorry({"submit", folder.string()}).code, 2);
}

TEST_F(ClientTest, ASubmitThatWasCutShortIsResumedWithoutDoubles) {
    ASSERT_EQ(lorry({"submit", write("some.jsonl", {job_line("a"), job_line("b")}), "--batch", "mine"}).code, 0);
    const Call resumed =
        lorry({"submit", write("all.jsonl", {job_line("a"), job_line("b"), job_line("c")}), "--batch", "mine", "--resume"});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr("1 job for 1 model sent to lorry.jobs"));
    EXPECT_THAT(resumed.err, HasSubstr("2 were there already"));
    EXPECT_EQ(records(topics.jobs()).size(), 3U);
}

TEST_F(ClientTest, CollectWaitsForTheLastResultDropsDoublesAndSaysWhatFailed) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b"), job_line("c")}), "--batch", "mine"}).code, 0);
    ASSERT_EQ(lorry({"submit", write("other.jsonl", {job_line("x")}), "--batch", "other"}).code, 0);
    publish(topics.results(), "other/x", {result_line("9", "x")}, "other");
    publish(topics.results(), "mine/a", {result_line("1", "a"), result_line("1", "a")}, "mine");
    std::thread worker([this] {
        std::this_thread::sleep_for(300ms);
        publish(topics.results(), "mine/b", {result_line("2", "b")}, "mine");
        publish(topics.results(), "mine/c", {result_line("3", "c", 404)}, "mine");
    });
    const Call collect = lorry({"collect", "--batch", "mine", "-o", file("out.jsonl"), "--timeout", "60s"});
    worker.join();
    EXPECT_EQ(collect.code, 1);
    EXPECT_THAT(collect.err, HasSubstr("3 of 3 jobs ended, 1 of them failed"));
    EXPECT_THAT(collect.err, HasSubstr("1 × model_not_found: no such model"));
    EXPECT_THAT(lines_of(text_of(file("out.jsonl"))),
                UnorderedElementsAre(result_line("1", "a"), result_line("2", "b"), result_line("3", "c", 404)));
}

// The custom_ids of jobs with their sources, sorted. A worker makes the ids of its results from these.
std::vector<std::pair<std::string, schema::Source>> ids_of(const std::vector<schema::JobRecord>& jobs) {
    std::vector<std::pair<std::string, schema::Source>> ids;
    for (const schema::JobRecord& job : jobs) {
        const auto custom_id = schema::scan_string_member(job.value.value(), "custom_id").value();
        ids.emplace_back(custom_id, job.source);
    }
    std::ranges::sort(ids, {}, &std::pair<std::string, schema::Source>::first);
    return ids;
}

// The result lines of these jobs, by custom_id.
std::vector<std::string> results_of(const std::vector<schema::JobRecord>& jobs, int status = 200) {
    std::vector<std::string> lines;
    for (const auto& [custom_id, source] : ids_of(jobs)) {
        lines.push_back(result_line(schema::result_id(source, custom_id), custom_id, status));
    }
    return lines;
}

TEST_F(ClientTest, CollectGoesOnWhereAnEarlierCallWasCut) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b")}), "--batch", "mine"}).code, 0);
    const std::vector<std::string> lines = results_of(records(topics.jobs()));
    publish(topics.results(), "mine/a", {lines[0]}, "mine");
    const std::string out = file("out.jsonl");
    const Call first = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "0"});
    EXPECT_EQ(first.code, 1) << first.err;
    EXPECT_THAT(first.err, HasSubstr("1 of 2 jobs ended"));
    EXPECT_EQ(text_of(out), lines[0] + "\n");

    // As if the call had been killed in the middle of a write.
    std::ofstream(out, std::ios::app) << lines[1].substr(0, 30);
    publish(topics.results(), "mine/b", {lines[1]}, "mine");
    const Call second = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "60s"});
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(text_of(out), lines[0] + "\n" + lines[1] + "\n");
    EXPECT_THAT(second.err, HasSubstr("1 results added, 1 were there before"));

    // Pins: two calls at a time wrote each result twice.
    const int other = consumer::open_locked(out, O_RDWR);
    const Call beside = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "60s"});
    ::close(other);
    EXPECT_EQ(beside.code, 2) << beside.err;
    EXPECT_THAT(beside.err, HasSubstr("is in use"));
    const Call third = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "60s"});
    EXPECT_EQ(third.code, 0);
    EXPECT_EQ(lines_of(text_of(out)).size(), 2U);
}

TEST_F(ClientTest, CollectLeavesAFileAloneThatHoldsSomethingElse) {
    const std::string notes = write("notes.txt", {"my notes"});
    const Call collect = lorry({"collect", "--batch", "mine", "-o", notes});
    EXPECT_EQ(collect.code, 2);
    EXPECT_THAT(collect.err, HasSubstr("notes.txt, line 1 is not a result"));
    EXPECT_EQ(text_of(notes), "my notes\n");
    std::ofstream(notes) << "my notes";
    EXPECT_EQ(lorry({"collect", "--batch", "mine", "-o", notes}).code, 2);
    EXPECT_EQ(text_of(notes), "my notes") << "an unfinished line may be the user's as well";
}

TEST_F(ClientTest, CollectSaysWhatToDoWhenItCannotWrite) {
    const Call to_folder = lorry({"collect", "--batch", "mine", "-o", folder.string()});
    EXPECT_EQ(to_folder.code, 2);
    EXPECT_THAT(to_folder.err, HasSubstr("is a folder: name a file in it"));
    const Call no_name = lorry({"collect", "--batch", "mine", "-o", std::string(300, 'x')});
    EXPECT_EQ(no_name.code, 1);
    EXPECT_EQ(no_name.err, fmt::format("lorry: {}: File name too long\n", std::string(300, 'x'))) << "the library's own text shows";
    publish(topics.jobs(), "base", {job_line("a")}, "mine");
    publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    const Call full = lorry({"collect", "--batch", "mine", "-o", "/dev/full", "--timeout", "60s"});
    EXPECT_EQ(full.code, 1);
    EXPECT_THAT(full.err, HasSubstr("writing /dev/full failed: is the disk full? No result is lost: run the same command again"));
    EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

// Pins: two batches went into one file without a warning, because `submit` proposed the same name after each.
TEST_F(ClientTest, CollectLeavesAFileAloneThatHoldsAnotherBatch) {
    const Call submit = lorry({"submit", write("jobs.jsonl", {job_line("a")}), "--batch", "mine"});
    EXPECT_THAT(submit.err, HasSubstr("lorry collect --batch mine -o mine.jsonl"));
    ASSERT_EQ(lorry({"submit", file("jobs.jsonl"), "--batch", "other"}).code, 0);
    for (const schema::JobRecord& job : records(topics.jobs())) {
        publish(topics.results(), "a", results_of({job}), header_of(job, "batch_id"));
    }
    const std::string out = file("other.jsonl");
    ASSERT_EQ(lorry({"collect", "--batch", "other", "-o", out, "--timeout", "60s"}).code, 0);
    std::ofstream(out, std::ios::app) << R"({"id":"cut)";
    const std::string before = text_of(out);
    const Call mixed = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "60s"});
    EXPECT_EQ(mixed.code, 2);
    EXPECT_THAT(mixed.err, HasSubstr("other.jsonl holds 1 results of jobs outside batch mine: give -o another name, such as mine.jsonl"));
    EXPECT_EQ(text_of(out), before);
    EXPECT_EQ(lorry({"collect", "--batch", "other", "-o", out, "--timeout", "60s"}).code, 0);
}

TEST_F(ClientTest, ResultsMayBeOfJobsWhoseRecordsAreGone) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b")}), "--batch", "mine"}).code, 0);
    const auto jobs = records(topics.jobs());
    const std::vector<std::string> lines = results_of(jobs);
    broker.delete_records(topics.jobs(), jobs[0].source.partition, 1);
    publish(topics.results(), "mine/b", {lines[1]}, "mine");
    const Call collect = lorry({"collect", "--batch", "mine", "-o", write("mine.jsonl", {lines[0]}), "--timeout", "0"});
    EXPECT_THAT(collect.err, HasSubstr("1 results added, 1 were there before"));
}

// Their producer did not announce how many jobs there will be.
TEST_F(ClientTest, SoMayThoseOfABatchThatAnnouncedNothing) {
    publish(topics.jobs(), "base", {job_line("a"), job_line("b")}, "mine");
    const auto jobs = records(topics.jobs());
    broker.delete_records(topics.jobs(), jobs[0].source.partition, 1);
    const Call collect = lorry({"collect", "--batch", "mine", "-o", write("mine.jsonl", {results_of(jobs)[0]}), "--timeout", "0"});
    EXPECT_EQ(collect.code, 1) << "one has not ended";
    EXPECT_THAT(collect.err, HasSubstr("0 results added, 1 were there before"));
}

// Announced jobs that are not sent yet are no reason to believe that the file's results belong to this batch.
TEST_F(ClientTest, CollectLeavesAFileAloneThatHoldsAnotherBatchWhileJobsAreSubmitted) {
    publish(topics.jobs(), "base", {job_line("a"), job_line("b")}, "other");
    const std::string out = write("out.jsonl", results_of(records(topics.jobs())));
    consumer::JobProducer producer(config, {.topic = topics.jobs(), .batch_id = "mine", .headers = {{"batch_jobs", "400"}}});
    producer.submit(job_line("a"), "base", 1);
    producer.finish();
    const Call collect = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "0"});
    EXPECT_EQ(collect.code, 2);
    EXPECT_THAT(collect.err, HasSubstr("holds 2 results of jobs outside batch mine"));
}

// Pins: collect truncated a file that it had not checked yet, and appended to it.
TEST_F(ClientTest, ACollectThatIsInterruptedBeforeItKnowsWhoseResultsTheFileHoldsLeavesItAlone) {
    publish(topics.jobs(), "base", {job_line("a")}, "mine");
    const std::string out = write("out.jsonl", {result_line("1", "a")});
    std::ofstream(out, std::ios::app) << R"({"id":"cut)";
    const std::string before = text_of(out);
    constexpr std::int16_t fetch = 1;
    broker.count_requests();
    broker.delay_answer(fetch, 3s);
    tests::Program collect({LORRY_PROGRAM, "collect", "--batch", "mine", "-o", out, "--brokers", broker.address()});
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (broker.requests(fetch) == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(20ms);
    collect.signal(SIGINT);
    const tests::ProgramResult result = collect.wait(30s);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("interrupted. To continue"));
    EXPECT_EQ(text_of(out), before);
}

TEST_F(ClientTest, ABatchThatNobodySubmittedIsAnErrorAndNotAWait) {
    const Call collect = lorry({"collect", "--batch", "20200101T000000Z-000000", "--timeout", "60s"});
    EXPECT_EQ(collect.code, 1);
    EXPECT_THAT(collect.err, HasSubstr("no job of batch 20200101T000000Z-000000 is in lorry.jobs"));
}

TEST_F(ClientTest, ADeadLetterCountsAsAnEndOfItsJob) {
    publish(topics.jobs(), "base", {job_line("a"), "not a job"}, "mine");
    publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    publish(topics.dlq(), "base", {"not a job"}, "mine");
    const Call collect = lorry({"collect", "--batch", "mine", "--timeout", "60s"});
    EXPECT_EQ(collect.code, 1);
    EXPECT_EQ(collect.out, result_line("1", "a") + "\n");
    EXPECT_THAT(collect.err, HasSubstr("2 of 2 jobs ended, 1 of them failed"));
}

TEST_F(ClientTest, AnUnfinishedSubmitKeepsTheBatchOpen) {
    // Two of three announced jobs were sent and have ended.
    consumer::JobProducer producer(config, {.topic = topics.jobs(), .batch_id = "mine", .headers = {{"batch_jobs", "3"}}});
    for (const char* id : {"a", "b"}) producer.submit(job_line(id), "base", 1);
    producer.finish();
    publish(topics.results(), "mine/a", {result_line("1", "a"), result_line("2", "b")}, "mine");
    const Call collect = lorry({"collect", "--batch", "mine", "-o", file("out.jsonl"), "--timeout", "2s"});
    EXPECT_EQ(collect.code, 1);
    EXPECT_THAT(collect.err, HasSubstr("2 of 3 jobs ended\n")) << "one of the jobs failed";
    EXPECT_THAT(collect.err, HasSubstr("the time is up"));
}

TEST_F(ClientTest, SubmitWithWaitEndsWithTheBatch) {
    std::thread worker([this] {
        // The jobs are in the topic before their results, as with any worker.
        while (records(topics.jobs()).empty()) std::this_thread::sleep_for(50ms);
        publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    });
    const Call submit = lorry({"submit", write("jobs.jsonl", {job_line("a")}), "--batch", "mine", "--wait", "--timeout", "60s"});
    worker.join();
    EXPECT_EQ(submit.code, 0) << submit.err;
    EXPECT_EQ(submit.out, "mine\n");
    EXPECT_THAT(submit.err, HasSubstr("1 of 1 jobs ended, all well"));
}

// Pins: an id was sent twice, so all jobs ran and were collected twice.
TEST_F(ClientTest, ABatchThatHasJobsIsNotSubmittedAgainWithoutResume) {
    const std::string jobs = write("jobs.jsonl", {job_line("a")});
    ASSERT_EQ(lorry({"submit", jobs, "--batch", "mine"}).code, 0);
    const Call again = lorry({"submit", jobs, "--batch", "mine"});
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, HasSubstr("batch mine already has jobs in lorry.jobs; nothing was sent. --resume sends only"));
    EXPECT_THAT(again.out, IsEmpty());
    EXPECT_EQ(records(topics.jobs()).size(), 1U);
    EXPECT_EQ(lorry({"submit", jobs, "--batch", "mine2"}).code, 0) << "jobs of another batch must not matter";
}

TEST_F(ClientTest, OnlyTheFailedJobsOfABatchRunAgain) {
    const std::string jobs = write("jobs.jsonl", {job_line("a"), job_line("b"), job_line("c")});
    ASSERT_EQ(lorry({"submit", jobs, "--batch", "mine"}).code, 0);
    publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    const Call none = lorry({"submit", jobs, "--retry-failed", "mine"});
    EXPECT_EQ(none.code, 1);
    EXPECT_THAT(none.err, HasSubstr("none of its jobs has failed; nothing was sent"));
    publish(topics.results(), "mine/b", {result_line("2", "b", 404)}, "mine");
    const Call again = lorry({"submit", jobs, "--retry-failed", "mine", "--batch", "again"});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("1 job for 1 model sent"));
    const schema::JobRecord job = records(topics.jobs()).back();
    EXPECT_EQ(header_of(job, "batch_id"), "again");
    EXPECT_EQ(header_of(job, "batch_jobs"), "1");
    EXPECT_EQ(job.value, job_line("b"));
    EXPECT_EQ(lorry({"submit", jobs, "--retry-failed", "mine", "--batch", "mine"}).code, 2);
    EXPECT_EQ(lorry({"submit", jobs, "--retry-failed", "nosuch"}).code, 1);
}

TEST_F(ClientTest, WhatFailedAndCannotBeRetriedFromTheFileIsSaid) {
    publish(topics.jobs(), "base", {"not a job"}, "dead");
    publish(topics.dlq(), "base", {"not a job"}, "dead");
    const std::string jobs = write("jobs.jsonl", {job_line("a"), "not a job", job_line("b")});
    const Call dead = lorry({"submit", jobs, "--retry-failed", "dead"});
    EXPECT_EQ(dead.code, 1);
    EXPECT_THAT(dead.err, HasSubstr("its failed jobs are dead letters, which have no custom_id"));

    publish(topics.jobs(), "base", {job_line("b"), job_line("c")}, "mine");
    publish(topics.results(), "mine/b", {result_line("2", "b", 404), result_line("3", "c", 404)}, "mine");
    const Call bad = lorry({"submit", jobs, "--retry-failed", "mine"});
    EXPECT_EQ(bad.code, 1);
    EXPECT_THAT(bad.err, HasSubstr("1 of 3 lines are not jobs; nothing was sent. Correct them"));
    const Call none = lorry({"submit", write("none.jsonl", {job_line("a")}), "--retry-failed", "mine"});
    EXPECT_EQ(none.code, 1);
    EXPECT_THAT(none.err, HasSubstr("2 of the 2 jobs that failed in batch mine are not in "));
    EXPECT_THAT(none.err, HasSubstr("none.jsonl holds none of them; nothing was sent"));
    const Call some = lorry({"submit", write("some.jsonl", {job_line("a"), job_line("b")}), "--retry-failed", "mine"});
    EXPECT_EQ(some.code, 0) << some.err;
    EXPECT_THAT(some.err, HasSubstr("1 of the 2 jobs that failed in batch mine are not in "));
}

TEST_F(ClientTest, SubmitOfATableSaysWhatTablesAreFor) {
    const Call table = lorry({"submit", write("mails.csv", {"id,text", "1,hello"})});
    EXPECT_EQ(table.code, 2);
    EXPECT_THAT(table.err, HasSubstr("mails.csv is a table, and submit takes job lines"));
    EXPECT_THAT(table.err, HasSubstr("lorry run"));
    const Call unnamed = lorry({"submit", write("mails", {"id,text", "1,hello"})});
    EXPECT_EQ(unnamed.code, 1);
    EXPECT_THAT(unnamed.err, HasSubstr("is it a table?"));
}

TEST_F(ClientTest, SubmitWarnsWhenAModelsJobsAreMoreThanTheEmbeddedBrokerKeeps) {
    const auto large = [](const std::string& id, const std::string& model) {
        return fmt::format(R"({{"custom_id":"{}","url":"/v1/completions","body":{{"model":"{}","prompt":"{}"}}}})", id, model,
                           std::string(600'000, 'x'));
    };
    std::vector<std::string> lines = {large("x", "small")};
    for (int i = 0; i < 8; ++i) lines.push_back(large(std::to_string(i), "section"));
    const Call warned = lorry({"submit", write("jobs.jsonl", lines)});
    EXPECT_EQ(warned.code, 0) << warned.err;
    EXPECT_THAT(warned.err, HasSubstr("keeps at most 5 MiB per partition, and the jobs for section are 4.6 MiB"));
    const Call spread = lorry({"submit", file("jobs.jsonl"), "--spread", "4"});
    EXPECT_EQ(spread.code, 0) << spread.err;
    EXPECT_THAT(spread.err, Not(HasSubstr("5 MiB")));
}

TEST_F(ClientTest, ResultsThatTheFileHasCountAlthoughTheirRecordsAreGone) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b"), job_line("c")}), "--batch", "mine"}).code, 0);
    const auto ids = ids_of(records(topics.jobs()));
    const auto line = [&](std::size_t i, int status) {
        return result_line(schema::result_id(ids[i].second, ids[i].first), ids[i].first, status);
    };
    const std::string out = write("out.jsonl", {line(0, 200), line(1, 404)});
    const Call early = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "0"});
    EXPECT_EQ(early.code, 1);
    EXPECT_THAT(early.err, HasSubstr("batch mine: 2 of 3 jobs ended, 1 of them failed\n  1 × model_not_found: no such model"));
    publish(topics.results(), "mine/b", {line(1, 404)}, "mine");
    publish(topics.results(), "mine/c", {line(2, 200)}, "mine");
    const Call collect = lorry({"collect", "--batch", "mine", "-o", out, "--timeout", "60s"});
    EXPECT_EQ(collect.code, 1);
    EXPECT_THAT(collect.err, HasSubstr("batch mine: 3 of 3 jobs ended, 1 of them failed"));
    EXPECT_THAT(collect.err, HasSubstr("1 results added, 2 were there before"));
    EXPECT_EQ(lines_of(text_of(out)).size(), 3U);
}

TEST_F(ClientTest, CollectDoesNotWaitForResultsThatHaveVanished) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b"), job_line("c")}), "--batch", "mine"}).code, 0);
    const auto ids = ids_of(records(topics.jobs()));
    for (const auto& [custom_id, source] : ids) {
        const std::string key = "mine/" + custom_id;
        const schema::Status status{.run = {.job_id = key, .batch_id = "mine", .model = "base", .source = source},
                                    .state = schema::JobState::completed,
                                    .usage = {},
                                    .error = {}};
        publish(topics.status(), key, {schema::encode_status(status)});
        publish(topics.results(), "one partition", {result_line(schema::result_id(source, custom_id), custom_id)}, "mine");
    }
    const auto results = records(topics.results());
    ASSERT_EQ(results.size(), 3U);
    broker.delete_records(topics.results(), results[0].source.partition, 2);
    const auto begin = std::chrono::steady_clock::now();
    const Call collect = lorry({"collect", "--batch", "mine", "-o", file("out.jsonl"), "--timeout", "100s"});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 90s);
    EXPECT_EQ(collect.code, 1);
    EXPECT_THAT(collect.err, HasSubstr("batch mine: 1 of 3 jobs ended\n"));
    EXPECT_THAT(collect.err, HasSubstr("2 more jobs ended, but their results are no longer in lorry.results"));
    EXPECT_THAT(collect.err, HasSubstr("the oldest records of lorry.results have vanished"));
}

TEST_F(ClientTest, OnlyABatchOfWhichAllEndedIsWell) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a"), job_line("b")}), "--batch", "mine"}).code, 0);
    const Call none = lorry({"collect", "--batch", "mine", "-o", file("out.jsonl"), "--timeout", "0"});
    EXPECT_EQ(none.code, 1);
    EXPECT_THAT(none.err, HasSubstr("batch mine: 0 of 2 jobs ended\n"));
    EXPECT_FALSE(std::filesystem::exists(file("out.jsonl"))) << "without results there must be no file";
}

TEST_F(ClientTest, CancelOfWhatNobodySubmittedIsAnErrorUnlessForced) {
    ASSERT_EQ(lorry({"submit", write("jobs.jsonl", {job_line("a")}), "--batch", "mine"}).code, 0);
    publish(topics.jobs(), "base", {job_line("free/standing")});
    const Call batch = lorry({"cancel", "--batch", "nosuch"});
    EXPECT_EQ(batch.code, 1);
    EXPECT_THAT(batch.err, HasSubstr("lorry.jobs has no job of batch nosuch; nothing was cancelled"));
    const Call job = lorry({"cancel", "mine/b"});
    EXPECT_EQ(job.code, 1);
    EXPECT_THAT(job.err, HasSubstr("lorry.jobs has no job mine/b"));
    EXPECT_EQ(lorry({"cancel", "a"}).code, 1) << "a is mine/a";
    EXPECT_THAT(records(topics.control()), IsEmpty());
    EXPECT_EQ(lorry({"cancel", "free/standing"}).code, 0);
    EXPECT_EQ(lorry({"cancel", "--batch", "nosuch", "--force"}).code, 0);
    EXPECT_EQ(records(topics.control()).size(), 2U);
}

TEST_F(ClientTest, CancelWritesWhatWorkersReadForAJobAndForABatch) {
    publish(topics.jobs(), "base", {job_line("a")}, "mine");
    ASSERT_EQ(lorry({"cancel", "mine/a"}).code, 0);
    ASSERT_EQ(lorry({"cancel", "--batch", "mine"}).code, 0);
    std::vector<std::string> cancels;
    for (const schema::JobRecord& record : records(topics.control())) {
        const auto cancel = schema::parse_cancel(record.value.value(), record.timestamp.value());
        ASSERT_TRUE(cancel) << cancel.error();
        cancels.push_back((cancel->is_batch ? "batch " : "job ") + cancel->id);
    }
    EXPECT_THAT(cancels, UnorderedElementsAre("job mine/a", "batch mine"));
    publish(topics.jobs(), "base", {job_line("b")}, "mine");
    broker.count_requests();
    const Call several = lorry({"cancel", "mine/a", "mine/b"});
    EXPECT_EQ(several.code, 0);
    constexpr std::int16_t init_producer = 22;
    EXPECT_EQ(broker.requests(init_producer), 1U) << "one connection for all";
    EXPECT_THAT(several.err, HasSubstr("job mine/b: cancelled. Jobs submitted before now that have not ended yet"));
    EXPECT_EQ(records(topics.control()).size(), 4U);
    const Call unknown = lorry({"cancel", "mine/nosuch", "mine/a", "neither"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("lorry.jobs has no job mine/nosuch, nor 1 more of these; nothing was cancelled"));
    EXPECT_EQ(records(topics.control()).size(), 4U) << "all or none";
    EXPECT_EQ(lorry({"cancel"}).code, 2);
    EXPECT_EQ(lorry({"cancel", "a", "--batch", "mine"}).code, 2);
}

TEST(ClientCommands, BrokersThatAreAwayOrNotGivenAreExplained) {
    const Call away = call({"cancel", "a", "--brokers", "127.0.0.1:1", "--deadline-start", "1s"});
    EXPECT_EQ(away.code, 1);
    EXPECT_THAT(away.err, HasSubstr("127.0.0.1:1"));
    const Call missing = call({"cancel", "a"});
    EXPECT_EQ(missing.code, 2);
    EXPECT_THAT(missing.err, HasSubstr("--brokers"));
    EXPECT_THAT(missing.err, HasSubstr("lorry broker"));
}

}  // namespace
}  // namespace lorry::ops
