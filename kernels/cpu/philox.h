// Philox4x32-10, the counter-based random numbers of sampling (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <array>
#include <cstdint>

namespace lorry::kernels::cpu {

// The four random words of a counter under a key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key);

// A number in [0, 1) with 53 random bits: from the first two words of counter (position, 0) under key `seed`.
double uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace lorry::kernels::cpu
