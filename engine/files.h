// Reads, maps and hashes files of models and adapters. Called by model_config.cpp, weights.cpp, adapter.cpp and engine/text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "schema/check.h"

namespace lorry::engine {

// A Git LFS pointer begins so: a short text that stands for a file that was not fetched.
inline constexpr std::string_view lfs_pointer_start = "version https://git-lfs.github.com/spec/";
inline constexpr std::string_view lfs_pointer_error =
    "this is a Git LFS pointer, not the file itself; run `git lfs pull` where the file was cloned, or download it again";

// The file's bytes; the error names the file and the system's reason. A Git LFS pointer is an error.
Expected<std::string, std::string> read_text(const std::filesystem::path& file);
// The same, but an empty text if the file does not exist.
Expected<std::string, std::string> read_text_if_there(const std::filesystem::path& file);

// A file mapped read-only for the lifetime of this object. For model weights only: truncating a mapped file kills the processes that read
// it.
class MappedFile {
public:
    // Throws std::runtime_error naming file and reason. A Git LFS pointer is an error.
    explicit MappedFile(const std::filesystem::path& file);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // Returns the memory of the pages that were read to the system. Reading them again loads them from the file.
    void release_pages() const;

private:
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// xxh128 of everything that was added, in order.
class ContentHash {
public:
    ContentHash();
    ~ContentHash();
    void add(std::span<const std::byte> bytes);
    // Adds the length, too, so that "ab" + "c" and "a" + "bc" differ.
    void add_text(std::string_view text);
    std::string hex() const;  // 32 digits

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::engine
