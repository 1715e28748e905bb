// A lease on a file: one process at a time. Held by an flock on FILE.lock, which the kernel ends with the process, however it ends.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace lorry::schema {

// Another process holds the lease. A ledger then leaves the file to that one.
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
