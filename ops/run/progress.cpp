// Counts what the pipeline reports and redraws the bar.
#include "ops/run/progress.h"

#include <cmath>

#include <fmt/format.h>

#include "ops/progress_bar.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// The bar itself limits how often it is drawn.
constexpr std::chrono::milliseconds look_interval{100};

}  // namespace

RunProgress::RunProgress(std::optional<std::int64_t> total, std::int64_t done_before)
    : total_(total), done_before_(done_before), begin_(engine::Clock::now()) {
    printer_ = std::thread([this] { print_loop(); });
}

RunProgress::~RunProgress() { finish(); }

void RunProgress::on_finished(const consumer::JobObservation& job) {
    const std::lock_guard lock(mutex_);
    tally_.add(job);
}

void RunProgress::on_dead_letter(const schema::DeadLetter& letter) {
    const std::lock_guard lock(mutex_);
    tally_.add_nameless(letter.error.code, fmt::format("line {}: {}", letter.source.offset + 1, letter.error.message));
}

void RunProgress::on_step(const engine::EngineStats& stats) {
    const std::lock_guard lock(mutex_);
    running_ = stats.running;
}

void RunProgress::finish() {
    {
        const std::lock_guard lock(mutex_);
        if (!ended_) ended_ = engine::Clock::now();
        finished_ = true;
        changed_.notify_all();
    }
    if (printer_.joinable()) printer_.join();
}

std::int64_t RunProgress::running() const {
    const std::lock_guard lock(mutex_);
    return running_;
}

double RunProgress::seconds() const { return std::chrono::duration<double>(ended_.value_or(engine::Clock::now()) - begin_).count(); }

void RunProgress::print_loop() {
    ProgressBar bar("running");
    ProgressRate tokens_rate;
    tokens_rate.restart(begin_, 0);
    std::unique_lock lock(mutex_);
    do {
        const double rate = tokens_rate.update(engine::Clock::now(), tally_.total().tokens());
        ProgressState state{.done = done_before_ + tally_.total().jobs, .failed = tally_.total().failed, .total = total_};
        // Before the first job has ended there is no rate yet.
        if (rate > 0.0) state.more.push_back(fmt::format("{} tokens in + out/s", show_count(std::lround(rate))));
        state.more.push_back(fmt::format("{} in the batch", show_count(running_, "sequence")));
        lock.unlock();
        bar.show(state);
        lock.lock();
    } while (!changed_.wait_for(lock, look_interval, [this] { return finished_; }));
}

}  // namespace lorry::ops
