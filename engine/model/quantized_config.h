// Reads quantization_config (or compression_config) of config.json: the format of a checkpoint's codes. Called by model_config.cpp;
// coded_tensors.cpp reads the tensors. docs/adapters.md lists the formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::engine {

class Section;

// Where a checkpoint's codes, scales and zero points are.
enum class CodeFormat : std::uint8_t {
    gptq,
    awq,
    packed_integers,
    integers,
    fp8,
    fp8_blocks,
    bitsandbytes_4bit,
    bitsandbytes_int8,
    mxfp4,
    mxfp4_packed,
    nvfp4_packed
};

struct CodeBlock {
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
};

struct QuantizedConfig {
    CodeFormat format = CodeFormat::gptq;
    std::string name;  // for people: "GPTQ, 4 bits, groups of 128"
    std::int64_t bits = 4;
    std::optional<std::int64_t> group_size;  // inputs that share a scale; nullopt: all of an output, or those of a block
    std::optional<CodeBlock> block;          // outputs and inputs that share a scale
    bool has_zeros = false;                  // zero points are stored
    bool has_order = false;                  // inputs were quantized in an order that only a tensor tells
    bool zeros_less_one = false;             // they are stored less 1 (GPTQ's first version)
    bool rounds_inputs = false;              // activations are rounded to int8, with a scale for each token
};

// nullopt: the checkpoint is not quantized. Throws std::runtime_error that names file, key and value, and what to do, for methods and keys
// that are not supported. Keys that only training, or other programs, read are ignored.
std::optional<QuantizedConfig> read_quantized_config(const Section& config);

}  // namespace lorry::engine
