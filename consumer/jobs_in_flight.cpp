// A table of jobs under one short lock.
#include "consumer/jobs_in_flight.h"

#include <algorithm>
#include <limits>

namespace lorry::consumer {

void JobsInFlight::add(Added job) {
    const std::lock_guard lock(mutex_);
    const bool is_new =
        jobs_.emplace(key(job.source, job.epoch), Job{.id = std::move(job.job_id), .delivered = job.delivered, .is_call = job.is_call})
            .second;
    CHECK(is_new, "a source delivers each job once in an epoch");
    if (job.is_call) ++calls_;
}

JobsInFlight::Room JobsInFlight::room_for(const JobWeight& weight, bool is_call) const {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](JobWeight taken, const JobWeight& limit) { return !(taken += weight).exceeds(limit); };
    if (weight.exceeds(limits_.large()) && !fits(taken_by_large_, limits_.heaviest())) return Room::full_for_large;
    return fits(taken_, is_call ? limits_.all() : limits_.but_calls()) ? Room::free : Room::full;
}

void JobsInFlight::weigh(const schema::Source& source, Epoch epoch, const JobWeight& weight) {
    const std::lock_guard lock(mutex_);
    const auto place = jobs_.find(key(source, epoch));
    if (place == jobs_.end()) return;
    place->second.weight = weight;
    add_up(weight, true);
}

void JobsInFlight::add_up(const JobWeight& weight, bool added) {
    const auto add_to = [&](JobWeight& sum) { added ? sum += weight : sum -= weight; };
    add_to(taken_);
    if (weight.exceeds(limits_.large())) add_to(taken_by_large_);
}

void JobsInFlight::start(const schema::Source& source, Epoch epoch) {
    const std::lock_guard lock(mutex_);
    const auto place = jobs_.find(key(source, epoch));
    if (place != jobs_.end() && place->second.stage == Stage::waiting) place->second.stage = Stage::started;
}

bool JobsInFlight::end(const schema::Source& source, Epoch epoch) {
    const std::lock_guard lock(mutex_);
    const auto place = jobs_.find(key(source, epoch));
    if (place == jobs_.end()) return false;
    place->second.stage = Stage::ended;
    return true;
}

void JobsInFlight::remove(const schema::Source& source, Epoch epoch) {
    const std::lock_guard lock(mutex_);
    const auto place = jobs_.find(key(source, epoch));
    if (place == jobs_.end()) return;  // forgotten between its publication and its commit
    erase(place);
    changed_.notify_all();
}

bool JobsInFlight::contains(const schema::Source& source, Epoch epoch) const {
    const std::lock_guard lock(mutex_);
    return jobs_.contains(key(source, epoch));
}

void JobsInFlight::forget(const std::vector<PartitionEpoch>& partitions) {
    forget_if(partitions, [](Stage) { return true; });
}
void JobsInFlight::forget_unfinished(const std::vector<PartitionEpoch>& partitions) {
    forget_if(partitions, [](Stage stage) { return stage != Stage::ended; });
}
void JobsInFlight::forget_waiting(const std::vector<PartitionEpoch>& partitions) {
    forget_if(partitions, [](Stage stage) { return stage == Stage::waiting; });
}

template <typename Goes>
void JobsInFlight::forget_if(const std::vector<PartitionEpoch>& partitions, const Goes& goes) {
    const std::lock_guard lock(mutex_);
    for (const PartitionEpoch& partition : partitions) {
        const auto [begin, end] = range(partition);
        for (auto place = begin; place != end;) place = goes(place->second.stage) ? erase(place) : std::next(place);
    }
    ++times_forgotten_;
    changed_.notify_all();
}

bool JobsInFlight::is_call(const schema::Source& source, Epoch epoch) const {
    const std::lock_guard lock(mutex_);
    const auto place = jobs_.find(key(source, epoch));
    return place != jobs_.end() && place->second.is_call;
}

std::uint64_t JobsInFlight::times_forgotten() const {
    const std::lock_guard lock(mutex_);
    return times_forgotten_;
}

std::size_t JobsInFlight::total() const {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
}

std::size_t JobsInFlight::calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
}

JobWeight JobsInFlight::taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
}

std::optional<OldestJob> JobsInFlight::oldest(Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    const auto place = std::ranges::min_element(jobs_, {}, [](const Jobs::value_type& entry) { return entry.second.delivered; });
    if (place == jobs_.end()) return std::nullopt;
    const auto& [topic, partition, epoch, offset] = place->first;
    return OldestJob{.source = {.topic = topic, .partition = partition, .offset = offset},
                     .job_id = place->second.id,
                     .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - place->second.delivered)};
}

std::pair<JobsInFlight::Jobs::iterator, JobsInFlight::Jobs::iterator> JobsInFlight::range(const PartitionEpoch& partition) {
    using Offset = std::numeric_limits<std::int64_t>;
    return {jobs_.lower_bound(Key{partition.topic, partition.partition, partition.epoch, Offset::min()}),
            jobs_.upper_bound(Key{partition.topic, partition.partition, partition.epoch, Offset::max()})};
}

bool JobsInFlight::holds_any(const std::vector<PartitionEpoch>& partitions) {
    return std::ranges::any_of(partitions, [&](const PartitionEpoch& partition) {
        const auto [begin, end] = range(partition);
        return begin != end;
    });
}

JobsInFlight::Jobs::iterator JobsInFlight::erase(Jobs::iterator place) {
    add_up(place->second.weight, false);
    if (place->second.is_call) --calls_;
    return jobs_.erase(place);
}

}  // namespace lorry::consumer
