// Zeroed, aligned memory for weights, KV and buffers; large pieces ask for huge pages, and those of an arena share some.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lorry::kernels::cpu {

class Arena;

class Memory {
public:
    Memory() = default;
    // Throws std::runtime_error saying how much was asked for when the machine has no more. Zero bytes are fine.
    explicit Memory(std::size_t bytes);
    // Comes from the arena, which outlives it.
    Memory(std::size_t bytes, Arena& arena);

    std::byte* data() const { return data_.get(); }
    std::size_t bytes() const { return bytes_; }

private:
    struct Free {
        Free() : Free(0) {}
        explicit Free(std::size_t count, Arena* from = nullptr) : bytes(count), arena(from) {}
        std::size_t bytes;
        Arena* arena;  // null: not from one
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_ = 0;
};

// Huge pages for many pieces that are read one after the other, as a model's weights and an adapter's are: taken in a row, they lie side by
// side, and none ends in small pages.
// Any thread may take, and give back what it likes.
class Arena {
public:
    Arena() = default;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Zeroed. Throws as Memory does.
    std::byte* take(std::size_t bytes);
    void give_back(std::byte* data, std::size_t bytes);

private:
    // Huge pages that pieces are cut from; given up when none is left.
    struct Map {
        Memory memory;
        std::map<std::size_t, std::size_t> free;  // end by begin, in bytes; no two of them touch
    };
    std::byte* cut(std::size_t size);

    std::mutex mutex_;
    std::vector<Map> maps_;
};

// What an op writes for itself, from step to step: aligned, and lost when it grows.
class Scratch {
public:
    // At least so many bytes.
    std::byte* make(std::size_t bytes) {
        if (memory_.bytes() >= bytes) return memory_.data();
        const std::size_t grown = std::max(bytes, memory_.bytes() * 2);
        memory_ = Memory();  // given back first
        memory_ = Memory(grown);
        return memory_.data();
    }
    float* floats(std::int64_t count) { return reinterpret_cast<float*>(make(static_cast<std::size_t>(count) * sizeof(float))); }
    std::byte* data() const { return memory_.data(); }

private:
    Memory memory_;
};

}  // namespace lorry::kernels::cpu
