// The id of a token in the base model's vocabulary. Included by all of engine/text.
#pragma once

#include <cstdint>

namespace lorry::engine {

using TokenId = std::int32_t;

}  // namespace lorry::engine
