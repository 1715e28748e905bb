// Reads, maps and hashes files of models and adapters. Called by model_config.cpp, weights.cpp, adapter.cpp and engine/text, and by ops/
// for texts that users name. A model's folder is not trusted: a name in it may lead to a device, a pipe or a file without end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "schema/check.h"

namespace lorry::engine {

// A Git LFS pointer begins so: a short text that stands for a file that was not fetched.
inline constexpr std::string_view lfs_pointer_start = "version https://git-lfs.github.com/spec/";
inline constexpr std::string_view lfs_pointer_error =
    "this is a Git LFS pointer, not the file itself; run `git lfs pull` where the file was cloned, or download it again";

// An open file, read from its start to its end. One thread.
class InputFile {
public:
    enum class Kinds : std::uint8_t { regular, all };  // all: also pipes, terminals and devices

    // The error names the file, and what it is instead of a regular file or the system's reason. A Git LFS pointer is an error.
    static Expected<InputFile, std::string> open(const std::filesystem::path& file, Kinds kinds = Kinds::regular);
    ~InputFile();
    InputFile(InputFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}
    InputFile& operator=(InputFile&&) = delete;

    int descriptor() const { return descriptor_; }
    std::size_t bytes() const { return bytes_; }  // of a regular file, when it was opened
    // Fills `out` with the next bytes and returns how many there were: fewer only at the file's end. nullopt: errno says why not.
    std::optional<std::size_t> read(std::span<std::byte> out);

private:
    explicit InputFile(int descriptor) : descriptor_(descriptor) {}

    int descriptor_;
    std::size_t bytes_ = 0;
};

struct TextOptions {
    std::size_t bytes_max = std::size_t{256} << 20;  // the largest tokenizer.json in use have about 35 MB
    InputFile::Kinds kinds = InputFile::Kinds::regular;
};

// The file's bytes; the error names the file, and the limit or the system's reason.
Expected<std::string, std::string> read_text(const std::filesystem::path& file, TextOptions options = {});
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
