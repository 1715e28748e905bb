// Reads --timeout and decides when a wait ends.
#include "ops/client/wait_limit.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/units.h"

namespace lorry::ops {

using std::chrono::milliseconds;

std::optional<milliseconds> time_of(const char* flag, const std::optional<std::string>& text) {
    if (!text) return std::nullopt;
    const auto time = parse_duration(*text);
    if (!time) throw UsageError(fmt::format("{} is '{}'; allowed is a time such as 30s or 2h", flag, *text));
    return time;
}

consumer::KafkaConfig WaitLimit::applied_to(consumer::KafkaConfig config) const {
    if (!time_ || time_->count() == 0) return config;
    const auto passed = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin_);
    config.deadline_start = std::min(config.deadline_start, std::max(*time_ - passed, milliseconds(1)));
    return config;
}

bool WaitLimit::ends(bool has_read_all) const {
    if (!time_) return false;
    return time_->count() == 0 ? has_read_all : std::chrono::steady_clock::now() - begin_ >= *time_;
}

}  // namespace lorry::ops
