// Named places at which a fault test may kill or stop the process. Costs one load and a branch when no test is attached. Called by the
// committers, transactions.cpp and the ledger.
#pragma once

#include <atomic>

namespace lorry::consumer {

// Called with the name of each place that is passed, on the thread that passes it. Set only by tests/faults, before any thread starts.
inline std::atomic<void (*)(const char* name)> on_fault_point = nullptr;

inline void fault_point(const char* name) {
    if (auto* const call = on_fault_point.load(std::memory_order_relaxed)) call(name);
}

}  // namespace lorry::consumer
