// What changes about a file when it is written or replaced, for files that are then read again. Also who may read a file, for secrets. Used
// by ops/http/tls.h and ops/gateway/jwt.h.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::schema {

struct FileVersion {
    std::uint64_t inode = 0;
    std::int64_t bytes = 0;
    std::int64_t changed = 0;  // in nanoseconds since the epoch
    bool operator==(const FileVersion&) const = default;
};

// Of what a symbolic link leads to; nullopt: the file cannot be reached.
inline std::optional<FileVersion> version_of(const std::string& file) {
    struct stat facts {};
    if (stat(file.c_str(), &facts) != 0) return std::nullopt;
    return FileVersion{.inode = facts.st_ino,
                       .bytes = facts.st_size,
                       .changed = std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

// Whether users may read it who are neither its owner nor of its group. False if it cannot be reached.
inline bool every_user_may_read(const std::string& file) {
    struct stat facts {};
    return stat(file.c_str(), &facts) == 0 && (facts.st_mode & S_IROTH) != 0;
}

}  // namespace lorry::schema
