// What this machine is and what it gives to this process. Called by engine_setup, check-model and bench.
#pragma once

#include <cstddef>
#include <string>

namespace lorry::ops {

// Bytes that may still be used: of the machine and of every control group (container) that this process is in.
std::size_t memory_available();
// Bytes there are at all, by the same rule.
std::size_t memory_limit();
// What the processor calls itself: "AMD EPYC 9354 32-Core Processor"; "unknown processor" where the system does not say.
std::string cpu_model();
// Most memory this process ever held, in bytes; or since forget_memory_peak(), where the system can forget it.
std::size_t memory_peak();
void forget_memory_peak();

}  // namespace lorry::ops
