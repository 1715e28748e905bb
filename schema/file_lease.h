// A lease on a file, which one process at a time can hold: an flock on FILE.lock. The kernel releases it when the process ends, however it
// ends. Held by the writer of a ledger (store.h).
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace lorry::schema {

// Another process holds the lease.
struct LeaseHeld : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class FileLease {
public:
    // Throws LeaseHeld, naming the holder's process, when another one holds it; std::runtime_error when FILE.lock cannot be written.
    explicit FileLease(const std::filesystem::path& file);
    FileLease(FileLease&& other) noexcept;
    FileLease& operator=(FileLease&& other) noexcept;
    ~FileLease();

private:
    int descriptor_;
};

}  // namespace lorry::schema
