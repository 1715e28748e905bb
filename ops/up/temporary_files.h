// The folder that `lorry up` keeps contents of files in while it runs.
#pragma once

#include <filesystem>
#include <optional>

#include "schema/file_lease.h"

namespace lorry::ops {

// In the system's folder for temporary files, for this user alone: lorry-up-XXXXXX. A process that is killed leaves it there, and the next
// one of the user removes it.
class TemporaryFiles {
public:
    // parent: where to make it. Throws std::system_error and std::runtime_error if it cannot be made.
    explicit TemporaryFiles(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
    // Removes it, with all that is in it.
    ~TemporaryFiles();
    TemporaryFiles(const TemporaryFiles&) = delete;
    TemporaryFiles& operator=(const TemporaryFiles&) = delete;

    // For contents. It does not exist yet.
    std::filesystem::path folder() const { return folder_ / "files"; }

private:
    std::filesystem::path folder_;
    std::optional<schema::FileLease> lease_;  // shows others that this process lives
};

}  // namespace lorry::ops
