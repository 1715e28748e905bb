// Counts of a worker that survive SIGKILL: a file that all restarts of the worker and the driver (rig.h) map into memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "schema/check.h"

namespace lorry::faults {

struct WorkerCounts {
    std::atomic<std::uint64_t> starts;
    std::atomic<std::uint64_t> tokens;  // drawn
    std::atomic<std::uint64_t> rebalances;
    std::atomic<std::uint64_t> working_most;  // jobs in flight that were not parked
    std::atomic<std::uint64_t> parked_most;
    std::atomic<std::uint64_t> memory_most;      // bytes
    std::atomic<std::uint64_t> ledger_failures;  // how often the ledger was seen to fail
    std::atomic<std::uint64_t> aborts;
    std::atomic<std::uint64_t> fences;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the counts are shared between processes");

class CountsFile {
public:
    explicit CountsFile(const std::filesystem::path& file) {
        const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(descriptor >= 0 && ftruncate(descriptor, sizeof(WorkerCounts)) == 0, "the file of counts can be written");
        void* place = mmap(nullptr, sizeof(WorkerCounts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        close(descriptor);
        CHECK(place != MAP_FAILED, "the file of counts can be mapped");
        counts_ = static_cast<WorkerCounts*>(place);
    }
    ~CountsFile() { munmap(counts_, sizeof(WorkerCounts)); }
    CountsFile(const CountsFile&) = delete;
    CountsFile& operator=(const CountsFile&) = delete;

    WorkerCounts& operator*() const { return *counts_; }
    WorkerCounts* operator->() const { return counts_; }

private:
    WorkerCounts* counts_ = nullptr;
};

}  // namespace lorry::faults
