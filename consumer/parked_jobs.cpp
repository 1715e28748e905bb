// The queues and the bytes in them.
#include "consumer/parked_jobs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lorry::consumer {

void ParkedJobs::push(Awaited awaited, AdmittedJob job) {
    bytes_[static_cast<std::size_t>(awaited)] += job.bytes;
    queue(awaited).push_back(std::move(job));
}

void ParkedJobs::push_first(Awaited awaited, AdmittedJob job) {
    bytes_[static_cast<std::size_t>(awaited)] += job.bytes;
    queue(awaited).push_front(std::move(job));
}

AdmittedJob ParkedJobs::pop(Awaited awaited) {
    CHECK(!queue(awaited).empty(), "a job waits");
    AdmittedJob next = std::move(queue(awaited).front());
    queue(awaited).pop_front();
    bytes_[static_cast<std::size_t>(awaited)] -= next.bytes;
    return next;
}

std::size_t ParkedJobs::count() const {
    std::size_t sum = 0;
    for (const auto& jobs : queues_) sum += jobs.size();
    return sum;
}

std::int64_t ParkedJobs::bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0}); }

std::size_t ParkedJobs::calls() const {
    std::size_t sum = 0;
    for (const Awaited awaited : of_calls) sum += count(awaited);
    return sum;
}

std::int64_t ParkedJobs::bytes_of_calls() const {
    std::int64_t sum = 0;
    for (const Awaited awaited : of_calls) sum += bytes(awaited);
    return sum;
}

void ParkedJobs::drop(const std::vector<PartitionEpoch>& partitions) {
    take_if([&](const AdmittedJob& job) { return is_of(job.job.source, job.epoch, partitions); });
}

std::vector<AdmittedJob> ParkedJobs::take_if(const std::function<bool(const AdmittedJob&)>& goes) {
    std::vector<AdmittedJob> taken;
    for (std::size_t i = 0; i < awaited_count; ++i) {
        auto& jobs = queues_[i];
        const auto first = std::stable_partition(jobs.begin(), jobs.end(), [&](const AdmittedJob& job) { return !goes(job); });
        for (auto job = first; job != jobs.end(); ++job) {
            bytes_[i] -= job->bytes;
            taken.push_back(std::move(*job));
        }
        jobs.erase(first, jobs.end());
    }
    return taken;
}

}  // namespace lorry::consumer
