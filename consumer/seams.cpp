// Partitions by name and epoch.
#include "consumer/seams.h"

#include <algorithm>

namespace lorry::consumer {

bool is_of(const schema::Source& source, Epoch epoch, const std::vector<PartitionEpoch>& partitions) {
    return std::ranges::any_of(partitions, [&](const PartitionEpoch& one) {
        return one.topic == source.topic && one.partition == source.partition && one.epoch == epoch;
    });
}

}  // namespace lorry::consumer
