// The pipeline of a worker: intake -> generate -> publish, one thread each, with bounded queues between them. Knows neither Kafka nor
// files, which implement JobSource and CompletionSink. Constructed by `lorry worker`, `lorry run` and the dry run's sample.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "consumer/observer.h"
#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "consumer/seams.h"
#include "consumer/weight.h"
#include "engine/engine.h"

namespace lorry::consumer {

struct PipelineOptions {
    std::string worker;                   // its name, in results and statuses
    std::size_t in_flight_max = 2048;     // jobs delivered, not parked and not yet committed
    std::size_t calls_in_flight_max = 0;  // calls besides these jobs: jobs never take their places
    InFlightLimits in_flight;  // what these jobs may take together: beyond it intake pauses; its members of the engine are filled in
    std::chrono::milliseconds commit_interval{200};
    std::chrono::milliseconds drain_timeout{20'000};    // at the end
    std::chrono::milliseconds release_timeout{30'000};  // after a drain's deadline: for the commit of ended jobs
    std::chrono::milliseconds step_timeout{600'000};    // of the engine's last step, after all else has ended: a longer one hangs
    std::chrono::milliseconds commit_timeout{360'000};  // longer than the sink itself tries: a longer commit hangs
    std::chrono::milliseconds running_status_after{1'000};
    std::chrono::milliseconds job_timeout{3'600'000};  // from the first step; 0: no limit
    schema::ParseLimits parse;
};

// All references outlive the pipeline.
struct PipelineParts {
    JobSource& source;
    CompletionSink& sink;
    const AdapterDirectory& adapters;
    const CancelDirectory& cancels;
    const Preparer& preparer;
    engine::Engine& engine;
    const ReplyContext& reply;
    Observer& observer;
};

class Pipeline {
public:
    Pipeline(const PipelineParts& parts, const PipelineOptions& options);
    ~Pipeline();
    Pipeline(const Pipeline&) = delete;
    Pipeline& operator=(const Pipeline&) = delete;

    // Returns when the source is exhausted and everything is committed, or when the drain after request_stop() has ended. Throws the first
    // failure of the world, from whichever thread; nothing is committed then that was not published. Aborts the process if the engine's
    // last step or a commit hangs: a hanging thread cannot be ended otherwise.
    void run();
    // Any thread, async-signal-safe. No more jobs are taken; running ones have drain_timeout to finish.
    void request_stop() { stop_.store(true); }

private:
    struct State;
    std::atomic<bool> stop_ = false;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
