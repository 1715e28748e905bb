// The relative positions of disentangled attention (DeBERTa): what config.json says of them, and which one each distance has. Called by
// model_config.cpp and model.cpp.
// Source: DeBERTa-v2 of transformers, make_log_bucket_position.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/config_section.h"
#include "engine/model/model_config.h"

namespace lorry::engine {

// Sets `disentangled`, `attention_terms`, `convolution` and `learned_positions`. The sizes must have been read. Throws std::runtime_error
// that names file, key and value.
void read_disentangled(const Section& config, ModelConfig& out);

// The relative positions of distances 1 - context … context - 1, as DisentangledBiasArgs has them.
std::vector<std::int32_t> positions_of_distances(const DisentangledConfig& config, std::int64_t context);

}  // namespace lorry::engine
