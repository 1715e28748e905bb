// Where an adapter's slot goes among those that are there, and which of them have to go for it. Pure; used by the adapter cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/backend.h"

namespace lorry::engine {

struct TakenSlot {
    kernels::SlotRange range;
    std::optional<std::uint64_t> last_use;  // from 1 on, the later the higher; none: it has to stay
};

struct SlotChoice {
    kernels::SlotRange range;
    std::span<const TakenSlot> victims;  // that it lies over
};

// A place of `bytes` bytes in `area`. Nobody has to go if that can be; else the one of them that was used last was used longest ago. Of
// places alike in that, the one with the fewest victims, and of these the last, which is the farthest from the KV cache's first blocks.
// `taken`: ascending, not overlapping; may lie outside the area. None: what has to stay leaves no room.
std::optional<SlotChoice> choose_slot(std::size_t bytes, const kernels::SlotRange& area, std::span<const TakenSlot> taken);

}  // namespace lorry::engine
