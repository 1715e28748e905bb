// Chooses the place of an adapter's slot among the existing ones, and which adapters are evicted for it. Pure; called by adapter_cache.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/backend.h"

namespace lorry::engine {

struct TakenSlot {
    kernels::SlotRange range;
    std::optional<std::uint64_t> last_use;  // from 1 on, higher is later; nullopt: it cannot be evicted
};

struct SlotChoice {
    kernels::SlotRange range;
    std::span<const TakenSlot> victims;  // the taken slots that it overlaps
};

// Chooses a place of `bytes` bytes in `area` without victims, if there is one; otherwise the place whose most recently used victim was used
// longest ago. Ties go to the place with the fewest victims, then to the last one, which is the farthest from the KV cache's first blocks.
// `taken` is ascending and not overlapping; slots may be outside the area. nullopt: slots that cannot be evicted leave no room.
std::optional<SlotChoice> choose_slot(std::size_t bytes, const kernels::SlotRange& area, std::span<const TakenSlot> taken);

}  // namespace lorry::engine
