// The way of a job: intake -> generate -> publish, one thread each, bounded queues between them. Knows no Kafka and no files: they are
// behind JobSource and CompletionSink. Constructed by `lorry worker` and `lorry run`.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "consumer/intake.h"
#include "consumer/observer.h"
#include "consumer/reply.h"
#include "consumer/seams.h"
#include "engine/engine.h"

namespace lorry::consumer {

struct PipelineOptions {
    std::string worker;               // its name, in results and statuses
    std::size_t in_flight_max = 2048;  // jobs delivered and not yet committed
    // What those jobs' sequences may come to hold together, prompts and drawn tokens: then intake pauses. A larger job runs alone.
    std::int64_t in_flight_tokens_max = 1'000'000;
    std::chrono::milliseconds commit_interval{200};
    std::chrono::milliseconds drain_timeout{20'000};    // at the end
    std::chrono::milliseconds release_timeout{30'000};  // of a drain beyond its deadline: the commit of what has ended
    std::chrono::milliseconds step_timeout{600'000};    // of the engine's last step, when all else has ended: a longer one hangs
    std::chrono::milliseconds commit_timeout{360'000};  // longer than the sink itself tries: a commit that takes longer hangs
    std::chrono::milliseconds running_status_after{1'000};
    std::chrono::milliseconds job_timeout{0};  // from its first step; 0: none
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

    // Works until the source is exhausted and everything is committed, or request_stop() was called and the drain is over. Throws what
    // went wrong in the world, in whichever thread; nothing is committed then that was not published. Aborts the process when the
    // engine's last step or a commit hangs: its thread cannot be ended otherwise.
    void run();
    // Any thread, async-signal-safe: no more jobs are taken, those that run are finished within drain_timeout.
    void request_stop() { stop_.store(true); }

private:
    struct State;
    std::atomic<bool> stop_ = false;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
