// The topics of one base model: names, settings and the rights that each role needs. Called by `lorry topics`, the embedded broker, and all
// producers and consumers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::schema {

struct Topics {
    std::string prefix = "lorry";

    std::string jobs() const { return prefix + ".jobs"; }
    // Jobs that somebody waits for, which must not wait for those of `jobs`. Results and chunks are in the same topics as theirs.
    std::string calls() const { return prefix + ".calls"; }
    std::string results() const { return prefix + ".results"; }
    std::string chunks() const { return prefix + ".chunks"; }
    std::string status() const { return prefix + ".status"; }
    std::string dlq() const { return prefix + ".dlq"; }
    std::string adapters() const { return prefix + ".adapters"; }
    std::string control() const { return prefix + ".control"; }
    std::string keys() const { return prefix + ".keys"; }
    std::string files() const { return prefix + ".files"; }
    std::string batches() const { return prefix + ".batches"; }
    // The group in which gateways share the partitions of `batches`, and what their transactional ids begin with.
    std::string gateways() const { return prefix + "/gateways"; }
    // Calls with an Idempotency-Key.
    std::string repeats() const { return prefix + ".repeats"; }

    // The topics whose records are jobs.
    std::vector<std::string> inputs() const { return {jobs(), calls()}; }
};

// Whether these are the ids of two different topics, or clusters. False if either is empty: not all brokers give ids.
bool ids_differ(std::string_view one, std::string_view other);

// The topics' ids by their names. An empty id: the brokers have none.
using TopicIds = std::map<std::string, std::string>;

struct TopicSpec {
    std::string name;
    int partitions = 1;
    int replication = 1;
    std::map<std::string, std::string> config;  // as Kafka names its topic settings
};

struct TopicSettings {
    int partitions = 12;                   // of jobs, calls, results, chunks and status; can be increased later
    int brokers = 1;                       // replication is 3 with at least three of them
    std::chrono::hours retention{7 * 24};  // of jobs, and of all records that say how they ended
    // The jobs topic's limit per record. It is above the codec's ParseLimits, so that a job that is too large is answered with
    // payload_too_large and not only refused at the producer.
    std::int64_t job_bytes_max = 16 << 20;
};

// In this order: jobs, calls, results, chunks, status, dlq, adapters, control, keys, files, batches, repeats.
std::vector<TopicSpec> topic_specs(const Topics& topics, const TopicSettings& settings);

// The roles, as Kafka principals.
struct Principals {
    std::string producer = "User:producer";            // submits jobs, cancels them
    std::string worker = "User:worker";                // does everything in between
    std::string gateway = "User:gateway";              // sends calls and batches, returns their results
    std::string reader = "User:reader";                // collects results, watches
    std::string administrator = "User:administrator";  // registers adapters, makes keys, manages the workers' offsets
    std::string group;                                 // the workers' consumer group; readers' groups begin with prefix + "-"
    std::string bootstrap = "localhost:9092";
};

// One complete kafka-acls command per line, to be pasted into a shell.
std::vector<std::string> acl_lines(const Topics& topics, const Principals& principals);

}  // namespace lorry::schema
