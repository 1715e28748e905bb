// How many tokens of a sequence are guessed, and from which chance on. The times of rows, masks and steps decide. Used by engine.cpp.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/mask_time.h"
#include "engine/prompt_lookup.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"

namespace lorry::engine {

// What the sequences of a step share.
struct DraftRoom {
    std::int64_t drafts_max = 0;   // of each sequence
    std::int64_t sample_rows = 0;  // of logits, of a step
    std::int64_t sequences = 0;    // that run
    std::optional<MaskPatience> mask_patience;
    std::optional<double> chance_least;  // in place of what was measured
};

DraftLimits draft_limits(const Sequence& sequence, const DraftRoom& room, const StepCost& cost);

}  // namespace lorry::engine
