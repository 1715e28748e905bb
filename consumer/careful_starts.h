// Which jobs may start when, after a take-over: a job that kills its worker must not kill one after the other. For the first jobs of a
// partition that came (those that an earlier owner may have been at when it died) each start is committed, in the offset's metadata,
// before the job runs. Most that were running when a worker died did nothing, so they run again in small groups of their own; those of a
// group that died as well run alone; one that was running a third time becomes the error worker_crashed. Nothing waits for a long job: what
// has not ended after `quiet_max` goes on beside those that come after it. Used by KafkaSource, on its thread; knows no Kafka.
#pragma once

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
        // Of each partition; 0: all jobs start at once. At least as many as an engine runs at once; not as many as a worker's window holds:
        // jobs that wait there harm nobody, and with each death one that kills its worker comes closer to the first that are not finished.
        std::size_t jobs = 512;
        std::size_t at_once = 64;  // that are started and not finished: they are the suspects if the worker dies
        std::size_t suspects_at_once = 8;
        std::chrono::milliseconds quiet_max{60'000};  // that a group of suspects waits for others to end, and then those for it
    };
    CarefulStarts(OffsetTracker& tracker, const Options& options) : tracker_(tracker), options_(options) {}

    void assigned(const std::string& topic, std::int32_t partition) { left_[{topic, partition}] = options_.jobs; }
    void gone(const std::string& topic, std::int32_t partition);

    // A polled job: it is delivered now, or kept until release().
    void take(Delivery delivery, std::vector<Delivery>& out, Clock::time_point now);
    // Adds what may start by now, up to `max` in all.
    void release(std::vector<Delivery>& out, std::size_t max, Clock::time_point now);
    std::size_t waiting() const { return starting_.size() + suspects_.size(); }
    // No more should be polled for the moment.
    bool is_full() const { return options_.jobs > 0 && waiting() >= options_.jobs; }

private:
    struct Waiting {
        Delivery delivery;
        bool counted = false;  // its start is in the tracker
    };
    // Suspects wait or run: nothing else is delivered.
    bool wants_quiet() const { return !suspects_.empty() || !group_.empty(); }
    // True when a commit lists this start.
    bool may_start(Waiting& waiting, std::size_t at_once);
    void release_suspects(std::vector<Delivery>& out, std::size_t max, Clock::time_point now);
    // Nothing runs besides the group, but what has had its time.
    bool is_quiet(Clock::time_point now);

    OffsetTracker& tracker_;
    const Options options_;
    std::map<std::pair<std::string, std::int32_t>, std::size_t> left_;  // careful starts to come, by partition
    std::deque<Waiting> starting_;
    std::multimap<std::uint32_t, Waiting, std::greater<>> suspects_;  // by deaths
    std::uint32_t group_deaths_ = 0;
    std::vector<FinishedWork> group_;  // suspects of so many deaths that run
    Clock::time_point quiet_until_;    // while quiet is wanted: what runs then is waited for no longer
    std::size_t overdue_ = 0;          // so many are not
};

}  // namespace lorry::consumer
