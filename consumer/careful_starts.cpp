// Holds back, releases and refuses jobs by how many workers died while they ran.
#include "consumer/careful_starts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "consumer/log.h"

namespace lorry::consumer {

namespace {

// After this many deaths, the job itself is taken for the cause.
constexpr std::uint32_t deaths_max = 3;

}  // namespace

void CarefulStarts::gone(const std::string& topic, std::int32_t partition) {
    const auto is_of = [&](const schema::Source& source) { return source.topic == topic && source.partition == partition; };
    const auto is_gone = [&](const Delivery& delivery) { return is_of(delivery.record.source); };
    std::erase_if(starting_, is_gone);
    std::erase_if(suspects_, [&](const auto& suspect) { return is_gone(suspect.second); });
    std::erase_if(group_, [&](const FinishedWork& running) { return is_of(running.source); });
    left_.erase({topic, partition});
}

void CarefulStarts::take(Delivery delivery, std::vector<Delivery>& out, Clock::time_point now) {
    const schema::Source& source = delivery.record.source;
    const std::uint32_t deaths = tracker_.starts(source);
    if (deaths >= deaths_max) {
        log_error("{} [{}] offset {}: it was running when {} workers died and is not tried again", source.topic, source.partition,
                  source.offset, deaths);
        delivery.refusal = schema::JobError{
            .code = schema::ErrorCode::worker_crashed,
            .param = {},
            .message = fmt::format("{} workers died while they ran this job, so it is not tried again; their logs may say why", deaths)};
        out.push_back(std::move(delivery));
        return;
    }
    if (deaths > 0) {
        if (!wants_quiet()) {
            quiet_until_ = now + options_.quiet_max;
            overdue_ = 0;
        }
        suspects_.emplace(deaths, std::move(delivery));
        return;
    }
    std::size_t& left = left_.at({source.topic, source.partition});
    if (left == 0 && !wants_quiet()) {
        out.push_back(std::move(delivery));
        return;
    }
    left -= left > 0 ? 1 : 0;
    starting_.push_back(std::move(delivery));
}

bool CarefulStarts::may_start(const schema::Source& source, Epoch epoch, std::size_t at_once) {
    if (tracker_.is_started(source, epoch)) return tracker_.start_is_committed(source, epoch);
    // Without room, be it in the metadata, it is tried again when other jobs have finished.
    const std::size_t started = tracker_.started(source.topic);
    if (started < at_once && tracker_.start(source, epoch)) return false;
    if (started > 0 || tracker_.incomplete() > waiting() + tracker_.waiting()) return false;
    log_warning("{} [{}] offset {}: starts without being listed, because the commit metadata is full and nothing else runs", source.topic,
                source.partition, source.offset);
    return true;
}

bool CarefulStarts::may_go_on(const schema::Source& source, Epoch epoch) {
    if (!tracker_.is_waiting(source, epoch)) return true;
    const std::uint32_t own = tracker_.is_started(source, epoch) ? 1 : 0;
    const bool is_suspect = tracker_.starts(source) > own;
    if (wants_quiet() && !is_suspect) return false;
    if (tracker_.must_start(source, epoch) && !may_start(source, epoch, options_.at_once)) return false;
    tracker_.go_on(source, epoch);
    return true;
}

void CarefulStarts::release(std::vector<Delivery>& out, Clock::time_point now) {
    release_suspects(out, now);
    if (wants_quiet()) return;
    for (auto next = starting_.begin(); next != starting_.end();) {
        if (may_start(next->record.source, next->epoch, options_.at_once)) {
            out.push_back(std::move(*next));
            next = starting_.erase(next);
        } else {
            ++next;
        }
    }
}

bool CarefulStarts::is_quiet(Clock::time_point now) {
    // Read first: a job that ends meanwhile counts as one of the others once more.
    const std::size_t incomplete = tracker_.incomplete();
    const std::size_t idle = waiting() + tracker_.waiting();
    std::erase_if(group_, [&](const FinishedWork& running) {
        return !tracker_.is_incomplete(running.source, running.epoch) || tracker_.is_waiting(running.source, running.epoch);
    });
    if (!wants_quiet()) return true;
    const std::size_t others = incomplete - std::min(incomplete, idle + group_.size());
    overdue_ = std::min(overdue_, others);
    if (now >= quiet_until_ && others + group_.size() > overdue_) {
        log_warning("{} jobs did not end within {} s: the jobs that waited for them start now", others + group_.size() - overdue_,
                    std::chrono::duration_cast<std::chrono::seconds>(options_.quiet_max).count());
        overdue_ = others + group_.size();
        group_.clear();
    }
    return others <= overdue_;
}

// Suspects with the most deaths come first, and nothing else runs beside them, so that a death incriminates the group's members only.
void CarefulStarts::release_suspects(std::vector<Delivery>& out, Clock::time_point now) {
    if (!is_quiet(now) || suspects_.empty() || !out.empty()) return;
    const std::uint32_t deaths = suspects_.begin()->first;
    if (!group_.empty() && group_deaths_ != deaths) return;
    group_deaths_ = deaths;
    std::size_t room = deaths + 1 < deaths_max ? options_.suspects_at_once : 1;
    room -= std::min(room, group_.size());
    std::vector<std::string> names;
    for (auto next = suspects_.begin(); room > 0 && next != suspects_.end() && next->first == deaths; --room) {
        Delivery& suspect = next->second;
        const schema::Source source = suspect.record.source;
        if (!may_start(source, suspect.epoch, std::numeric_limits<std::size_t>::max())) {
            ++next;
            continue;
        }
        names.push_back(fmt::format("{} [{}] {}", source.topic, source.partition, source.offset));
        group_.push_back({source, suspect.epoch});
        out.push_back(std::move(suspect));
        next = suspects_.erase(next);
    }
    if (names.empty()) return;
    quiet_until_ = now + options_.quiet_max;
    log_warning("these jobs were running when {} died, and run now with nothing beside them ({} more wait): {}",
                deaths == 1 ? "a worker" : "two workers", suspects_.size(), fmt::join(names, ", "));
}

}  // namespace lorry::consumer
