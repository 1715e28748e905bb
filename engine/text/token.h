// The id of a token in the base model's vocabulary. Included by everything in the engine that speaks of tokens.
#pragma once

#include <cstdint>

namespace lorry::engine {

using TokenId = std::int32_t;

}  // namespace lorry::engine
