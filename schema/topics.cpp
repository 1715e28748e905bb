// The settings of the topics, and the rights to use them.
#include "schema/topics.h"

#include <fmt/format.h>
#include <algorithm>
#include <initializer_list>

#include "schema/check.h"

namespace lorry::schema {
namespace {

constexpr std::int64_t record_overhead = 64 << 10;  // headers that are added to a dead letter, and Kafka's framing
constexpr int replication_wanted = 3;
constexpr int batch_partitions = 8;  // each belongs to one gateway at a time

std::string milliseconds(std::chrono::hours hours) { return std::to_string(std::chrono::milliseconds(hours).count()); }

}  // namespace

bool ids_differ(std::string_view one, std::string_view other) { return !one.empty() && !other.empty() && one != other; }

std::vector<TopicSpec> topic_specs(const Topics& topics, const TopicSettings& settings) {
    CHECK(settings.partitions > 0 && settings.brokers > 0, "topics have partitions and a cluster has brokers");
    const int replication = std::min(settings.brokers, replication_wanted);
    // A record counts once two copies are in sync. With fewer than three brokers, one missing broker would stop all writing.
    const char* in_sync = replication == replication_wanted ? "2" : "1";
    const std::string job_bytes = std::to_string(settings.job_bytes_max);
    const std::string retention = milliseconds(settings.retention);
    const auto deleted = [&](std::string name, int partitions, std::string keep, std::string bytes) {
        return TopicSpec{.name = std::move(name),
                         .partitions = partitions,
                         .replication = replication,
                         .config = {{"cleanup.policy", "delete"},
                                    {"min.insync.replicas", in_sync},
                                    {"retention.ms", std::move(keep)},
                                    {"max.message.bytes", std::move(bytes)}}};
    };
    const std::string one_day = milliseconds(std::min(settings.retention, std::chrono::hours(24)));
    const std::string small_bytes = std::to_string(1 << 20);
    // The last record of each key is kept for ever.
    const auto compacted = [&](std::string name, int partitions = 1) {
        return TopicSpec{.name = std::move(name),
                         .partitions = partitions,
                         .replication = replication,
                         .config = {{"cleanup.policy", "compact"}, {"min.insync.replicas", in_sync}, {"max.message.bytes", small_bytes}}};
    };
    // Of each call the last record, for as long as it is remembered.
    TopicSpec repeats = compacted(topics.repeats());
    repeats.config["cleanup.policy"] = "compact,delete";
    repeats.config["retention.ms"] = one_day;
    // Control messages outlive the jobs that they may cancel; one day more covers clocks that differ.
    const std::string control_retention = milliseconds(settings.retention + std::chrono::hours(24));
    return {
        deleted(topics.jobs(), settings.partitions, retention, job_bytes),
        // Nobody waits for a call longer than a day.
        deleted(topics.calls(), settings.partitions, one_day, job_bytes),
        // As many partitions as the jobs topic: a worker that takes over partition p of jobs or calls reads only partition p of results.
        deleted(topics.results(), settings.partitions, retention, job_bytes),
        deleted(topics.chunks(), settings.partitions, one_day, small_bytes),
        deleted(topics.status(), settings.partitions, retention, small_bytes),
        deleted(topics.dlq(), 1, milliseconds(settings.retention * 4), std::to_string(settings.job_bytes_max + record_overhead)),
        compacted(topics.adapters()),
        deleted(topics.control(), 1, control_retention, small_bytes),
        compacted(topics.keys()),
        compacted(topics.files()),
        compacted(topics.batches(), batch_partitions),
        repeats,
    };
}

std::vector<std::string> acl_lines(const Topics& topics, const Principals& principals) {
    std::vector<std::string> lines;
    const auto allow = [&](const std::string& principal, std::initializer_list<const char*> operations, const std::string& resources) {
        std::string line = fmt::format("kafka-acls --bootstrap-server {} --add --allow-principal '{}'", principals.bootstrap, principal);
        for (const char* operation : operations) line += fmt::format(" --operation {}", operation);
        lines.push_back(fmt::format("{} {}", line, resources));
    };
    const auto on = [](std::initializer_list<std::string> names) {
        std::string resources;
        for (const std::string& name : names) resources += fmt::format("{}--topic '{}'", resources.empty() ? "" : " ", name);
        return resources;
    };
    // The producer reads jobs to see whether a batch was submitted already.
    allow(principals.producer, {"Read", "Write", "Describe"}, on({topics.jobs()}));
    allow(principals.producer, {"Write", "Describe"}, on({topics.control()}));

    // Workers also read results, dead letters and status: when they take over a partition, and for the ledger.
    allow(principals.worker, {"Read", "Describe"},
          on({topics.jobs(), topics.calls(), topics.adapters(), topics.control(), topics.results(), topics.dlq(), topics.status()}));
    // The topics' settings say how large a record may be. The right to write to a topic includes idempotent writing.
    allow(principals.worker, {"Write", "Describe", "DescribeConfigs"},
          on({topics.results(), topics.chunks(), topics.status(), topics.dlq()}));
    allow(principals.worker, {"Read", "Describe"}, fmt::format("--group '{}'", principals.group));
    // Each member's transactional id is prefix/group/member.
    allow(principals.worker, {"Write", "Describe"},
          fmt::format("--transactional-id '{}/{}/' --resource-pattern-type prefixed", topics.prefix, principals.group));

    allow(principals.gateway, {"Write", "Describe"}, on({topics.jobs(), topics.calls(), topics.control()}));
    // Statuses say what each key used today, and all usage.
    allow(principals.gateway, {"Read", "Describe"},
          on({topics.results(), topics.chunks(), topics.status(), topics.adapters(), topics.keys()}));
    // Files and batches.
    allow(principals.gateway, {"Read", "Write", "Describe"}, on({topics.files(), topics.batches()}));
    allow(principals.gateway, {"Read", "Describe"}, fmt::format("--group '{}'", topics.gateways()));
    allow(principals.gateway, {"Write", "Describe"},
          fmt::format("--transactional-id '{}/' --resource-pattern-type prefixed", topics.gateways()));
    allow(principals.gateway, {"Read", "Write", "Describe"}, on({topics.repeats()}));

    // A reader counts the jobs of a batch.
    allow(principals.reader, {"Read", "Describe"},
          on({topics.jobs(), topics.results(), topics.chunks(), topics.status(), topics.dlq(), topics.adapters()}));
    allow(principals.reader, {"Read", "Describe"}, fmt::format("--group '{}-' --resource-pattern-type prefixed", topics.prefix));

    allow(principals.administrator, {"Read", "Write", "Describe"}, on({topics.adapters(), topics.keys()}));
    // Reads and sets the workers' offsets, which requires the right to read the topics that they belong to.
    allow(principals.administrator, {"Read", "Describe"}, on({topics.jobs(), topics.calls()}));
    allow(principals.administrator, {"Describe"}, on({topics.results(), topics.dlq()}));  // for a replay: where they end
    // Records that are given up become dead letters, in a transaction whose id is prefix/group.
    allow(principals.administrator, {"Write"}, on({topics.dlq()}));
    allow(principals.administrator, {"Write", "Describe"}, fmt::format("--transactional-id '{}/{}'", topics.prefix, principals.group));
    allow(principals.administrator, {"Read", "Describe"}, fmt::format("--group '{}'", principals.group));
    return lines;
}

}  // namespace lorry::schema
