// One simulated run: workers over a simulated cluster, jobs, faults drawn from a seed, and the fault harness's checker at the end. Used by
// simulation.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/machine.h"
#include "tests/simulation/plants.h"

namespace lorry::simulation {

enum class Fault : std::uint8_t {
    kill,            // a worker dies at any moment
    kill_at_point,   // a worker dies at a named place of a commit
    stop,            // a worker stands still, perhaps beyond its session and its transaction
    hijack,          // another producer opens a worker's transactional id
    outage,          // no broker can be reached
    storm,           // requests and replies get lost, are late or refused
    forget_offsets,  // the group's offsets of a partition are deleted
    old_offsets,     // the group's coordinator answers with old offsets
    leave,           // a worker ends cleanly and comes back
    lost_markers,    // brokers lose ends of transactions, in an outage
};
inline constexpr std::array fault_names = {
    std::pair{Fault::kill, std::string_view("kill")},
    std::pair{Fault::kill_at_point, std::string_view("kill_at_point")},
    std::pair{Fault::stop, std::string_view("stop")},
    std::pair{Fault::hijack, std::string_view("hijack")},
    std::pair{Fault::outage, std::string_view("outage")},
    std::pair{Fault::storm, std::string_view("storm")},
    std::pair{Fault::forget_offsets, std::string_view("forget_offsets")},
    std::pair{Fault::old_offsets, std::string_view("old_offsets")},
    std::pair{Fault::leave, std::string_view("leave")},
    std::pair{Fault::lost_markers, std::string_view("lost_markers")},
};

struct RunOptions {
    std::uint64_t seed = 1;
    std::size_t jobs = 100;
    Plant plant = Plant::none;
    bool trace = false;  // logs and faults to stderr, with the simulated time
};

struct RunResult {
    std::vector<std::string> violations;
    std::array<std::size_t, fault_names.size()> fault_counts{};  // how many of each came about
    std::size_t jobs = 0;
    std::size_t deaths = 0;
    std::size_t failures = 0;  // workers that ended with an error
    std::uint64_t switches = 0;
    std::uint64_t fingerprint = 0;  // of all committed records: equal for equal options
    Time time = 0;                  // simulated
};

// Loads what all runs share. Call it first.
void prepare();
RunResult run(const RunOptions& options);

}  // namespace lorry::simulation
