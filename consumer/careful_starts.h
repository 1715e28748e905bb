// Which jobs may start when, after a takeover: a job that kills its worker must not kill one worker after the other. For the first jobs of
// an assigned partition (those that an earlier owner may have been running when it died), each start is committed in the offset's metadata
// before the job runs. Jobs that were running when a worker died are suspects. Most of them are harmless, so they run again in small groups
// with nothing beside them; if a worker dies with such a group, its members run alone; a job during which a third worker dies becomes the
// error worker_crashed. Long jobs delay nothing: what has not ended after `quiet_max` runs on beside the jobs that follow. Used by
// KafkaSource, on its thread; knows no Kafka.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "consumer/offset_tracker.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class CarefulStarts {
public:
    struct Options {
        // Careful starts per partition; 0: all jobs start at once. At least as many as an engine runs at once. A worker's window may hold
        // more: jobs that wait in it are harmless, and each death brings a job that kills workers closer to the first unfinished ones.
        std::size_t jobs = 512;
        // Of one topic, started and not finished: these become the suspects if the worker dies. Topics do not share places: calls would
        // wait for all jobs that a new worker takes from a long backlog.
        std::size_t at_once = 64;
        std::size_t suspects_at_once = 8;
        std::chrono::milliseconds quiet_max{60'000};  // how long a group of suspects waits for others to end, and then others for the group
    };
    CarefulStarts(OffsetTracker& tracker, const Options& options) : tracker_(tracker), options_(options) {}

    void assigned(const std::string& topic, std::int32_t partition) { left_[{topic, partition}] = options_.jobs; }
    void gone(const std::string& topic, std::int32_t partition);

    // Delivers a polled job now, or keeps it until release().
    void take(Delivery delivery, std::vector<Delivery>& out, Clock::time_point now);
    // Adds the jobs that may start by now to `out`, whether there is room for them or not: one that lacks room waits, and gives its place
    // to others.
    void release(std::vector<Delivery>& out, Clock::time_point now);
    // A delivered job waits for something other than the engine: it counts neither as started nor as running until may_go_on().
    void waits(const schema::Source& source, Epoch epoch) { tracker_.wait(source, epoch); }
    // True once the job may run: when no suspects want quiet, and its new start, if it needs one, is in a commit. Asked until it is true.
    // Suspects that have waited run on beside others.
    bool may_go_on(const schema::Source& source, Epoch epoch);
    std::size_t waiting() const { return starting_.size() + suspects_.size(); }
    // Whether one of those that wait for the commit of their start alone is of a kind.
    template <typename IsOfKind>
    bool has_waiting(IsOfKind is_of_kind) const {
        return std::ranges::any_of(starting_, [&](const Delivery& delivery) { return is_of_kind(delivery.record.source); });
    }
    // No more jobs of this topic should be polled for now.
    bool is_full(const std::string& topic) const {
        const auto is_of = [&](const Delivery& delivery) { return delivery.record.source.topic == topic; };
        // The sum alone answers nearly always.
        if (options_.jobs == 0 || waiting() < options_.jobs) return false;
        return static_cast<std::size_t>(std::ranges::count_if(starting_, is_of) + std::ranges::count_if(suspects_, [&](const auto& one) {
                                            return is_of(one.second);
                                        })) >= options_.jobs;
    }

private:
    // While suspects wait or run, nothing else is delivered.
    bool wants_quiet() const { return !suspects_.empty() || !group_.empty(); }
    // Counts a start of this job if there is a place for it; true once a commit lists it.
    bool may_start(const schema::Source& source, Epoch epoch, std::size_t at_once);
    void release_suspects(std::vector<Delivery>& out, Clock::time_point now);
    // Nothing runs beside the group, except overdue jobs.
    bool is_quiet(Clock::time_point now);

    OffsetTracker& tracker_;
    const Options options_;
    std::map<std::pair<std::string, std::int32_t>, std::size_t> left_;  // careful starts to come, by partition
    std::deque<Delivery> starting_;
    std::multimap<std::uint32_t, Delivery, std::greater<>> suspects_;  // by deaths
    std::uint32_t group_deaths_ = 0;
    std::vector<FinishedWork> group_;  // running suspects, all of group_deaths_ deaths
    Clock::time_point quiet_until_;    // while quiet is wanted: what runs at this time is overdue from then on
    std::size_t overdue_ = 0;          // the number of overdue jobs
};

}  // namespace lorry::consumer
