// The table of faults that faults.cpp plays. Each acts on a rig whose crew works on a backlog, and heals what it broke. Rig restarts the
// progress watch at that moment (Rig::begin_watch).
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
    // Relative frequency in the random mix; 0: the fault needs its own rig.
    int weight = 10;
    // Only several brokers can move a coordinator.
    enum class Brokers : std::uint8_t { any, several } brokers = Brokers::any;
    // Changes the options of the rig; nullptr: the usual options.
    void (*prepare)(RigOptions& options) = nullptr;
    // False: act() itself produces all jobs and starts the crew.
    bool begins_busy = true;
};

std::span<const Scenario> scenarios();

}  // namespace lorry::faults
