// Implements files.h with POSIX calls and xxhash.
#include "engine/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace lorry::engine {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Closes the descriptor when the scope ends; a mapping outlives it.
struct Descriptor {
    int value = -1;
    ~Descriptor() {
        if (value >= 0) close(value);
    }
};

}  // namespace

Expected<std::string, std::string> read_text(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) return unexpected(fmt::format("{}: cannot be opened: {}", file.string(), reason(errno)));
    std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (stream.bad()) return unexpected(fmt::format("{}: cannot be read: {}", file.string(), reason(errno)));
    if (text.starts_with(lfs_pointer_start)) return unexpected(fmt::format("{}: {}", file.string(), lfs_pointer_error));
    return text;
}

Expected<std::string, std::string> read_text_if_there(const std::filesystem::path& file) {
    return std::filesystem::exists(file) ? read_text(file) : std::string();
}

MappedFile::MappedFile(const std::filesystem::path& file) {
    const auto fail = [&](const char* what) -> void {
        throw std::runtime_error(fmt::format("{}: {}: {}", file.string(), what, reason(errno)));
    };
    const Descriptor descriptor{open(file.c_str(), O_RDONLY | O_CLOEXEC)};
    if (descriptor.value < 0) fail("cannot be opened");
    struct stat status {};
    if (fstat(descriptor.value, &status) != 0) fail("cannot be examined");
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.value, 0);
    if (memory == MAP_FAILED) fail("cannot be mapped");
    data_ = static_cast<const std::byte*>(memory);
    if (std::string_view(static_cast<const char*>(memory), size_).starts_with(lfs_pointer_start)) {
        munmap(memory, size_);
        throw std::runtime_error(fmt::format("{}: {}", file.string(), lfs_pointer_error));
    }
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
