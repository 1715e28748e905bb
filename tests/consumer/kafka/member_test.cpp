// A member of the group against the embedded broker: jobs in, results out, restarts, rebalances, refusals and outages.
#include "consumer/kafka/member.h"

#include <map>
#include <random>
#include <set>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/takeover.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

// Numbers of the Kafka protocol.
constexpr std::int16_t offset_commit = 8;
constexpr std::int16_t offset_fetch = 9;
constexpr int coordinator_loading = 14;
constexpr int not_coordinator = 16;
constexpr int unstable_offset_commit = 88;
constexpr int connection_lost = -195;  // librdkafka's own: the broker closes the connection without an answer
constexpr int offset_metadata_too_large = 12;
constexpr int rebalance_in_progress = 27;
constexpr int message_too_large = 10;
constexpr std::int16_t produce_request = 0;

std::set<std::string> ids_of(const std::vector<Delivery>& jobs) {
    std::set<std::string> ids;
    for (const Delivery& job : jobs) ids.insert(std::get<schema::Completion>(completed(job).record).custom_id);
    return ids;
}

using KafkaMemberTest = KafkaTest;

TEST_F(KafkaMemberTest, PublishesResultsStatusesAndDeadLettersOfWhatItPolled) {
    submit_jobs(config, topics, 0, 9);
    KafkaMember member(config, member_options("one"));
    EXPECT_TRUE(member.is_embedded());
    const auto jobs = poll_jobs(member, handler, 9);
    ASSERT_EQ(jobs.size(), 9U);
    for (std::size_t i = 0; i < 8; ++i) member.sink().publish(completed(jobs[i]));
    member.sink().publish(
        Outcome{.source = jobs[8].record.source,
                .epoch = jobs[8].epoch,
                .record = schema::DeadLetter{.source = jobs[8].record.source,
                                             .key = jobs[8].record.key,
                                             .value = jobs[8].record.value,
                                             .headers = {{"batch_id", "b"}},
                                             .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "not JSON"}}});
    EXPECT_EQ(member.sink().commit(), 9U);
    EXPECT_EQ(member.sink().commit(), 0U);
    EXPECT_EQ(member.source().backlog(), 0);

    const auto results = read_all(config, topics.results());
    ASSERT_EQ(results.size(), 8U);
    for (const auto& result : results) {
        const auto summary = schema::parse_result(result.value.value());
        ASSERT_TRUE(summary) << summary.error();
        EXPECT_EQ(result.key, summary->custom_id);
        const auto* partition = schema::find_header(result.headers, schema::source_partition_header);
        ASSERT_NE(partition, nullptr);
        EXPECT_EQ(*partition, std::to_string(result.source.partition)) << "results of jobs partition p lie in results partition p";
    }
    const auto statuses = read_all(config, topics.status());
    ASSERT_EQ(statuses.size(), 8U);
    EXPECT_EQ(schema::parse_status(statuses[0].value.value())->state, schema::JobState::completed);
    const auto letters = read_all(config, topics.dlq());
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(letters[0].key, jobs[8].record.key);
    EXPECT_EQ(letters[0].value, jobs[8].record.value);
    EXPECT_EQ(*schema::find_header(letters[0].headers, "__connect.errors.exception.message"), "not JSON");
    close(member);
}

// The promise of the commit metadata: one long job holds back nothing, and a restart repeats only what was not finished.
TEST_F(KafkaMemberTest, AfterARestartOnlyUnfinishedJobsComeAgain) {
    submit_jobs(config, topics, 0, 60);
    std::set<std::string> unfinished;
    {
        KafkaMember member(config, member_options("one"));
        const auto jobs = poll_jobs(member, handler, 60);
        ASSERT_EQ(jobs.size(), 60U);
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            if (i % 7 == 0) {
                unfinished.merge(ids_of({jobs[i]}));
            } else {
                member.sink().publish(completed(jobs[i]));
            }
        }
        EXPECT_EQ(member.sink().commit(), 51U);
        EXPECT_GT(member.stats().metadata_chars, 0U);
        // Ends without leaving the group, as after a SIGKILL.
    }
    KafkaMember again(config, member_options("one"));
    EXPECT_EQ(ids_of(poll_all_jobs(again, handler)), unfinished);
    EXPECT_GT(again.stats().source.skipped, 0U);
    EXPECT_GT(again.stats().source.replayed, 0U) << "most of them stand below a finished one";
    EXPECT_LE(again.stats().source.replayed, unfinished.size());
    close(again);
}

TEST_F(KafkaMemberTest, ACommitOfCallsLeavesTheResultsOfJobsForTheNext) {
    submit_jobs(config, topics, 0, 3);
    JobProducer calls(config, {.topic = topics.calls(), .spread = 16});
    calls.submit(job_line(7), "base", 7);
    calls.finish();
    KafkaMember member(config, member_options("one"));
    member.source().allow_calls(1);
    const auto jobs = poll_jobs(member, handler, 4);
    ASSERT_EQ(jobs.size(), 4U);
    for (const Delivery& job : jobs) member.sink().publish(completed(job));
    EXPECT_EQ(member.stats().sink.outbox_records, 4U);
    EXPECT_EQ(member.sink().commit_calls(), 1U);
    EXPECT_EQ(member.stats().sink.outbox_records, 3U);
    const auto first = read_all(config, topics.results());
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first.front().key, "job-7");
    EXPECT_EQ(member.sink().commit(), 3U);
    EXPECT_EQ(member.stats().sink.outbox_records, 0U);
    EXPECT_EQ(read_all(config, topics.results()).size(), 4U);
}

TEST_F(KafkaMemberTest, NoJobIsLostWhilePartitionsMoveBetweenMembers) {
    submit_jobs(config, topics, 0, 100);
    std::map<std::string, int> finished;
    const auto finish = [&](KafkaMember& member, std::vector<Delivery>& jobs) {
        for (const Delivery& job : jobs) {
            member.sink().publish(completed(job));
            ++finished[std::get<schema::Completion>(completed(job).record).custom_id];
        }
        jobs.clear();
        member.sink().commit();
    };
    KafkaMember first(config, member_options("one"));
    auto jobs = poll_jobs(first, handler, 20);
    ASSERT_EQ(jobs.size(), 20U);
    handler.on_drain = [&] { finish(first, jobs); };
    KafkaMember second(config, member_options("two"));
    RecordingHandler handler_two;
    std::vector<Delivery> jobs_two;
    const auto deadline = Clock::now() + 60s;
    const auto poll_both = [&] {
        for (auto& job : first.source().poll(20ms, 5, handler)) jobs.push_back(std::move(job));
        for (auto& job : second.source().poll(20ms, 5, handler_two)) jobs_two.push_back(std::move(job));
    };
    // The first member is busy: only the revocation makes it finish its jobs of the partition that it gives up.
    while (first.stats().partitions + second.stats().partitions < inputs || second.stats().partitions == 0) {
        ASSERT_LT(Clock::now(), deadline);
        poll_both();
    }
    submit_jobs(config, topics, 100, 100);
    while (finished.size() < 200 && Clock::now() < deadline) {
        poll_both();
        finish(first, jobs);
        finish(second, jobs_two);
    }
    EXPECT_EQ(finished.size(), 200U);
    EXPECT_GT(handler.drained.size(), 0U);
    EXPECT_EQ(first.stats().partitions + second.stats().partitions, inputs);
    for (const auto& [id, times] : finished) EXPECT_EQ(times, 1) << id;
    // Every job has its result in the topic as well.
    std::set<std::string> published;
    for (const auto& result : read_all(config, topics.results())) published.insert(result.key.value());
    EXPECT_EQ(published.size(), 200U);
    close(first);
    second.source().close(handler_two, Clock::now() + 5s);
}

TEST_F(KafkaMemberTest, DeliversNothingWithoutRoomAndAllOfItAfterwards) {
    submit_jobs(config, topics, 0, 30);
    KafkaMember member(config, member_options("one"));
    auto jobs = poll_jobs(member, handler, 5);
    EXPECT_EQ(member.source().poll(700ms, 0, handler).size(), 0U);
    EXPECT_EQ(member.source().backlog(), 25);
    for (auto& job : poll_jobs(member, handler, 25)) jobs.push_back(std::move(job));
    EXPECT_EQ(ids_of(jobs).size(), 30U) << "each once, none skipped";
    close(member);
}

TEST_F(KafkaMemberTest, AResultThatIsTooLargeBecomesAnErrorOfThatJob) {
    submit_jobs(config, topics, 0, 2);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 2);
    ASSERT_EQ(jobs.size(), 2U);
    member.sink().publish(completed(jobs[0], std::string(3'000'000, 'x')));
    member.sink().publish(completed(jobs[1]));
    EXPECT_EQ(member.sink().commit(), 2U);
    int ok = 0;
    for (const auto& result : read_all(config, topics.results())) {
        const auto summary = schema::parse_result(result.value.value());
        ASSERT_TRUE(summary);
        ok += summary->ok ? 1 : 0;
        EXPECT_TRUE(summary->ok || summary->error.starts_with("result_too_large")) << summary->error;
    }
    EXPECT_EQ(ok, 1);
    std::multiset<schema::JobState> states;
    for (const auto& status : read_all(config, topics.status())) states.insert(schema::parse_status(status.value.value())->state);
    EXPECT_EQ(states, (std::multiset<schema::JobState>{schema::JobState::completed, schema::JobState::failed}));
    close(member);
}

TEST_F(KafkaMemberTest, ADeadLetterThatIsTooLargeGoesWithoutItsValue) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    schema::DeadLetter letter{.source = jobs[0].record.source,
                              .key = "key",
                              .value = std::string(3'000'000, 'x'),
                              .headers = {},
                              .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "not JSON"}};
    member.sink().publish({.source = jobs[0].record.source, .epoch = jobs[0].epoch, .record = std::move(letter)});
    EXPECT_EQ(member.sink().commit(), 1U);
    const auto letters = read_all(config, topics.dlq());
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_FALSE(letters[0].value);
    EXPECT_THAT(letters[0].headers, ::testing::Contains(schema::Header("lorry.value.bytes_left_out", "3000000")));
    EXPECT_EQ(member.stats().jobs_incomplete, 0U);
    close(member);
}

// Pins: headers named like ours were kept, so that each worker which took the job over ended because it could not publish the letter.
TEST_F(KafkaMemberTest, ADeadLetterThatIsStillTooLargeGoesWithoutKeyAndHeadersWhateverTheirNames) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    const std::string zeros(1'500'000, '0');
    schema::DeadLetter letter{.source = jobs[0].record.source,
                              .key = "key",
                              .value = "garbage",
                              .headers = {{"__connect.errors.pad", zeros}, {"lorry.pad", zeros}, {"own", "1"}},
                              .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "not JSON"}};
    member.sink().publish({.source = jobs[0].record.source, .epoch = jobs[0].epoch, .record = std::move(letter)});
    EXPECT_EQ(member.sink().commit(), 1U);
    const auto letters = read_all(config, topics.dlq());
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_FALSE(letters[0].key);
    EXPECT_EQ(letters[0].headers.size(), 8U) << "only those that say where it was and what was wrong";
    EXPECT_EQ(schema::source_of_dead_letter(letters[0].headers)->source.offset, 0);
    EXPECT_THAT(letters[0].headers, ::testing::Contains(schema::Header("lorry.value.bytes_left_out", "7")));
    EXPECT_EQ(member.stats().jobs_incomplete, 0U);
    close(member);
}

// Pins: readers left out the headers after the first 1,001, among them those that say which job ended, so that a job's own were believed.
TEST_F(KafkaMemberTest, ADeadLetterOfAJobWithAsManyHeadersAsAllowedNamesItsJob) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    const schema::Source& source = jobs[0].record.source;
    schema::DeadLetter letter{.source = source,
                              .key = "key",
                              .value = std::string(3'000'000, 'x'),
                              .headers = {{"__connect.errors.partition", "77"}, {"__connect.errors.offset", "78"}},
                              .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "not JSON"}};
    letter.headers.resize(schema::job_headers_max, {"own", "1"});
    member.sink().publish({.source = source, .epoch = jobs[0].epoch, .record = std::move(letter)});
    EXPECT_EQ(member.sink().commit(), 1U);
    const auto letters = read_all(config, topics.dlq());
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(schema::source_of_dead_letter(letters[0].headers)->source, source);
    EXPECT_THAT(letters[0].headers, ::testing::Contains(schema::Header("lorry.value.bytes_left_out", "3000000")));
    EXPECT_LT(letters[0].headers.size(), schema::job_headers_max + schema::added_headers_max) << "in a transaction it gets one more";
    close(member);
}

TEST_F(KafkaMemberTest, ARecordThatTheBrokerRefusesTwiceBecomesAnError) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    member.sink().publish(completed(jobs[0]));
    // Result and status, twice each.
    broker.fail_requests(produce_request, {message_too_large, message_too_large, message_too_large, message_too_large});
    EXPECT_EQ(member.sink().commit(), 1U);
    const auto results = read_all(config, topics.results());
    ASSERT_FALSE(results.empty());
    EXPECT_THAT(schema::parse_result(results.back().value.value())->error, ::testing::HasSubstr("result_rejected"));
    close(member);
}

TEST_F(KafkaMemberTest, ChunksAreInTheirTopicWhenTheCompletionIsCommitted) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    for (std::int64_t seq = 0; seq < 5; ++seq) {
        member.sink().publish(schema::Chunk{.job_id = "job-0", .custom_id = "job-0", .attempt = 1, .seq = seq, .chunk = schema::Json("x")});
    }
    schema::Status running;
    running.run = std::get<schema::Completion>(completed(jobs[0]).record).run;
    member.sink().publish(running);
    member.sink().publish(completed(jobs[0]));
    member.sink().commit();
    const auto chunks = read_all(config, topics.chunks());
    ASSERT_EQ(chunks.size(), 5U);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        EXPECT_THAT(chunks[i].value.value(), ::testing::HasSubstr(fmt::format("\"seq\":{}", i)));
    }
    const auto statuses = read_all(config, topics.status());
    ASSERT_EQ(statuses.size(), 2U);
    EXPECT_EQ(schema::parse_status(statuses[0].value.value())->state, schema::JobState::running);
    close(member);
}

TEST_F(KafkaMemberTest, AStreamOfWhichAChunkIsRefusedBecomesAnErrorOfThatJob) {
    submit_jobs(config, topics, 0, 2);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 2);
    ASSERT_EQ(jobs.size(), 2U);
    const auto streamed = std::get<schema::Completion>(completed(jobs[0]).record);
    broker.fail_requests(produce_request, {message_too_large});
    member.sink().publish(schema::Chunk{.job_id = streamed.run.job_id,
                                        .custom_id = streamed.custom_id,
                                        .attempt = streamed.run.attempt,
                                        .seq = 0,
                                        .chunk = schema::Json("x")});
    for (const Delivery& job : jobs) member.sink().publish(completed(job));
    EXPECT_EQ(member.sink().commit(), 2U);
    std::map<std::string, std::string> errors;
    for (const auto& result : read_all(config, topics.results())) {
        const auto summary = schema::parse_result(result.value.value());
        ASSERT_TRUE(summary) << summary.error();
        errors[summary->custom_id] = summary->error.substr(0, summary->error.find(':'));
    }
    EXPECT_EQ(errors, (std::map<std::string, std::string>{{streamed.custom_id, "chunk_too_large"}, {*ids_of({jobs[1]}).begin(), ""}}));
    close(member);
}

TEST_F(KafkaMemberTest, AFullOutboxIsCommittedInsteadOfGrowing) {
    submit_jobs(config, topics, 0, 10);
    auto options = member_options("one");
    options.outbox_records_max = 3;
    KafkaMember member(config, options);
    const auto jobs = poll_jobs(member, handler, 10);
    ASSERT_EQ(jobs.size(), 10U);
    for (const Delivery& job : jobs) {
        member.sink().publish(completed(job));
        EXPECT_LE(member.stats().sink.outbox_records, 3U);
    }
    EXPECT_EQ(member.sink().commit(), 10U);
    close(member);
}

TEST_F(KafkaMemberTest, CommitsAgainWhatWasRefusedDuringARebalance) {
    submit_jobs(config, topics, 0, 5);
    {
        KafkaMember member(config, member_options("one"));
        const auto jobs = poll_jobs(member, handler, 5);
        ASSERT_EQ(jobs.size(), 5U);
        for (const Delivery& job : jobs) member.sink().publish(completed(job));
        broker.fail_requests(offset_commit, std::vector<int>(3, rebalance_in_progress));
        EXPECT_EQ(member.sink().commit(), 5U);
        member.sink().commit();
    }
    KafkaMember again(config, member_options("one"));
    EXPECT_EQ(poll_all_jobs(again, handler).size(), 0U);
    EXPECT_EQ(again.source().backlog(), 0);
    close(again);
}

// No commit succeeds until an administrator changes the brokers' settings.
TEST_F(KafkaMemberTest, SaysWhatToDoWhereTheBrokersTakeLessMetadataThanACommitHas) {
    submit_jobs(config, topics, 0, 3);
    KafkaMember member(config, member_options("one"));
    for (const Delivery& job : poll_jobs(member, handler, 3)) member.sink().publish(completed(job));
    broker.fail_requests(offset_commit, {offset_metadata_too_large});
    try {
        member.sink().commit();
        FAIL() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("offset.metadata.max.bytes"));
    }
}

class KafkaMemberTakeOver : public KafkaTest, public ::testing::WithParamInterface<int> {};

// If a timeout were treated as "no offset", all jobs would run again.
TEST_P(KafkaMemberTakeOver, AsksAgainWhenTheCommittedOffsetsCannotBeHadYet) {
    submit_jobs(config, topics, 0, 12);
    {
        KafkaMember member(config, member_options("one"));
        for (const Delivery& job : poll_jobs(member, handler, 12)) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), 12U);
    }
    submit_jobs(config, topics, 12, 3);
    constexpr std::size_t refusals = 12;
    broker.count_requests();
    broker.fail_requests(offset_fetch, std::vector<int>(refusals, GetParam()));
    KafkaMember again(config, member_options("one"));
    EXPECT_EQ(ids_of(poll_all_jobs(again, handler)), (std::set<std::string>{"job-12", "job-13", "job-14"}));
    EXPECT_GT(broker.requests(offset_fetch), refusals);
    close(again);
}

INSTANTIATE_TEST_SUITE_P(OffsetFetch, KafkaMemberTakeOver,
                         ::testing::Values(coordinator_loading, not_coordinator, unstable_offset_commit, connection_lost),
                         [](const auto& code) -> std::string {
                             switch (code.param) {
                                 case coordinator_loading: return "CoordinatorLoading";
                                 case not_coordinator: return "NotCoordinator";
                                 case unstable_offset_commit: return "UnstableOffsetCommit";
                                 default: return "ConnectionLost";
                             }
                         });

TEST_F(KafkaMemberTest, GoesOnAtTheLogsStartWhenRetentionDeletedItsPosition) {
    submit_jobs(config, topics, 0, 30);
    {
        KafkaMember member(config, member_options("one"));
        for (const Delivery& job : poll_jobs(member, handler, 6)) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), 6U);
    }
    std::int64_t left = 0;
    RecordReader reader(config, {.topics = {topics.jobs()}});
    for (const auto& bound : reader.bounds()) {
        const std::int64_t below = bound.end > 4 ? bound.end - 2 : bound.first;
        if (below > bound.first) broker.delete_records(topics.jobs(), bound.partition, below);
        left += bound.end > 4 ? 2 : 0;
    }
    KafkaMember again(config, member_options("one"));
    const auto jobs = poll_all_jobs(again, handler);
    EXPECT_GE(jobs.size(), static_cast<std::size_t>(left));
    EXPECT_LT(jobs.size(), 24U);
    close(again);
}

TEST_F(KafkaMemberTest, HasItsOwnDeadlineWhenTheBrokersGoAway) {
    submit_jobs(config, topics, 0, 1);
    auto short_config = config;
    short_config.deadline_later = 2s;
    KafkaMember member(short_config, member_options("one"));
    ASSERT_EQ(poll_jobs(member, handler, 1).size(), 1U);
    broker.set_down(true);
    const auto poll_for = [&](std::chrono::seconds time) {
        const auto end = Clock::now() + time;
        while (Clock::now() < end) member.source().poll(100ms, 1, handler);
    };
    try {
        poll_for(30s);
        ADD_FAILURE() << "brokers were away for long";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(config.brokers));
    }
}

KafkaConnection::Watermarks log_of(std::int64_t first, std::int64_t end) { return {.first = first, .end = end}; }

TEST(KafkaTakeOver, FollowsTheRulesForOffsetsAndMetadata) {
    const CommitState state{.offset = 10, .holes = {13, 15}, .highest_finished = 17, .starts = {}};
    const std::string metadata = encode_commit_metadata(state);

    const TakenOver nothing = take_over("jobs", 0, std::nullopt, "", log_of(5, 40));
    EXPECT_EQ(nothing.start, 5) << "no offset: the log's start";
    EXPECT_EQ(nothing.basis, Basis::results) << "the results must be asked";
    const TakenOver normal = take_over("jobs", 0, 10, metadata, log_of(5, 40));
    EXPECT_EQ(normal.start, 10);
    EXPECT_EQ(normal.state, state);
    EXPECT_EQ(normal.lost, 0);
    const TakenOver foreign = take_over("jobs", 0, 10, "somebody else's", log_of(5, 40));
    EXPECT_EQ(foreign.start, 10);
    EXPECT_EQ(foreign.basis, Basis::results) << "unreadable: the results must be asked";
    EXPECT_EQ(take_over("jobs", 0, 10, "", log_of(5, 40)).basis, Basis::results) << "set by an administrator: the results must be asked";
    EXPECT_TRUE(normal.basis == Basis::commit && normal.recorded);
    const TakenOver beyond = take_over("jobs", 0, 50, "", log_of(5, 40));
    EXPECT_EQ(beyond.start, 5) << "beyond the log's end: made anew";
    EXPECT_TRUE(beyond.basis == Basis::nothing && !beyond.recorded) << "results of other jobs must not count";
    const TakenOver deleted = take_over("jobs", 0, 10, metadata, log_of(20, 40));
    EXPECT_EQ(deleted.start, 20);
    EXPECT_EQ(deleted.lost, 5) << "10, 13, 15, 18 and 19 were not finished";
    CommitState older = state;
    older.topic = mark_of_topic("id of the first");
    const TakenOver anew = take_over("jobs", 0, 10, encode_commit_metadata(older), log_of(0, 40), "id of the second");
    EXPECT_EQ(anew.start, 0) << "jobs of the second topic that lie below the first one's offset have not run";
    EXPECT_TRUE(anew.basis == Basis::results && !anew.recorded);
    EXPECT_EQ(anew.state.topic, mark_of_topic("id of the second"));
    const TakenOver same = take_over("jobs", 0, 10, encode_commit_metadata(older), log_of(0, 40), "id of the first");
    EXPECT_EQ(same.state, older);
    EXPECT_EQ(take_over("jobs", 0, 10, metadata, log_of(0, 40), "its id").state.topic, mark_of_topic("its id")) << "as from now on";
    EXPECT_THROW(take_over("jobs", 0, 10, "A3V0basBAgM=", log_of(5, 40)), KafkaError) << "a newer program's metadata";
}

TEST(KafkaTakeOver, MakesAStateOfWhatHasResults) {
    const CommitState nothing{.offset = 5, .holes = {}, .highest_finished = 5, .starts = {}};
    const auto state = [&](std::set<std::int64_t> finished) { return with_finished(nothing, 5, finished); };
    EXPECT_EQ(state({}), nothing);
    EXPECT_EQ(state({5, 6, 7}), (CommitState{.offset = 8, .holes = {}, .highest_finished = 8, .starts = {}}));
    EXPECT_EQ(state({6}), (CommitState{.offset = 5, .holes = {}, .highest_finished = 6, .starts = {}}));
    EXPECT_EQ(state({5, 8, 9, 11}), (CommitState{.offset = 6, .holes = {7, 10}, .highest_finished = 11, .starts = {}}));
}

// Compared with a naive model, offset by offset: a job is unfinished if neither the commit nor the results say that it is finished.
TEST(KafkaTakeOver, AddsWhatHasResultsToWhatTheCommitSays) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    constexpr std::int64_t end = 30;
    for (int round = 0; round < 2'000; ++round) {
        std::set<std::int64_t> finished;
        for (std::int64_t offset = 0; offset < end; ++offset) {
            if (random() % 3 == 0) finished.insert(offset);
        }
        const CommitState nothing{.offset = 0, .holes = {}, .highest_finished = 0, .starts = {{4, 1}, {9, 2}}};
        CommitState state = with_finished(nothing, 0, finished);
        const auto first = static_cast<std::int64_t>(random() % 10);
        std::set<std::int64_t> more;
        for (std::int64_t offset = first; offset < end; ++offset) {
            if (random() % 3 == 0) more.insert(offset);
        }
        state = with_finished(state, first, more);
        const auto is_unfinished = [&](std::int64_t offset) {
            if (offset < state.offset) return false;
            if (offset == state.offset || offset > state.highest_finished) return true;
            return std::ranges::find(state.holes, offset) != state.holes.end();
        };
        for (std::int64_t offset = first; offset < end + 3; ++offset) {
            ASSERT_EQ(is_unfinished(offset), !finished.contains(offset) && !more.contains(offset)) << offset;
        }
        for (const StartCount& start : nothing.starts) {
            const bool is_listed = std::ranges::find(state.starts, start) != state.starts.end();
            ASSERT_EQ(is_listed, start.offset >= first && is_unfinished(start.offset)) << start.offset;
        }
        ASSERT_NO_THROW(encode_commit_metadata(state));
    }
}

TEST(KafkaTakeOver, SaysWhatTheCommittedOffsetDidNotKnow) {
    const CommitState state{.offset = 10, .holes = {13, 15}, .highest_finished = 17, .starts = {{13, 1}}, .seen = {40, 2}};
    const std::string metadata = encode_commit_metadata(state);
    TakenOver same = take_over("jobs", 0, 10, metadata, log_of(5, 40));
    add_ended(same, {.ended = {11, 17}, .seen = {44, 2}});
    EXPECT_TRUE(same.recorded) << "nothing new";
    EXPECT_EQ(same.state.seen, (EndsSeen{44, 2}));
    EXPECT_EQ(same.start, 10);
    TakenOver stale = take_over("jobs", 0, 10, metadata, log_of(5, 40));
    add_ended(stale, {.ended = {10, 13, 18}, .seen = {60, 3}});
    EXPECT_FALSE(stale.recorded) << "has to be committed";
    EXPECT_EQ(stale.state, (CommitState{.offset = 15, .holes = {}, .highest_finished = 18, .starts = {}, .seen = {60, 3}}));
    EXPECT_EQ(stale.start, 15);
}

}  // namespace
}  // namespace lorry::consumer
