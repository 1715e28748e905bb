// A bucket of seconds, which each step fills a little.
#include "engine/mask_time.h"

#include <algorithm>

namespace lorry::engine {
namespace {

constexpr double debt_most = 10.0;  // of what a step gets, as a mask may take long by chance

double seconds_of_step(const MaskPatience& patience, double step_seconds) {
    return std::max(patience.seconds_least, patience.step_share * step_seconds);
}

}  // namespace

void MaskTime::begin(double longest) {
    if (!patience_) return;
    const double more = seconds_of_step(*patience_, step_seconds_);
    left_ = std::min(left_ + more, more + longest);
}

bool MaskTime::affords(double waited, double expected) const { return !patience_ || waited + expected <= left_; }

void MaskTime::end(double waited) {
    if (patience_) left_ = std::max(left_ - waited, -debt_most * seconds_of_step(*patience_, step_seconds_));
}

}  // namespace lorry::engine
