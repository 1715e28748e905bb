// Draws the bar and works out its figures.
#include "ops/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds redraw_interval{100};
constexpr milliseconds line_interval{10'000};
constexpr milliseconds lately{180'000};
constexpr double rate_seconds_min = 0.2;
constexpr std::size_t bar_columns = 24;
constexpr std::size_t width_default = 80;

// Goes back to the first column and clears the line. std::cerr does not let control characters through.
void start_line_over() { std::fputs("\r\x1b[K", stderr); }

bool stderr_is_terminal() {
    const char* terminal = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t stderr_width() {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return width_default;
    return size.ws_col;
}

std::optional<double> share_of(const ProgressState& state) {
    if (!state.total || *state.total <= 0) return std::nullopt;
    return std::clamp(static_cast<double>(state.done) / static_cast<double>(*state.total), 0.0, 1.0);
}

// Rounded down, so that 100 % is shown only when all is done.
int whole_percent(double share) { return static_cast<int>(std::floor(share * 100.0)); }

// Rate, failures and time left, or the trouble, and further figures. Bar and line end with them.
std::vector<std::string> figures_of(const ProgressState& state, const ProgressRates& rates) {
    std::vector<std::string> figures;
    const double rate = state.trouble.empty() ? rates.now : 0.0;
    if (rate > 0.0) figures.push_back(rate >= 10.0 ? fmt::format("{:.0f}/s", rate) : fmt::format("{:.1f}/s", rate));
    if (state.failed > 0) figures.push_back(show_count(state.failed) + " failed");
    if (state.trouble.empty() && rates.lately > 0.0 && state.total && *state.total > state.done) {
        const double seconds = std::min(static_cast<double>(*state.total - state.done) / rates.lately, 1e9);
        figures.push_back(show_duration(milliseconds(static_cast<std::int64_t>(seconds * 1000.0))) + " left");
    }
    if (!state.trouble.empty()) figures.push_back(state.trouble);
    figures.insert(figures.end(), state.more.begin(), state.more.end());
    return figures;
}

std::string bar_of(double share) {
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar_columns));
    std::string bar;
    for (std::size_t i = 0; i < bar_columns; ++i) bar += i < filled ? "█" : "░";
    return bar;
}

}  // namespace

std::string progress_bar(const std::string& label, const ProgressState& state, const ProgressRates& rates, std::size_t width) {
    const auto share = share_of(state);
    const std::string count = state.total ? fmt::format("{}/{}", show_count(state.done), show_count(*state.total)) : show_count(state.done);
    std::vector<std::string> parts = {share ? fmt::format("{} {} %", count, whole_percent(*share)) : count};
    for (const std::string& figure : figures_of(state, rates)) parts.push_back("· " + figure);
    std::string line = label;
    std::size_t columns = label.size();
    // The figures matter more than the bar where both do not fit.
    if (share && columns + 1 + bar_columns + 1 + parts.front().size() <= width) {
        line += " " + bar_of(*share);
        columns += 1 + bar_columns;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t part_columns = parts[i].size() - (i == 0 ? 0 : 1);  // the dot has two bytes
        if (columns + 1 + part_columns > width) break;
        line += " " + parts[i];
        columns += 1 + part_columns;
    }
    return line;
}

std::string progress_line(const std::string& label, const ProgressState& state, const ProgressRates& rates) {
    std::string line = fmt::format("{}: {}", label, show_count(state.done));
    if (const auto share = share_of(state)) line += fmt::format(" of {} ({} %)", show_count(*state.total), whole_percent(*share));
    for (const std::string& figure : figures_of(state, rates)) line += ", " + figure;
    return line;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      terminal_(stderr_is_terminal()),
      next_(ProgressRate::Clock::now() + (terminal_ ? redraw_interval : line_interval)),
      rate_lately_(lately) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressRate::restart(Clock::time_point at, std::int64_t done) { samples_.assign(1, {at, done}); }

double ProgressRate::update(Clock::time_point at, std::int64_t done) {
    samples_.push_back({at, done});
    // One sample stays from before the window, so that the window is full.
    while (samples_.size() > 2 && at - samples_[1].at >= window_) samples_.pop_front();
    const double seconds = std::chrono::duration<double>(at - samples_.front().at).count();
    return seconds < rate_seconds_min ? 0.0 : static_cast<double>(done - samples_.front().done) / seconds;
}

void ProgressBar::show(const ProgressState& state) {
    const auto now = ProgressRate::Clock::now();
    // What was done before the first call, by an earlier run for instance, does not count towards the rate.
    if (!std::exchange(begun_, true) || state.is_catching_up) {
        rate_.restart(now, state.done);
        rate_lately_.restart(now, state.done);
    }
    if (now < next_) return;
    const ProgressRates rates{.now = rate_.update(now, state.done), .lately = rate_lately_.update(now, state.done)};
    if (terminal_) {
        next_ = now + redraw_interval;
        start_line_over();
        std::cerr << progress_bar(label_, state, rates, stderr_width() - 1) << std::flush;
        drawn_ = true;
    } else {
        next_ = now + line_interval;
        std::cerr << progress_line(label_, state, rates) << '\n' << std::flush;
    }
}

void ProgressBar::clear() {
    if (!drawn_) return;
    start_line_over();
    drawn_ = false;
}

}  // namespace lorry::ops
