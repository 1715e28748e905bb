// The checker of the fault tests (tests/faults) finds each kind of violation. The evidence is that of a small run without faults; each test
// breaks one thing in it.
#include "tests/faults/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "consumer/commit_metadata.h"
#include "tests/support/labels.h"

namespace lorry::faults {
namespace {

// No other thread takes part.
const tests::Labelled checker_without_tsan{"*", {tests::Label::not_tsan}};

using schema::JobRecord;

constexpr std::int64_t attempt = 1'700'000'000'000'000;
constexpr schema::Timestamp ended_at{std::chrono::milliseconds(1'700'000'000'500)};

schema::Completion completion_of(const JobRecord& job, const Expectation& expected) {
    schema::Completion completion;
    completion.custom_id = expected.custom_id;
    completion.id = schema::result_id(job.source, expected.custom_id);
    completion.run.job_id = expected.custom_id;
    completion.run.worker = "w0";
    completion.run.source = job.source;
    completion.run.attempt = attempt;
    completion.run.finished = ended_at;
    if (expected.text) {
        completion.usage.completion_tokens = expected.tokens;
        completion.body = schema::Json::object({{"choices", schema::Json::array({schema::Json::object({{"text", *expected.text}})})},
                                                {"usage", schema::encode_usage(completion.usage)}});
    } else if (expected.codes.front() == schema::ErrorCode::batch_expired) {
        completion.state = schema::JobState::expired;
        completion.failure = schema::BatchFailure::expired;
    } else {
        completion.state = schema::JobState::failed;
        completion.status_code = 400;
        completion.body = schema::error_body({.code = expected.codes.front(), .param = {}, .message = "no"});
    }
    return completion;
}

// One job of each kind on one partition, each ended correctly.
class FaultChecker : public ::testing::Test {
protected:
    Evidence evidence;

    FaultChecker() {
        evidence.topics.prefix = "t";
        JobMix mix(1, JobMix::everyday());
        for (const JobKind kind : {JobKind::plain, JobKind::twin, JobKind::twin, JobKind::stream, JobKind::slow, JobKind::expired,
                                   JobKind::malformed, JobKind::oversized, JobKind::broken, JobKind::nameless, JobKind::null}) {
            JobRecord job = mix.next(kind);
            job.source = {evidence.topics.jobs(), 0, static_cast<std::int64_t>(evidence.jobs.size())};
            evidence.jobs.push_back(job);
            end(job);
        }
        evidence.tailed = evidence.results;
        std::ranges::copy(evidence.dead_letters, std::back_inserter(*evidence.tailed));
        const auto count = static_cast<std::int64_t>(evidence.jobs.size());
        const consumer::CommitState all{.offset = count, .holes = {}, .highest_finished = count, .starts = {}};
        evidence.commits = {{0, count, consumer::encode_commit_metadata(all)}};
        evidence.offsets_settled = true;
        evidence.ends = {{evidence.topics.results(), 0, 9, 9}};
        std::vector<schema::Status> rows;
        for (const JobRecord& status : evidence.statuses) rows.push_back(*schema::parse_status(*status.value));
        std::erase_if(rows, [](const schema::Status& row) { return !schema::is_terminal(row.state); });
        evidence.ledgers = {{"w0", rows}, {"w1", rows}};
    }

    static void add(std::vector<JobRecord>& to, const std::string& topic, JobRecord record) {
        record.source = {topic, 0, static_cast<std::int64_t>(to.size())};
        to.push_back(std::move(record));
    }

    void end(const JobRecord& job) {
        const Expectation expected = expectation_of(job, evidence.rules);
        if (expected.dead_letter) {
            add(evidence.dead_letters, evidence.topics.dlq(),
                {.source = {},
                 .key = job.key,
                 .value = job.value,
                 .headers =
                     schema::dead_letter_headers({.source = job.source,
                                                  .key = {},
                                                  .value = {},
                                                  .headers = {},
                                                  .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "bad"}}),
                 .timestamp = {}});
            return;
        }
        const schema::Completion completion = completion_of(job, expected);
        const schema::Status running{.run = completion.run, .state = schema::JobState::running, .usage = {}, .error = {}};
        schema::Status terminal = running;
        terminal.state = completion.state;
        terminal.usage = completion.usage;
        const auto status = [&](const schema::Status& one) {
            add(evidence.statuses, evidence.topics.status(),
                {.source = {}, .key = completion.run.job_id, .value = schema::encode_status(one), .headers = {}, .timestamp = {}});
        };
        status(running);
        status(terminal);
        if (expected.stream) {
            for (int seq = 0; seq < 2; ++seq) {
                const std::string part = seq == 0 ? expected.text->substr(0, 1) : expected.text->substr(1);
                const schema::Chunk chunk{
                    .job_id = completion.run.job_id,
                    .custom_id = completion.custom_id,
                    .attempt = attempt,
                    .seq = seq,
                    .chunk = schema::Json::object({{"choices", schema::Json::array({schema::Json::object({{"text", part}})})}})};
                add(evidence.chunks, evidence.topics.chunks(),
                    {.source = {}, .key = chunk.job_id, .value = schema::encode_chunk(chunk), .headers = {}, .timestamp = {}});
            }
        }
        add(evidence.results, evidence.topics.results(),
            {.source = {},
             .key = completion.run.job_id,
             .value = schema::encode_completion(completion),
             .headers = schema::completion_headers(completion),
             .timestamp = {}});
    }

    // The kinds of violations, each once, in order.
    std::string found() const {
        std::set<std::string_view> names;
        for (const Violation& violation : check(evidence)) names.insert(name_of(violation.kind));
        return fmt::format("{}", fmt::join(names, " "));
    }
    // Changes a result in the records of both readers.
    void change_result(std::size_t index, const std::function<void(JobRecord&)>& change) {
        change(evidence.results.at(index));
        change(evidence.tailed->at(index));
    }
    void replace_in_result(std::size_t index, const std::string& from, const std::string& to) {
        change_result(index, [&](JobRecord& record) {
            const auto at = record.value->find(from);
            ASSERT_NE(at, std::string::npos) << *record.value;
            record.value->replace(at, from.size(), to);
        });
    }
    std::size_t index_of(std::vector<JobRecord>& records, std::string_view id, std::size_t nth = 0) const {
        for (std::size_t i = 0; i < records.size(); ++i) {
            if (records[i].key && records[i].key->starts_with(id) && nth-- == 0) return i;
        }
        ADD_FAILURE() << "no record of " << id;
        return 0;
    }
};

TEST_F(FaultChecker, FindsNothingInARunWithoutFaults) {
    for (const Violation& violation : check(evidence)) ADD_FAILURE() << name_of(violation.kind) << ": " << violation.text;
    EXPECT_EQ(evidence.results.size(), 8U);
    EXPECT_EQ(evidence.dead_letters.size(), 3U);
    EXPECT_GT(answer_tokens(evidence), 0);
}

TEST_F(FaultChecker, SeesALostJob) {
    evidence.results.erase(evidence.results.begin());
    evidence.tailed->erase(evidence.tailed->begin());
    EXPECT_EQ(found(), "committed_too_far lost");
}

// Pins: a run whose jobs were not read passed.
TEST_F(FaultChecker, SeesJobsThatAreNotInTheirTopic) {
    evidence.jobs_sent = evidence.jobs.size();
    EXPECT_EQ(found(), "");
    ++*evidence.jobs_sent;
    EXPECT_EQ(found(), "lost");
    evidence = {.topics = {}, .rules = {}, .offsets_settled = true};
    EXPECT_EQ(found(), "not_reached");
}

TEST_F(FaultChecker, SeesALostDeadLetter) {
    evidence.dead_letters.pop_back();
    evidence.tailed->pop_back();
    EXPECT_EQ(found(), "committed_too_far lost");
}

TEST_F(FaultChecker, SeesADoubledResult) {
    add(evidence.results, evidence.topics.results(), evidence.results[0]);
    evidence.tailed->push_back(evidence.results.back());
    EXPECT_EQ(found(), "doubled");
}

TEST_F(FaultChecker, SeesADoubledDeadLetter) {
    add(evidence.dead_letters, evidence.topics.dlq(), evidence.dead_letters[0]);
    evidence.tailed->push_back(evidence.dead_letters.back());
    EXPECT_EQ(found(), "doubled");
}

TEST_F(FaultChecker, TellsJobsOfOneIdApart) {
    change_result(index_of(evidence.results, "twin"),
                  [&](JobRecord& record) { record.headers = evidence.results[index_of(evidence.results, "twin", 1)].headers; });
    EXPECT_EQ(found(), "committed_too_far doubled lost wrong_end");
}

TEST_F(FaultChecker, SeesAResultOfNoJob) {
    JobRecord stranger = evidence.results[0];
    for (auto& [name, value] : stranger.headers) {
        if (name == schema::source_offset_header) value = "999";
    }
    add(evidence.results, evidence.topics.results(), stranger);
    evidence.tailed->push_back(evidence.results.back());
    EXPECT_EQ(found(), "stranger");
}

TEST_F(FaultChecker, TakesNoNumberWithSomethingBehindItForASourceOrAnAttempt) {
    const auto garble = [&](std::string_view header) {
        change_result(index_of(evidence.results, "stream"), [&](JobRecord& record) {
            for (auto& [name, value] : record.headers) {
                if (name == header) value += 'x';
            }
        });
        return found();
    };
    EXPECT_EQ(garble(schema::attempt_header), "broken_stream status_disorder");
    EXPECT_EQ(garble(schema::source_offset_header), "committed_too_far lost stranger");
}

TEST_F(FaultChecker, SeesAnAnswerThatDiffersFromAnUndisturbedRuns) {
    replace_in_result(index_of(evidence.results, "plain"), R"("text":")", R"("text":"x)");
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAnErrorInThePlaceOfAnAnswer) {
    replace_in_result(index_of(evidence.results, "plain"), R"("choices")", R"("error":{"code":"server_error","message":"no"},"choice")");
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAnotherErrorThanTheJobMustEndWith) {
    replace_in_result(index_of(evidence.results, "expired"), "batch_expired", "batch_cancelled");
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, TakesACrashForAnEndOnlyWhereItMayHaveHappened) {
    const std::size_t index = index_of(evidence.results, "plain");
    replace_in_result(index, R"("choices")", R"("error":{"code":"worker_crashed","message":"no"},"choice")");
    replace_in_result(index, R"("status_code":200)", R"("status_code":500)");
    auto status = *schema::parse_status(*evidence.statuses[1].value);
    status.state = schema::JobState::failed;
    evidence.statuses[1].value = schema::encode_status(status);
    evidence.ledgers.clear();
    EXPECT_EQ(found(), "wrong_end");
    EXPECT_EQ(crashed_by_chance(evidence), 1U);
    evidence.rules.crashes_by_chance = true;
    evidence.deaths = 1;
    EXPECT_EQ(found(), "");
    evidence.deaths = 0;
    EXPECT_EQ(found(), "wrong_end") << "more jobs than there were deaths";
}

TEST_F(FaultChecker, SeesAWorkerThatHeldTooMuch) {
    const FaultRules& rules = evidence.rules;
    const WorkerPeak allowed{
        .member = "w0", .working = rules.working_max, .parked = rules.parked_max, .memory_bytes = rules.memory_bytes_max};
    evidence.peaks = {allowed};
    EXPECT_EQ(found(), "");
    for (std::uint64_t WorkerPeak::*figure : {&WorkerPeak::working, &WorkerPeak::parked, &WorkerPeak::memory_bytes}) {
        evidence.peaks = {allowed};
        ++(evidence.peaks[0].*figure);
        EXPECT_EQ(found(), "beyond_limits");
    }
}

TEST_F(FaultChecker, SeesFaultsThatNeverCameAbout) {
    evidence.points = {.chosen = 2, .missed = 1, .reached_least = 0.5};
    EXPECT_EQ(found(), "");
    evidence.points.missed = 2;
    EXPECT_EQ(found(), "not_reached");
    evidence.points = {.chosen = 1, .missed = 1};
    EXPECT_EQ(found(), "not_reached") << "of a single fault nothing may be missed";
    evidence.points.missed = 0;
    EXPECT_EQ(found(), "");
}

TEST_F(FaultChecker, SeesThatNothingEndedForTooLongAfterAFault) {
    evidence.pause_limit = std::chrono::milliseconds(25'000);
    evidence.pauses = {{.after = "kill_busy", .longest = std::chrono::milliseconds(25'000)}};
    EXPECT_EQ(found(), "");
    evidence.pauses.push_back({.after = "kill_all", .longest = std::chrono::milliseconds(25'001)});
    EXPECT_EQ(found(), "stalled");
    EXPECT_EQ(check(evidence).at(0).text, "after kill_all: no job ended for 25001 ms (of 25000) though some were left");
}

TEST_F(FaultChecker, SeesAWorkerThatDoesNotEndWhenToldTo) {
    evidence.worker_ends = {{.member = "w0", .exit_code = 0, .wanted = 0}};
    EXPECT_EQ(found(), "");
    evidence.worker_ends[0].exit_code.reset();
    EXPECT_EQ(found(), "stalled");
}

TEST_F(FaultChecker, SeesAWorkerThatEndsOtherwiseThanItMust) {
    evidence.worker_ends = {{.member = "w0", .exit_code = 1, .wanted = 1, .words = {"the topic results"}, .log = "no: the topic results"}};
    EXPECT_EQ(found(), "");
    evidence.worker_ends[0].exit_code = 134;
    EXPECT_EQ(found(), "wrong_exit") << "another exit code";
    evidence.worker_ends[0].exit_code = 1;
    evidence.worker_ends[0].log = "no";
    EXPECT_EQ(found(), "wrong_exit") << "it does not say why";
    evidence.worker_ends = {{.member = "w1"}};
    EXPECT_EQ(found(), "") << "it must run, and does";
    evidence.worker_ends[0].exit_code = 0;
    EXPECT_EQ(found(), "wrong_exit") << "it must run";
}

TEST_F(FaultChecker, SeesAResultUnderAnotherId) {
    replace_in_result(0, R"("id":"batch_req_)", R"("id":"batch_req_0)");
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesADeadLetterInThePlaceOfAResult) {
    add(evidence.dead_letters, evidence.topics.dlq(), evidence.results[0]);
    evidence.results.erase(evidence.results.begin());
    evidence.tailed->front() = evidence.dead_letters.back();
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAResultInThePlaceOfADeadLetter) {
    add(evidence.results, evidence.topics.results(), evidence.dead_letters.back());
    evidence.dead_letters.pop_back();
    evidence.tailed->back() = evidence.results.back();
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAResultUnderAnotherCustomId) {
    replace_in_result(0, R"("custom_id":")", R"("custom_id":"x)");
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAResultUnderAnotherKey) {
    change_result(index_of(evidence.results, "plain"), [](JobRecord& record) { record.key = "x"; });
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesAResultThatIsNoJson) {
    change_result(0, [](JobRecord& record) { record.value->pop_back(); });
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesARecordThatIsNoStatus) {
    add(evidence.statuses, evidence.topics.status(), {.source = {}, .key = "a", .value = "{}", .headers = {}, .timestamp = {}});
    EXPECT_EQ(found(), "status_disorder");
}

TEST_F(FaultChecker, SeesARecordThatIsNoChunk) {
    const auto chunks = evidence.chunks;
    const auto add_chunk = [&](std::optional<std::string> key, std::string value) {
        evidence.chunks = chunks;
        add(evidence.chunks, evidence.topics.chunks(),
            {.source = {}, .key = std::move(key), .value = std::move(value), .headers = {}, .timestamp = {}});
        return found();
    };
    EXPECT_EQ(add_chunk("a", "{}"), "broken_stream") << "of no attempt";
    EXPECT_EQ(add_chunk("a", "{"), "broken_stream") << "no JSON";
    EXPECT_EQ(add_chunk(std::nullopt, *chunks[0].value), "broken_stream") << "of no job";
}

TEST_F(FaultChecker, SeesADeadLetterWithOtherBytes) {
    evidence.dead_letters[0].value = "else";
    evidence.tailed->at(evidence.results.size()).value = "else";
    EXPECT_EQ(found(), "wrong_end");
}

TEST_F(FaultChecker, SeesThatTwoReadersDisagree) {
    evidence.tailed->pop_back();
    EXPECT_EQ(found(), "readers_disagree");
    evidence.tailed->push_back(evidence.dead_letters.back());
    evidence.tailed->push_back(evidence.dead_letters.back());
    EXPECT_EQ(found(), "readers_disagree") << "a record read twice";
}

TEST_F(FaultChecker, SeesACommitPastAnUnfinishedJob) {
    FinishedOffsets finished{{0, {true, true, false, true, false, true}}};
    const auto kinds = [&](const consumer::CommitState& state) {
        const CommittedOffset commit{0, state.offset, consumer::encode_commit_metadata(state)};
        return check_commits({&commit, 1}, finished).size();
    };
    const auto state = [](std::int64_t offset, std::vector<std::int64_t> holes, std::int64_t highest) {
        return consumer::CommitState{.offset = offset, .holes = std::move(holes), .highest_finished = highest, .starts = {}};
    };
    EXPECT_EQ(kinds(state(2, {4}, 5)), 0U) << "all that is finished and nothing else";
    EXPECT_EQ(kinds(state(2, {3, 4}, 5)), 0U) << "less than what is finished";
    EXPECT_EQ(kinds(state(0, {}, 0)), 0U);
    EXPECT_EQ(kinds(state(2, {}, 5)), 1U) << "offset 4 is no hole, but unfinished";
    EXPECT_EQ(kinds(state(2, {4}, 6)), 1U) << "offset 6 is beyond what is finished";
    EXPECT_EQ(kinds(state(3, {4}, 5)), 1U) << "offset 2 is below the commit";
    finished.clear();
    EXPECT_EQ(kinds(state(2, {}, 2)), 2U);
}

TEST_F(FaultChecker, SeesMetadataThatNobodyCanRead) {
    evidence.commits[0].metadata = "what is this";
    EXPECT_EQ(found(), "metadata_unreadable");
}

TEST_F(FaultChecker, SeesAMissingChunk) {
    evidence.chunks.erase(evidence.chunks.begin());
    EXPECT_EQ(found(), "broken_stream");
}

TEST_F(FaultChecker, SeesADoubledChunk) {
    evidence.chunks.insert(evidence.chunks.begin(), evidence.chunks.front());
    EXPECT_EQ(found(), "broken_stream");
}

TEST_F(FaultChecker, SeesChunksThatAreNotTheText) {
    const std::string value = *evidence.chunks[0].value;
    evidence.chunks[0].value = std::string(value).replace(value.find(R"("text":")"), 8, R"("text":"x)");
    EXPECT_EQ(found(), "broken_stream");
}

TEST_F(FaultChecker, SeesAStreamOfWhichOnlyALosingAttemptIsThere) {
    for (JobRecord& chunk : evidence.chunks) {
        const auto at = chunk.value->find(std::to_string(attempt));
        chunk.value->replace(at, std::to_string(attempt).size(), std::to_string(attempt - 1));
    }
    EXPECT_EQ(found(), "broken_stream");
}

TEST_F(FaultChecker, SeesAStatusOfRunningAfterTheEnd) {
    add(evidence.statuses, evidence.topics.status(), evidence.statuses[0]);
    EXPECT_EQ(found(), "status_disorder");
}

TEST_F(FaultChecker, SeesAMissingOrDoubledTerminalStatus) {
    const auto terminal = evidence.statuses[1];
    evidence.statuses.erase(evidence.statuses.begin() + 1);
    EXPECT_EQ(found(), "ledger_differs status_disorder");
    evidence.statuses.push_back(terminal);
    evidence.statuses.push_back(terminal);
    EXPECT_EQ(found(), "status_disorder");
}

TEST_F(FaultChecker, SeesThatResultAndStatusDisagree) {
    auto status = *schema::parse_status(*evidence.statuses[1].value);
    status.state = schema::JobState::failed;
    evidence.statuses[1].value = schema::encode_status(status);
    evidence.ledgers.clear();
    EXPECT_EQ(found(), "status_disorder");
    status.state = schema::JobState::completed;
    status.run.attempt += 1;
    evidence.statuses[1].value = schema::encode_status(status);
    EXPECT_EQ(found(), "status_disorder");
}

TEST_F(FaultChecker, SeesAHangingTransaction) {
    evidence.ends[0].all = 10;
    EXPECT_EQ(found(), "hanging_transaction");
}

TEST_F(FaultChecker, SeesThatATransactionHoldsTheGroupsOffsets) {
    evidence.offsets_settled = false;
    EXPECT_EQ(found(), "hanging_transaction");
}

TEST_F(FaultChecker, SeesThatOneOfTheLedgersDiffers) {
    const auto whole = evidence.ledgers;
    evidence.ledgers[0].rows->pop_back();
    EXPECT_EQ(found(), "ledger_differs");
    evidence.ledgers = whole;
    evidence.ledgers[1].rows->front().usage.completion_tokens += 1;
    EXPECT_EQ(found(), "ledger_differs");
}

TEST_F(FaultChecker, SeesThatALedgerIsMissing) {
    evidence.ledgers[1].rows.reset();
    EXPECT_EQ(found(), "ledger_differs");
    EXPECT_EQ(check(evidence).at(0).text, "w1 is missing");
}

}  // namespace
}  // namespace lorry::faults
