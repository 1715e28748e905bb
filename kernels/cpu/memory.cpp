// Allocates and cuts zeroed, aligned memory; see memory.h.
#include "kernels/cpu/memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t line = 64;
constexpr std::align_val_t alignment{line};
constexpr std::size_t arena_map_least = 16 * huge_page;
// Pieces from this size on get their own huge pages: activations of some hundred rows are read again and again, one row per page at a time.
constexpr std::size_t map_least = huge_page / 4;

// The bytes that are mapped for a piece.
constexpr std::size_t map_size(std::size_t bytes) { return (bytes + huge_page - 1) / huge_page * huge_page; }

// The bytes that a piece takes in an arena: whole cache lines and one more, which must not be touched.
constexpr std::size_t cut_size(std::size_t bytes) { return (bytes + line - 1) / line * line + line; }

}  // namespace

// Large pieces are anonymous maps. The kernel zeroes them page by page on first touch, so a large KV cache costs nothing until it is used.
// Small pieces come from the heap, where sanitizers check their bounds.
Memory::Memory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    if (bytes < map_least) {
        auto* const data = static_cast<std::byte*>(::operator new(bytes, alignment));
        std::memset(data, 0, bytes);
        data_ = std::unique_ptr<std::byte, Free>(data, Free(Owner::self, bytes));
        return;
    }
    // Huge pages start at multiples of their size: map more than needed and unmap the rest.
    const std::size_t size = map_size(bytes);
    void* const map = mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        throw std::runtime_error("cannot allocate " + std::to_string(bytes) +
                                 " bytes of memory for the model: use a smaller model or KV cache, or a machine with more memory");
    }
    const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(map) % huge_page) % huge_page;
    std::byte* const data = static_cast<std::byte*>(map) + before;
    if (before > 0) munmap(map, before);
    munmap(data + size, huge_page - before);
    // Only a hint: without huge pages everything works, but slower.
    madvise(data, size, MADV_HUGEPAGE);
    data_ = std::unique_ptr<std::byte, Free>(data, Free(Owner::self, bytes));
}

Memory::Memory(std::size_t bytes, Arena& arena) {
    if (bytes == 0) return;
    data_ = std::unique_ptr<std::byte, Free>(arena.take(bytes), Free(Owner::arena, bytes, &arena));
    bytes_ = bytes;
}

void Memory::Free::operator()(std::byte* data) const {
    switch (owner) {
        case Owner::arena: return arena->give_back(data, bytes);
        case Owner::other: return;
        case Owner::self: break;
    }
    if (bytes < map_least) {
        ::operator delete(data, alignment);
    } else {
        munmap(data, map_size(bytes));
    }
}

Memory SlotPlace::take_piece(std::size_t bytes) {
    if (bytes == 0) return {};
    const std::size_t at = std::exchange(used_, used_ + cut_size(bytes));
    if (begin_ == nullptr) return {nullptr, bytes};
    CHECK(used_ <= bytes_, "an adapter fits into the slot that was measured for it");
    ASAN_UNPOISON_MEMORY_REGION(begin_ + at, bytes);
    std::memset(begin_ + at, 0, bytes);
    return {begin_ + at, bytes};
}

SlotPlace::~SlotPlace() {
    if (begin_ != nullptr) ASAN_POISON_MEMORY_REGION(begin_, bytes_);
}

SlotArea::SlotArea(std::size_t bytes) : memory_(bytes) { ASAN_POISON_MEMORY_REGION(memory_.data(), bytes); }
SlotArea::~SlotArea() { ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.bytes()); }

Arena::~Arena() { CHECK(maps_.empty(), "all pieces of an arena are freed before it"); }

std::byte* Arena::take(std::size_t bytes) {
    std::byte* const data = cut(cut_size(bytes));
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
    std::memset(data, 0, bytes);
    return data;
}

// Takes the first free range that is large enough.
std::byte* Arena::cut(std::size_t size) {
    const std::lock_guard lock(mutex_);
    for (;;) {
        for (Map& map : maps_) {
            const auto place = std::ranges::find_if(map.free, [&](const auto& range) { return range.second - range.first >= size; });
            if (place == map.free.end()) continue;
            const auto [begin, end] = *place;
            map.free.erase(place);
            if (begin + size < end) map.free.emplace(begin + size, end);
            return map.memory.data() + begin;
        }
        const std::size_t bytes = std::max(arena_map_least, map_size(size));
        Map& map = maps_.emplace_back(Map{.memory = Memory(bytes), .free = {}});
        ASAN_POISON_MEMORY_REGION(map.memory.data(), bytes);
        map.free.emplace(0, bytes);
    }
}

void Arena::give_back(std::byte* data, std::size_t bytes) {
    const std::size_t size = cut_size(bytes);
    ASAN_POISON_MEMORY_REGION(data, size);
    const std::lock_guard lock(mutex_);
    const auto map = std::ranges::find_if(
        maps_, [&](const Map& one) { return data >= one.memory.data() && data < one.memory.data() + one.memory.bytes(); });
    CHECK(map != maps_.end(), "a piece that is given back belongs to the arena");
    auto begin = static_cast<std::size_t>(data - map->memory.data());
    std::size_t end = begin + size;
    auto after = map->free.lower_bound(begin);
    if (after != map->free.end() && after->first == end) {
        end = after->second;
        after = map->free.erase(after);
    }
    if (after != map->free.begin() && std::prev(after)->second == begin) {
        begin = std::prev(after)->first;
        map->free.erase(std::prev(after));
    }
    map->free.emplace(begin, end);
    if (end - begin < map->memory.bytes()) return;
    ASAN_UNPOISON_MEMORY_REGION(map->memory.data(), map->memory.bytes());
    maps_.erase(map);
}

}  // namespace lorry::kernels::cpu
