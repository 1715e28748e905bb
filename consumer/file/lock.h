// Locks a file that one process at a time may write. Used by journal.cpp, sink.cpp and `lorry collect`.
#pragma once

#include <filesystem>

namespace lorry::consumer {

// Opens with these flags and 0644, and takes the file's exclusive lock (flock), which lasts until the descriptor is closed. Throws
// ResumeRefused when another process has it, std::runtime_error when the file cannot be opened. Pipes and devices are not locked.
int open_locked(const std::filesystem::path& file, int flags);
// Throws like open_locked() if another process has the lock. Does not create the file; skips pipes and devices.
void check_unused(const std::filesystem::path& file);

}  // namespace lorry::consumer
