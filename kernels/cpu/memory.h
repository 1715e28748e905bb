// Zeroed, aligned memory for weights, the KV cache and buffers. Large pieces ask for huge pages; the pieces of an arena share them; an
// adapter's pieces are in its slot. Used by the CPU backend.
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
    // Throws std::runtime_error with the size if the machine has no more memory. Zero bytes are allowed.
    explicit Memory(std::size_t bytes);
    // Comes from the arena, which outlives it.
    Memory(std::size_t bytes, Arena& arena);
    // Borrowed from an owner that outlives it. Null: only the size is known.
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

// Where the pieces of weights and adapters come from.
class Place {
public:
    virtual ~Place() = default;
    // Zeroed. Throws as Memory does.
    virtual Memory take_piece(std::size_t bytes) = 0;
};

// Huge pages for many pieces that are read one after the other, such as a model's weights: pieces taken in a row are adjacent, so that none
// ends in small pages. Any thread may take pieces and give them back.
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
    // Huge pages that pieces are cut from; unmapped once no piece is left.
    struct Map {
        Memory memory;
        std::map<std::size_t, std::size_t> free;  // end by begin, in bytes; no two ranges touch
    };
    std::byte* cut(std::size_t size);

    std::mutex mutex_;
    std::vector<Map> maps_;
};

// Pieces of one adapter, cut from a borrowed range of memory from its begin on; the owner outlives it. Null: pieces have sizes and no
// memory.
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

// Memory for slots. Under a sanitizer, touching memory that is in no slot is an error.
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

// An op's scratch memory, kept from step to step: aligned; its contents are lost when it grows.
class Scratch {
public:
    // Returns at least `bytes` bytes.
    std::byte* make(std::size_t bytes) {
        if (memory_.bytes() >= bytes) return memory_.data();
        const std::size_t grown = std::max(bytes, memory_.bytes() * 2);
        memory_ = Memory();  // frees the old memory first
        memory_ = Memory(grown);
        return memory_.data();
    }
    float* floats(std::int64_t count) { return reinterpret_cast<float*>(make(static_cast<std::size_t>(count) * sizeof(float))); }
    std::byte* data() const { return memory_.data(); }

private:
    Memory memory_;
};

}  // namespace lorry::kernels::cpu
