// The keys that are not allowed in the `[kafka]` table, each with the reason.
#include "consumer/kafka/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "consumer/kafka/connection.h"

namespace lorry::consumer {

namespace {

using Refusal = std::pair<std::string_view, std::string_view>;

constexpr std::string_view use_brokers = "the brokers have a key of their own: set `brokers` (or --brokers)";
constexpr std::string_view group_is_ours = "the group is named after the base model: set `group` (or --group)";
constexpr std::string_view commits_are_ours = "offsets are committed with what was published, never by themselves";
constexpr std::string_view acks_are_ours =
    "an idempotent producer needs all in-sync replicas and endless retries: a result must not vanish";
constexpr std::string_view sizes_are_ours = "sizes follow the topics' own limits, so that no record is refused by a broker";
constexpr std::string_view deadline_is_ours = "the program counts its own deadlines: set `deadline_later`";

constexpr std::array refusals = {
    Refusal{"acks", acks_are_ours},
    Refusal{"auto.commit.interval.ms", commits_are_ours},
    Refusal{"auto.offset.reset", "a lost position must be noticed, and is then handled by the takeover rules"},
    Refusal{"batch.size", sizes_are_ours},
    Refusal{"bootstrap.servers", use_brokers},
    Refusal{"delivery.timeout.ms", deadline_is_ours},
    Refusal{"enable.auto.commit", commits_are_ours},
    Refusal{"enable.auto.offset.store", commits_are_ours},
    Refusal{"enable.gapless.guarantee", acks_are_ours},
    Refusal{"enable.idempotence", acks_are_ours},
    Refusal{"enable.partition.eof", "readers need to see the end of a topic, workers must not"},
    Refusal{"group.id", group_is_ours},
    Refusal{"group.instance.id", "the member's id is static: set `member` (or --member)"},
    Refusal{"group.protocol", "it is the setting `group_protocol`"},
    Refusal{"isolation.level", "readers must not see what was never committed"},
    Refusal{"max.in.flight", acks_are_ours},
    Refusal{"max.in.flight.requests.per.connection", acks_are_ours},
    Refusal{"max.poll.interval.ms", "the time to drain a partition is counted against it"},
    Refusal{"message.max.bytes", sizes_are_ours},
    Refusal{"message.send.max.retries", acks_are_ours},
    Refusal{"message.timeout.ms", deadline_is_ours},
    Refusal{"metadata.broker.list", use_brokers},
    Refusal{"partition.assignment.strategy", "partitions move cooperatively, so that a rebalance does not stop the whole group"},
    Refusal{"partitioner", "jobs of an adapter share a partition as Java producers would place them"},
    Refusal{"request.required.acks", acks_are_ours},
    Refusal{"retries", acks_are_ours},
    Refusal{"test.mock.num.brokers", "an embedded broker is started by `lorry broker`"},
    Refusal{"transaction.timeout.ms", "it must stay below the time that a takeover may wait"},
    Refusal{"transactional.id", "it is made of prefix, group and member, so that a restarted worker fences its own past"},
};

}  // namespace

std::optional<std::string_view> refusal_of_kafka_key(std::string_view key) {
    const auto found = std::find_if(refusals.begin(), refusals.end(), [&](const Refusal& refusal) { return refusal.first == key; });
    if (found == refusals.end()) return std::nullopt;
    return found->second;
}

void check_kafka_config(const KafkaConfig& config) {
    if (config.brokers.empty()) {
        throw KafkaConfigError(
            "no brokers are given: set `brokers` in lorry.toml or pass --brokers host:port (`lorry broker` starts one to try)");
    }
    if (config.brokers.find('@') != std::string::npos) {
        throw KafkaConfigError(
            "brokers has an '@': write only host:port, …; a user and a password are sasl.username and sasl.password in [kafka]");
    }
    for (const auto& [key, value] : config.passthrough) {
        if (const auto reason = refusal_of_kafka_key(key))
            throw KafkaConfigError(fmt::format("[kafka] {} is not allowed: {}", key, *reason));
    }
    make_conf(config, {});
}

}  // namespace lorry::consumer
