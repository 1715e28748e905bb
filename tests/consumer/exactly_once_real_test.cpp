// Exactly once against a real Kafka: deaths between the steps of a commit, a stolen transactional id, take-over without offsets, a job that
// kills its worker.
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "consumer/fault_point.h"
#include "consumer/kafka_group_offsets.h"
#include "consumer/kafka_transactions.h"
#include "tests/support/real_kafka.h"

namespace lorry::consumer {
namespace {

struct Death : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The next time that this place is passed, the worker dies there.
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
    // Polls all that is left and publishes it; how many there were.
    std::size_t finish_rest(KafkaMember& member, std::size_t expected) {
        const auto jobs = poll_jobs(member, handler, expected);
        for (const Delivery& job : jobs) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), jobs.size());
        EXPECT_EQ(poll_jobs(member, handler, 1, 1s).size(), 0U) << "more came than was unfinished";
        return jobs.size();
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
    EXPECT_EQ(member.stats().fences, 1U);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// Somebody's transaction on the results topic stays open: whoever collects results waits, and the worker says so.
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
    EXPECT_EQ(member.stats().stall_jobs, 0ms) << "nobody writes to that topic";
    ASSERT_EQ(other.abort().end, StepEnd::done);
    while (member.stats().stall_results > 0ms && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(member.stats().stall_results, 0ms);
}

// A group that nobody knows: its offsets were deleted, or have expired. What has a result is not run again.
TEST_F(RealKafkaExactlyOnce, AsksTheResultsWhereTheGroupHasNoOffsets) {
    submit_jobs(config, topics, 0, count);
    std::size_t finished = 0;
    {
        KafkaMember member(config, member_options("one"));
        for (const Delivery& job : poll_jobs(member, handler, count)) {
            if (job.record.source.offset % 3 == 1) continue;
            Outcome outcome = completed(job);
            if (job.record.source.offset % 3 == 0) {
                outcome.record = schema::DeadLetter{
                    .source = job.record.source, .key = job.record.key, .value = job.record.value, .headers = {}, .reason = "a test"};
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

// As a group coordinator answers that has not read its log to the end: what has a result is not run again all the same.
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
    const auto deadline = Clock::now() + 30s;  // the group remembers a static member for its session
    while (!offsets.members()->names.empty() && Clock::now() < deadline) std::this_thread::sleep_for(200ms);
    offsets.set(old);
    KafkaMember member(config, member_options("one"));
    EXPECT_EQ(finish_rest(member, count - finished), count - finished);
    expect_one_result_each(count);
    member.source().close(handler, Clock::now() + 5s);
}

// KIP-848: no static members, the broker assigns.
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
    // A life: until all jobs have ended (true), or the killer starts.
    const auto live = [&](KafkaMember& member) {
        while (Clock::now() < deadline && results().size() < jobs) {
            for (const Delivery& job : member.source().poll(100ms, 16, handler)) {
                if (job.refusal) {
                    EXPECT_EQ(job.refusal->code, "worker_crashed");
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
    EXPECT_EQ(deaths, 3) << "the first start, the one among few and the one alone";
    EXPECT_EQ(runs[killer], 3);
    expect_one_result_each(jobs);
}

}  // namespace
}  // namespace lorry::consumer
