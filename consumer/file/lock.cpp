// flock on the file itself.
#include "consumer/file/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "consumer/file/error.h"

namespace lorry::consumer {

int open_locked(const std::filesystem::path& file, int flags) {
    const int descriptor = ::open(file.c_str(), flags | O_CLOEXEC, 0644);
    if (descriptor < 0) fail_file(file, "opened for writing");
    if (std::filesystem::is_regular_file(file) && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        ::close(descriptor);
        errno = error;
        if (error != EWOULDBLOCK) fail_file(file, "locked");
        throw ResumeRefused(fmt::format("{} is in use: another run writes this output; wait for it or give another -o", file.string()));
    }
    return descriptor;
}

void check_unused(const std::filesystem::path& file) {
    // NFS grants an exclusive lock only to a descriptor that is open for writing.
    if (std::filesystem::is_regular_file(file)) ::close(open_locked(file, O_RDWR));
}

}  // namespace lorry::consumer
