// What tests of the engine over real kernels share: how weights and the KV cache are stored, and running requests to their ends.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kernels/storage_format.h"

namespace lorry::tests {

struct Stored {
    kernels::Format weights = kernels::Format::float32;
    kernels::Quantization quantize = kernels::Quantization::none;
    kernels::KvFormat kv = kernels::KvFormat::as_weights;
    // "int8", "fp8_fp8_kv"
    std::string name() const {
        return std::string(quantize == kernels::Quantization::none ? kernels::name_of(weights) : kernels::name_of(quantize)) +
               (kv == kernels::KvFormat::as_weights ? "" : std::string("_") + kernels::name_of(kv) + "_kv");
    }
};

// Submits all requests and steps until they have ended; checks the engine's bookkeeping after each step.
inline std::map<engine::RequestId, engine::Result> run_all(engine::Engine& engine, const std::vector<engine::Request>& requests) {
    for (const engine::Request& request : requests) engine.submit(request);
    std::map<engine::RequestId, engine::Result> results;
    engine::StepOutput output;
    while (engine.has_work()) {
        if (!engine.step(output)) engine.wait_for_adapters(std::chrono::milliseconds(50));
        engine.check_integrity();
        for (engine::Result& result : output.results) {
            const engine::RequestId id = result.id;
            results.emplace(id, std::move(result));
        }
    }
    return results;
}

}  // namespace lorry::tests
