// Which records of an input are done, and which ids were seen: small enough for inputs of many million lines. Used by file_journal and
// file_source.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lorry::consumer {

// One bit per record.
class RecordSet {
public:
    // False: it was in the set before.
    bool add(std::int64_t record);
    bool contains(std::int64_t record) const;
    std::int64_t size() const { return size_; }

private:
    std::vector<std::uint64_t> words_;
    std::int64_t size_ = 0;
};

// 24 bytes per text: the xxh128 of each and where it was seen, in an open-addressed table.
class TextSet {
public:
    TextSet() : slots_(1024) {}
    // False: it was in the set before, with the place of then.
    bool add(std::string_view text, std::int64_t place = 0);
    bool contains(std::string_view text) const;
    // Of a text that it contains.
    std::int64_t place_of(std::string_view text) const;
    std::size_t size() const { return size_; }

private:
    struct Slot {
        std::uint64_t low = 0;
        std::uint64_t high = 0;
        std::int64_t place = 0;  // of the text
        bool is_free() const { return low == 0 && high == 0; }
    };
    static Slot slot_of(std::string_view text);
    // Where the slot is, or would be.
    static std::size_t index_of(const std::vector<Slot>& slots, const Slot& slot);

    std::vector<Slot> slots_;  // a power of two, at most three quarters full
    std::size_t size_ = 0;
};

}  // namespace lorry::consumer
