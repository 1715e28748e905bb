// The machine's memory and processor, as far as this process may use them. Called by EngineSetup, metrics, `check-model` and `bench`.
#pragma once

#include <cstddef>
#include <string>

namespace lorry::ops {

// Bytes that this process may still use: the least of what the machine and its control groups (containers) have left.
std::size_t memory_available();
// Bytes that this process may use in all: the least of what the machine has and its control groups allow.
std::size_t memory_limit();
// The processor's name, "AMD EPYC 9354 32-Core Processor"; "unknown processor" if the system does not give it.
std::string cpu_model();
// The most memory that this process has held, in bytes: since its start or, where the system can forget it, since forget_memory_peak().
std::size_t memory_peak();
void forget_memory_peak();

}  // namespace lorry::ops
