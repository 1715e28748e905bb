// Files of models and adapters: read whole, mapped, and hashed. Called by model config, weights and adapters.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "schema/check.h"

namespace lorry::engine {

// The file's bytes; the error names the file and the system's reason.
Expected<std::string, std::string> read_text(const std::filesystem::path& file);
// The same, but empty where there is no such file.
Expected<std::string, std::string> read_text_if_there(const std::filesystem::path& file);

// A file mapped read-only for this object's life. For model weights alone: whoever truncates a mapped file kills its readers.
class MappedFile {
public:
    // Throws std::runtime_error naming file and reason.
    explicit MappedFile(const std::filesystem::path& file);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // Gives the memory of the pages read so far back to the system; reading them again is slower, nothing else.
    void release_pages() const;

private:
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// xxh128 over everything that was added, in order.
class ContentHash {
public:
    ContentHash();
    ~ContentHash();
    void add(std::span<const std::byte> bytes);
    // Also counts the length, so that "ab" + "c" and "a" + "bc" differ.
    void add_text(std::string_view text);
    std::string hex() const;  // 32 digits

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::engine
