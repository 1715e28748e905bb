// Checks the topics, then connects source, tracker and sink.
#include "consumer/kafka/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "consumer/kafka/sink.h"
#include "consumer/kafka/source.h"
#include "consumer/kafka/stable_offsets.h"
#include "consumer/log.h"
#include "consumer/offset_tracker.h"

namespace lorry::consumer {

namespace {

// The topic's max.message.bytes, or Kafka's default if the broker does not say, and no more than a reader takes; less the frame of a batch.
std::size_t record_limit(const KafkaConnection& connection, const std::string& topic, bool embedded) {
    constexpr std::size_t kafka_default = 1'048'588;
    // A broker checks the size of the whole batch; this is the overhead of a batch with a single record.
    constexpr std::size_t batch_frame = 256;
    std::size_t limit = kafka_default;
    if (!embedded) {
        const auto settings = connection.topic_settings(topic);
        if (const auto found = settings.find("max.message.bytes"); found != settings.end()) {
            std::from_chars(found->second.data(), found->second.data() + found->second.size(), limit);
        }
    }
    limit = std::min(limit, connection.receive_bytes_max());
    return limit - std::min(limit, batch_frame);
}

}  // namespace

struct KafkaMember::State {
    const schema::Topics topics;
    OffsetTracker tracker;
    KafkaSource source;
    std::string cluster_id;
    bool exactly_once = false;
    Committer* committer = nullptr;  // the sink's
    std::unique_ptr<KafkaSink> sink;
    std::optional<StableOffsets> stable_offsets;  // nullopt with the embedded broker, which has no transactions to wait for

    State(const KafkaConfig& config, const Options& options)
        : topics(options.topics),
          source(config,
                 {.topics = options.topics,
                  .group = options.group,
                  .member = options.member,
                  .protocol = options.protocol,
                  .session_timeout = options.session_timeout,
                  .poll_interval_max = options.poll_interval_max,
                  .drain_budget = options.drain_budget,
                  .careful_starts = options.careful_starts},
                 tracker) {
        const KafkaConnection& connection = source.connection();
        cluster_id = connection.cluster_id();
        const bool embedded = is_embedded_cluster(cluster_id);
        TopicPartitions inputs;
        for (const std::string& topic : topics.inputs()) {
            const TopicPartitions more = partitions_of(topic, connection.required_partition_count(topic));
            inputs.insert(inputs.end(), more.begin(), more.end());
        }
        const std::int32_t jobs = connection.required_partition_count(topics.jobs());
        const EndTopics ends = source.past_results().end_topics();
        KafkaSink::Options sink_options{.topics = topics,
                                        .outbox_records_max = options.outbox_records_max,
                                        .outbox_bytes_max = options.outbox_bytes_max,
                                        .limits = {.results = record_limit(connection, topics.results(), embedded),
                                                   .chunks = record_limit(connection, topics.chunks(), embedded),
                                                   .status = record_limit(connection, topics.status(), embedded),
                                                   .dlq = record_limit(connection, topics.dlq(), embedded)},
                                        .input_ids = ends.input_ids,
                                        .results_partitions = ends.results,
                                        .dlq_partitions = ends.dead_letters};
        connection.required_partition_count(topics.chunks());
        if (jobs != sink_options.results_partitions) {
            log_warning("{} has {} partitions and {} has {}: give them the same number, so that a takeover finds results in one place",
                        topics.jobs(), jobs, topics.results(), sink_options.results_partitions);
        }
        const ProducerLimits limits = producer_limits({sink_options.limits.results, sink_options.limits.status, sink_options.limits.dlq});
        const std::int32_t status = connection.required_partition_count(topics.status());
        TopicPartitions outputs = partitions_of(topics.results(), sink_options.results_partitions);
        if (!embedded) {
            TopicPartitions watched = inputs;
            watched.insert(watched.end(), outputs.begin(), outputs.end());
            stable_offsets.emplace(source.connection(), std::move(watched), options.stall_interval);
        }
        for (const auto& more : {partitions_of(topics.dlq(), sink_options.dlq_partitions), partitions_of(topics.status(), status)}) {
            outputs.insert(outputs.end(), more.begin(), more.end());
        }
        // The embedded broker accepts transactions but forgets their offsets.
        exactly_once = options.exactly_once && !embedded;
        auto made = exactly_once
                        ? make_transactional_committer(config, source.connection(), source.past_results(), tracker,
                                                       {.id = fmt::format("{}/{}/{}", topics.prefix, options.group, options.member),
                                                        .timeout = options.transaction_timeout,
                                                        .heartbeat_interval = heartbeat_interval(options.session_timeout),
                                                        .entries_max = options.outbox_records_max,
                                                        .bytes_max = options.outbox_bytes_max,
                                                        .limits = limits,
                                                        .leftovers = {.topics = topics,
                                                                      .input_ids = ends.input_ids,
                                                                      .worker = options.member,
                                                                      .outputs = std::move(outputs),
                                                                      .inputs = inputs}})
                        : make_at_least_once_committer(config, source.connection(), tracker, limits);
        committer = made.get();
        sink = std::make_unique<KafkaSink>(config, std::move(sink_options), std::move(made));
    }
};

KafkaMember::KafkaMember(const KafkaConfig& config, Options options) {
    check_kafka_config(config);
    state_ = std::make_unique<State>(config, options);
}

KafkaMember::~KafkaMember() = default;

JobSource& KafkaMember::source() { return state_->source; }
CompletionSink& KafkaMember::sink() { return *state_->sink; }
bool KafkaMember::is_exactly_once() const { return state_->exactly_once; }
bool KafkaMember::is_embedded() const { return is_embedded_cluster(state_->cluster_id); }

KafkaMember::Stats KafkaMember::stats() const {
    const auto stall = [&](const std::string& topic) {
        return state_->stable_offsets ? state_->stable_offsets->stall(topic) : std::chrono::milliseconds(0);
    };
    return {.source = state_->source.counters(),
            .sink = state_->sink->counters(),
            .commits = state_->committer->counters(),
            .partitions = state_->tracker.partitions().size(),
            .jobs_incomplete = state_->tracker.incomplete(),
            .metadata_chars = state_->tracker.metadata_chars(),
            .stall_jobs = std::max(stall(state_->topics.jobs()), stall(state_->topics.calls())),
            .stall_results = stall(state_->topics.results()),
            .unreadable = state_->source.unreadable()};
}

}  // namespace lorry::consumer
