// A bitmap, and a hash table of hashes.
#include "consumer/file/record_set.h"

#include <xxhash.h>

#include "schema/check.h"

namespace lorry::consumer {

bool RecordSet::add(std::int64_t record) {
    CHECK(record >= 0, "records count from 0");
    const auto word = static_cast<std::size_t>(record / 64);
    if (word >= words_.size()) words_.resize(std::max(word + 1, words_.size() + words_.size() / 2));
    const std::uint64_t bit = std::uint64_t{1} << (record % 64);
    if ((words_[word] & bit) != 0) return false;
    words_[word] |= bit;
    ++size_;
    return true;
}

bool RecordSet::contains(std::int64_t record) const {
    const auto word = static_cast<std::size_t>(record / 64);
    return word < words_.size() && (words_[word] >> (record % 64) & 1) != 0;
}

bool TextSet::add(std::string_view text, std::int64_t place) {
    if ((size_ + 1) * 4 > slots_.size() * 3) {
        std::vector<Slot> larger(slots_.size() * 2);
        for (const Slot& slot : slots_) {
            if (!slot.is_free()) larger[index_of(larger, slot)] = slot;
        }
        slots_ = std::move(larger);
    }
    Slot slot = slot_of(text);
    Slot& there = slots_[index_of(slots_, slot)];
    if (!there.is_free()) return false;
    slot.place = place;
    there = slot;
    ++size_;
    return true;
}

bool TextSet::contains(std::string_view text) const { return !slots_[index_of(slots_, slot_of(text))].is_free(); }

std::int64_t TextSet::place_of(std::string_view text) const {
    const Slot& slot = slots_[index_of(slots_, slot_of(text))];
    CHECK(!slot.is_free(), "only what is in the set has a place");
    return slot.place;
}

TextSet::Slot TextSet::slot_of(std::string_view text) {
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    return {.low = hash.low64 == 0 ? 1 : hash.low64, .high = hash.high64, .place = 0};
}

std::size_t TextSet::index_of(const std::vector<Slot>& slots, const Slot& slot) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = slot.low & mask;
    while (!slots[at].is_free() && (slots[at].low != slot.low || slots[at].high != slot.high)) at = (at + 1) & mask;
    return at;
}

}  // namespace lorry::consumer
