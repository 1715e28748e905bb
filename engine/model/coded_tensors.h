// Reads the weights of quantized checkpoints: finds a module's tensors, checks their dtypes and shapes, and brings the codes of each format
// into the one description that backends pack (kernels/coded_weight.h). Called by model loading and check-model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/quantized_config.h"
#include "engine/model/weights.h"
#include "kernels/coded_weight.h"

namespace lorry::engine {

// A linear module whose weight is in codes.
struct CodedModule {
    std::string path;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    std::vector<const Tensor*> tensors;  // all that it is made of
    std::int64_t scale_bytes = 4;        // of one in memory, at most
};

// Where a checkpoint's codes are looked up.
struct CodedSource {
    const QuantizedConfig& config;
    const Checkpoint& checkpoint;
    const std::string& prefix;  // as Checkpoint::find

    // nullopt: the module was left unquantized, as its weight is a tensor of numbers. Throws std::runtime_error that names file, tensor,
    // what it is and what it must be.
    std::optional<CodedModule> find(const std::string& path, std::int64_t out_features, std::int64_t in_features) const;
};

// A weight in codes, and the memory that its part points to.
struct CodedWeight {
    kernels::CodedPart part;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    std::vector<std::int8_t> zeros;
    std::vector<std::int32_t> group_of;
};

// Throws std::runtime_error that names file and tensor if a value is impossible.
std::unique_ptr<CodedWeight> read_codes(const CodedSource& source, const CodedModule& module);

// Bytes that a module's codes and scales take in memory.
std::size_t coded_bytes(const QuantizedConfig& config, const CodedModule& module);

}  // namespace lorry::engine
