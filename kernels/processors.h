// The processors that this process gets, and the caches between them and memory. Called by make_cpu_backend and benchmarks. `root` is that
// of the file system; tests have their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lorry::kernels {

// How many threads can run at a time: the processors that this process may run on, or fewer where a quota gives it less of their time.
int usable_processors();

// What the control groups of this process give it of the processors' time, in whole processors, rounded up. nullopt: all there is.
std::optional<int> processors_quota(const std::filesystem::path& root = "/");

// Bytes of the last caches that so many threads can have between them; 0 where the system does not say.
std::int64_t last_caches_bytes(int threads, const std::filesystem::path& root = "/");

}  // namespace lorry::kernels
