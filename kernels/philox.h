// Philox4x32-10, the counter-based random numbers of sampling (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Used by
// the sample op of both backends, so all devices draw the same numbers.
#pragma once

#include <array>
#include <cstdint>

namespace lorry::kernels {

// The four random words of a counter under a key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
    auto key_low = static_cast<std::uint32_t>(key);
    auto key_high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key_high, static_cast<std::uint32_t>(a)};
        key_low += 0x9E3779B9U;
        key_high += 0xBB67AE85U;
    }
    return counter;
}

// A number in [0, 1) with 53 random bits: from the first two words of counter (position, 0) under key `seed`.
constexpr double uniform(std::uint64_t seed, std::uint64_t position) {
    const auto words = philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, 0}, seed);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 21) ^ (words[1] >> 11);
    return static_cast<double>(bits & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

}  // namespace lorry::kernels
