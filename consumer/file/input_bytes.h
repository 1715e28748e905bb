// The bytes of an input file or of standard input, unpacked if they are compressed with gzip or zstd. The first bytes decide, whatever the
// file's name. Needs the same memory for a file of any size. Used by reader.cpp and parquet_lines.cpp. One thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lorry::consumer {

// True for "-", the file name that means standard input.
bool is_standard_input(const std::filesystem::path& file);

// What a reader splits into records.
class ByteSource {
public:
    explicit ByteSource(std::string name) : name_(std::move(name)) {}
    virtual ~ByteSource() = default;
    // The file's name, for messages.
    const std::string& name() const { return name_; }
    // Writes the next bytes to `out` and returns how many, 0 at the end. nullopt: nothing arrived within the timeout (standard input only).
    // Throws std::runtime_error when the file cannot be read, and InputError when its contents are damaged or cut off.
    virtual std::optional<std::size_t> read(std::span<char> out, std::chrono::milliseconds timeout) = 0;

private:
    const std::string name_;
};

class Unpacker;  // of one kind of compression; input_bytes.cpp

class InputBytes final : public ByteSource {
public:
    // Throws std::runtime_error naming the file when it cannot be opened.
    explicit InputBytes(const std::filesystem::path& file);
    ~InputBytes() override;
    InputBytes(const InputBytes&) = delete;
    InputBytes& operator=(const InputBytes&) = delete;

    std::optional<std::size_t> read(std::span<char> out, std::chrono::milliseconds timeout) override;

private:
    bool fill(std::chrono::milliseconds timeout);
    bool start(std::chrono::milliseconds timeout);
    std::size_t take(std::span<char> out);

    int descriptor_ = -1;
    std::unique_ptr<char[]> raw_;  // bytes as they are in the file
    std::size_t raw_begin_ = 0;    // those that were not taken are [raw_begin_, raw_end_)
    std::size_t raw_end_ = 0;
    bool end_seen_ = false;
    bool started_ = false;                // the first bytes have been looked at
    std::unique_ptr<Unpacker> unpacker_;  // nullptr: not compressed
    bool may_hold_more_ = false;          // the unpacker filled `out`, and may have more without new input
};

}  // namespace lorry::consumer
