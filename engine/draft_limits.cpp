// Each draft takes a row of logits and, where what may be drawn depends on what was, a mask.
#include "engine/draft_limits.h"

#include <algorithm>

namespace lorry::engine {

DraftLimits draft_limits(const Sequence& sequence, const DraftRoom& room, const StepCost& cost) {
    const std::int64_t sequences = std::max<std::int64_t>(1, room.sequences);
    const std::int64_t spare = std::max<std::int64_t>(0, room.sample_rows - sequences);
    std::int64_t count = std::min(room.drafts_max, spare);
    if (sequence.request().drawing->depends_on_drawn()) {  // each draft takes a mask
        count = std::min(count, spare / sequences);
        if (room.mask_patience && sequence.mask_seconds > 0.0) {
            const double masks = room.mask_patience->seconds_least / sequence.mask_seconds / static_cast<double>(sequences);
            count = static_cast<std::int64_t>(std::min(static_cast<double>(count), masks));
        }
    }
    return {.count = count, .chance_least = room.chance_least.value_or(cost.chance_least(sequences, sequence.guess_seconds))};
}

}  // namespace lorry::engine
