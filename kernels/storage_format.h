// How a device stores weights, adapters and the KV cache: one row per format, with its size and the devices that have it. Backends pack by
// these rows; ops/ takes names, sizes and refusals from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/tensor.h"

namespace lorry::kernels {

enum class DeviceKind : std::uint8_t { cpu, gpu };

// How matmul weights are stored; `none`: as StorageOptions::weights says.
// int8: integers with a scale per output; matmul inputs become int8 with a scale per row as they are computed.
// int4: as int8, but the integers are stored in 4.5 bits; embeddings stay int8.
// fp8: as int8 with e4m3 (1 sign, 4 exponent, 3 fraction bits: Micikevicius et al. 2022) instead of integers; embeddings are not quantized.
enum class Quantization : std::uint8_t { none, int8, int4, fp8 };

// How keys and values are cached: as StorageOptions::weights says, or as int8 or e4m3 with a scale for each token of each head.
enum class KvFormat : std::uint8_t { as_weights, int8, fp8 };

struct WeightFormat {
    Quantization quantization = Quantization::none;
    const char* name = nullptr;                    // the value of --quantize
    std::optional<double> bits = {};               // of a weight, without its scale; nullopt: those of StorageOptions::weights
    std::optional<Format> input = {};              // what matmul reads and the op before it writes; nullopt: the device's choice
    Quantization embeddings = Quantization::none;  // how token and position tables and the head are stored
    bool on_cpu = false;
    bool on_gpu = false;
};
const WeightFormat& weight_format(Quantization quantization);
inline const char* name_of(Quantization quantization) { return weight_format(quantization).name; }
std::span<const WeightFormat> weight_formats();
std::optional<Quantization> quantization_of(std::string_view name);

struct CacheFormat {
    KvFormat format = KvFormat::as_weights;
    const char* name = nullptr;           // the value of --kv-dtype
    std::optional<Format> elements = {};  // of keys and values; nullopt: StorageOptions::weights
    bool on_cpu = false;
    bool on_gpu = false;
};
const CacheFormat& cache_format(KvFormat format);
inline const char* name_of(KvFormat format) { return cache_format(format).name; }
std::span<const CacheFormat> cache_formats();
std::optional<KvFormat> kv_format_of(std::string_view name);

// What both devices are asked for.
struct StorageOptions {
    Format weights = Format::bfloat16;  // of packed weights, adapters and the KV cache; float32 keeps every bit of the checkpoint
    Quantization quantize = Quantization::none;
    KvFormat kv = KvFormat::as_weights;
};

// Why the device cannot store weights or a KV cache in this format, and what to choose instead: "the CPU has no fp8 weights: choose int8 or
// int4". nullopt if it can.
std::optional<std::string> obstacle(Quantization quantization, DeviceKind device);
std::optional<std::string> obstacle(KvFormat format, DeviceKind device);
// The first obstacle among all options. Backends throw it as a std::runtime_error.
std::optional<std::string> obstacle(const StorageOptions& options, DeviceKind device);

// Bytes of a model's weights, without scales and padding. embeddings: weights of token and position tables and of the head; projections:
// all others.
std::size_t stored_bytes(const StorageOptions& options, std::size_t projections, std::size_t embeddings);

}  // namespace lorry::kernels
