// Shows a command's progress on stderr: a bar that is redrawn in place on a terminal, a plain line every ten seconds elsewhere. Used by
// `run` and by the commands in ops/client. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lorry::ops {

struct ProgressState {
    std::int64_t done = 0;  // failed ones included
    std::int64_t failed = 0;
    std::optional<std::int64_t> total;  // nullopt: not known (yet)
    // Earlier work is being read in, which does not count towards the rate.
    bool is_catching_up = false;
    std::string trouble = {};            // shown in place of rate and time left: "Kafka does not answer"
    std::vector<std::string> more = {};  // further figures: "5,120 tokens/s"
};

// A rate per second over a window. One thread.
class ProgressRate {
public:
    using Clock = std::chrono::steady_clock;

    explicit ProgressRate(std::chrono::milliseconds window = std::chrono::seconds(10)) : window_(window) {}
    // Starts to measure; what is done so far does not count.
    void restart(Clock::time_point at, std::int64_t done);
    // The rate now; 0 in the first moments, which are too short to measure. Call restart() first.
    double update(Clock::time_point at, std::int64_t done);

private:
    struct Sample {
        Clock::time_point at;
        std::int64_t done = 0;
    };
    const std::chrono::milliseconds window_;
    std::deque<Sample> samples_;
};

// Per second.
struct ProgressRates {
    double now = 0.0;     // is shown
    double lately = 0.0;  // over minutes: tells the time left, which would jump with the other
};

class ProgressBar {
public:
    // label: what is being done: "submitting".
    explicit ProgressBar(std::string label);
    ~ProgressBar();  // as clear()
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // Cheap: draws ten times a second at most, prints a line every ten seconds where there is no terminal.
    void show(const ProgressState& state);
    // Removes the bar, so that other text can be printed; the next show() draws it again.
    void clear();

private:
    const std::string label_;
    const bool terminal_;
    ProgressRate::Clock::time_point next_;
    ProgressRate rate_;
    ProgressRate rate_lately_;
    bool begun_ = false;
    bool drawn_ = false;
};

// At most `width` columns: "collecting ██████░░░░ 230/400 57 % · 41/s · 3 failed · 4.1 s left".
std::string progress_bar(const std::string& label, const ProgressState& state, const ProgressRates& rates, std::size_t width);
// The same for a log: "collecting: 230 of 400 (57 %), 41/s, 3 failed, 4.1 s left".
std::string progress_line(const std::string& label, const ProgressState& state, const ProgressRates& rates);

}  // namespace lorry::ops
