// What the pipeline's stages hand to each other: intake -> generator -> publisher. Values; the stage that has one owns it. Used by
// intake.h, generator.h and publisher.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "consumer/seams.h"
#include "engine/request.h"

namespace lorry::consumer {

using JobKey = std::uint64_t;  // numbers the jobs that this process runs

// A job from its preparation to its end.
struct JobInWork {
    JobKey key = 0;
    Epoch epoch = 0;
    ReplyPlan plan;
    schema::Run run;
    Clock::time_point delivered;

    const schema::Job& job() const { return plan.job; }
    const schema::Source& source() const { return plan.job.source; }
};

// Intake to generator.
struct Submission {
    JobInWork job;
    std::vector<engine::Request> requests;
};

// Generator to publisher, in this order for a streaming job; others have a JobEnded alone.
struct StreamBegun {
    JobKey key = 0;
    Epoch epoch = 0;
    StreamHead head;
    std::int64_t attempt = 0;  // as Run::attempt
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
    JobInWork job;
    std::vector<engine::Result> results;  // complete when neither error nor failure is set
    std::optional<schema::JobError> error;
    std::optional<schema::BatchFailure> failure;
    Clock::time_point ended;
};
// Intake to publisher: a delivery of which nothing runs. Its record is an error's completion, or a dead letter.
struct Refused {
    Outcome outcome;
    schema::JobError error;
};
// Intake to publisher: calls are held back until a commit lists their starts.
struct CallsHeldBack {};
using Publication = std::variant<StreamBegun, StreamDelta, StreamAbandoned, StillRunning, JobEnded, Refused, CallsHeldBack>;

}  // namespace lorry::consumer
