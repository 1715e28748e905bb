// Zeroed, aligned memory for weights, KV and buffers; large pieces ask for huge pages, and those of an arena share some. An adapter's lie
// in its slot.
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
    // Somebody else's, who outlives it. Null: only its size is known.
    Memory(std::byte* data, std::size_t bytes) : data_(data, Free(Owner::other)), bytes_(bytes) {}

    std::byte* data() const { return data_.get(); }
    std::size_t bytes() const { return bytes_; }

private:
    enum class Owner : std::uint8_t { self, arena, other };
    struct Free {
        Free() : Free(Owner::self) {}
        explicit Free(Owner whose, std::size_t count = 0, Arena* from = nullptr) : owner(whose), bytes(count), arena(from) {}
        Owner owner;
        std::size_t bytes;
        Arena* arena;  // of Owner::arena
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_ = 0;
};

// Where weights are put.
class Place {
public:
    virtual ~Place() = default;
    // Zeroed. Throws as Memory does.
    virtual Memory take_piece(std::size_t bytes) = 0;
};

// Huge pages for many pieces that are read one after the other, as a model's weights are: taken in a row, they lie side by side, and none
// ends in small pages.
// Any thread may take, and give back what it likes.
class Arena final : public Place {
public:
    Arena() = default;
    ~Arena() override;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Memory take_piece(std::size_t bytes) override { return Memory(bytes, *this); }

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

// A range of somebody else's memory, who outlives it, from its begin to its end: one adapter's. Null: pieces have sizes and no memory.
class SlotPlace final : public Place {
public:
    SlotPlace(std::byte* begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {}
    ~SlotPlace() override;
    SlotPlace(const SlotPlace&) = delete;
    SlotPlace& operator=(const SlotPlace&) = delete;
    Memory take_piece(std::size_t bytes) override;
    std::size_t used() const { return used_; }

private:
    std::byte* const begin_;
    const std::size_t bytes_;
    std::size_t used_ = 0;
};

// Memory for slots. A sanitizer lets nobody touch what is in none of them.
class SlotArea {
public:
    explicit SlotArea(std::size_t bytes);
    ~SlotArea();
    SlotArea(const SlotArea&) = delete;
    SlotArea& operator=(const SlotArea&) = delete;
    std::byte* data() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }

private:
    Memory memory_;
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
