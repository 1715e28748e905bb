// Compares a batch's record with what was said last.
#include "consumer/batches/batch_progress.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

using schema::BatchState;

std::int64_t ended_lines(const schema::BatchRecord& batch) { return batch.succeeded + batch.failed; }

// "12 lines/s"; below ten with a decimal.
std::string rate_of(std::int64_t lines, std::int64_t seconds) {
    const double rate = static_cast<double>(lines) / static_cast<double>(std::max<std::int64_t>(1, seconds));
    return fmt::format("{:.{}f} lines/s", rate, rate < 10 ? 1 : 0);
}

std::string minutes_of(std::int64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    return seconds < 7200 ? fmt::format("{} min", seconds / 60) : fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

}  // namespace

std::optional<std::string> BatchProgress::note(const schema::BatchRecord& batch, Time now) {
    const bool is_first = !said_;
    if (is_first) said_ = Said{.time = now, .ended = ended_lines(batch), .state = BatchState::validating};
    // The end counts lines without a result as failed.
    if (!schema::is_final(batch.state)) ended_ = ended_lines(batch);
    const auto elapsed = now - said_->time;
    const bool is_step = batch.state == BatchState::in_progress && said_->state == BatchState::in_progress;
    const bool is_far = (ended_ - said_->ended) * 10 >= batch.lines;
    if (said_->state == batch.state && !(is_step && elapsed >= interval && (is_far || elapsed >= pause))) return std::nullopt;
    std::optional<std::string> line;
    if (schema::is_final(batch.state)) {
        line = say_end(batch);
    } else if (is_step) {
        line = say_step(batch, now);
    } else if (batch.state != BatchState::finalizing || is_first) {
        line = say_begin(batch);
    }
    said_ = Said{.time = now, .ended = ended_, .state = batch.state};
    return line;
}

std::string BatchProgress::say_begin(const schema::BatchRecord& batch) const {
    const std::string who = batch.tenant.empty() ? "" : fmt::format(" of tenant {}", batch.tenant);
    if (batch.state == BatchState::cancelling)
        return fmt::format("batch {} is being cancelled: {} of {} lines have a result", batch.id, ended_, batch.lines);
    if (is_begun_) return fmt::format("batch {}{} goes on here: {} of {} lines have a result", batch.id, who, ended_, batch.lines);
    return fmt::format("batch {}{} begins: {} lines for {}", batch.id, who, batch.lines, schema::row_of(batch.endpoint).url);
}

std::string BatchProgress::say_step(const schema::BatchRecord& batch, Time now) const {
    const std::int64_t seconds = (now - said_->time).count();
    const std::int64_t more = ended_ - said_->ended;
    const std::string failed = batch.failed > 0 ? fmt::format(", {} of them failed", batch.failed) : "";
    const std::string far = fmt::format("batch {}: {} of {} lines have a result{}", batch.id, ended_, batch.lines, failed);
    if (more <= 0) return fmt::format("{}; none came in the last {}: do workers run?", far, minutes_of(seconds));
    return fmt::format("{}; {}, about {} left", far, rate_of(more, seconds), minutes_of((batch.lines - ended_) * seconds / more));
}

std::string BatchProgress::say_end(const schema::BatchRecord& batch) const {
    const auto begin = batch.since.find(BatchState::in_progress);
    const auto end = batch.since.find(batch.state);
    std::string line = fmt::format("batch {} is {}", batch.id, name_of(batch.state));
    if (begin != batch.since.end()) {
        const std::int64_t seconds = end->second - begin->second;
        line += fmt::format(": of {} lines {} succeeded, {} failed", batch.lines, batch.succeeded, ended_ - batch.succeeded);
        if (ended_ < batch.lines) line += fmt::format(", {} have no result", batch.lines - ended_);
        line += fmt::format(", in {}, {}", minutes_of(seconds), rate_of(ended_, seconds));
    }
    if (!batch.errors.empty()) {
        const std::string which = batch.errors.size() == 1 ? "its error" : fmt::format("the first of its {} errors", batch.errors.size());
        line += fmt::format("; {} is {}", which, batch.errors.front().code);
    }
    return line;
}

}  // namespace lorry::consumer
