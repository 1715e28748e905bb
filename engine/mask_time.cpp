// A bucket of seconds, which each step fills a little.
#include "engine/mask_time.h"

#include <algorithm>

namespace lorry::engine {
void MaskTime::begin(double longest) {
    if (!patience_) return;
    const double more = std::max(patience_->seconds_least, patience_->step_share * step_seconds_);
    left_ = std::min(left_ + more, more + longest);
}

bool MaskTime::affords(double waited, double expected) const { return !patience_ || waited + expected <= left_; }

void MaskTime::end(double waited) {
    if (patience_) left_ -= waited;
}

}  // namespace lorry::engine
