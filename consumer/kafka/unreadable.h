// A record that the client cannot read: damaged, or compressed with an unknown codec. It blocks its partition. Noted by KafkaSource and
// RecordReader, reported by /healthz and metrics.
#pragma once

#include <cstdint>
#include <string>

namespace lorry::consumer {

struct UnreadableRecord {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t offset = 0;
    std::string reason;  // the client's words, with the codec's name
};

}  // namespace lorry::consumer
