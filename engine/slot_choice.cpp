// Considers the places that begin or end where a slot or the area begins or ends. Any other place overlaps at least the slots that one of
// these overlaps.
#include "engine/slot_choice.h"

#include <algorithm>
#include <tuple>

namespace lorry::engine {
namespace {

using kernels::SlotRange;

std::span<const TakenSlot> overlapped(const SlotRange& range, std::span<const TakenSlot> taken) {
    const auto first = std::ranges::partition_point(taken, [&](const TakenSlot& slot) { return slot.range.end <= range.begin; });
    const auto last = std::ranges::partition_point(taken, [&](const TakenSlot& slot) { return slot.range.begin < range.end; });
    return {first, std::max(first, last)};
}

}  // namespace

std::optional<SlotChoice> choose_slot(std::size_t bytes, const SlotRange& area, std::span<const TakenSlot> taken) {
    std::optional<SlotChoice> best;
    std::tuple<std::uint64_t, std::size_t> best_cost;
    const auto consider = [&](std::size_t begin) {
        const SlotRange range{begin, begin + bytes};
        if (begin < area.begin || range.end > area.end) return;
        const auto victims = overlapped(range, taken);
        std::uint64_t last_use = 0;
        for (const TakenSlot& victim : victims) {
            if (!victim.last_use) return;
            last_use = std::max(last_use, *victim.last_use);
        }
        const std::tuple cost{last_use, victims.size()};
        if (best && (best_cost < cost || (best_cost == cost && best->range.begin >= begin))) return;
        best = {range, victims};
        best_cost = cost;
    };
    const auto consider_before = [&](std::size_t end) {
        if (end >= bytes) consider(end - bytes);
    };
    consider(area.begin);
    consider_before(area.end);
    for (const TakenSlot& slot : taken) {
        for (const std::size_t edge : {slot.range.begin, slot.range.end}) {
            consider(edge);
            consider_before(edge);
        }
    }
    return best;
}

}  // namespace lorry::engine
