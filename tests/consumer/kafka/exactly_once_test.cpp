// Each error of a transaction, injected into the embedded broker's answers: the worker retries, uses a new producer, or exits.
// The embedded broker forgets the offsets of transactions and shows aborted records; what readers see is tested against a real broker.
#include <gmock/gmock.h>

#include <thread>

#include "consumer/kafka/committer.h"
#include "consumer/kafka/sink.h"
#include "consumer/kafka/source.h"
#include "consumer/kafka/transactions.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

// Numbers of the Kafka protocol.
enum Api : std::int16_t {
    produce_records = 0,
    heartbeat = 12,
    init_producer = 22,
    add_partitions = 24,
    add_offsets = 25,
    end_transaction = 26,
    commit_offsets = 28
};

// What the worker does about the error.
enum class Reaction : std::uint8_t { inside, abort, fence, ask, abort_or_ask, reject, end };

struct Row {
    const char* name;
    Api api;
    std::vector<int> codes;
    Reaction reaction;
    const char* says = "";  // part of the exception's text, if the worker exits
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

class ExactlyOnceErrors : public KafkaTest, public ::testing::WithParamInterface<Row> {
protected:
    static constexpr auto session_timeout = 6s;
    OffsetTracker tracker;
    KafkaSource source{config,
                       {.topics = topics,
                        .group = "base",
                        .member = "one",
                        .session_timeout = session_timeout,
                        .drain_budget = 500ms,
                        .careful_starts = {.jobs = 0}},
                       tracker};
    TransactionOptions options{.id = "lorry/base/one", .timeout = 5s, .heartbeat_interval = heartbeat_interval(session_timeout)};

    std::vector<OutboxEntry> poll_entries(std::size_t count) {
        submit_jobs(config, topics, 0, static_cast<int>(count));
        std::vector<OutboxEntry> entries;
        const auto deadline = Clock::now() + 20s;
        while (entries.size() < count && Clock::now() < deadline) {
            for (const Delivery& job : source.poll(100ms, count, handler)) {
                OutboxEntry entry{.source = job.record.source, .epoch = job.epoch};
                entry.records.push_back({.topic = topics.results(), .partition = 0, .key = "key", .value = "{}", .headers = {}});
                entry.bytes = bytes_of(entry.records.back());
                entries.push_back(std::move(entry));
            }
        }
        return entries;
    }
};

TEST_P(ExactlyOnceErrors, EndAsTheTableSays) {
    const Row& row = GetParam();
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(1);  // one record, so that an undisturbed commit has one request of each kind
    ASSERT_EQ(entries.size(), 1U);
    broker.count_requests();
    broker.fail_requests(row.api, row.codes);
    if (row.reaction == Reaction::end) {
        try {
            committer->commit(std::move(entries));
            FAIL() << "the worker went on";
        } catch (const KafkaError& error) {
            EXPECT_THAT(error.what(), ::testing::HasSubstr(row.says));
        }
        EXPECT_EQ(tracker.incomplete(), 1U) << "nothing counts as done that was not committed";
        return;
    }
    const auto rejected = committer->commit(std::move(entries));
    const CommitCounters counters = committer->counters();
    if (row.reaction == Reaction::inside) {
        EXPECT_GT(broker.requests(row.api), row.codes.size());
    }
    EXPECT_EQ(rejected.size(), row.reaction == Reaction::reject ? 1U : 0U);
    EXPECT_EQ(tracker.incomplete(), rejected.size());
    EXPECT_EQ(counters.transactions, row.reaction == Reaction::reject ? 0U : 1U);
    EXPECT_EQ(counters.fences, row.reaction == Reaction::fence ? 1U : 0U);
    // Whether a lost sequence is fatal to the client depends on what the client knows at that moment.
    if (row.reaction == Reaction::abort_or_ask) {
        EXPECT_EQ(counters.aborts + counters.unknown, 1U);
        return;
    }
    EXPECT_EQ(counters.aborts, row.reaction == Reaction::abort || row.reaction == Reaction::reject ? 1U : 0U);
    EXPECT_EQ(counters.unknown, row.reaction == Reaction::ask ? 1U : 0U);
}

// The numbers are Kafka's ("Error Codes" of the protocol guide).
const std::vector<Row> table = {
    {"EndNotCoordinator", end_transaction, {16, 16}, Reaction::inside},
    {"EndCoordinatorLoading", end_transaction, {14, 14}, Reaction::inside},
    {"AddPartitionsConcurrentTransactions", add_partitions, {51, 51}, Reaction::inside},
    {"AddOffsetsCoordinatorNotAvailable", add_offsets, {15}, Reaction::inside},
    {"OffsetsCoordinatorLoading", commit_offsets, {14, 14}, Reaction::inside},
    {"AddPartitionsNoTopic", add_partitions, {3}, Reaction::inside},
    {"OffsetsNoTopic", commit_offsets, {3}, Reaction::inside},
    {"ProduceNotLeader", produce_records, {6}, Reaction::inside},
    {"ProduceNotEnoughReplicas", produce_records, {19, 19}, Reaction::inside},
    {"ProduceNotEnoughReplicasAfterAppend", produce_records, {20}, Reaction::inside},
    {"ProduceStorageError", produce_records, {56}, Reaction::inside},
    {"OffsetsTimedOut", commit_offsets, {7}, Reaction::inside},
    {"AddOffsetsTimedOut", add_offsets, {7}, Reaction::inside},
    {"ProduceTimedOut", produce_records, {7}, Reaction::inside},
    {"OffsetsIllegalGeneration", commit_offsets, {22}, Reaction::abort},
    {"OffsetsUnknownMember", commit_offsets, {25}, Reaction::abort},
    {"OffsetsRebalance", commit_offsets, {27}, Reaction::abort},
    {"OffsetsStaleMemberEpoch", commit_offsets, {113}, Reaction::abort},
    {"OffsetsFencedMemberEpoch", commit_offsets, {110}, Reaction::abort},
    {"EndTransactionAbortable", end_transaction, {120}, Reaction::abort},
    {"OffsetsFencedInstance", commit_offsets, {82}, Reaction::abort},
    {"AddPartitionsNoProducerId", add_partitions, {49}, Reaction::abort},
    {"EndNoProducerId", end_transaction, {49}, Reaction::abort},
    {"AddOffsetsNoProducerId", add_offsets, {49}, Reaction::abort},
    {"AddPartitionsTimedOut", add_partitions, {7}, Reaction::abort},
    {"EndTimedOut", end_transaction, {7}, Reaction::abort},
    {"OffsetsUnknownError", commit_offsets, {-1}, Reaction::abort},
    {"ProduceOutOfOrder", produce_records, {45}, Reaction::abort_or_ask},
    {"ProduceUnknownProducer", produce_records, {59}, Reaction::abort_or_ask},
    {"EndInvalidState", end_transaction, {48}, Reaction::ask},
    {"OffsetsNoProducerId", commit_offsets, {49}, Reaction::ask},
    {"OffsetsUnsupportedFormat", commit_offsets, {43}, Reaction::ask},
    {"EndProducerFenced", end_transaction, {90}, Reaction::fence},
    {"EndInvalidProducerEpoch", end_transaction, {47}, Reaction::fence},
    {"AddOffsetsProducerFenced", add_offsets, {90}, Reaction::fence},
    {"ProduceTooLarge", produce_records, {10}, Reaction::reject},
    {"ProduceInvalidRecord", produce_records, {87}, Reaction::reject},
    {"OffsetsMetadataTooLarge", commit_offsets, {12}, Reaction::end, "offset.metadata.max.bytes"},
    {"AddPartitionsForbidden", add_partitions, {29}, Reaction::end, "lacks the right"},
    {"AddOffsetsForbiddenGroup", add_offsets, {30}, Reaction::end, "lacks the right"},
    {"EndForbiddenTransactionalId", end_transaction, {53}, Reaction::end, "lacks the right"},
    {"ProduceForbiddenCluster", produce_records, {31}, Reaction::end, "lacks the right"},
    {"AddPartitionsUnsupported", add_partitions, {35}, Reaction::end, "too old"},
    {"ProduceInvalidTopic", produce_records, {17}, Reaction::end, "Invalid topic"},
    {"OffsetsForbiddenTopic", commit_offsets, {29}, Reaction::end, "lacks the right"},
};

INSTANTIATE_TEST_SUITE_P(Table, ExactlyOnceErrors, ::testing::ValuesIn(table), [](const auto& row) { return std::string(row.param.name); });

using ExactlyOnceTest = ExactlyOnceErrors;

TEST_F(ExactlyOnceTest, AFencedProducerGivesUpWhenItHappensAgainAndAgain) {
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(1);
    broker.fail_requests(end_transaction, std::vector<int>(5, 90));
    try {
        committer->commit(std::move(entries));
        FAIL() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(options.id + " 3 times within a minute"));
    }
    EXPECT_EQ(tracker.incomplete(), 1U);
}

// Pins: of two workers under one member name, the one that the group had removed opened the transactional id again and again until the
// other one gave up, too.
TEST_F(ExactlyOnceTest, AFencedWorkerWhoseNameWasTakenLeavesTheTransactionalIdToTheOther) {
    constexpr int producer_fenced = 90;
    constexpr int fenced_instance_id = 82;
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(1);
    broker.count_requests();
    broker.fail_requests(end_transaction, {producer_fenced});
    broker.fail_requests(heartbeat, {fenced_instance_id});
    try {
        committer->commit(std::move(entries));
        FAIL() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("another worker runs under this member id"));
    }
    EXPECT_EQ(broker.requests(init_producer), 0U) << "it took the id back from the worker that the group has chosen";
}

TEST_F(ExactlyOnceTest, SaysAtStartThatTheRightToTransactionsIsMissing) {
    broker.fail_requests(init_producer, {53});
    EXPECT_THROW(make_transactional_committer(config, source.connection(), source.past_results(), tracker, options), KafkaError);
}

TEST_F(ExactlyOnceTest, SaysAtStartThatTheBrokersTakeNoTransactionsOfThisLength) {
    constexpr int invalid_transaction_timeout = 50;
    broker.fail_requests(init_producer, {invalid_transaction_timeout});
    try {
        make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
        FAIL() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("transaction.max.timeout.ms is below 5000 ms"));
    }
}

TEST_F(ExactlyOnceTest, DividesWhatIsTooMuchForOneTransaction) {
    options.entries_max = 2;
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    EXPECT_EQ(committer->commit(poll_entries(5)).size(), 0U);
    EXPECT_EQ(committer->counters().transactions, 3U);
    EXPECT_EQ(tracker.incomplete(), 0U);
}

// A commit that is too large for the transaction timeout may time out on every attempt.
TEST_F(ExactlyOnceTest, TriesHalfAsManyResultsAfterATimeOut) {
    constexpr int not_enough_replicas = 19;
    options.timeout = 1s;
    options.entries_max = 4;
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(4);
    ASSERT_EQ(entries.size(), 4U);
    broker.fail_requests(produce_records, std::vector<int>(1'000, not_enough_replicas));
    std::thread publishing([&] { EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U); });
    const auto deadline = Clock::now() + 20s;
    while (committer->counters().aborts == 0 && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(committer->counters().aborts, 1U);
    broker.fail_no_more(produce_records);
    publishing.join();
    EXPECT_GE(committer->counters().transactions, 2U) << "all four went into one again";
    EXPECT_EQ(tracker.incomplete(), 0U);
}

// The outcome is unknown, so the committer searches for the results. It finds none, because these have no headers.
TEST_F(ExactlyOnceTest, TriesHalfAsManyResultsAfterACommitThatTimedOut) {
    options.timeout = 1s;
    options.entries_max = 4;
    config.passthrough = {{"socket.max.fails", "0"}};  // the connection stays open
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(4);
    ASSERT_EQ(entries.size(), 4U);
    broker.delay_answer(end_transaction, 5s);
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    EXPECT_EQ(committer->counters().unknown, 1U);
    EXPECT_EQ(committer->counters().aborts, 0U);
    EXPECT_EQ(committer->counters().transactions, 2U) << "all four went into one again";
    EXPECT_EQ(tracker.incomplete(), 0U);
}

// The transaction is aborted, but the unanswered request may still arrive and would then act on the next transaction.
TEST_F(ExactlyOnceTest, BeginsWithANewProducerAfterARequestThatWasNotAnswered) {
    options.timeout = 1s;                              // also the timeout of a request
    config.passthrough = {{"socket.max.fails", "0"}};  // the connection stays open
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    broker.delay_answer(commit_offsets, 1500ms);
    broker.fail_requests(init_producer, {53});
    EXPECT_THROW(committer->commit(std::move(entries)), KafkaError) << "no new producer was opened";
    EXPECT_EQ(committer->counters().aborts, 1U);
    EXPECT_EQ(committer->counters().transactions, 0U);
}

TEST_F(ExactlyOnceTest, GoesOnWithTheProducerThatItHasAfterAnAnswerThatAskedToTryAgain) {
    constexpr int request_timed_out = 7;
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    broker.count_requests();
    broker.fail_requests(commit_offsets, {request_timed_out});
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    EXPECT_EQ(broker.requests(commit_offsets), 2U);
    EXPECT_EQ(committer->counters().transactions, 1U);
    broker.fail_requests(init_producer, {53});
    EXPECT_NO_THROW(committer->commit({}));
}

class AResultsTopicThatGoesMissing : public ExactlyOnceTest {
protected:
    std::unique_ptr<Committer> committer;

    // Makes a committer that has written to the topic and has learned that the topic is missing.
    void lose_topic() {
        config.passthrough = missing_topics_are_noticed();
        committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
        EXPECT_EQ(committer->commit(poll_entries(3)).size(), 0U);
        lose(topics.results());
    }
};

TEST_F(AResultsTopicThatGoesMissing, IsWaitedFor) {
    lose_topic();
    auto entries = poll_entries(3);
    std::jthread bringing_back([&] {
        const auto deadline = Clock::now() + 10s;
        while (committer->counters().aborts < 2 && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
        broker.set_topic_error(topics.results(), 0);
    });
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    bringing_back.join();
    EXPECT_GE(committer->counters().aborts, 2U);
    EXPECT_EQ(committer->counters().transactions, 2U);
    EXPECT_EQ(read_all(config, topics.results()).size(), 6U);
}

TEST_F(AResultsTopicThatGoesMissing, EndsTheWorkerInTheEndWhichNamesIt) {
    config.deadline_later = 2s;
    lose_topic();
    auto entries = poll_entries(3);
    try {
        committer->commit(std::move(entries));
        FAIL() << "the topic is not there";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(topics.results()));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("lorry topics create"));
    }
    EXPECT_EQ(tracker.incomplete(), 3U);
}

TEST_F(ExactlyOnceTest, ABrokerThatWasNeverReachedIsNotALostOne) {
    config.brokers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3," + broker.address();  // nobody listens at the first three
    TransactionalProducer producer(config, {.id = options.id, .timeout = options.timeout});
    ASSERT_EQ(producer.open(10s).end, StepEnd::done);
    EXPECT_FALSE(producer.has_lost_broker());
    broker.set_down(true);
    const auto deadline = Clock::now() + 20s;
    while (!producer.has_lost_broker() && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(producer.has_lost_broker());
}

// After a broken connection, a commit begins with a new producer. A worker that has left its group needs none and cannot ask the group.
TEST_F(ExactlyOnceTest, HasNothingToDoWhenTheGroupIsLeftThoughAConnectionBroke) {
    options.leftovers = {
        .topics = topics, .input_ids = {{topics.jobs(), ""}}, .worker = "one", .outputs = {}, .inputs = {{topics.jobs(), 0}}};
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    source.close(handler, Clock::now() + 5s);
    broker.set_down(true);
    std::this_thread::sleep_for(1s);
    broker.set_down(false);
    const auto begin = Clock::now();
    EXPECT_EQ(committer->commit({}).size(), 0U);
    EXPECT_LT(Clock::now() - begin, config.deadline_later / 2);
    EXPECT_EQ(committer->counters().transactions, 1U);
}

// The group has removed the worker, which no longer polls and so never learns of it.
TEST_F(ExactlyOnceTest, ACommitThatIsRefusedAgainAndAgainEndsWhenTheWorkerGivesUp) {
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    broker.fail_requests(commit_offsets, std::vector<int>(1'000, 25));
    const auto begin = Clock::now();
    std::thread publishing([&] { EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U); });
    while (committer->counters().aborts == 0 && Clock::now() < begin + 10s) std::this_thread::sleep_for(10ms);
    EXPECT_GT(committer->counters().aborts, 0U);
    source.give_up();
    publishing.join();
    EXPECT_LT(Clock::now() - begin, config.deadline_later / 2);
    EXPECT_EQ(committer->counters().transactions, 0U);
    EXPECT_EQ(tracker.incomplete(), 0U) << "they are others' jobs";
}

// Readers may be waiting for the end of the last transaction, and no later commit would end it.
TEST_F(ExactlyOnceTest, LooksAfterABrokenConnectionAlsoWithNothingToCommit) {
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    broker.set_down(true);
    std::this_thread::sleep_for(1s);
    broker.set_down(false);
    broker.fail_requests(init_producer, {53});
    EXPECT_THROW(committer->commit({}), KafkaError) << "no new producer was opened";
}

TEST_F(ExactlyOnceTest, DropsWorkOfAPartitionThatWentMeanwhile) {
    const auto committer = make_transactional_committer(config, source.connection(), source.past_results(), tracker, options);
    auto entries = poll_entries(3);
    for (const PartitionEpoch& partition : tracker.partitions()) tracker.drop(partition.topic, partition.partition);
    EXPECT_EQ(committer->commit(std::move(entries)).size(), 0U);
    EXPECT_EQ(committer->counters().transactions, 0U);
    EXPECT_EQ(read_all(config, topics.results()).size(), 0U);
}

}  // namespace
}  // namespace lorry::consumer
