// What this machine gives to this process. Called by engine_setup and check-model.
#pragma once

#include <cstddef>

namespace lorry::ops {

// Bytes that may still be used: of the machine and of every control group (container) that this process is in.
std::size_t memory_available();
// Bytes there are at all, by the same rule.
std::size_t memory_limit();
// Most memory this process ever held, in bytes.
std::size_t memory_peak();

}  // namespace lorry::ops
