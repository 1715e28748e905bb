// What is known about calls that their senders may repeat: that they run, or where their results are. Filled from the repeats topic, used
// by repeatable_calls.cpp. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "schema/job.h"
#include "schema/secret.h"

namespace lorry::consumer {

struct Repeat {
    // `gone`: it was cancelled or failed, and a repeat runs it again.
    enum class State : std::uint8_t { running, ended, gone };
    schema::Sha256 content{};  // of url and body
    schema::Timestamp begun{};
    State state = State::running;
    std::string run = {};                       // the id of the call that ran it, which its result has too
    std::optional<schema::Source> result = {};  // where it is, if it has ended
};

// The value of a record, whose key is the call's id.
std::string encode_repeat(const Repeat& repeat);
Expected<Repeat, std::string> parse_repeat(std::string_view value);

class RepeatTable {
public:
    static constexpr std::chrono::hours kept{24};  // from its begin, a call is remembered
    static constexpr std::size_t usual_entries_max = 1'000'000;

    // running_for: as long as a call may run; one that runs for longer has no gateway that waits for it any more. Of more calls than
    // entries_max, those that are gone are forgotten first, and then the oldest.
    explicit RepeatTable(std::chrono::milliseconds running_for, std::size_t entries_max = usual_entries_max)
        : running_for_(running_for), entries_max_(entries_max), forget_at_(std::min<std::size_t>(1'000, entries_max)) {}

    // A record, or what this gateway is about to write. One that comes late, after a later state of the same run or after the begin of a
    // later run, changes nothing.
    void set(const std::string& id, const Repeat& repeat);
    // nullptr: the call was never made, or is no longer remembered, or is gone.
    const Repeat* find(const std::string& id, schema::Timestamp now) const;
    // When a run that begins now has begun: later than an earlier run of the call that is known, whatever the clocks of gateways say.
    schema::Timestamp next_begin(const std::string& id, schema::Timestamp now) const;
    std::size_t size() const { return repeats_.size(); }

private:
    void forget(schema::Timestamp now);
    void forget_oldest(std::size_t count);

    const std::chrono::milliseconds running_for_;
    const std::size_t entries_max_;
    std::unordered_map<std::string, Repeat> repeats_;
    std::size_t forget_at_;  // how many there are when old ones are next searched for
};

}  // namespace lorry::consumer
