// What only a real Apache Kafka can show: static members, commit metadata, transactions that readers must not see.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "consumer/kafka/admin.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/group_offsets.h"
#include "consumer/kafka/takeover.h"
#include "schema/store/store.h"
#include "tests/support/labels.h"
#include "tests/support/real_kafka.h"

namespace lorry::consumer {
namespace {

const tests::Labelled all_on_a_real_broker{"*", {tests::Label::real_kafka}};

TEST_F(RealKafka, CreatesTopicsOnceAndTellsHowExistingOnesDiffer) {
    auto wanted = specs();
    for (const auto& outcome : create_topics(config, wanted)) {
        EXPECT_EQ(outcome.kind, TopicOutcome::Kind::exists);
        EXPECT_TRUE(outcome.differences.empty()) << outcome.name << ": " << outcome.differences.at(0);
    }
    wanted[0].partitions = 7;
    wanted[0].config["retention.ms"] = "1234";
    EXPECT_EQ(create_topics(config, wanted)[0].differences,
              (std::vector<std::string>{"partitions is 4, not 7", "retention.ms is 604800000, not 1234"}));
    EXPECT_FALSE(describe_cluster(config).embedded);
}

// A topic keeps the producer's codec, or the broker recompresses with the topic's compression.type.
TEST_F(RealKafka, ReadsRecordsOfEveryCodec) {
    const std::vector<std::string> codecs{"none", "gzip", "snappy", "lz4", "zstd"};
    for (const std::string& codec : codecs) {
        KafkaConfig compressing = config;
        compressing.passthrough["compression.codec"] = codec;
        submit_jobs(compressing, topics, 0, 20);
    }
    {
        KafkaMember member(config, member_options("one"));
        EXPECT_EQ(poll_jobs(member, handler, 20 * codecs.size()).size(), 20 * codecs.size());
        EXPECT_TRUE(member.stats().unreadable.empty());
        member.source().close(handler, Clock::now() + 5s);
    }
    for (const char* const of_the_brokers : {"uncompressed", "gzip", "snappy", "lz4", "zstd"}) {
        topics.prefix += "-";
        auto wanted = specs();
        for (auto& spec : wanted) spec.config["compression.type"] = of_the_brokers;
        for (const auto& outcome : create_topics(config, wanted)) ASSERT_EQ(outcome.kind, TopicOutcome::Kind::created) << outcome.name;
        submit_jobs(config, topics, 0, 20);
        KafkaMember member(config, member_options("one"));
        const auto jobs = poll_jobs(member, handler, 20);
        ASSERT_EQ(jobs.size(), 20U) << of_the_brokers;
        for (const Delivery& job : jobs) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), 20U);
        member.source().close(handler, Clock::now() + 5s);
        EXPECT_EQ(read_all(config, topics.results()).size(), 20U) << of_the_brokers;
    }
}

// Jobs finish in any order and the worker dies: only the unfinished jobs come again, and at once, because the member is static.
TEST_F(RealKafka, OnlyUnfinishedJobsComeAgainAfterACrash) {
    submit_jobs(config, topics, 0, 400);
    std::set<std::string> unfinished;
    {
        KafkaMember member(config, member_options("one"));
        const auto jobs = poll_jobs(member, handler, 400);
        ASSERT_EQ(jobs.size(), 400U);
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            if (i % 11 == 3) {
                unfinished.insert(id_of(jobs[i]));
            } else {
                member.sink().publish(completed(jobs[i]));
            }
        }
        EXPECT_EQ(member.sink().commit(), 400 - unfinished.size());
    }
    const auto start = Clock::now();
    KafkaMember again(config, member_options("one"));
    std::set<std::string> seen;
    for (const Delivery& job : poll_jobs(again, handler, unfinished.size())) seen.insert(id_of(job));
    EXPECT_LT(Clock::now() - start, 9s) << "a static member does not wait for its own session to end";
    EXPECT_EQ(seen, unfinished);
    EXPECT_EQ(poll_jobs(again, handler, 1, 1s).size(), 0U);
    again.source().close(handler, Clock::now() + 5s);
}

TEST_F(RealKafka, WithoutTransactionsEachResultIsThereOnceAndTheNextMemberRunsNothingAgain) {
    constexpr std::size_t count = 60;
    submit_jobs(config, topics, 0, static_cast<int>(count));
    auto options = member_options("one");
    options.exactly_once = false;
    const auto committed = [&] {
        std::size_t finished = 0;
        for (const PartitionOffsets& one : GroupOffsets(config, options.group, topics, GroupOffsets::View::now).read()) {
            EXPECT_EQ(one.committed.value_or(0), one.end) << one.partition;
            finished += static_cast<std::size_t>(one.end);
        }
        return finished;
    };
    {
        KafkaMember member(config, options);
        EXPECT_FALSE(member.is_exactly_once());
        for (const Delivery& job : poll_jobs(member, handler, count)) member.sink().publish(completed(job));
        EXPECT_EQ(member.sink().commit(), count);
        EXPECT_EQ(member.stats().commits.transactions, 0U);
        EXPECT_EQ(committed(), count);
        member.source().close(handler, Clock::now() + 5s);
    }
    options.member = "two";
    KafkaMember second(config, options);
    EXPECT_EQ(poll_all_jobs(second, handler).size(), 0U);
    EXPECT_EQ(second.stats().partitions, inputs);
    EXPECT_EQ(second.stats().source.skipped, 0U) << "it is the offsets that say so";
    std::multiset<std::string> results;
    for (const auto& result : read_all(config, topics.results())) results.insert(result.key.value());
    EXPECT_EQ(results.size(), count);
    EXPECT_EQ(std::set<std::string>(results.begin(), results.end()).size(), count);
    second.source().close(handler, Clock::now() + 5s);
}

TEST_F(RealKafka, NoJobIsLostOrDoubledWhileMembersComeAndGo) {
    constexpr std::size_t count = 600;
    submit_jobs(config, topics, 0, static_cast<int>(count));
    std::map<std::string, int> finished;
    struct Worker {
        KafkaMember member;
        RecordingHandler handler;
        std::vector<Delivery> jobs;
        Worker(const KafkaConfig& config, const KafkaMember::Options& options) : member(config, options) {}
    };
    const auto finish = [&](Worker& worker) {
        for (const Delivery& job : worker.jobs) {
            worker.member.sink().publish(completed(job));
            ++finished[id_of(job)];
        }
        worker.jobs.clear();
        worker.member.sink().commit();
    };
    std::vector<std::unique_ptr<Worker>> workers;
    const auto add = [&](const std::string& name) {
        workers.push_back(std::make_unique<Worker>(config, member_options(name)));
        Worker* worker = workers.back().get();
        worker->handler.on_drain = [&finish, worker] { finish(*worker); };
    };
    const auto turn = [&] {
        for (const auto& worker : workers) {
            for (auto& job : worker->member.source().poll(30ms, 3, worker->handler)) worker->jobs.push_back(std::move(job));
            if (worker->jobs.size() > 6) finish(*worker);
        }
    };
    const auto deadline = Clock::now() + 90s;
    add("one");
    while (finished.size() < count / 6 && Clock::now() < deadline) turn();
    add("two");
    while (workers[1]->member.stats().partitions == 0 && Clock::now() < deadline) turn();
    add("three");
    while (workers[2]->member.stats().partitions == 0 && Clock::now() < deadline) turn();
    EXPECT_GT(finished.size(), 0U);
    // The second member leaves for good: its session ends, and the others take over its partitions.
    workers[1]->member.source().close(workers[1]->handler, Clock::now() + 5s);
    workers.erase(workers.begin() + 1);
    submit_jobs(config, topics, static_cast<int>(count), static_cast<int>(count));
    while (finished.size() < 2 * count && Clock::now() < deadline) {
        turn();
        for (const auto& worker : workers) finish(*worker);
    }
    EXPECT_EQ(finished.size(), 2 * count);
    for (const auto& [id, times] : finished) EXPECT_EQ(times, 1) << id;
    std::multiset<std::string> results;
    for (const auto& result : read_all(config, topics.results())) results.insert(result.key.value());
    EXPECT_EQ(results.size(), 2 * count);
    for (const auto& worker : workers) worker->member.source().close(worker->handler, Clock::now() + 5s);
}

// The group still expects the dead member to give up these partitions, and assigns them to no other while its name is registered.
TEST_F(RealKafka, WhatAMemberWasGivingUpWhenItDiedGoesToTheOthersWhenItComesBack) {
    submit_jobs(config, topics, 0, 40);
    auto first = std::make_unique<KafkaMember>(config, member_options("one"));
    ASSERT_EQ(poll_jobs(*first, handler, 40).size(), 40U);
    KafkaMember second(config, member_options("two"));
    RecordingHandler others;
    struct Death {};
    handler.on_drain = [] { throw Death(); };
    const auto deadline = Clock::now() + 30s;
    const auto die = [&] {
        while (Clock::now() < deadline) {
            second.source().poll(50ms, 100, others);
            first->source().poll(50ms, 0, handler);
        }
    };
    ASSERT_THROW(die(), Death) << "a second member takes some of the partitions";
    first.reset();
    handler.on_drain = {};
    KafkaMember again(config, member_options("one"));
    while (again.stats().partitions + second.stats().partitions < inputs && Clock::now() < deadline) {
        again.source().poll(50ms, 100, handler);
        second.source().poll(50ms, 100, others);
    }
    EXPECT_EQ(again.stats().partitions, inputs / 2);
    EXPECT_EQ(second.stats().partitions, inputs / 2);
    again.source().close(handler, Clock::now() + 5s);
    second.source().close(others, Clock::now() + 5s);
}

TEST_F(RealKafka, ReadersDoNotSeeWhatWasNeverCommitted) {
    submit_jobs(config, topics, 0, 3);
    KafkaMember member(config, member_options("one"));
    for (const Delivery& job : poll_jobs(member, handler, 3)) member.sink().publish(completed(job));
    EXPECT_EQ(member.sink().commit(), 3U);
    KafkaConnection transactional(config, KafkaConnection::Kind::producer, {{"transactional.id", topics.prefix}});
    const auto ok = [](rd_kafka_error_t* error) {
        const ErrorHandle owned(error);
        return error == nullptr;
    };
    ASSERT_TRUE(ok(rd_kafka_init_transactions(transactional.handle(), 30'000)));
    ASSERT_TRUE(ok(rd_kafka_begin_transaction(transactional.handle())));
    ASSERT_EQ(produce(transactional.handle(), {.topic = topics.results(), .partition = 0, .key = "ghost", .value = "{}", .headers = {}}),
              RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_flush(transactional.handle(), 10'000);
    ASSERT_TRUE(ok(rd_kafka_abort_transaction(transactional.handle(), 30'000)));
    // Control records at the end of a partition must not keep the reader from detecting that end.
    EXPECT_EQ(read_all(config, topics.results()).size(), 3U);
    member.source().close(handler, Clock::now() + 5s);
}

TEST_F(RealKafka, KeepsToTheLimitsThatTheTopicsHave) {
    topics.prefix += "s";
    auto small = specs();
    for (auto& spec : small) {
        if (spec.name == topics.results()) spec.config["max.message.bytes"] = "20000";
    }
    create_topics(config, small);
    submit_jobs(config, topics, 0, 60);
    KafkaMember member(config, member_options("one"));
    const auto jobs = poll_jobs(member, handler, 60);
    ASSERT_EQ(jobs.size(), 60U);
    member.sink().publish(completed(jobs[0], std::string(19'000, 'x')));
    member.sink().publish(completed(jobs[1], std::string(21'000, 'x')));
    // Each of these results fits, but a batch of them must not be larger than one record may be: random letters do not compress.
    std::uint32_t state = 1;
    for (std::size_t i = 2; i < jobs.size(); ++i) {
        std::string text(6'000, ' ');
        for (char& letter : text) {
            state = state * 1'664'525 + 1'013'904'223;
            letter = static_cast<char>('a' + (state >> 24) % 26);
        }
        member.sink().publish(completed(jobs[i], std::move(text)));
    }
    EXPECT_EQ(member.sink().commit(), 60U);
    EXPECT_EQ(member.stats().sink.too_large, 1U);
    EXPECT_EQ(member.stats().sink.rejected, 0U);
    EXPECT_EQ(read_all(config, topics.results()).size(), 60U);
    member.source().close(handler, Clock::now() + 5s);
}

TEST_F(RealKafka, LedgerAndAdaptersKnowTopicsByTheirIds) {
    const auto file = std::filesystem::temp_directory_path() / fmt::format("ledger-real-{}.db", ::getpid());
    register_adapters(
        config, topics.adapters(),
        {{.name = "tags", .hash = "aaaa", .path = "tags", .base = "small", .rank_max = 8, .targets = {}, .bytes = 0, .registered = {}}});
    AdapterTopic directory(config, {.topic = topics.adapters(), .adapters_root = "/tmp", .base_names = {"base"}});
    directory.wait_until_read(Clock::now() + 20s);
    EXPECT_EQ(directory.resolve("tags", Clock::now()).hash, "aaaa");
    {
        const auto ledger = Ledger::start(config, {.file = file, .topics = topics});
        const auto store = schema::Store::open(file, schema::Store::Mode::reader);
        const auto deadline = Clock::now() + 20s;
        while (store.adapters().empty() && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
        ASSERT_EQ(store.adapters().size(), 1U);
        ASSERT_EQ(store.offsets().size(), 1U);
        EXPECT_FALSE(store.offsets()[0].topic_id.empty());
        EXPECT_EQ(store.cluster_id(), describe_cluster(config).id);
    }
    {
        auto store = schema::Store::open(file, schema::Store::Mode::writer);
        const schema::AppliedOffset applied = store.offsets().at(0);
        store.apply({.statuses = {}, .adapters = {}, .offsets = {{applied.topic, "of an earlier one", applied.partition, applied.next}}});
    }
    {
        const auto ledger = Ledger::start(config, {.file = file, .topics = topics});
        const auto deadline = Clock::now() + 20s;
        while (ledger->stats().applied == 0 && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
        EXPECT_EQ(ledger->stats().applied, 1U) << "the topic was made anew: all is read again";
    }
    for (const char* suffix : {"", "-wal", "-shm", ".lock"}) std::filesystem::remove(file.string() + suffix);
}

void delete_topic(const KafkaConfig& config, const std::string& name) {
    const KafkaConnection admin(config, KafkaConnection::Kind::producer, {});
    const QueueHandle queue(rd_kafka_queue_new(admin.handle()));
    rd_kafka_DeleteTopic_t* topic = rd_kafka_DeleteTopic_new(name.c_str());
    rd_kafka_DeleteTopics(admin.handle(), &topic, 1, nullptr, queue.get());
    rd_kafka_DeleteTopic_destroy(topic);
    ASSERT_TRUE(EventHandle(rd_kafka_queue_poll(queue.get(), 20'000)));
}

// A worker that went on would write results that name the old topic's id, and the next takeover would ignore them.
TEST_F(RealKafka, AWorkerEndsWhenItsJobsTopicWasMadeAnew) {
    submit_jobs(config, topics, 0, 4);
    config.passthrough = {{"topic.metadata.refresh.interval.ms", "100"}};
    KafkaMember member(config, member_options("one"));
    ASSERT_EQ(poll_jobs(member, handler, 4).size(), 4U);
    ASSERT_NO_FATAL_FAILURE(delete_topic(config, topics.jobs()));
    std::jthread creating([&] {
        std::this_thread::sleep_for(2s);
        create_topics(config, specs());
    });
    try {
        poll_jobs(member, handler, 1);
        ADD_FAILURE() << "the worker went on";
    } catch (const KafkaError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("was recreated"));
    }
    creating.join();
}

// A worker that has read all jobs notices only here. Its results would name the old topic, and later workers would run its jobs again.
TEST_F(RealKafka, ATakeOverEndsWhenTheJobsTopicWasMadeAnew) {
    KafkaConnection consumer(config, KafkaConnection::Kind::consumer, {{"group.id", topics.prefix}});
    PastResults past_results(consumer, topics);
    const std::string first_id = past_results.end_topics().input_ids.at(topics.jobs());
    const auto is_refused = [&] {
        TakeOver taking(consumer, past_results);
        taking.start({{topics.jobs(), 0}});
        try {
            while (!taking.result()) std::this_thread::sleep_for(20ms);
        } catch (const KafkaError& error) {
            EXPECT_THAT(error.what(), ::testing::HasSubstr("was recreated while this worker ran"));
            return true;
        }
        return false;
    };
    EXPECT_FALSE(is_refused());
    ASSERT_NO_FATAL_FAILURE(delete_topic(config, topics.jobs()));
    std::this_thread::sleep_for(2s);
    create_topics(config, specs());
    ASSERT_NE(consumer.topic_id(topics.jobs()), first_id);
    EXPECT_TRUE(is_refused());
}

// Offsets start at 0 again. Pins: a cancel for the old topic cancelled jobs of the new one with the same ids.
TEST_F(RealKafka, ACancelDoesNotReachTheJobsOfALaterTopic) {
    const auto cancelled_partitions = [&] {
        ControlTopic cancels(config, {.topics = topics});
        cancels.wait_until_read(Clock::now() + 30s);
        int count = 0;
        for (std::int32_t partition = 0; partition < partitions; ++partition) {
            schema::Job job;
            job.source = {.topic = topics.jobs(), .partition = partition, .offset = 0};
            job.id = "job-0";
            count += cancels.is_cancelled(job) ? 1 : 0;
        }
        return count;
    };
    submit_jobs(config, topics, 0, 40);
    send_cancels(config, topics, {{.id = "job-0"}});
    const int reached = cancelled_partitions();
    EXPECT_GT(reached, 0);
    ASSERT_NO_FATAL_FAILURE(delete_topic(config, topics.jobs()));
    std::this_thread::sleep_for(2s);
    create_topics(config, specs());
    submit_jobs(config, topics, 0, 40);
    EXPECT_EQ(cancelled_partitions(), 0);
    send_cancels(config, topics, {{.id = "job-0"}});
    EXPECT_EQ(cancelled_partitions(), reached);
}

// Brokers that are starting may not know a topic yet. Treated as "no id", that would look like a different topic.
TEST_F(RealKafka, AsksForATopicsIdUntilTheBrokersKnowIt) {
    auto later = specs();
    later.resize(1);
    later[0].name += ".later";
    std::jthread creating([&] {
        std::this_thread::sleep_for(2s);
        create_topics(config, later);
    });
    const std::string id = KafkaConnection(config, KafkaConnection::Kind::consumer, {}).topic_id(later[0].name);
    creating.join();
    EXPECT_FALSE(id.empty());
}

}  // namespace
}  // namespace lorry::consumer
