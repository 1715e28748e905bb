// Times that all conversations with the brokers share.
#pragma once

#include <chrono>

namespace lorry::consumer {

inline constexpr std::chrono::milliseconds request_timeout{5'000};  // of one request
inline constexpr std::chrono::milliseconds poll_turn{50};           // one wait inside librdkafka, where a loop also looks for other things
// Between the tries of a request that failed for the moment.
inline constexpr std::chrono::milliseconds backoff_first{20};
inline constexpr std::chrono::milliseconds backoff_max{500};
// How often a reader of all partitions asks whether the topic has more of them.
inline constexpr std::chrono::seconds refresh_interval{60};

}  // namespace lorry::consumer
