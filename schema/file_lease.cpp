// Takes an flock, and reports who holds it if another process was first.
#include "schema/file_lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace lorry::schema {
namespace {

constexpr int none = -1;

std::string holder_of(int descriptor) {
    char text[32];
    const ssize_t bytes = pread(descriptor, text, sizeof text, 0);
    return bytes > 0 ? std::string(text, static_cast<std::size_t>(bytes)) : "unknown";
}

}  // namespace

FileLease::FileLease(const std::filesystem::path& file) : descriptor_(none) {
    const std::string lock = file.string() + ".lock";
    // The lock file is never removed: removing it would let two processes hold locks on two files of one name.
    descriptor_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ == none) {
        throw std::runtime_error(
            fmt::format("cannot write {}: {}; check that the folder exists and may be written", lock, std::strerror(errno)));
    }
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        const std::string holder = holder_of(descriptor_);
        close(std::exchange(descriptor_, none));
        if (error == EWOULDBLOCK) {
            throw LeaseHeld(
                fmt::format("{} is in use by process {}; one process writes a file: stop that one or give this one "
                            "its own file",
                            file.string(), holder));
        }
        throw std::runtime_error(fmt::format("cannot lock {}: {}; choose a file system that has flock", lock, std::strerror(error)));
    }
    const std::string holder = std::to_string(getpid());
    if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, holder.data(), holder.size(), 0) < 0) {
        const int error = errno;
        close(std::exchange(descriptor_, none));
        throw std::runtime_error(fmt::format("cannot write {}: {}; check its disk's space", lock, std::strerror(error)));
    }
}

FileLease::FileLease(FileLease&& other) noexcept : descriptor_(std::exchange(other.descriptor_, none)) {}

FileLease& FileLease::operator=(FileLease&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FileLease::~FileLease() {
    if (descriptor_ != none) close(descriptor_);
}

}  // namespace lorry::schema
