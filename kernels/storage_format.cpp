// The tables of storage formats and the questions that are answered from them; see storage_format.h.
#include "kernels/storage_format.h"

#include <algorithm>
#include <array>
#include <vector>

#include "schema/check.h"

namespace lorry::kernels {

namespace {

// In the order in which refusals list them.
constexpr std::array weight_rows = {
    WeightFormat{.quantization = Quantization::none, .name = "none", .on_cpu = true, .on_gpu = true},
    WeightFormat{.quantization = Quantization::int8,
                 .name = "int8",
                 .bits = 8.0,
                 .input = Format::int8_rows,
                 .embeddings = Quantization::int8,
                 .on_cpu = true},
    WeightFormat{.quantization = Quantization::int4,
                 .name = "int4",
                 .bits = 4.5,
                 .input = Format::int8_rows,
                 .embeddings = Quantization::int8,
                 .on_cpu = true},
    WeightFormat{.quantization = Quantization::fp8, .name = "fp8", .bits = 8.0, .input = Format::fp8_rows, .on_gpu = true},
};

constexpr std::array cache_rows = {
    CacheFormat{.format = KvFormat::as_weights, .name = "auto", .on_cpu = true, .on_gpu = true},
    CacheFormat{.format = KvFormat::int8, .name = "int8", .elements = Format::int8_rows, .on_cpu = true},
    CacheFormat{.format = KvFormat::fp8, .name = "fp8", .elements = Format::fp8_rows, .on_gpu = true},
};

const char* name_of(DeviceKind device) { return device == DeviceKind::cpu ? "CPU" : "GPU"; }

template <class Row>
bool has(DeviceKind device, const Row& row) {
    return device == DeviceKind::cpu ? row.on_cpu : row.on_gpu;
}

// The device's own formats, without the one that every device has: "int8 or int4".
template <class Rows>
std::string choices(const Rows& rows, DeviceKind device) {
    std::string text;
    for (const auto& row : rows) {
        if (!has(device, row) || (row.on_cpu && row.on_gpu)) continue;
        text += (text.empty() ? "" : " or ") + std::string(row.name);
    }
    return text;
}

template <class Rows, class Row>
std::optional<std::string> obstacle_in(const Rows& rows, const Row& row, DeviceKind device, const char* what) {
    if (has(device, row)) return std::nullopt;
    return std::string("the ") + name_of(device) + " has no " + row.name + ' ' + what + ": choose " + choices(rows, device);
}

double bits_of(Quantization quantization, Format weights) {
    return weight_format(quantization).bits.value_or(8.0 * static_cast<double>(bytes_of(weights)));
}

}  // namespace

std::span<const WeightFormat> weight_formats() { return weight_rows; }
std::span<const CacheFormat> cache_formats() { return cache_rows; }

const WeightFormat& weight_format(Quantization quantization) {
    const auto* const row = std::ranges::find(weight_rows, quantization, &WeightFormat::quantization);
    CHECK(row != weight_rows.end(), "every Quantization has a row");
    return *row;
}

const CacheFormat& cache_format(KvFormat format) {
    const auto* const row = std::ranges::find(cache_rows, format, &CacheFormat::format);
    CHECK(row != cache_rows.end(), "every KvFormat has a row");
    return *row;
}

std::optional<Quantization> quantization_of(std::string_view name) {
    const auto* const row = std::ranges::find(weight_rows, name, [](const WeightFormat& one) -> std::string_view { return one.name; });
    return row == weight_rows.end() ? std::nullopt : std::optional(row->quantization);
}

std::optional<KvFormat> kv_format_of(std::string_view name) {
    const auto* const row = std::ranges::find(cache_rows, name, [](const CacheFormat& one) -> std::string_view { return one.name; });
    return row == cache_rows.end() ? std::nullopt : std::optional(row->format);
}

std::optional<std::string> obstacle(Quantization quantization, DeviceKind device) {
    return obstacle_in(weight_rows, weight_format(quantization), device, "weights");
}

std::optional<std::string> obstacle(KvFormat format, DeviceKind device) {
    return obstacle_in(cache_rows, cache_format(format), device, "KV cache");
}

std::optional<std::string> obstacle(const StorageOptions& options, DeviceKind device) {
    if (options.weights != Format::float32 && options.weights != Format::bfloat16) {
        return std::string("the ") + name_of(device) + " stores weights as float32 or bfloat16, not " + name_of(options.weights) +
               ": choose one of these";
    }
    if (const auto reason = obstacle(options.quantize, device)) return reason;
    return obstacle(options.kv, device);
}

std::size_t stored_bytes(const StorageOptions& options, std::size_t projections, std::size_t embeddings) {
    const auto bytes = [&](std::size_t weights, Quantization quantization) {
        return static_cast<std::size_t>(static_cast<double>(weights) * bits_of(quantization, options.weights) / 8.0);
    };
    return bytes(projections, options.quantize) + bytes(embeddings, weight_format(options.quantize).embeddings);
}

}  // namespace lorry::kernels
