// An embedded broker for a KafkaSource by itself. For tests of consumer/kafka alone, because the source names librdkafka's types.
#pragma once

#include "consumer/kafka/source.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {

class KafkaSourceFixture : public KafkaTest {
protected:
    KafkaSource::Options source_options() const {
        return {.topics = topics,
                .group = "base",
                .member = "one",
                .session_timeout = 3s,
                .drain_budget = 500ms,
                .careful_starts = {.jobs = 0}};
    }
};

}  // namespace lorry::consumer
