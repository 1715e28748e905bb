// LoRA on the tensors with the weights of all experts (PEFT's target_parameters): cut into the updates of each expert's modules, as older
// adapters have them. Called by adapter.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace lorry::engine {

// PEFT stores A as [experts, rank, in], B as [out, rank, experts], and calls the second parameter of a module base_layer: what a pair of
// tensors belongs to follows from its sizes. Pairs of other sizes stay as they are. `owned` gets the memory of what had to be copied.
std::vector<Tensor> split_parameter_updates(std::vector<Tensor> tensors, const ModelConfig& model,
                                            std::vector<std::unique_ptr<std::byte[]>>& owned);

}  // namespace lorry::engine
