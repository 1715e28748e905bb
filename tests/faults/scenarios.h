// The faults, one by one. Each acts upon a rig whose crew works on a backlog, and heals what it broke.
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
    // Takes part in the random mix. Those that do not need a rig of their own, or much time.
    bool in_mix = true;
    // The proxy stands before a single one; only several can hand a coordinator's part on.
    enum class Brokers : std::uint8_t { any, one, several } brokers = Brokers::any;
    // How the rig must be made; nullptr: as always.
    void (*prepare)(RigOptions& options) = nullptr;
    // False: act() produces all jobs and starts the crew.
    bool begins_busy = true;
};

std::span<const Scenario> scenarios();

}  // namespace lorry::faults
