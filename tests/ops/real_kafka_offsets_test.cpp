// A group's offsets on a real Kafka, seen and set from outside, and records that cannot be read given up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "consumer/kafka/group_offsets.h"
#include "tests/ops/real_kafka_fixture.h"
#include "tests/support/labels.h"

namespace lorry::ops {
namespace {

using consumer::Clock;
using consumer::GroupOffsets;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

const tests::Labelled offsets_on_a_real_broker{"*", {tests::Label::real_kafka}};

class RealKafkaOffsets : public RealKafkaProgram {
protected:
    consumer::KafkaMember::Options member_options() const {
        return {.topics = topics, .group = group, .member = "one", .session_timeout = 6s, .drain_budget = 1s, .careful_starts = {0}};
    }
    // Twenty jobs with one key, so in one partition; every fourth stays unfinished, beginning with the first.
    void work_out_of_order() {
        {
            consumer::JobProducer producer(config, {.topic = topics.jobs()});
            for (int i = 0; i < 20; ++i) producer.submit(consumer::job_line(i), "base", 1);
            producer.finish();
        }
        consumer::KafkaMember member(config, member_options());
        consumer::RecordingHandler handler;
        const auto jobs = consumer::poll_jobs(member, handler, 20);
        ASSERT_THAT(jobs, SizeIs(20));
        for (const auto& job : jobs) {
            partition = job.record.source.partition;
            if (job.record.source.offset % 4 != 0) member.sink().publish(consumer::completed(job));
        }
        member.sink().commit();
        while_running = lorry({"offsets", "--group", group, "--json"});
        refused = lorry({"offsets", "reset", "--group", group});
        member.source().close(handler, Clock::now() + 5s);
    }
    // Retries, because a static member that has left remains a member until its session times out.
    Call reset(std::vector<std::string> more) const {
        std::vector<std::string> arguments = {"offsets", "reset", "--group", group};
        arguments.insert(arguments.end(), more.begin(), more.end());
        Call answer;
        for (const auto deadline = Clock::now() + 60s; Clock::now() < deadline; std::this_thread::sleep_for(500ms)) {
            answer = lorry(arguments);
            if (answer.code == 0) break;
        }
        EXPECT_EQ(answer.code, 0) << answer.err;
        return answer;
    }
    std::vector<std::int64_t> jobs_of_next_member() const {
        consumer::KafkaMember member(config, member_options());
        consumer::RecordingHandler handler;
        std::vector<std::int64_t> offsets;
        for (const auto& job : consumer::poll_all_jobs(member, handler)) offsets.push_back(job.record.source.offset);
        member.source().close(handler, Clock::now() + 5s);
        std::sort(offsets.begin(), offsets.end());
        return offsets;
    }
    // The report on the partition that has the jobs.
    std::string line() const { return lines_of(lorry({"offsets", "--group", group, "--json"}).out)[static_cast<std::size_t>(partition)]; }

    std::int32_t partition = 0;
    Call while_running;
    Call refused;
};

TEST_F(RealKafkaOffsets, ShowWhatIsFinishedOutOfOrderWhileTheGroupRuns) {
    const Call unknown = lorry({"offsets", "--group", "no-such-group"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("no-such-group has no members"));
    ASSERT_NO_FATAL_FAILURE(work_out_of_order());
    EXPECT_EQ(while_running.code, 0) << while_running.err;
    EXPECT_THAT(while_running.err, AllOf(HasSubstr(group), HasSubstr("Stable: one")));
    EXPECT_THAT(lines_of(while_running.out), SizeIs(2));
    EXPECT_THAT(lines_of(while_running.out)[static_cast<std::size_t>(partition)],
                HasSubstr(R"("committed":0,"end":20,"lag":20,"unfinished":5,"finished":[[1,3],[5,7],[9,11],[13,15],[17,19]],)"
                          R"("missing":[[0,0],[4,4],[8,8],[12,12],[16,16]])"));
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("has members: one"), HasSubstr("Nothing was changed")));
}

TEST_F(RealKafkaOffsets, AReplayRunsAllJobsAgainFromWhereItWasSet) {
    ASSERT_NO_FATAL_FAILURE(work_out_of_order());
    const std::string number = std::to_string(partition);
    const Call dry = reset({"--to", "6", "--partition", number, "--replay", "--dry-run"});
    EXPECT_THAT(dry.out, HasSubstr("skips up to 6 jobs"));
    EXPECT_THAT(line(), HasSubstr("\"committed\":0"));
    reset({"--to", "6", "--partition", number, "--replay"});
    EXPECT_THAT(line(), AllOf(HasSubstr(R"("committed":6,)"), HasSubstr(R"("unfinished":14,)"), HasSubstr(R"("finished":[],)")));
    EXPECT_EQ(jobs_of_next_member(), (std::vector<std::int64_t>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST_F(RealKafkaOffsets, AResetWithoutReplayForgetsWhatWasSaidAboveTheOffset) {
    ASSERT_NO_FATAL_FAILURE(work_out_of_order());
    reset({"--to", "1h"});
    EXPECT_THAT(line(), AllOf(HasSubstr(R"("committed":0,)"), HasSubstr(R"("unfinished":null,)"), HasSubstr("does not say")));
    GroupOffsets(config, group, topics, GroupOffsets::View::settled).set({{.partition = partition, .offset = 2, .metadata = "by hand"}});
    EXPECT_THAT(line(), AllOf(HasSubstr(R"("committed":2,)"), HasSubstr("not written by Lorry")));
    reset({"--to", "end"});
    EXPECT_THAT(line(), AllOf(HasSubstr(R"("committed":20,)"), HasSubstr(R"("lag":0,)")));
}

// The jobs topic was recreated. Pins: a reset kept the old topic's offset for the new topic, so the jobs below it never ran.
TEST_F(RealKafkaOffsets, OfAnEarlierTopicDoNotCountAndAResetKeepsNothingOfThem) {
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs()});
        for (int i = 0; i < 20; ++i) producer.submit(consumer::job_line(i), "base", 1);
        producer.finish();
    }
    partition = consumer::read_all(config, topics.jobs()).at(0).source.partition;
    const GroupOffsets offsets(config, group, topics, GroupOffsets::View::settled);
    consumer::CommitState earlier = consumer::nothing_finished_above(6);
    earlier.topic = offsets.topic_mark() + 1;
    const auto set_earlier = [&] {
        offsets.set({{.partition = partition, .offset = earlier.offset, .metadata = encode_commit_metadata(earlier)}});
        EXPECT_THAT(line(), AllOf(HasSubstr(R"("committed":null,"end":20,"lag":20,)"), HasSubstr("for an earlier topic of that name")));
    };
    ASSERT_NO_FATAL_FAILURE(set_earlier());
    reset({"--replay"});
    const auto replay = offsets.read().at(static_cast<std::size_t>(partition));
    EXPECT_EQ(replay.committed, 0);
    EXPECT_EQ(consumer::decode_commit_metadata(0, replay.metadata).value().topic, offsets.topic_mark());

    ASSERT_NO_FATAL_FAILURE(set_earlier());
    reset({});
    EXPECT_THAT(line(), HasSubstr(R"("committed":0,)"));
    EXPECT_THAT(jobs_of_next_member(), SizeIs(20));
}

class RealKafkaSkip : public RealKafkaOffsets {
protected:
    void SetUp() override {
        RealKafkaOffsets::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        logs = tests::real_broker()->folder / "1" / "logs";
        if (!std::filesystem::exists(logs)) GTEST_SKIP() << logs << " does not exist: the broker's log cannot be damaged";
    }
    void submit_in_one_batch(int from, int count) const {
        consumer::KafkaConfig compressing = config;
        compressing.passthrough = {{"compression.codec", "gzip"}};
        consumer::JobProducer producer(compressing, {.topic = topics.jobs()});
        for (int i = from; i < from + count; ++i) producer.submit(consumer::job_line(i), "base", 1);
        producer.finish();
    }
    // Changes the codec of the batch that holds this offset, where the broker keeps it, and notes its bounds. The record batch's format
    // is in KIP-98.
    void damage_batch_of(std::int64_t offset) {
        const auto file = logs / fmt::format("{}-{}", topics.jobs(), partition) / "00000000000000000000.log";
        std::fstream log(file, std::ios::in | std::ios::out | std::ios::binary);
        const auto number_at = [&](std::streamoff place, int bytes) {
            std::int64_t number = 0;
            log.seekg(place);
            for (int i = 0; i < bytes; ++i) number = number << 8 | log.get();
            return number;
        };
        for (std::streamoff batch = 0; log; batch += 12 + number_at(batch + 8, 4)) {
            first = number_at(batch, 8);
            end = first + number_at(batch + 23, 4) + 1;
            if (!log || offset >= end) continue;
            log.seekp(batch + 22);
            log.put('\x05');
            ASSERT_TRUE(log.flush()) << file;
            return;
        }
        FAIL() << file << " has no offset " << offset;
    }
    // A worker that is blocked by the batch and ends after it has finished the jobs below.
    void work_until_blocked() const {
        consumer::KafkaMember member(config, member_options());
        consumer::RecordingHandler handler;
        for (const auto& job : consumer::poll_jobs(member, handler, static_cast<std::size_t>(first))) {
            member.sink().publish(consumer::completed(job));
        }
        member.sink().commit();
        const auto deadline = Clock::now() + 30s;
        while (member.stats().unreadable.empty() && Clock::now() < deadline) consumer::poll_jobs(member, handler, 1, 200ms);
        ASSERT_THAT(member.stats().unreadable, SizeIs(1));
        EXPECT_EQ(member.stats().unreadable[0].offset, first);
        EXPECT_EQ(lorry(skip_arguments({})).code, 1) << "while the group has members";
        member.source().close(handler, Clock::now() + 5s);
    }
    std::vector<std::string> skip_arguments(std::vector<std::string> more) const {
        std::vector<std::string> arguments = {"offsets", "skip", "--group", group, "--partition", std::to_string(partition)};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    void wait_for_no_members() const {
        const GroupOffsets offsets(config, group, topics, GroupOffsets::View::now);
        const auto deadline = Clock::now() + 60s;
        while (!offsets.members()->names.empty() && Clock::now() < deadline) std::this_thread::sleep_for(500ms);
    }

    std::filesystem::path logs;
    std::int64_t first = 0;  // of the damaged batch
    std::int64_t end = 0;
};

// A batch in the middle of the log cannot be read. Pins: an operator had to guess its end, and its jobs ended without a trace.
TEST_F(RealKafkaSkip, EndsTheJobsOfABatchThatCannotBeReadAsDeadLetters) {
    submit_in_one_batch(0, 5);
    submit_in_one_batch(5, 10);
    submit_in_one_batch(15, 5);
    partition = consumer::read_all(config, topics.jobs()).at(0).source.partition;
    ASSERT_NO_FATAL_FAILURE(damage_batch_of(7));
    ASSERT_NO_FATAL_FAILURE(work_until_blocked());
    wait_for_no_members();

    const std::string batch = fmt::format("offsets {} to {} ({}, one batch)", first, end - 1, end - first);
    const Call wrong = lorry(skip_arguments({"--offset", std::to_string(end)}));
    EXPECT_EQ(wrong.code, 1);
    EXPECT_THAT(wrong.err, AllOf(HasSubstr(fmt::format("--offset is {}", end)), HasSubstr(batch)));
    const Call dry = lorry(skip_arguments({"--dry-run"}));
    EXPECT_EQ(dry.code, 0) << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("would skip " + batch));
    EXPECT_THAT(consumer::read_all(config, topics.dlq()), SizeIs(0));

    const Call skipped = lorry(skip_arguments({"--offset", std::to_string(first)}));
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_THAT(skipped.out, HasSubstr("skipped " + batch));
    EXPECT_THAT(skipped.err, HasSubstr("CRC32C"));
    std::vector<std::int64_t> given_up;
    for (const auto& letter : consumer::read_all(config, topics.dlq())) {
        const auto source = schema::source_of_dead_letter(letter.headers);
        ASSERT_TRUE(source);
        EXPECT_EQ(source->source.partition, partition);
        given_up.push_back(source->source.offset);
        EXPECT_FALSE(letter.value);
        EXPECT_THAT(*schema::find_header(letter.headers, "__connect.errors.exception.message"), HasSubstr("cannot be read"));
    }
    std::vector<std::int64_t> expected(static_cast<std::size_t>(end - first));
    std::iota(expected.begin(), expected.end(), first);
    EXPECT_EQ(given_up, expected);
    EXPECT_THAT(line(), HasSubstr(fmt::format("\"committed\":{},", end)));

    const Call behind = lorry({"cancel", "job-16"});
    EXPECT_EQ(behind.code, 0) << behind.err;
    const Call again = lorry(skip_arguments({}));
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.err, AllOf(HasSubstr(fmt::format("from offset {} on", end)), HasSubstr("nothing was skipped")));
    EXPECT_THAT(jobs_of_next_member(), SizeIs(static_cast<std::size_t>(20 - end))) << "the jobs behind the batch";
}

// The brokers would accept the offsets: a worker that came meanwhile would go on from the old ones.
TEST_F(RealKafkaSkip, ChangesNothingIfAWorkerCameMeanwhile) {
    submit_in_one_batch(0, 3);
    submit_in_one_batch(3, 3);
    partition = consumer::read_all(config, topics.jobs()).at(0).source.partition;
    ASSERT_NO_FATAL_FAILURE(damage_batch_of(4));
    ASSERT_NO_FATAL_FAILURE(work_until_blocked());
    wait_for_no_members();
    const GroupOffsets offsets(config, group, topics, GroupOffsets::View::settled);
    const consumer::PartitionOffsets at = offsets.read()[static_cast<std::size_t>(partition)];
    const auto batch = offsets.blocking(at);
    ASSERT_TRUE(batch);
    const std::string before = line();
    {
        consumer::KafkaMember member(config, member_options());
        consumer::RecordingHandler handler;
        consumer::poll_all_jobs(member, handler);
        EXPECT_THROW(offsets.skip(at, *batch), consumer::KafkaError);
        member.source().close(handler, Clock::now() + 5s);
    }
    EXPECT_EQ(line(), before);
    EXPECT_THAT(consumer::read_all(config, topics.dlq()), SizeIs(0));
    wait_for_no_members();
    offsets.skip(at, *batch);
    EXPECT_THROW(offsets.skip(at, *batch), consumer::KafkaError) << "the group has committed since it was read";
    EXPECT_THAT(consumer::read_all(config, topics.dlq()), SizeIs(static_cast<std::size_t>(batch->end - batch->first)));
}

TEST_F(RealKafkaOffsets, ResetSaysWhatItDoesNotTake) {
    for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
             {"--to", "yesterday"}, {"--to", "3"}, {"--to", "3", "--partition", "0"}, {"--partition", "2"}}) {
        std::vector<std::string> arguments = {"offsets", "reset", "--group", group};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const Call answer = lorry(arguments);
        EXPECT_EQ(answer.code, 2) << answer.err;
        EXPECT_THAT(answer.err, HasSubstr(wrong[0]));
    }
}

}  // namespace
}  // namespace lorry::ops
