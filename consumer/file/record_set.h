// Compact sets of record numbers and of texts, for inputs of many millions of lines. Used by source.h, `lorry submit` and batch_follower to
// remember which records are done and which ids were seen.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lorry::consumer {

// A set of record numbers, one bit each.
class RecordSet {
public:
    // Returns false if the record was already in the set.
    bool add(std::int64_t record);
    bool contains(std::int64_t record) const;
    std::int64_t size() const { return size_; }

private:
    std::vector<std::uint64_t> words_;
    std::int64_t size_ = 0;
};

// A set of texts in 24 bytes each: the xxh128 of the text and where it was seen, in an open-addressed table.
class TextSet {
public:
    TextSet() : slots_(1024) {}
    // Returns false if the text was already in the set; its first place is kept.
    bool add(std::string_view text, std::int64_t place = 0);
    bool contains(std::string_view text) const;
    // The place of a text in the set.
    std::int64_t place_of(std::string_view text) const;
    std::size_t size() const { return size_; }

private:
    struct Slot {
        std::uint64_t low = 0;
        std::uint64_t high = 0;
        std::int64_t place = 0;  // place of the text
        bool is_free() const { return low == 0 && high == 0; }
    };
    static Slot slot_of(std::string_view text);
    // Index of the slot, or of the free slot where it would go.
    static std::size_t index_of(const std::vector<Slot>& slots, const Slot& slot);

    std::vector<Slot> slots_;  // a power of two, at most three quarters full
    std::size_t size_ = 0;
};

}  // namespace lorry::consumer
