// Implements files.h with POSIX calls and xxhash.
#include "engine/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace lorry::engine {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

std::string failed(const std::filesystem::path& file, std::string_view what) {
    return fmt::format("{}: {}: {}", file.string(), what, reason(errno));
}

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

}  // namespace

Expected<InputFile, std::string> InputFile::open(const std::filesystem::path& file, Kinds kinds) {
    // Otherwise opening a pipe waits for its writer. For regular files the flag changes nothing.
    const int waits = kinds == Kinds::regular ? O_NONBLOCK : 0;
    InputFile opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | waits));
    if (opened.descriptor_ < 0) return unexpected(failed(file, "cannot be opened"));
    struct stat status {};
    if (fstat(opened.descriptor_, &status) != 0) return unexpected(failed(file, "cannot be examined"));
    if (kinds == Kinds::regular && !S_ISREG(status.st_mode)) {
        return unexpected(fmt::format("{}: is {}; it must be a regular file", file.string(), kind_of(status.st_mode)));
    }
    opened.bytes_ = static_cast<std::size_t>(status.st_size);
    char start[lfs_pointer_start.size()];
    if (pread(opened.descriptor_, start, sizeof start, 0) == sizeof start && std::string_view(start, sizeof start) == lfs_pointer_start)
        return unexpected(fmt::format("{}: {}", file.string(), lfs_pointer_error));
    return opened;
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::optional<std::size_t> InputFile::read(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t count = ::read(descriptor_, out.data() + done, out.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return std::nullopt;
        if (count == 0) break;
        done += static_cast<std::size_t>(count);
    }
    return done;
}

Expected<std::string, std::string> read_text(const std::filesystem::path& file, TextOptions options) {
    auto opened = InputFile::open(file, options.kinds);
    if (!opened) return unexpected(opened.error());
    std::string text;
    // The size is a guess: files of /proc say 0, and others grow.
    std::vector<std::byte> part(std::clamp(opened->bytes() + 1, std::size_t{1} << 12, std::size_t{1} << 16));
    for (std::size_t count = part.size(); count == part.size();) {
        const auto read = opened->read(part);
        if (!read) return unexpected(failed(file, "cannot be read"));
        count = *read;
        text.append(reinterpret_cast<const char*>(part.data()), count);
        if (text.size() > options.bytes_max) {
            return unexpected(fmt::format("{}: is longer than {} bytes, the limit for such a file", file.string(), options.bytes_max));
        }
    }
    return text;
}

Expected<std::string, std::string> read_text_if_there(const std::filesystem::path& file) {
    return std::filesystem::exists(file) ? read_text(file) : std::string();
}

MappedFile::MappedFile(const std::filesystem::path& file) {
    const auto opened = InputFile::open(file);
    if (!opened) throw std::runtime_error(opened.error());
    size_ = opened->bytes();
    if (size_ == 0) return;
    void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened->descriptor(), 0);
    if (memory == MAP_FAILED) throw std::runtime_error(failed(file, "cannot be mapped"));
    data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release_pages() const {
    if (data_ != nullptr) madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

struct ContentHash::State {
    XXH3_state_t* xxh = XXH3_createState();
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
    if (state_->xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_->xxh);
}

ContentHash::~ContentHash() { XXH3_freeState(state_->xxh); }

void ContentHash::add(std::span<const std::byte> bytes) { XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()); }

void ContentHash::add_text(std::string_view text) {
    const auto size = static_cast<std::uint64_t>(text.size());
    add(std::as_bytes(std::span(&size, 1)));
    add(std::as_bytes(std::span(text)));
}

std::string ContentHash::hex() const {
    const XXH128_hash_t digest = XXH3_128bits_digest(state_->xxh);
    return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace lorry::engine
