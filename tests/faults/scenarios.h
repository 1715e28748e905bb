// The faults, one by one. Each acts upon a rig whose crew works on a backlog, and heals what it broke.
#pragma once

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
    // Needs the proxy, so a single broker.
    bool needs_proxy = false;
    // How the rig must be made; nullptr: as always.
    void (*prepare)(RigOptions& options) = nullptr;
    // False: act() produces all jobs and starts the crew.
    bool begins_busy = true;
};

std::span<const Scenario> scenarios();

}  // namespace lorry::faults
