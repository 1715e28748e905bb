// A table of readers, and a wait for the slowest.
#include "consumer/reading_pace.h"

#include <algorithm>

namespace lorry::consumer {

void ReadingPace::note(const void* reader, Offsets offsets) {
    const std::lock_guard lock(mutex_);
    readers_[reader] = std::move(offsets);
    changed_.notify_all();
}

void ReadingPace::forget(const void* reader) {
    const std::lock_guard lock(mutex_);
    readers_.erase(reader);
    changed_.notify_all();
}

bool ReadingPace::is_read(const Offsets& ends) const {
    return std::ranges::all_of(readers_, [&](const auto& reader) {
        return std::ranges::all_of(ends, [&](const auto& end) {
            const auto place = reader.second.find(end.first);
            return place == reader.second.end() || place->second >= end.second;
        });
    });
}

bool ReadingPace::wait_until_read(const Offsets& ends, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return is_read(ends); });
}

}  // namespace lorry::consumer
