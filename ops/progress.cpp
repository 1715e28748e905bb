// The bar and the lines.
#include "ops/progress.h"

#include <unistd.h>

#include <iostream>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr std::chrono::milliseconds terminal_interval{200};
constexpr std::chrono::milliseconds line_interval{5'000};
constexpr std::int64_t bar_width = 24;
constexpr const char* line_start = "\r\x1b[K";  // back to the first column, and clear

std::string bar(double share) {
    const auto full = static_cast<std::int64_t>(share * static_cast<double>(bar_width));
    std::string text;
    for (std::int64_t i = 0; i < bar_width; ++i) text += i < full ? "█" : "░";
    return text;
}

}  // namespace

RunProgress::RunProgress(std::optional<std::int64_t> total, std::int64_t done_before)
    : total_(total), done_before_(done_before), terminal_(isatty(STDERR_FILENO) != 0), begin_(engine::Clock::now()) {
    printer_ = std::thread([this] { print_loop(); });
}

RunProgress::~RunProgress() { finish(); }

void RunProgress::on_finished(const consumer::JobObservation& job) {
    const std::lock_guard lock(mutex_);
    tally_.add(job);
}

void RunProgress::on_dead_letter(const schema::DeadLetter& letter) {
    const std::lock_guard lock(mutex_);
    tally_.add_nameless(fmt::format("{}: line {}: {}", letter.error.code, letter.source.offset + 1, letter.error.message));
}

void RunProgress::on_step(const engine::EngineStats& stats) {
    const std::lock_guard lock(mutex_);
    tokens_ = stats.prompt_tokens + stats.drawn_tokens;
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
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, terminal_ ? terminal_interval : line_interval, [this] { return finished_; })) {
        const std::string text = line();
        lock.unlock();
        std::cerr << (terminal_ ? line_start : "") << text << (terminal_ ? "" : "\n") << std::flush;
        lock.lock();
    }
    if (terminal_) std::cerr << line_start << std::flush;
}

std::string RunProgress::line() const {
    const double elapsed = seconds();
    const std::int64_t here = tally_.total().jobs;
    const std::int64_t done = done_before_ + here;
    const double rate = elapsed > 0.0 ? static_cast<double>(here) / elapsed : 0.0;
    std::string text;
    if (total_ && *total_ > 0) {
        const double share = static_cast<double>(done) / static_cast<double>(*total_);
        if (terminal_) text += bar(share) + " ";
        text += fmt::format("{:3.0f} %  {} of {} jobs", 100.0 * share, show_count(done), show_count(*total_));
    } else {
        text += fmt::format("{} jobs", show_count(done));
    }
    if (tally_.total().failed > 0) text += fmt::format(", {} failed", show_count(tally_.total().failed));
    text += fmt::format("  {:.1f} jobs/s  {} tokens/s  {} running", rate,
                        show_count(elapsed > 0.0 ? static_cast<std::int64_t>(static_cast<double>(tokens_) / elapsed) : 0), running_);
    if (total_ && rate > 0.0) {
        text += "  " +
                show_duration(std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(*total_ - done) / rate * 1000.0))) +
                " left";
    }
    return text;
}

}  // namespace lorry::ops
