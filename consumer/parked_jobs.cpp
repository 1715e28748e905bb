// Two queues and the bytes in them.
#include "consumer/parked_jobs.h"

#include <algorithm>
#include <utility>

namespace lorry::consumer {

void ParkedJobs::push(Awaited awaited, AdmittedJob job) {
    bytes_ += job.bytes;
    queue(awaited).push_back(std::move(job));
}

void ParkedJobs::push_first(Awaited awaited, AdmittedJob job) {
    bytes_ += job.bytes;
    queue(awaited).push_front(std::move(job));
}

AdmittedJob ParkedJobs::pop(Awaited awaited) {
    CHECK(!queue(awaited).empty(), "a job waits");
    AdmittedJob next = std::move(queue(awaited).front());
    queue(awaited).pop_front();
    bytes_ -= next.bytes;
    return next;
}

void ParkedJobs::drop(const std::vector<PartitionEpoch>& partitions) {
    const auto goes = [&](const AdmittedJob& one) {
        return std::ranges::any_of(partitions, [&](const PartitionEpoch& partition) {
            return partition.topic == one.job.source.topic && partition.partition == one.job.source.partition &&
                   partition.epoch == one.epoch;
        });
    };
    for (auto& parked : queues_) {
        std::erase_if(parked, [&](const AdmittedJob& one) {
            if (!goes(one)) return false;
            bytes_ -= one.bytes;
            return true;
        });
    }
}

}  // namespace lorry::consumer
