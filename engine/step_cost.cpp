// Fits a line to the times of steps by their rows.
#include "engine/step_cost.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lorry::engine {
namespace {

constexpr double newest_step_share = 0.0625;  // of the last step in its size's time
constexpr double slowest = 2.0;               // times the usual: what a step counts at most, as others may use the machine
constexpr double row_share_unknown = 0.0625;

}  // namespace

void StepCost::launched(const Step& step) { queued_.push_back(step); }

double StepCost::read(Time now) {
    const Step step = queued_.front();
    queued_.pop_front();
    const std::chrono::duration<double> seconds = now - std::max(step.begun, std::exchange(last_read_, now));
    if (step.decodes) add(step.rows, seconds.count());
    return seconds.count();
}

void StepCost::add(std::int64_t rows, double seconds) {
    const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(rows)) - 1);
    Steps& steps = sizes_[std::min(size, sizes_.size() - 1)];
    if (steps.rows == 0.0) {
        steps = {.rows = static_cast<double>(rows), .seconds = seconds};
        return;
    }
    steps.rows += newest_step_share * (static_cast<double>(rows) - steps.rows);
    steps.seconds += newest_step_share * (std::min(seconds, slowest * steps.seconds) - steps.seconds);
}

// Least squares of relative errors: seconds = fixed + per_row * rows, weighted by 1 / seconds^2.
std::optional<StepCost::Line> StepCost::fit() const {
    double weights = 0.0;
    double rows = 0.0;
    double squares = 0.0;
    double seconds = 0.0;
    double products = 0.0;
    for (const Steps& steps : sizes_) {
        if (steps.rows == 0.0) continue;
        const double weight = 1.0 / (steps.seconds * steps.seconds);
        weights += weight;
        rows += weight * steps.rows;
        squares += weight * steps.rows * steps.rows;
        seconds += weight * steps.seconds;
        products += weight * steps.rows * steps.seconds;
    }
    if (weights == 0.0) return std::nullopt;
    const double spread = weights * squares - rows * rows;
    if (spread <= 1e-6 * weights * squares) {
        const double fixed = seconds / (weights + row_share_unknown * rows);
        return Line{.fixed = fixed, .per_row = row_share_unknown * fixed};
    }
    const double per_row = std::max(0.0, (weights * products - rows * seconds) / spread);
    return Line{.fixed = std::max(0.0, (seconds - per_row * rows) / weights), .per_row = per_row};
}

double StepCost::chance_least(std::int64_t sequences, double guess_seconds) const {
    const auto known = fit();
    const Line line = known.value_or(Line{.fixed = 1.0, .per_row = row_share_unknown});
    const auto count = static_cast<double>(sequences);
    return count * (line.per_row + (known ? guess_seconds : 0.0)) / (line.fixed + count * line.per_row);
}

}  // namespace lorry::engine
