// Runs the engine's steps and follows each job from its submission to its end.
#include "consumer/generator.h"

#include <utility>

#include "consumer/batch_failure.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds tending_interval{50};
constexpr std::chrono::milliseconds adapter_wait{20};

schema::Timestamp wall_now() { return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

}  // namespace

Generator::Generator(engine::Engine& engine, const CancelDirectory& cancels, JobsInFlight& jobs_in_flight, BoundedQueue<Publication>& out,
                     Observer& observer, GeneratorOptions options)
    : engine_(engine), cancels_(cancels), jobs_in_flight_(jobs_in_flight), out_(out), observer_(observer), options_(options) {}

void Generator::submit(Submission submission) {
    JobInWork& job = submission.job;
    if (!jobs_in_flight_.contains(job.source(), job.epoch)) return;
    // A cancel that came before the submission, or a deadline that has passed: tend() reports only later cancels.
    if (const auto failure = failure_before_start(job.job(), cancels_)) {
        job.run.finished = wall_now();
        publish({.job = std::move(job), .results = {}, .error = std::nullopt, .failure = failure, .ended = Clock::now()});
        return;
    }
    if (job.job().stream) out_.push(StreamBegun{job.key, job.epoch, stream_head_of(job.plan), job.run.attempt});
    const engine::RequestId first = next_request_;
    const std::size_t count = submission.requests.size();
    for (engine::Request& request : submission.requests) {
        request.id += first;
        if (request.fork) request.fork->leader += first;
        engine_.submit(std::move(request));
    }
    next_request_ += count;
    first_requests_.emplace(first, job.key);
    active_.emplace(job.key, ActiveJob{.job = std::move(job),
                                       .first_request = first,
                                       .results = std::vector<std::optional<engine::Result>>(count),
                                       .missing = count,
                                       .started = std::nullopt});
}

// Drops jobs of partitions that another member owns by now.
void Generator::drop_forgotten() {
    const std::uint64_t forgotten = jobs_in_flight_.times_forgotten();
    if (std::exchange(forgotten_seen_, forgotten) == forgotten) return;
    for (auto place = active_.begin(); place != active_.end();) {
        const ActiveJob& active = place->second;
        if (jobs_in_flight_.contains(active.job.source(), active.job.epoch)) {
            ++place;
            continue;
        }
        drop_requests(active);
        if (active.job.job().stream) out_.push(StreamAbandoned{place->first});
        first_requests_.erase(active.first_request);
        place = active_.erase(place);
    }
}

void Generator::step() {
    drop_forgotten();
    const Clock::time_point now = Clock::now();
    if (now >= next_tending_) {
        next_tending_ = now + tending_interval;
        const std::size_t before = active_.size();
        tend(now);
        if (active_.size() != before) observer_.on_step(engine_.stats());
    }
    if (!engine_.has_work()) return;
    if (!engine_.step(output_)) engine_.wait_for_adapters(adapter_wait);
    for (const engine::RequestId request : output_.started) {
        const auto place = owner(request);
        if (place != active_.end() && !place->second.started) {
            place->second.started = Clock::now();
            place->second.job.run.started = wall_now();
            jobs_in_flight_.start(place->second.job.source(), place->second.job.epoch);
        }
    }
    for (engine::Delta& delta : output_.deltas) take(std::move(delta));
    for (engine::Result& result : output_.results) take(std::move(result));
    observer_.on_step(engine_.stats());
}

// Ends jobs that were cancelled, expired or timed out, and publishes "running" statuses.
void Generator::tend(Clock::time_point now) {
    const schema::Timestamp wall = wall_now();
    const std::uint64_t cancels = cancels_.version();
    const bool look_for_cancels = cancels != cancels_seen_;
    cancels_seen_ = cancels;
    for (auto next = active_.begin(); next != active_.end();) {
        const auto place = next++;
        ActiveJob& active = place->second;
        const schema::Job& job = active.job.job();
        if (look_for_cancels && cancels_.is_cancelled(job)) {
            end(place, std::nullopt, schema::BatchFailure::cancelled);
        } else if (job.deadline && wall >= *job.deadline) {
            end(place, std::nullopt, schema::BatchFailure::expired);
        } else if (active.started && options_.job_timeout.count() > 0 && now - *active.started >= options_.job_timeout) {
            end(place, std::nullopt, schema::BatchFailure::request_timeout);
        } else if (active.started && !active.reported_running && now - *active.started >= options_.running_status_after) {
            active.reported_running = true;
            out_.push(
                StillRunning{{.run = active.job.run, .state = schema::JobState::running, .usage = {}, .error = {}}, active.job.epoch});
        }
    }
}

Generator::Active::iterator Generator::owner(engine::RequestId request) {
    auto after = first_requests_.upper_bound(request);
    if (after == first_requests_.begin()) return active_.end();
    const auto place = active_.find(std::prev(after)->second);
    const bool within = place != active_.end() && request - place->second.first_request < place->second.results.size();
    return within ? place : active_.end();
}

void Generator::take(engine::Delta delta) {
    const auto place = owner(delta.id);
    if (place == active_.end()) return;
    const ReplyPlan& plan = place->second.job.plan;
    const RequestPlace& where = plan.places[delta.id - place->second.first_request];
    out_.push(StreamDelta{place->first, where.prompt * plan.job.n + where.sample, std::move(delta)});
}

void Generator::take(engine::Result result) {
    const auto place = owner(result.id);
    if (place == active_.end()) return;  // its job ended already
    ActiveJob& active = place->second;
    if (result.error) {
        end(place, std::move(result.error), std::nullopt);
        return;
    }
    const std::size_t index = result.id - active.first_request;
    active.results[index] = std::move(result);
    if (--active.missing == 0) end(place, std::nullopt, std::nullopt);
}

void Generator::end(Active::iterator place, std::optional<schema::JobError> error, std::optional<schema::BatchFailure> failure) {
    ActiveJob& active = place->second;
    if (active.missing > 0) drop_requests(active);
    JobEnded ended{.job = std::move(active.job), .results = {}, .error = std::move(error), .failure = failure, .ended = Clock::now()};
    ended.job.run.finished = wall_now();
    for (auto& result : active.results) {
        if (result) ended.results.push_back(std::move(*result));
    }
    first_requests_.erase(active.first_request);
    active_.erase(place);
    publish(std::move(ended));
}

// A forgotten job's end is not published.
void Generator::publish(JobEnded ended) {
    if (jobs_in_flight_.end(ended.job.source(), ended.job.epoch)) {
        out_.push(std::move(ended));
    } else if (ended.job.job().stream) {
        out_.push(StreamAbandoned{ended.job.key});
    }
}

void Generator::drop_requests(const ActiveJob& active) {
    for (std::size_t i = 0; i < active.results.size(); ++i) engine_.cancel(active.first_request + i);
}

}  // namespace lorry::consumer
