// The faults, one by one. Each acts upon a rig whose crew works on a backlog, and heals what it broke (Rig::begin_watch says when).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tests/faults/rig.h"

namespace lorry::faults {

struct Scenario {
    std::string_view name;
    std::string_view about;
    void (*act)(Rig& rig);
    // How often the random mix draws it, beside the others; 0: it needs a rig of its own.
    int weight = 10;
    // Only several can hand a coordinator's part on.
    enum class Brokers : std::uint8_t { any, several } brokers = Brokers::any;
    // How the rig must be made; nullptr: as always.
    void (*prepare)(RigOptions& options) = nullptr;
    // False: act() produces all jobs and starts the crew.
    bool begins_busy = true;
};

std::span<const Scenario> scenarios();

}  // namespace lorry::faults
