// Compares the weights with the memory that is free.
#include "ops/weight_memory.h"

#include <fmt/format.h>

#include "ops/engine_setup.h"
#include "ops/machine.h"
#include "ops/units.h"

namespace lorry::ops {

std::size_t weight_bytes_of(const Settings& settings, const engine::ModelReport& model) {
    const std::int64_t projections = model.parameters - model.embedding_parameters;
    return kernels::stored_bytes(storage_options(settings), static_cast<std::size_t>(projections),
                                 static_cast<std::size_t>(model.embedding_parameters));
}

std::optional<std::string> weights_obstacle(std::size_t weight_bytes) {
    const std::size_t available = memory_available();
    if (weight_bytes <= available) return std::nullopt;
    return fmt::format("the weights need {}, this machine has {} free", show_bytes(weight_bytes), show_bytes(available));
}

}  // namespace lorry::ops
