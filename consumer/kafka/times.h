// Timeouts and intervals shared by everything that talks to the brokers.
#pragma once

#include <chrono>

namespace lorry::consumer {

inline constexpr std::chrono::milliseconds request_timeout{5'000};  // per request
inline constexpr std::chrono::milliseconds poll_turn{50};           // one wait inside librdkafka, in loops that also do other things
// Backoff between attempts of a request that failed temporarily.
inline constexpr std::chrono::milliseconds backoff_first{20};
inline constexpr std::chrono::milliseconds backoff_max{500};
// How often a reader of all partitions checks for new partitions.
inline constexpr std::chrono::seconds refresh_interval{60};

}  // namespace lorry::consumer
