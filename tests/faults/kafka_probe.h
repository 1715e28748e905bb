// Kafka calls that only fault tests need: raw records, committed offsets, both ends of a partition, a stranger that opens a worker's
// transactional id. Used by rig.h and evidence.h. Each call makes its own connection and may come from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consumer/kafka/config.h"
#include "schema/codec.h"
#include "tests/faults/checker.h"

namespace lorry::faults {

// Sends the records with their keys and headers unchanged and waits until all are acknowledged. Throws KafkaError.
void produce_all(const consumer::KafkaConfig& config, const std::string& topic, std::span<const schema::JobRecord> records);

// The group's committed offsets of that topic; nullopt: the coordinator did not answer in time. `now` returns what is committed, even if an
// open transaction holds newer offsets; with `settled` the coordinator answers only when none does.
enum class OffsetView : std::uint8_t { now, settled };
std::optional<std::vector<CommittedOffset>> committed_offsets(const consumer::KafkaConfig& config, const std::string& group,
                                                              const std::string& topic, OffsetView view);

// nullopt: a leader did not answer in time.
std::optional<std::vector<PartitionEnd>> partition_ends(const consumer::KafkaConfig& config, const std::vector<std::string>& topics);

// The number of the broker that coordinates the group or the transactional id; nullopt: no answer in time.
std::optional<int> group_coordinator(const consumer::KafkaConfig& config, const std::string& group);
std::optional<int> transaction_coordinator(const consumer::KafkaConfig& config, const std::string& transactional_id);

// Asks that the first replica of each partition become its leader if it is up, as brokers do themselves every few minutes. Does not wait
// until it has. False: no answer in time.
bool elect_preferred_leaders(const consumer::KafkaConfig& config);

// Takes over the transactional id for a moment. False: the coordinator refused or did not answer.
bool hijack(const consumer::KafkaConfig& config, const std::string& transactional_id);

// Returns false if the group still has members or the coordinator did not answer.
bool delete_offsets(const consumer::KafkaConfig& config, const std::string& group, const std::string& topic);

bool delete_topic(const consumer::KafkaConfig& config, const std::string& topic);

}  // namespace lorry::faults
