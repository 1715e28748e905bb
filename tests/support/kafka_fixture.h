// An embedded broker with Lorry's topics, and helpers that write and read records. Used by tests of consumer/kafka and ops/client.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "consumer/kafka/broker.h"
#include "consumer/kafka/client.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/member.h"
#include "consumer/kafka/reader.h"
#include "schema/topics.h"

namespace lorry::consumer {

using namespace std::chrono_literals;

inline EmbeddedBroker::Options broker_options(int partitions) {
    EmbeddedBroker::Options options;
    for (const auto& spec : schema::topic_specs({}, {.partitions = partitions})) options.topics.push_back({spec.name, spec.partitions});
    return options;
}

inline std::string job_line(int number) { return fmt::format(R"({{"custom_id":"job-{}"}})", number); }

inline void submit_jobs(const KafkaConfig& config, const schema::Topics& topics, int first, int count) {
    JobProducer producer(config, {.topic = topics.jobs(), .spread = 16});
    for (int i = first; i < first + count; ++i) producer.submit(job_line(i), "base", static_cast<std::uint64_t>(i));
    producer.finish();
    ASSERT_EQ(producer.counts().delivered, static_cast<std::uint64_t>(count));
}

inline std::vector<schema::JobRecord> read_all(const KafkaConfig& config, const std::string& topic) {
    RecordReader reader(config, {.topics = {topic}});
    std::vector<schema::JobRecord> records;
    const auto deadline = Clock::now() + 20s;
    CatchUp catch_up(reader);
    while (Clock::now() < deadline) {
        for (auto& record : reader.poll(100ms, 1000)) records.push_back(std::move(record));
        if (catch_up.is_done()) return records;
    }
    ADD_FAILURE() << topic << " was not read to its end";
    return records;
}

inline Outcome completed(const Delivery& delivery, std::string text = "ok") {
    schema::Completion completion;
    const std::string& value = delivery.record.value.value();
    const auto begin = value.find(':') + 2;
    completion.custom_id = value.substr(begin, value.rfind('"') - begin);
    completion.id = schema::result_id(delivery.record.source, completion.custom_id);
    completion.run.job_id = completion.custom_id;
    completion.run.model = "base";
    completion.run.worker = "test";
    completion.run.source = delivery.record.source;
    completion.run.attempt = 1'700'000'000'000'000;
    completion.run.finished = schema::Timestamp(std::chrono::milliseconds(1'700'000'000'500));
    completion.body = schema::Json::object({{"text", std::move(text)}});
    return {.source = delivery.record.source, .epoch = delivery.epoch, .record = std::move(completion)};
}

// Remembers assigned and revoked partitions, where a pipeline would act on them.
class RecordingHandler : public RevocationHandler {
public:
    std::vector<PartitionEpoch> drained;
    std::vector<PartitionEpoch> lost_ones;
    std::function<void()> on_drain;
    void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point) override {
        drained.insert(drained.end(), partitions.begin(), partitions.end());
        if (on_drain) on_drain();
    }
    void lost(const std::vector<PartitionEpoch>& partitions) override {
        lost_ones.insert(lost_ones.end(), partitions.begin(), partitions.end());
    }
};

// Polls until that many jobs have arrived or the deadline has passed.
inline std::vector<Delivery> poll_jobs(KafkaMember& member, RecordingHandler& handler, std::size_t count,
                                       std::chrono::milliseconds patience = 20s) {
    std::vector<Delivery> jobs;
    const auto deadline = Clock::now() + patience;
    while (jobs.size() < count && Clock::now() < deadline) {
        for (auto& delivery : member.source().poll(100ms, count - jobs.size(), handler)) jobs.push_back(std::move(delivery));
    }
    return jobs;
}

// Polls until the member has its partitions and no job has arrived for a second. Returns all jobs.
inline std::vector<Delivery> poll_all_jobs(KafkaMember& member, RecordingHandler& handler) {
    std::vector<Delivery> jobs;
    const auto deadline = Clock::now() + 30s;
    auto quiet_since = Clock::now();
    while (Clock::now() < deadline && (member.stats().partitions == 0 || Clock::now() < quiet_since + 1s)) {
        auto more = member.source().poll(100ms, 100, handler);
        if (!more.empty() || member.stats().partitions == 0) quiet_since = Clock::now();
        for (auto& delivery : more) jobs.push_back(std::move(delivery));
    }
    return jobs;
}

class KafkaTest : public ::testing::Test {
protected:
    static constexpr int partitions = 3;
    static constexpr std::size_t inputs = 2 * partitions;  // of jobs and of calls
    EmbeddedBroker broker{broker_options(partitions)};
    schema::Topics topics;
    KafkaConfig config{.brokers = broker.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
    RecordingHandler handler;

    KafkaMember::Options member_options(const std::string& name) {
        return {
            .topics = topics, .group = "base", .member = name, .session_timeout = 3s, .drain_budget = 500ms, .careful_starts = {.jobs = 0}};
    }
    // Makes the client notice a missing topic at once. By default it looks once a minute, and believes that a topic it knew is missing only
    // after half a minute.
    static std::map<std::string, std::string> missing_topics_are_noticed() {
        return {{"topic.metadata.refresh.interval.ms", "100"}, {"topic.metadata.propagation.max.ms", "0"}};
    }
    static constexpr int unknown_topic = 3;  // as EmbeddedBroker::set_topic_error takes it
    // Waits until a client that notices quickly has asked several more times.
    void lose(const std::string& topic) {
        constexpr std::int16_t metadata_request = 3;
        constexpr std::size_t requests = 8;
        broker.set_topic_error(topic, unknown_topic);
        broker.count_requests();
        const auto deadline = Clock::now() + 30s;
        while (broker.requests(metadata_request) < requests && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    }
    void close(KafkaMember& member) { member.source().close(handler, Clock::now() + 5s); }
};

}  // namespace lorry::consumer
