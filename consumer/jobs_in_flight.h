// The jobs in flight: delivered and not yet committed. Back-pressure and drains wait for them, and only they may be published. Used by the
// pipeline's stages, on any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "consumer/observer.h"
#include "consumer/seams.h"
#include "consumer/weight.h"

namespace lorry::consumer {

// A job is added when it is delivered, weighed once there is room for it, started with its first step, ended when nothing more is
// computed for it, and removed when its outcome is committed. A job is forgotten when its partition goes to another member: nothing more
// is computed or published for it.
class JobsInFlight {
public:
    explicit JobsInFlight(const InFlightLimits& limits) : limits_(limits) {}

    struct Added {
        schema::Source source;
        Epoch epoch = 0;
        std::string job_id;
        Clock::time_point delivered;
        bool is_call = false;
    };
    void add(Added job);
    // Whether a job of this weight, at most the limits' heaviest, may begin now: whether all jobs together, those that are not calls, and
    // the large ones then stay within the limits.
    enum class Room : std::uint8_t { free, full_for_large, full };
    Room room_for(const JobWeight& weight, bool is_call) const;
    // Sets what the job takes, once there is room for it. No effect on a forgotten job.
    void weigh(const schema::Source& source, Epoch epoch, const JobWeight& weight);
    // No effect on a forgotten job.
    void start(const schema::Source& source, Epoch epoch);
    // False: the job was forgotten, and its end must be dropped.
    bool end(const schema::Source& source, Epoch epoch);
    void remove(const schema::Source& source, Epoch epoch);
    bool contains(const schema::Source& source, Epoch epoch) const;
    bool is_call(const schema::Source& source, Epoch epoch) const;  // false for a forgotten one

    // For partitions that are revoked: forgets all of their jobs, those that have not ended, or those that have not started.
    void forget(const std::vector<PartitionEpoch>& partitions);
    void forget_unfinished(const std::vector<PartitionEpoch>& partitions);
    void forget_waiting(const std::vector<PartitionEpoch>& partitions);
    // Grows with each call that forgets jobs.
    std::uint64_t times_forgotten() const;

    std::size_t total() const;
    std::size_t calls() const;  // among them
    JobWeight taken() const;    // by all weighed jobs
    // The job that was delivered first.
    std::optional<OldestJob> oldest(Clock::time_point now) const;

    // Waits until no job of these partitions is in flight. False if the deadline passes or `is_in_vain` returns true first.
    template <typename InVain>
    bool wait_until_none(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline, const InVain& is_in_vain) {
        std::unique_lock lock(mutex_);
        while (holds_any(partitions)) {
            if (is_in_vain() || Clock::now() >= deadline) return false;
            changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(50)));
        }
        return true;
    }

private:
    // Topic, partition, epoch, offset: the jobs of a partition are a range.
    using Key = std::tuple<std::string, std::int32_t, Epoch, std::int64_t>;
    enum class Stage : std::uint8_t { waiting, started, ended };
    struct Job {
        std::string id;
        Clock::time_point delivered;
        bool is_call = false;
        JobWeight weight = {};
        Stage stage = Stage::waiting;
    };
    using Jobs = std::map<Key, Job>;

    static Key key(const schema::Source& source, Epoch epoch) { return {source.topic, source.partition, epoch, source.offset}; }
    // With mutex_ held.
    std::pair<Jobs::iterator, Jobs::iterator> range(const PartitionEpoch& partition);
    bool holds_any(const std::vector<PartitionEpoch>& partitions);
    Jobs::iterator erase(Jobs::iterator place);
    template <typename Goes>
    void forget_if(const std::vector<PartitionEpoch>& partitions, const Goes& goes);

    void add_up(const JobWeight& weight, bool added);  // with mutex_ held

    const InFlightLimits limits_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Jobs jobs_;                          // guarded by mutex_
    std::size_t calls_ = 0;              // guarded by mutex_
    JobWeight taken_;                    // guarded by mutex_
    JobWeight taken_by_large_;           // guarded by mutex_
    std::uint64_t times_forgotten_ = 0;  // guarded by mutex_
};

}  // namespace lorry::consumer
