// What a fault test needs of Kafka beyond the project's own clients: raw records, committed offsets, both ends of a partition, a stranger
// under a worker's transactional id. Each call makes its own connection; any thread.
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

// Sends the records, keys and headers as they are, and waits until all are acknowledged. Throws KafkaError.
void produce_all(const consumer::KafkaConfig& config, const std::string& topic, std::span<const schema::JobRecord> records);

// The group's committed offsets of that topic; nullopt: the coordinator did not answer in time. `now`: what is committed, though a
// transaction may hold newer ones. `settled`: it answers only when none does.
enum class OffsetView : std::uint8_t { now, settled };
std::optional<std::vector<CommittedOffset>> committed_offsets(const consumer::KafkaConfig& config, const std::string& group,
                                                              const std::string& topic, OffsetView view);

// nullopt: a leader did not answer in time.
std::optional<std::vector<PartitionEnd>> partition_ends(const consumer::KafkaConfig& config, const std::vector<std::string>& topics);

// The broker, by its number, that coordinates the group or the transactional id; nullopt: nobody said in time.
std::optional<int> group_coordinator(const consumer::KafkaConfig& config, const std::string& group);
std::optional<int> transaction_coordinator(const consumer::KafkaConfig& config, const std::string& transactional_id);

// Each partition's leader becomes the one that its list of replicas begins with, if that is up, as brokers see to every few minutes. Asks
// only; false: nobody answered in time.
bool elect_preferred_leaders(const consumer::KafkaConfig& config);

// Becomes the owner of the transactional id for a moment. False: the coordinator refused or did not answer.
bool hijack(const consumer::KafkaConfig& config, const std::string& transactional_id);

// False: the group still has members, or the coordinator did not answer.
bool delete_offsets(const consumer::KafkaConfig& config, const std::string& group, const std::string& topic);

bool delete_topic(const consumer::KafkaConfig& config, const std::string& topic);

}  // namespace lorry::faults
