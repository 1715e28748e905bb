// The processors and caches that this process may use, and the machine's memory. Called by the backends, benchmarks and `check-model`.
// root: of the file system; tests pass their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace lorry::kernels {

// How many threads can run at a time: the processors in this process's affinity mask, or fewer if a quota allows less of their time.
int usable_processors();

// The quota of processor time that the control groups allow, in whole processors, rounded up. nullopt: no limit.
std::optional<int> processors_quota(const std::filesystem::path& root = "/");

// Bytes of the last-level caches that `threads` threads can use together; 0 if the system does not report them.
std::int64_t last_caches_bytes(int threads, const std::filesystem::path& root = "/");

// Bytes of memory that the machine has.
std::size_t machine_memory();

}  // namespace lorry::kernels
