// When the sample op takes the largest logit and draws nothing. Used by the sample op of both backends.
#pragma once

#include <limits>

#include "kernels/ops.h"

namespace lorry::kernels {

// True for temperature 0, and for temperatures so small that their inverse may overflow.
inline bool is_greedy(const SampleRow& row) { return row.temperature < std::numeric_limits<float>::min(); }

}  // namespace lorry::kernels
