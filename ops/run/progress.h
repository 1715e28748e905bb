// Shows the progress of `lorry run` in a ProgressBar, on a thread of its own. An Observer of the pipeline, made by run.cpp.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "ops/run/tally.h"

namespace lorry::ops {

class RunProgress final : public consumer::Observer {
public:
    // total: records of the input, if known; done_before: how many of them earlier runs have done.
    RunProgress(std::optional<std::int64_t> total, std::int64_t done_before);
    ~RunProgress() override;

    void on_finished(const consumer::JobObservation& job) override;
    void on_dead_letter(const schema::DeadLetter& letter) override;
    void on_step(const engine::EngineStats& stats) override;

    // Stops the display. Call it after the pipeline has ended: then the tally is final.
    void finish();
    const Tally& tally() const { return tally_; }
    // Sequences in the last step. Any thread.
    std::int64_t running() const;
    double seconds() const;

private:
    void print_loop();

    const std::optional<std::int64_t> total_;
    const std::int64_t done_before_;
    const engine::Clock::time_point begin_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Tally tally_;               // guarded by mutex_
    std::int64_t running_ = 0;  // guarded by mutex_
    bool finished_ = false;     // guarded by mutex_
    std::optional<engine::Clock::time_point> ended_;
    std::thread printer_;
};

}  // namespace lorry::ops
