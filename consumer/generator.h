// The middle stage: jobs go into the engine, what comes out of it goes to the publisher. Folds a job's requests into one end, and
// looks after cancels, deadlines and "running" statuses. Used by pipeline.cpp's engine thread only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "consumer/bounded_queue.h"
#include "consumer/in_flight.h"
#include "consumer/intake.h"
#include "consumer/observer.h"
#include "consumer/seams.h"
#include "engine/engine.h"

namespace lorry::consumer {

using JobKey = std::uint64_t;  // counts admitted jobs of this process

struct AdmittedJob {
    JobKey key = 0;
    PreparedJob prepared;
    schema::Run run;
    Clock::time_point delivered;
};

// What the publisher receives, in order.
struct StreamBegun {
    JobKey key = 0;
    schema::Job job;
    Epoch epoch = 0;
    std::vector<std::string> echo;
    schema::Run run;
};
struct StreamDelta {
    JobKey key = 0;
    std::int32_t choice = 0;
    engine::Delta delta;
};
struct StreamAbandoned {
    JobKey key = 0;
};
struct StillRunning {
    schema::Status status;
    Epoch epoch = 0;
};
struct JobEnded {
    AdmittedJob job;
    std::vector<engine::Result> results;  // complete when neither error nor failure is set
    std::optional<schema::JobError> error;
    std::optional<schema::BatchFailure> failure;
    Clock::time_point ended;
};
// A record that never became a job.
struct Refused {
    Outcome outcome;
};
using Publication = std::variant<StreamBegun, StreamDelta, StreamAbandoned, StillRunning, JobEnded, Refused>;

struct GeneratorOptions {
    std::chrono::milliseconds running_status_after{1'000};
    std::chrono::milliseconds job_timeout{0};
};

class Generator {
public:
    Generator(engine::Engine& engine, const CancelDirectory& cancels, InFlight& in_flight, BoundedQueue<Publication>& out,
              Observer& observer, GeneratorOptions options);

    void submit(AdmittedJob job);
    // One engine step, and what is due by the clock. Jobs that are in flight no more are dropped first.
    void step();
    bool is_idle() const { return active_.empty(); }

private:
    struct ActiveJob {
        AdmittedJob job;
        engine::RequestId first_request = 0;
        std::vector<std::optional<engine::Result>> results;
        std::size_t missing = 0;
        std::optional<Clock::time_point> started;
        bool told_running = false;
    };
    using Active = std::map<JobKey, ActiveJob>;

    std::optional<schema::BatchFailure> failure_before_start(const schema::Job& job) const;
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
    InFlight& in_flight_;
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
