// Sizes, durations and counts as people write and read them. Used throughout ops/. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::ops {

// "4GiB", "512 MB", "1.5G", "4096": bytes. K, M, G, T alone and with iB count by 1024, with B by 1000.
std::optional<std::size_t> parse_bytes(std::string_view text);
// "1.5 GiB"
std::string show_bytes(std::size_t bytes);

// "200ms", "20s", "5min", "2h", "90d"; a bare number is seconds.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
// "0.8 s", "3 min 20 s", "2 h 5 min"
std::string show_duration(std::chrono::milliseconds duration);

// "2026-11-27 07:03:33", in UTC; "-" for none
std::string show_time(const std::optional<std::chrono::sys_time<std::chrono::milliseconds>>& time);

// A count as a floating-point number.
inline double real(std::int64_t count) { return static_cast<double>(count); }

// A duration in seconds, for metrics and logs.
inline double seconds_of(std::chrono::microseconds duration) { return static_cast<double>(duration.count()) / 1e6; }

// "26.2 GB/s" of 26.2e9 and "GB/s"
std::string show_giga(double per_second, std::string_view unit);

// "1,234,567"
std::string show_count(std::int64_t count);
inline std::string show_count(std::uint64_t count) { return show_count(static_cast<std::int64_t>(count)); }
// "1 job", "1,234 jobs"
std::string show_count(std::int64_t count, std::string_view noun);

std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// "HOST:PORT", where HOST may be empty, and an IPv6 address is in brackets, which are left out of the answer.
struct HostAndPort {
    std::string host;
    std::uint16_t port = 0;
};
std::optional<HostAndPort> parse_host_and_port(std::string_view text);

// A table as text: a line per row, cells as printable() makes them, columns two spaces apart. Bit i of right_aligned right-aligns column i.
std::string show_table(const std::vector<std::vector<std::string>>& rows, std::uint32_t right_aligned = 0);

}  // namespace lorry::ops
