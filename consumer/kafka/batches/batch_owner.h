// Carries out batches, as one of the gateways that share the partitions of the batches topic as a consumer group. Made by `lorry serve`
// and `lorry up`. One thread of its own.
//
// Each partition has a transactional id, so a gateway that lost a partition without noticing cannot write for it any more: the next owner
// opens a producer of that id, which ends what the other left open, and reads the topic to its end before it does anything.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "consumer/batches/batch_backend.h"
#include "consumer/batches/batch_run.h"
#include "consumer/kafka/config.h"
#include "schema/topics.h"

namespace lorry::consumer {

class BatchTopics;

class BatchOwner {
public:
    struct Options {
        schema::Topics topics;
        BatchRun::Options run;
        std::chrono::hours kept{30 * 24};        // a batch's record after its end
        std::chrono::seconds orphan_age{3'600};  // contents that nothing names are removed
    };
    // Topics and store outlive it. Throws KafkaError when the brokers do not answer or a topic is missing.
    BatchOwner(const KafkaConfig& config, Options options, BatchTopics& topics, FileStore& store);
    // Gives its partitions to the others.
    ~BatchOwner();

    // Why batches cannot be carried out any more; nullopt: all is well. Any thread.
    std::optional<std::string> failure() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
