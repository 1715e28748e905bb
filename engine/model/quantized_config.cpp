// Each method of quantization is one row of `methods`: the keys that it reads, and those without a meaning for results. See
// quantized_config.h.
#include "engine/model/quantized_config.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "engine/model/config_section.h"

namespace lorry::engine {
namespace {

using schema::Json;

constexpr const char* use_another = "use a checkpoint in another format, or the unquantized one with --quantize";

bool says_nothing(const Json& value) {
    if (value.is_null() || (value.is_bool() && !*value.as_bool())) return true;
    if (const auto* object = value.as_object()) return object->empty();
    if (const auto* array = value.as_array()) return array->empty();
    const std::string* text = value.as_string();
    return text != nullptr && text->empty();
}

// Refuses keys of which it is not known that they have no meaning.
void refuse_others(const Section& section, std::span<const std::string_view> known) {
    for (const auto& [key, value] : section.members()) {
        if (says_nothing(value) || std::ranges::find(known, key) != known.end()) continue;
        section.refuse(key, std::string("this key is unknown; ") + use_another);
    }
}

void require(const Section& section, std::string_view key, bool holds, std::string_view supported) {
    if (!holds) section.refuse(key, fmt::format("supported: {}; {}", supported, use_another));
}

std::string_view text_at(const Section& section, std::string_view key, std::string_view absent) {
    const Json* value = section.find(key);
    if (value == nullptr) return absent;
    if (value->as_string() == nullptr) section.refuse(key, "it must be a string");
    return *value->as_string();
}

std::int64_t bits_at(const Section& section, std::string_view key, std::span<const std::int64_t> supported) {
    const std::int64_t bits = section.integer(key, std::nullopt, 1, 64);
    std::string list;
    for (const std::int64_t each : supported) list += (list.empty() ? "" : " and ") + std::to_string(each);
    require(section, key, std::ranges::find(supported, bits) != supported.end(), list + " bits");
    return bits;
}

// -1 and null: an output's inputs share one scale.
std::optional<std::int64_t> group_at(const Section& section, std::string_view key, std::optional<std::int64_t> absent) {
    if (section.find(key) == nullptr) return section.has(key) ? std::nullopt : absent;
    const std::int64_t size = section.integer(key, std::nullopt, -1, size_max);
    if (size == -1) return std::nullopt;
    require(section, key, size > 0, "-1 and sizes above 0");
    return size;
}

std::string group_text(const std::optional<std::int64_t>& size) {
    return size ? fmt::format("groups of {}", *size) : "one scale for each output";
}

QuantizedConfig read_gptq(const Section& section) {
    constexpr std::array<std::int64_t, 2> bits = {4, 8};
    QuantizedConfig out{.format = CodeFormat::gptq, .bits = bits_at(section, "bits", bits), .has_zeros = true};
    out.group_size = group_at(section, "group_size", 128);
    // Newer programs write the format under either key.
    const std::string_view format = text_at(section, "checkpoint_format", text_at(section, "format", "gptq"));
    for (const char* key : {"checkpoint_format", "format"}) {
        const std::string_view named = text_at(section, key, format);
        require(section, key, named == "gptq" || named == "gptq_v2", "gptq and gptq_v2");
        require(section, key, named == format, fmt::format("the same as checkpoint_format, which is {}", format));
    }
    out.zeros_less_one = format == "gptq";
    // Static groups are those of the inputs as they stand, in whatever order these were quantized.
    out.has_order = section.boolean("desc_act", false) && !section.boolean("static_groups", false);
    require(section, "pack_dtype", text_at(section, "pack_dtype", "int32") == "int32", "int32");
    out.name = fmt::format("GPTQ, {} bits, {}{}", out.bits, group_text(out.group_size), out.has_order ? " with desc_act" : "");
    return out;
}

QuantizedConfig read_awq(const Section& section) {
    constexpr std::array<std::int64_t, 1> bits = {4};
    QuantizedConfig out{.format = CodeFormat::awq};
    out.bits = bits_at(section, section.has("w_bit") ? "w_bit" : "bits", bits);
    out.group_size = group_at(section, section.has("q_group_size") ? "q_group_size" : "group_size", 128);
    for (const char* key : {"version", "format"}) {
        const std::string_view layout = text_at(section, key, "gemm");
        require(section, key, layout == "gemm" || layout == "GEMM", "gemm");
    }
    require(section, "checkpoint_format", text_at(section, "checkpoint_format", "gemm") == "gemm", "gemm");
    require(section, "pack_dtype", text_at(section, "pack_dtype", "int32") == "int32", "int32");
    require(section, "desc_act", !section.boolean("desc_act", false), "false");
    // Others name the kernels of a program; this one, another layout.
    require(section, "backend", text_at(section, "backend", "auto") != "llm-awq", "all but llm-awq");
    out.has_zeros = section.boolean("zero_point", true);
    out.name = fmt::format("AWQ, 4 bits, {}", group_text(out.group_size));
    return out;
}

// The one object under config_groups, and its path.
Section group_of(const Section& section, std::string& path) {
    const Json* groups = section.find("config_groups");
    const auto* object = groups == nullptr ? nullptr : groups->as_object();
    require(section, "config_groups", object != nullptr && object->size() == 1, "one group of modules with the same format");
    path = "quantization_config.config_groups." + object->begin()->first;
    return Section(object->begin()->second, section.file(), path);
}

// The object under a key, such as the weights of a group.
std::optional<Section> part_of(const Section& section, const std::string& path, const char* key) {
    const Json* value = section.find(key);
    if (value == nullptr) return std::nullopt;
    return Section(*value, section.file(), path + "." + key);
}

// compressed-tensors' formats of codes that share bytes.
struct PackedFormat {
    std::string_view name;
    CodeFormat format;
    std::int64_t group_size;  // the only one; 0: any
};
constexpr std::array packed_formats = {PackedFormat{"pack-quantized", CodeFormat::packed_integers, 0},
                                       PackedFormat{"mxfp4-pack-quantized", CodeFormat::mxfp4_packed, 32},
                                       PackedFormat{"nvfp4-pack-quantized", CodeFormat::nvfp4_packed, 16}};

bool is_packed(CodeFormat format) { return std::ranges::find(packed_formats, format, &PackedFormat::format) != packed_formats.end(); }

// Rounding of activations is done for int8 by token, as that alone does not depend on the batch; others are left out.
bool rounds_inputs(const Section& group, const Section& activations, CodeFormat format) {
    require(group, "input_activations", !is_packed(format), "null with packed codes");
    if (format != CodeFormat::integers) return false;
    require(activations, "num_bits", activations.integer("num_bits", 8, 1, 64) == 8, "8 bits");
    require(activations, "type", text_at(activations, "type", "int") == "int", "int");
    require(activations, "symmetric", activations.boolean("symmetric", true), "true");
    require(activations, "dynamic", activations.boolean("dynamic", false), "true");
    require(activations, "strategy", text_at(activations, "strategy", "token") == "token", "token");
    return true;
}

CodeFormat format_at(const Section& section, const Section& weights) {
    const std::string_view format = text_at(section, "format", "");
    const bool is_float = text_at(weights, "type", "int") == "float";
    const auto* const packed = std::ranges::find(packed_formats, format, &PackedFormat::name);
    if (packed != packed_formats.end()) return packed->format;
    require(section, "format", format == "int-quantized" || format == "float-quantized" || format == "naive-quantized",
            names_in(packed_formats) + ", int-quantized, float-quantized and naive-quantized");
    return is_float ? CodeFormat::fp8 : CodeFormat::integers;
}

void read_strategy(const Section& weights, QuantizedConfig& out) {
    const std::string_view strategy = text_at(weights, "strategy", weights.find("group_size") != nullptr ? "group" : "tensor");
    if (strategy == "group" || (strategy == "tensor_group" && out.format == CodeFormat::nvfp4_packed)) {
        out.group_size = group_at(weights, "group_size", std::nullopt);
        out.name += ", " + group_text(out.group_size);
    } else if (strategy == "block") {
        const Json* sizes = weights.find("block_structure");
        const auto* list = sizes == nullptr ? nullptr : sizes->as_array();
        const bool is_pair = list != nullptr && list->size() == 2 && (*list)[0].as_integer().value_or(0) > 0 &&
                             (*list)[1].as_integer().value_or(0) > 0 && *(*list)[0].as_integer() < size_max &&
                             *(*list)[1].as_integer() < size_max;
        require(weights, "block_structure", is_pair, "a list of two sizes");
        out.block = CodeBlock{*(*list)[0].as_integer(), *(*list)[1].as_integer()};
        out.name += fmt::format(", blocks of {} × {}", out.block->outputs, out.block->inputs);
    } else {
        require(weights, "strategy", strategy == "channel" || strategy == "tensor", "tensor, channel, group and block");
        out.name += strategy == "channel" ? ", one scale for each output" : ", one scale for each tensor";
    }
}

// Whether inputs were put into groups in another order than their own: older versions called this group, dynamic or true.
bool has_group_order(const Section& weights) {
    const Json* const order = weights.find("actorder");
    if (order == nullptr) return false;
    if (order->is_bool()) return *order->as_bool();
    const std::string_view name = text_at(weights, "actorder", "");
    const bool has_order = name == "group" || name == "dynamic";
    require(weights, "actorder", has_order || name == "weight" || name == "static", "null, weight, static, group and dynamic");
    return has_order;
}

constexpr std::array<std::string_view, 5> group_keys = {"targets", "weights", "input_activations", "output_activations", "format"};
// Of weights and of activations.
constexpr std::array<std::string_view, 16> number_keys = {"num_bits",
                                                          "type",
                                                          "symmetric",
                                                          "group_size",
                                                          "strategy",
                                                          "block_structure",
                                                          "dynamic",
                                                          "actorder",
                                                          "observer",
                                                          "observer_kwargs",
                                                          "scale_dtype",
                                                          "zp_dtype",
                                                          "is_mx",
                                                          "lwbn",
                                                          "zero_point_dtype",
                                                          "round_to_quantized_type"};

QuantizedConfig read_compressed(const Section& section) {
    std::string path;
    const Section group = group_of(section, path);
    refuse_others(group, group_keys);
    const auto own_format = text_at(group, "format", text_at(section, "format", ""));
    require(group, "format", own_format == text_at(section, "format", ""), "the format of quantization_config");
    const auto weights = part_of(group, path, "weights");
    require(group, "weights", weights.has_value(), "a description of the weights");
    QuantizedConfig out{.format = format_at(section, *weights)};
    refuse_others(*weights, number_keys);
    require(*weights, "dynamic", !weights->boolean("dynamic", false), "false");
    const bool is_float4 = out.format == CodeFormat::mxfp4_packed || out.format == CodeFormat::nvfp4_packed;
    const bool is_float = out.format == CodeFormat::fp8 || is_float4;
    const std::string_view type = text_at(*weights, "type", "int");
    require(*weights, "type", type == (is_float ? "float" : "int"), is_float ? "float" : "int");
    constexpr std::array<std::int64_t, 2> packed_bits = {4, 8};
    constexpr std::array<std::int64_t, 1> byte_bits = {8};
    constexpr std::array<std::int64_t, 1> float4_bits = {4};
    const bool is_packed_integers = out.format == CodeFormat::packed_integers;
    out.bits = bits_at(*weights, "num_bits",
                       is_packed_integers ? std::span<const std::int64_t>(packed_bits)
                       : is_float4        ? float4_bits
                                          : byte_bits);
    out.has_zeros = !weights->boolean("symmetric", true);
    require(*weights, "symmetric", is_packed_integers || !out.has_zeros, "true");
    out.name = fmt::format("compressed-tensors, {} bits{}", out.bits, is_float ? " floating point" : "");
    read_strategy(*weights, out);
    if (is_float4) {
        const std::int64_t size = std::ranges::find(packed_formats, out.format, &PackedFormat::format)->group_size;
        require(*weights, "group_size", out.group_size == size, fmt::format("{} with {}", size, own_format));
    }
    out.has_order = has_group_order(*weights);
    require(*weights, "actorder", is_packed_integers || !out.has_order, "weight and static with codes that are not packed");
    if (out.has_order) out.name += " with actorder";
    if (const auto activations = part_of(group, path, "input_activations")) {
        refuse_others(*activations, number_keys);
        out.rounds_inputs = rounds_inputs(group, *activations, out.format);
    }
    if (out.rounds_inputs) {
        require(*weights, "strategy", !out.group_size && !out.block, "channel and tensor with activations of 8 bits");
        out.name += ", activations of 8 bits";
    }
    require(group, "output_activations", group.find("output_activations") == nullptr, "null");
    const Json* sparsity = section.find("sparsity_config");
    if (sparsity != nullptr && !says_nothing(*sparsity)) {
        const Section sparse(*sparsity, section.file(), "quantization_config.sparsity_config");
        require(sparse, "format", text_at(sparse, "format", "dense") == "dense", "dense");
    }
    return out;
}

QuantizedConfig read_fp8(const Section& section) {
    QuantizedConfig out{.format = CodeFormat::fp8, .name = "FP8", .bits = 8};
    require(section, "fmt", text_at(section, "fmt", "e4m3") == "e4m3" || text_at(section, "fmt", "") == "float8_e4m3fn", "e4m3");
    require(section, "expert_dtype", text_at(section, "expert_dtype", "fp8") == "fp8", "fp8");
    const Json* sizes = section.find("weight_block_size");
    if (sizes == nullptr) {
        out.name += ", one scale for each tensor";
        return out;
    }
    const auto* list = sizes->as_array();
    const bool is_pair = list != nullptr && list->size() == 2;
    const auto size = [&](std::size_t i) { return is_pair ? (*list)[i].as_integer().value_or(0) : 0; };
    require(section, "weight_block_size", size(0) > 0 && size(1) > 0 && size(0) < size_max && size(1) < size_max, "a list of two sizes");
    out.format = CodeFormat::fp8_blocks;
    out.block = CodeBlock{size(0), size(1)};
    out.name += fmt::format(", blocks of {} × {}", size(0), size(1));
    return out;
}

QuantizedConfig read_bitsandbytes(const Section& section) {
    const bool is_4bit = section.boolean("load_in_4bit", section.boolean("_load_in_4bit", false));
    const bool is_8bit = section.boolean("load_in_8bit", section.boolean("_load_in_8bit", false));
    if (is_4bit == is_8bit) section.refuse("load_in_4bit", "one of load_in_4bit and load_in_8bit must be true");
    const Json* const parameters = section.find("target_parameters");
    require(section, "target_parameters", parameters == nullptr || says_nothing(*parameters), "modules with a weight each");
    if (is_8bit) {
        require(section, "llm_int8_has_fp16_weight", !section.boolean("llm_int8_has_fp16_weight", false), "false");
        return {.format = CodeFormat::bitsandbytes_int8, .name = "bitsandbytes, 8 bits, one scale for each output", .bits = 8};
    }
    const std::string_view type = text_at(section, "bnb_4bit_quant_type", "fp4");
    require(section, "bnb_4bit_quant_type", type == "nf4" || type == "fp4", "nf4 and fp4");
    require(section, "bnb_4bit_quant_storage", text_at(section, "bnb_4bit_quant_storage", "uint8") == "uint8", "uint8");
    return {.format = CodeFormat::bitsandbytes_4bit,
            .name = fmt::format("bitsandbytes, {}{}", type,
                                section.boolean("bnb_4bit_use_double_quant", false) ? " with quantized scales" : ""),
            .bits = 4,
            .group_size = 64};
}

QuantizedConfig read_mxfp4(const Section&) {
    return {.format = CodeFormat::mxfp4, .name = "MXFP4, groups of 32", .bits = 4, .group_size = 32};
}

struct Method {
    std::string_view name;
    QuantizedConfig (*read)(const Section& section);
    std::span<const std::string_view> keys;  // read, or without a meaning for results
};

template <std::size_t First, std::size_t Second>
constexpr auto joined(const std::array<std::string_view, First>& first, const std::array<std::string_view, Second>& second) {
    std::array<std::string_view, First + Second> out{};
    std::ranges::copy(second, std::ranges::copy(first, out.begin()).out);
    return out;
}

constexpr std::array<std::string_view, 33> gptq_keys = {"quant_method",
                                                        "method",
                                                        "bits",
                                                        "group_size",
                                                        "checkpoint_format",
                                                        "format",
                                                        "pack_dtype",
                                                        "desc_act",
                                                        "sym",
                                                        "lm_head",
                                                        "modules_in_block_to_quantize",
                                                        "damp_percent",
                                                        "damp_auto_increment",
                                                        "static_groups",
                                                        "true_sequential",
                                                        "model_name_or_path",
                                                        "model_file_base_name",
                                                        "dataset",
                                                        "tokenizer",
                                                        "meta",
                                                        "exllama_config",
                                                        "use_exllama",
                                                        "disable_exllama",
                                                        "max_input_length",
                                                        "cache_block_outputs",
                                                        "batch_size",
                                                        "pad_token_id",
                                                        "block_name_to_quantize",
                                                        "module_name_preceding_first_block",
                                                        "backend",
                                                        "use_cuda_fp16",
                                                        "model_seqlen",
                                                        "act_group_aware"};
// The programs that write both say how they went about it in the same keys.
constexpr auto awq_keys =
    joined(gptq_keys, std::array<std::string_view, 9>{"w_bit", "q_group_size", "version", "zero_point", "modules_to_not_convert", "do_fuse",
                                                      "fuse_max_seq_len", "modules_to_fuse", "duo_scaling"});

constexpr std::array<std::string_view, 10> compressed_keys = {
    "quant_method",        "config_groups",   "format",  "global_compression_ratio", "ignore",
    "quantization_status", "sparsity_config", "version", "packed_modules_mapping",   "model_type"};
constexpr std::array<std::string_view, 10> fp8_keys = {
    "quant_method",   "fmt",       "weight_block_size", "activation_scheme", "modules_to_not_convert", "modules_to_convert",
    "ignored_layers", "scale_fmt", "expert_dtype",      "dequantize"};
constexpr std::array<std::string_view, 16> bitsandbytes_keys = {"quant_method",
                                                                "load_in_4bit",
                                                                "_load_in_4bit",
                                                                "load_in_8bit",
                                                                "_load_in_8bit",
                                                                "bnb_4bit_quant_type",
                                                                "bnb_4bit_quant_storage",
                                                                "bnb_4bit_use_double_quant",
                                                                "bnb_4bit_compute_dtype",
                                                                "llm_int8_has_fp16_weight",
                                                                "llm_int8_threshold",
                                                                "llm_int8_skip_modules",
                                                                "llm_int8_enable_fp32_cpu_offload",
                                                                "quant_storage",
                                                                "modules_to_not_convert",
                                                                "target_parameters"};

constexpr std::array<std::string_view, 3> mxfp4_keys = {"quant_method", "modules_to_not_convert", "dequantize"};

constexpr std::array methods = {
    Method{"gptq", read_gptq, gptq_keys},
    Method{"awq", read_awq, awq_keys},
    Method{"compressed-tensors", read_compressed, compressed_keys},
    Method{"fp8", read_fp8, fp8_keys},
    Method{"bitsandbytes", read_bitsandbytes, bitsandbytes_keys},
    Method{"mxfp4", read_mxfp4, mxfp4_keys},
};

// absent: the method if the section does not name one.
QuantizedConfig read_section(const Section& section, std::string_view absent) {
    const std::string_view name = text_at(section, "quant_method", absent);
    const auto* const method = std::ranges::find(methods, name, &Method::name);
    if (method == methods.end()) section.refuse("quant_method", fmt::format("supported: {}; {}", names_in(methods), use_another));
    require(section, "kv_cache_scheme", section.find("kv_cache_scheme") == nullptr,
            "null, as scales for keys and values are not used (--kv-dtype int8 stores these in 8 bits)");
    QuantizedConfig out = method->read(section);
    refuse_others(section, method->keys);
    return out;
}

struct QuantizedKey {
    const char* name;
    std::string_view absent;
};
// compression_config is the older name of what compressed-tensors writes.
constexpr std::array quantized_keys = {QuantizedKey{"quantization_config", ""}, QuantizedKey{"compression_config", "compressed-tensors"}};

}  // namespace

std::optional<QuantizedConfig> read_quantized_config(const Section& config) {
    for (const QuantizedKey& key : quantized_keys) {
        const Json* value = config.find(key.name);
        if (value != nullptr) return read_section(Section(*value, config.file(), key.name), key.absent);
    }
    return std::nullopt;
}

}  // namespace lorry::engine
