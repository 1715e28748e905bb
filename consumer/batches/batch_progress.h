// What the log says of a batch while it is carried out: when it begins, now and then how far it is, and how it ended. Made by batch_run.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "schema/batch.h"

namespace lorry::consumer {

// One thread.
class BatchProgress {
public:
    using Time = std::chrono::sys_seconds;
    // At least this long apart; then once a tenth of the lines have ended since, or after `pause`. So the lines of a batch are few.
    static constexpr std::chrono::seconds interval{30};
    static constexpr std::chrono::minutes pause{10};

    // batch: as it was taken up. One that is not validating was begun by another owner, and "goes on".
    explicit BatchProgress(const schema::BatchRecord& batch) : is_begun_(batch.state != schema::BatchState::validating) {}

    // The line that is due, if any. Call it after each step.
    std::optional<std::string> note(const schema::BatchRecord& batch, Time now);

private:
    struct Said {
        Time time;
        std::int64_t ended = 0;  // lines
        schema::BatchState state = schema::BatchState::validating;
    };
    std::string say_begin(const schema::BatchRecord& batch) const;
    std::string say_step(const schema::BatchRecord& batch, Time now) const;
    std::string say_end(const schema::BatchRecord& batch) const;

    const bool is_begun_;
    std::optional<Said> said_;  // nullopt: nothing was noted yet
    std::int64_t ended_ = 0;    // lines with a result, as they were before the batch's end
};

}  // namespace lorry::consumer
