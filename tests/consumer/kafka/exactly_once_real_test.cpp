// Exactly once against a real Kafka: deaths between the steps of a commit, a stolen transactional id, takeover without offsets, a job that
// kills its worker.
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/group_offsets.h"
#include "consumer/kafka/leftovers.h"
#include "consumer/kafka/past_results.h"
#include "consumer/kafka/transactions.h"
#include "tests/support/labels.h"
#include "tests/support/program.h"
#include "tests/support/real_kafka.h"

namespace lorry::consumer {
namespace {

const tests::Labelled exactly_once_on_a_real_broker{"*:-KafkaLeftovers.*", {tests::Label::real_kafka}};

struct Death : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The worker dies the next time it passes this place.
class DieAt {
public:
    explicit DieAt(std::string place) {
        place_ = std::move(place);
        on_fault_point = +[](const char* name) {
            if (place_ == name) throw Death(name);
        };
    }
    ~DieAt() { on_fault_point = nullptr; }

private:
    static inline std::string place_;
};

class RealKafkaExactlyOnce : public RealKafka {
protected:
    static constexpr int count = 40;

    std::multiset<std::string> results() const {
        std::multiset<std::string> ids;
        for (const auto& record : read_all(config, topics.results())) ids.insert(record.key.value());
        return ids;
    }
    void expect_one_result_each(int jobs) const {
        const auto seen = results();
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(jobs));
        for (int i = 0; i < jobs; ++i) EXPECT_EQ(seen.count(fmt::format("job-{}", i)), 1U) << i;
    }
    // Polls all remaining jobs and publishes their results. Returns how many there were.
    std::size_t finish_rest(KafkaMember& member, std::size_t expected) {
        const auto jobs = poll_jobs(member, handler, expected);
        for (const Delivery& job : jobs) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), jobs.size());
        EXPECT_EQ(poll_jobs(member, handler, 1, 1s).size(), 0U) << "a finished job was delivered again";
        return jobs.size();
    }
    // Leaves the group's offset of one jobs partition undecided: it belongs to a transaction that stays open until `other` ends it.
    void leave_undecided(TransactionalProducer& other, const std::string& group, std::int32_t partition) const {
        ASSERT_EQ(other.open(20s).end, StepEnd::done);
        ASSERT_EQ(other.begin(0).end, StepEnd::done);
        const GroupMetadataHandle metadata(rd_kafka_consumer_group_metadata_new(group.c_str()));
        const PartitionListHandle offsets(rd_kafka_topic_partition_list_new(1));
        rd_kafka_topic_partition_list_add(offsets.get(), topics.jobs().c_str(), partition)->offset = 0;
        ASSERT_EQ(other.send_offsets(metadata.get(), offsets.get()).end, StepEnd::done);
    }
};

class ExactlyOnceDeaths : public RealKafkaExactlyOnce, public ::testing::WithParamInterface<std::pair<const char*, std::size_t>> {};

TEST_P(ExactlyOnceDeaths, LeaveOneResultOfEachJob) {
    const auto& [place, again] = GetParam();
    submit_jobs(config, topics, 0, count);
    {
        KafkaMember member(config, member_options("one"));
        EXPECT_TRUE(member.is_exactly_once());
        for (const Delivery& job : poll_jobs(member, handler, count)) member.sink().publish(completed(job));
        const DieAt death(place);
        EXPECT_THROW(member.sink().commit(), Death);
    }
    KafkaMember member(config, member_options("one"));
    EXPECT_EQ(finish_rest(member, again), again);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

INSTANTIATE_TEST_SUITE_P(RealKafka, ExactlyOnceDeaths,
                         ::testing::Values(std::pair("outbox.begin", 40), std::pair("outbox.produced", 40),
                                           std::pair("outbox.offsets_sent", 40), std::pair("outbox.committed", 0)),
                         [](const auto& place) {
                             std::string name = place.param.first;
                             return name.replace(name.find('.'), 1, "_");
                         });

TEST_F(RealKafkaExactlyOnce, TakesItsTransactionalIdBackFromAnother) {
    submit_jobs(config, topics, 0, count);
    const auto options = member_options("one");
    KafkaMember member(config, options);
    for (const Delivery& job : poll_jobs(member, handler, count)) member.sink().publish(completed(job));
    TransactionalProducer thief(config, {.id = fmt::format("{}/{}/{}", topics.prefix, options.group, options.member)});
    ASSERT_EQ(thief.open(20s).end, StepEnd::done);
    EXPECT_EQ(member.sink().commit(), static_cast<std::size_t>(count));
    EXPECT_EQ(member.stats().commits.fences, 1U);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// What Kafka 4.3.1 leaves behind when a broker is killed while a transaction ends (consumer/kafka/leftovers.h). The group's offsets say
// that the jobs of two partitions are finished, but in one of the two the results do not name the topic's id, which their worker did not
// know. The jobs of a third partition are not finished.
TEST_F(RealKafkaExactlyOnce, EndsWhatAnEarlierTransactionLeftOpenAsTheOffsetsSay) {
    submit_jobs(config, topics, 0, count);
    auto options = member_options("one");
    options.transaction_timeout = 3s;
    constexpr std::int32_t committed = 1;
    constexpr std::int32_t committed_without_id = 3;
    constexpr std::int32_t aborted = 2;
    std::map<std::int32_t, std::string> first_jobs;  // by partition
    for (const auto& job : read_all(config, topics.jobs())) {
        first_jobs.emplace(job.source.partition, schema::scan_string_member(job.value.value(), "custom_id").value());
    }
    const std::string jobs_id = KafkaConnection(config, KafkaConnection::Kind::consumer, {}).topic_id(topics.jobs());
    std::string records;
    for (const std::int32_t partition : {committed, committed_without_id, aborted}) {
        schema::Json headers = schema::Json::object({{"source_topic", topics.jobs()},
                                                     {"source_partition", std::to_string(partition)},
                                                     {"source_offset", "0"},
                                                     {"transaction", options.member + "/1"}});
        if (partition != committed_without_id) headers.set("source_topic_id", jobs_id);
        records += schema::Json::object({{"topic", topics.results()},
                                         {"partition", partition},
                                         {"key", first_jobs.at(partition)},
                                         {"value", "{}"},
                                         {"headers", headers}})
                       .dump() +
                   "\n";
    }
    const auto id = fmt::format("{}/{}/{}", topics.prefix, options.group, options.member);
    const auto script = tests::run_program_of({LORRY_SOURCE_DIR "/tests/support/hanging_transaction.py", config.brokers, id}, records);
    ASSERT_EQ(script.exit_code, 0) << script.err;
    const GroupOffsets offsets(config, options.group, topics, GroupOffsets::View::settled);
    const std::string metadata = encode_commit_metadata({.offset = 1, .highest_finished = 1, .seen = {.results = 1}});
    offsets.set({{.partition = committed, .offset = 1, .metadata = metadata},
                 {.partition = committed_without_id, .offset = 1, .metadata = metadata}});
    EXPECT_TRUE(results().empty()) << "readers of committed records wait";

    KafkaMember member(config, options);
    EXPECT_EQ(finish_rest(member, count - 2), static_cast<std::size_t>(count - 2));
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// Neither a partition nor the group's offsets show that the transaction was committed; only the worker itself knows it.
TEST_F(RealKafkaExactlyOnce, CommitsWhatItKnowsToBeCommittedWhereTheBrokersHaveLostAllOfIt) {
    submit_jobs(config, topics, 0, 1);
    const schema::Source job = read_all(config, topics.jobs()).at(0).source;
    const std::string jobs_id = KafkaConnection(config, KafkaConnection::Kind::consumer, {}).topic_id(topics.jobs());
    const schema::Json headers = schema::Json::object({{"source_topic", job.topic},
                                                       {"source_partition", std::to_string(job.partition)},
                                                       {"source_offset", std::to_string(job.offset)},
                                                       {"source_topic_id", jobs_id},
                                                       {"transaction", "one/7"}});
    const auto record = schema::Json::object(
        {{"topic", topics.results()}, {"partition", job.partition}, {"key", "job-0"}, {"value", "{}"}, {"headers", headers}});
    const std::string id = topics.prefix + "-one";
    const auto script =
        tests::run_program_of({LORRY_SOURCE_DIR "/tests/support/hanging_transaction.py", config.brokers, id}, record.dump() + "\n");
    ASSERT_EQ(script.exit_code, 0) << script.err;
    ASSERT_TRUE(results().empty());

    const KafkaConnection consumer(config, KafkaConnection::Kind::consumer, {{"group.id", topics.prefix}});
    TransactionalProducer producer(config, {.id = id});
    ASSERT_EQ(producer.open(20s).end, StepEnd::done);
    const LeftoverOptions options{.topics = topics,
                                  .input_ids = {{topics.jobs(), jobs_id}},
                                  .worker = "one",
                                  .outputs = partitions_of(topics.results(), partitions),
                                  .inputs = partitions_of(topics.jobs(), partitions)};
    EXPECT_EQ(end_leftovers(producer, consumer, options, {.patience = 1s, .deadline = 20s}, "one/7").end, StepEnd::done);
    const auto deadline = Clock::now() + 20s;
    while (results().empty() && Clock::now() < deadline) std::this_thread::sleep_for(100ms);
    expect_one_result_each(1);
}

// Another producer's transaction on the results topic stays open: readers of results wait, and the worker reports it.
TEST_F(RealKafkaExactlyOnce, TellsHowLongReadersWaitForAnOpenTransaction) {
    auto options = member_options("one");
    options.stall_interval = 100ms;
    const KafkaMember member(config, options);
    TransactionalProducer other(config, {.id = topics.prefix + "-other"});
    ASSERT_EQ(other.open(20s).end, StepEnd::done);
    ASSERT_EQ(other.begin(1).end, StepEnd::done);
    other.send({.topic = topics.results(), .partition = 1, .key = "key", .value = "value", .headers = {}, .tag = 0});
    ASSERT_EQ(other.finish_sending().end, StepEnd::done);
    const auto deadline = Clock::now() + 20s;
    while (member.stats().stall_results < 300ms && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_GE(member.stats().stall_results, 300ms);
    EXPECT_EQ(member.stats().stall_jobs, 0ms) << "no transaction is open in that topic";
    ASSERT_EQ(other.abort().end, StepEnd::done);
    while (member.stats().stall_results > 0ms && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(member.stats().stall_results, 0ms);
}

// The group's offsets were deleted or have expired. Jobs that have a result are not run again.
// Pins: `lorry collect` reported results held back by another producer's open transaction as gone.
TEST_F(RealKafkaExactlyOnce, AReaderKnowsThatRecordsWaitBehindAnOpenTransaction) {
    TransactionalProducer other(config, {.id = topics.prefix + "-other"});
    ASSERT_EQ(other.open(20s).end, StepEnd::done);
    ASSERT_EQ(other.begin(1).end, StepEnd::done);
    other.send({.topic = topics.results(), .partition = 1, .key = "key", .value = "value", .headers = {}, .tag = 0});
    ASSERT_EQ(other.finish_sending().end, StepEnd::done);
    RecordReader reader(config, {.topics = {topics.results()}});
    CatchUp readable(reader);
    CatchUp written(reader, RecordReader::EndKind::written);
    const auto deadline = Clock::now() + 20s;
    while (!readable.is_done() && Clock::now() < deadline) reader.poll(50ms);
    EXPECT_TRUE(readable.is_done());
    EXPECT_FALSE(written.is_done());
    ASSERT_EQ(other.commit().end, StepEnd::done);
    std::size_t records = 0;
    while (!written.is_done() && Clock::now() < deadline) records += reader.poll(50ms).size();
    EXPECT_TRUE(written.is_done());
    EXPECT_EQ(records, 1U);
}

TEST_F(RealKafkaExactlyOnce, AsksTheResultsWhereTheGroupHasNoOffsets) {
    submit_jobs(config, topics, 0, count);
    std::size_t finished = 0;
    {
        KafkaMember member(config, member_options("one"));
        for (const Delivery& job : poll_jobs(member, handler, count)) {
            if (job.record.source.offset % 3 == 1) continue;
            Outcome outcome = completed(job);
            if (job.record.source.offset % 3 == 0) {
                outcome.record = schema::DeadLetter{.source = job.record.source,
                                                    .key = job.record.key,
                                                    .value = job.record.value,
                                                    .headers = {},
                                                    .error = {.code = schema::ErrorCode::invalid_json, .param = {}, .message = "a test"}};
            }
            member.sink().publish(std::move(outcome));
            ++finished;
        }
        EXPECT_EQ(member.sink().commit(), finished);
    }
    auto options = member_options("one");
    options.group += "-new";
    KafkaMember member(config, options);
    EXPECT_EQ(finish_rest(member, count - finished), count - finished);
    EXPECT_EQ(results().size() + read_all(config, topics.dlq()).size(), static_cast<std::size_t>(count));
    member.source().close(handler, Clock::now() + 5s);
}

// Old offsets, as from a group coordinator that has not read its log to the end: jobs that have a result are not run again.
TEST_F(RealKafkaExactlyOnce, StandsByTheResultsWhereTheCommittedOffsetsAreOld) {
    submit_jobs(config, topics, 0, count);
    const GroupOffsets offsets(config, member_options("one").group, topics, GroupOffsets::View::settled);
    std::vector<NewOffset> old;
    std::size_t finished = 0;
    {
        KafkaMember member(config, member_options("one"));
        const auto jobs = poll_jobs(member, handler, count);
        for (const std::int64_t rest : {0, 1}) {
            for (const Delivery& job : jobs) {
                if (job.record.source.offset % 3 != rest) continue;
                member.sink().publish(completed(job));
                ++finished;
            }
            member.sink().commit();
            if (rest > 0) break;
            for (const PartitionOffsets& one : offsets.read()) old.push_back({one.partition, one.committed.value(), one.metadata});
        }
        member.source().close(handler, Clock::now() + 5s);
    }
    ASSERT_LT(finished, static_cast<std::size_t>(count));
    const auto deadline = Clock::now() + 30s;  // the group keeps a static member until its session times out
    while (!offsets.members()->names.empty() && Clock::now() < deadline) std::this_thread::sleep_for(200ms);
    offsets.set(old);
    KafkaMember member(config, member_options("one"));
    EXPECT_EQ(finish_rest(member, count - finished), count - finished);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// Results that were written before a replay began do not count for it, even if no reader has seen them yet.
TEST_F(RealKafkaExactlyOnce, AReplayPassesOverWhatAnOpenTransactionHadWritten) {
    TransactionalProducer other(config, {.id = topics.prefix + "-other"});
    ASSERT_EQ(other.open(20s).end, StepEnd::done);
    ASSERT_EQ(other.begin(1).end, StepEnd::done);
    const std::vector<schema::Header> headers = {{"source_topic", topics.jobs()}, {"source_partition", "1"}, {"source_offset", "0"}};
    other.send({.topic = topics.results(), .partition = 1, .key = "key", .value = "value", .headers = headers, .tag = 0});
    ASSERT_EQ(other.finish_sending().end, StepEnd::done);

    const EndsSeen mark = GroupOffsets(config, topics.prefix, topics, GroupOffsets::View::now).ends_seen().at(1);
    EXPECT_EQ(mark.results, 1);
    const KafkaConnection connection(config, KafkaConnection::Kind::consumer, {{"group.id", topics.prefix}});
    PastResults past_results(connection, topics);
    const auto ask = [&](const EndsSeen& seen) {
        return past_results.ask({{.place = {topics.jobs(), 1}, .first = 0, .end = 5, .seen = seen}}, std::stop_token())
            ->at({topics.jobs(), 1});
    };
    const auto waiting = ask(mark);
    EXPECT_TRUE(waiting.ended.empty());
    EXPECT_EQ(waiting.seen, mark) << "readers of committed records see less";
    ASSERT_EQ(other.commit().end, StepEnd::done);
    const auto deadline = Clock::now() + 20s;  // the brokers write the commit markers after they have answered
    while (ask({}).ended.empty() && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(ask({}).ended, std::set<std::int64_t>{0});
    EXPECT_TRUE(ask(waiting.seen).ended.empty());
}

// A transaction with one partition's offset stays open: only that partition waits.
TEST_F(RealKafkaExactlyOnce, ReadsTheOtherPartitionsWhileOnesOffsetIsUndecided) {
    submit_jobs(config, topics, 0, count);
    std::size_t waiting = 0;
    for (const auto& job : read_all(config, topics.jobs())) waiting += job.source.partition == 1 ? 1 : 0;
    const auto options = member_options("one");
    KafkaMember member(config, options);
    TransactionalProducer other(config, {.id = topics.prefix + "-other", .timeout = 60s});
    ASSERT_NO_FATAL_FAILURE(leave_undecided(other, options.group, 1));

    const auto jobs = poll_jobs(member, handler, count - waiting);
    EXPECT_EQ(jobs.size(), count - waiting);
    for (const Delivery& job : jobs) {
        EXPECT_NE(job.record.source.partition, 1);
        member.sink().publish(completed(job));
    }
    EXPECT_EQ(member.sink().commit(), jobs.size());
    EXPECT_EQ(poll_jobs(member, handler, 1, 2s).size(), 0U);
    ASSERT_EQ(other.abort().end, StepEnd::done);
    EXPECT_EQ(finish_rest(member, waiting), waiting);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// A member that leaves while the offset of one of its partitions is undecided gives that partition back like the others.
TEST_F(RealKafkaExactlyOnce, GivesAPartitionBackThatItCouldNotReadYet) {
    submit_jobs(config, topics, 0, count);
    const auto options = member_options("one");
    TransactionalProducer other(config, {.id = topics.prefix + "-other", .timeout = 60s});
    {
        KafkaMember member(config, options);
        ASSERT_NO_FATAL_FAILURE(leave_undecided(other, options.group, 2));
        EXPECT_GT(poll_jobs(member, handler, 1).size(), 0U);
        const auto begin = Clock::now();
        KafkaMember second(config, member_options("two"));
        const auto deadline = Clock::now() + 30s;
        while (second.stats().partitions == 0 && Clock::now() < deadline) {
            second.source().poll(50ms, 0, handler);
            member.source().poll(50ms, 0, handler);
        }
        EXPECT_GT(second.stats().partitions, 0U) << "the rebalance must complete";
        second.source().close(handler, Clock::now() + 5s);
        member.source().close(handler, Clock::now() + 5s);
        EXPECT_LT(Clock::now() - begin, 40s);
    }
    ASSERT_EQ(other.abort().end, StepEnd::done);
    KafkaMember member(config, options);
    EXPECT_EQ(finish_rest(member, count), static_cast<std::size_t>(count));
    member.source().close(handler, Clock::now() + 5s);
}

// Offsets seen in a deleted results topic of the same name say nothing about the new topic.
TEST_F(RealKafkaExactlyOnce, ReadsAllResultsWhereTheyEndBelowWhatWasSeen) {
    submit_jobs(config, topics, 0, 1);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 1);
    ASSERT_EQ(jobs.size(), 1U);
    member.sink().publish(completed(jobs[0]));
    member.sink().commit();
    member.source().close(handler, Clock::now() + 5s);

    const KafkaConnection connection(config, KafkaConnection::Kind::consumer, {{"group.id", topics.prefix}});
    PastResults past_results(connection, topics);
    const TopicPartition place{topics.jobs(), jobs[0].record.source.partition};
    const auto ask = [&](const EndsSeen& seen, std::optional<std::chrono::milliseconds> patience) {
        return past_results.ask({{.place = place, .first = 0, .end = 5, .seen = seen}}, std::stop_token(), patience)->at(place);
    };
    ask({}, 10s);  // waits until the result can be read: the log then also has the end of its transaction
    const auto end = ask({}, 10s).seen.results;
    ASSERT_GT(end, 0);
    for (const auto patience : {std::optional<std::chrono::milliseconds>(), std::optional<std::chrono::milliseconds>(10s)}) {
        EXPECT_TRUE(ask({.results = end, .dead_letters = 0}, patience).ended.empty());
        const auto answer = ask({.results = end + 1, .dead_letters = 0}, patience);
        EXPECT_EQ(answer.ended, std::set<std::int64_t>{jobs[0].record.source.offset});
        EXPECT_EQ(answer.seen.results, end);
    }
}

// KIP-848: there are no static members, and the broker assigns the partitions.
TEST_F(RealKafkaExactlyOnce, HoldsUnderTheNewerGroupProtocolWhileAMemberComesAndGoes) {
    submit_jobs(config, topics, 0, count);
    auto options = member_options("one");
    options.protocol = GroupProtocol::consumer;
    auto options_two = options;
    options_two.member = "two";
    KafkaMember one(config, options);
    RecordingHandler handler_two;
    const auto work = [](KafkaMember& member, RecordingHandler& with) {
        for (const Delivery& job : member.source().poll(50ms, 4, with)) member.sink().publish(completed(job));
        member.sink().commit();
    };
    const auto deadline = Clock::now() + 60s;
    while (results().empty() && Clock::now() < deadline) work(one, handler);
    {
        KafkaMember two(config, options_two);
        while (two.stats().partitions == 0 && Clock::now() < deadline) {
            work(one, handler);
            work(two, handler_two);
        }
        EXPECT_GT(two.stats().partitions, 0U);
        two.source().close(handler_two, Clock::now() + 5s);
    }
    submit_jobs(config, topics, count, count);
    while (results().size() < 2 * count && Clock::now() < deadline) work(one, handler);
    expect_one_result_each(2 * count);
    one.source().close(handler, Clock::now() + 5s);
}

TEST_F(RealKafkaExactlyOnce, AJobThatKillsItsWorkerBecomesItsErrorAndTheOthersFinish) {
    constexpr int jobs = 6;
    const std::string killer = "job-3";
    submit_jobs(config, topics, 0, jobs);
    auto options = member_options("one");
    options.careful_starts = {.jobs = 16, .at_once = 4};
    std::map<std::string, int> runs;
    int deaths = 0;
    bool refused = false;
    const auto deadline = Clock::now() + 90s;
    // Runs one worker: true once all jobs have ended, false when it starts the killer.
    const auto live = [&](KafkaMember& member) {
        while (Clock::now() < deadline && results().size() < jobs) {
            for (const Delivery& job : member.source().poll(100ms, 16, handler)) {
                if (job.refusal) {
                    EXPECT_EQ(name_of(job.refusal->code), "worker_crashed");
                    EXPECT_EQ(id_of(job), killer);
                    refused = true;
                    member.sink().publish(completed(job, "worker_crashed"));
                    continue;
                }
                ++runs[id_of(job)];
                if (id_of(job) == killer) return false;
                member.sink().publish(completed(job));
            }
            member.sink().commit();
        }
        member.sink().commit();
        return true;
    };
    for (;; ++deaths) {
        KafkaMember member(config, options);
        if (!live(member)) continue;
        member.source().close(handler, Clock::now() + 5s);
        break;
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(deaths, 3) << "one death at the first start, one among a few jobs, one alone";
    EXPECT_EQ(runs[killer], 3);
    expect_one_result_each(jobs);
}

TEST(KafkaLeftovers, CountAsCommittedWhereTheOffsetsCallAllTheirJobsFinishedAndNobodyElseEndedThem) {
    const auto job = [](std::int64_t offset) { return schema::Source{"jobs", 0, offset}; };
    const auto below = [](std::int64_t end) { return [end](const schema::Source& source) { return source.offset < end; }; };
    const std::vector<EndOfJob> ours = {{job(1), "us/7"}, {job(2), "us/7"}};
    EXPECT_TRUE(counts_as_committed(ours, "us", "", below(3)));
    EXPECT_FALSE(counts_as_committed(ours, "us", "", below(2))) << "offsets and results are one transaction";
    EXPECT_FALSE(counts_as_committed(ours, "them", "", below(3))) << "the transaction belongs to another worker";
    EXPECT_FALSE(counts_as_committed({}, "us", "", below(3)));
    EXPECT_FALSE(counts_as_committed({{job(1), "us/7"}, {job(2), "us/7"}, {job(1), "them/3"}, {job(2), "them/4"}}, "us", "", below(3)))
        << "the transaction was aborted, and its jobs ran again";
    EXPECT_TRUE(counts_as_committed({{job(2), "them/3"}, {job(1), "us/7"}, {job(2), "us/7"}, {job(1), "them/4"}}, "us", "", below(3)))
        << "after it, others ended only one of its two jobs";
    EXPECT_FALSE(counts_as_committed({{job(0), "us/6"}, {job(1), "us/7"}, {job(1), "them/4"}}, "us", "", below(3)))
        << "an earlier committed transaction of ours does not show that the last was committed";
    EXPECT_TRUE(counts_as_committed({{job(5), "us/6"}, {job(1), "us/7"}}, "us", "", below(3))) << "nor does an aborted one";
    EXPECT_TRUE(counts_as_committed(ours, "us", "us/7", below(0))) << "the offsets must not matter here";
    EXPECT_FALSE(counts_as_committed(ours, "us", "us/6", below(0))) << "the transaction is a later one";
}

}  // namespace
}  // namespace lorry::consumer
