// The middle stage: submits jobs to the engine and hands results to the publisher. Joins the results of a job's requests into one end, and
// handles cancels, deadlines and "running" statuses. Used by pipeline.cpp's engine thread only.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "consumer/bounded_queue.h"
#include "consumer/handover.h"
#include "consumer/jobs_in_flight.h"
#include "consumer/observer.h"
#include "consumer/seams.h"
#include "engine/engine.h"

namespace lorry::consumer {

struct GeneratorOptions {
    std::chrono::milliseconds running_status_after{1'000};
    std::chrono::milliseconds job_timeout{3'600'000};  // from the job's first step; 0: no limit
};

class Generator {
public:
    Generator(engine::Engine& engine, const CancelDirectory& cancels, JobsInFlight& jobs_in_flight, BoundedQueue<Publication>& out,
              Observer& observer, GeneratorOptions options);

    void submit(Submission submission);
    // Runs one engine step and handles what is due. Drops jobs that are no longer in flight first.
    void step();
    bool is_idle() const { return active_.empty(); }

private:
    struct ActiveJob {
        JobInWork job;
        engine::RequestId first_request = 0;
        std::vector<std::optional<engine::Result>> results;
        std::size_t missing = 0;
        std::optional<Clock::time_point> started;
        bool reported_running = false;
    };
    using Active = std::map<JobKey, ActiveJob>;

    void drop_forgotten();
    void tend(Clock::time_point now);
    void take(engine::Result result);
    void take(engine::Delta delta);
    void publish(JobEnded ended);
    void end(Active::iterator place, std::optional<schema::JobError> error, std::optional<schema::BatchFailure> failure);
    void drop_requests(const ActiveJob& active);
    Active::iterator owner(engine::RequestId request);

    engine::Engine& engine_;
    const CancelDirectory& cancels_;
    JobsInFlight& jobs_in_flight_;
    BoundedQueue<Publication>& out_;
    Observer& observer_;
    const GeneratorOptions options_;
    Active active_;
    std::map<engine::RequestId, JobKey> first_requests_;  // of each active job: finds the owner of any of its requests
    engine::RequestId next_request_ = 0;
    engine::StepOutput output_;
    std::uint64_t cancels_seen_ = 0;
    std::uint64_t forgotten_seen_ = 0;
    Clock::time_point next_tending_{};
};

}  // namespace lorry::consumer
