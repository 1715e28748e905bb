// One reader for each format of codes; see coded_tensors.h.
#include "engine/model/coded_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "engine/model/config_section.h"
#include "kernels/checkpoint_weights.h"
#include "schema/json.h"

namespace lorry::engine {
namespace {

using kernels::CodeKind;

template <class Value>
Value value_at(const Tensor& tensor, std::int64_t index) {
    Value value;
    std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
}

// A module's own tensors, by the ends of their names.
class ModuleTensors {
public:
    ModuleTensors(const CodedSource& source, const std::string& path) : source_(source), path_(path) {}

    const Tensor* find(const std::string& end) const { return source_.checkpoint.find(path_ + "." + end, source_.prefix); }

    // The tensor with a dtype of these, in the given shape; empty dtypes: those of floating-point numbers.
    const Tensor& need(const std::string& end, std::span<const std::string_view> dtypes, const std::vector<std::int64_t>& shape) const {
        const Tensor* const tensor = find(end);
        if (tensor == nullptr) {
            throw std::runtime_error(fmt::format("tensor {}.{} {} is missing in the checkpoint; quantization_config requires it ({})",
                                                 path_, end, shape_text(shape), source_.config.name));
        }
        const bool has_dtype = dtypes.empty() ? tensor->format.has_value() : std::ranges::find(dtypes, tensor->dtype) != dtypes.end();
        if (has_dtype && tensor->shape == shape) return *tensor;
        fail(*tensor,
             fmt::format("is {} {}, but quantization_config requires {} {} ({})", tensor->dtype, shape_text(tensor->shape),
                         dtypes.empty() ? "F16, BF16 or F32" : std::string(dtypes.front()), shape_text(shape), source_.config.name));
    }
    [[noreturn]] void fail(const Tensor& tensor, const std::string& what) const {
        throw std::runtime_error(fmt::format("{}: tensor {} {}", source_.checkpoint.file_of(tensor), tensor.name, what));
    }

private:
    const CodedSource& source_;
    const std::string& path_;
};

constexpr std::array<std::string_view, 2> words = {"I32", "U32"};

std::int64_t groups_of(std::int64_t in_features, const std::optional<std::int64_t>& size) {
    return size ? (in_features + *size - 1) / *size : 1;
}

// Backends keep what is exact in 16 bits in 16 bits.
std::int64_t scale_bytes_of(const Tensor& scales) { return scales.format == kernels::Format::float32 ? 4 : 2; }

// The groups of inputs, if there is such a tensor. Backends keep scales in float32 if the groups are not in order.
void add_order(const ModuleTensors& tensors, const char* end, bool is_needed, CodedModule& module) {
    if (!is_needed && tensors.find(end) == nullptr) return;
    const Tensor& order = tensors.need(end, words, {module.in_features});
    module.tensors.push_back(&order);
    for (std::int64_t i = 1; i < module.in_features; ++i) {
        if (value_at<std::int32_t>(order, i) < value_at<std::int32_t>(order, i - 1)) module.scale_bytes = 4;
    }
}

void number_groups(CodedWeight& weight, std::int64_t in_features, const std::optional<std::int64_t>& size) {
    weight.group_of.resize(static_cast<std::size_t>(in_features));
    for (std::int64_t i = 0; i < in_features; ++i)
        weight.group_of[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(size ? i / *size : 0);
}

// Takes the groups of inputs from the file.
void read_groups(const ModuleTensors& tensors, const Tensor& tensor, std::int64_t groups, CodedWeight& weight) {
    for (std::size_t i = 0; i < weight.group_of.size(); ++i) {
        const auto group = value_at<std::int32_t>(tensor, static_cast<std::int64_t>(i));
        if (group < 0 || group >= groups)
            tensors.fail(tensor, fmt::format("names group {}, but there are {}; fetch the file again", group, groups));
        weight.group_of[i] = group;
    }
}

// Codes from 0 become what `kind` means: 8 bits are stored as integers less 128, from which zero points are less 128, too.
struct Unsigned {
    std::int64_t bits;
    CodeKind kind() const { return bits == 4 ? CodeKind::table : CodeKind::integer; }
    std::int64_t per_word() const { return 32 / bits; }
    std::uint32_t mask() const { return (1U << bits) - 1; }
    // The codes of a word, the lowest bits first, each in a byte, to `count` bytes.
    void unpack(std::uint32_t word, std::uint8_t* to, std::int64_t count) const {
        std::uint64_t bytes = bits == 8 ? word ^ 0x8080'8080U : word;
        if (bits == 4) {
            bytes = (bytes | bytes << 16U) & 0x0000'FFFF'0000'FFFFU;
            bytes = (bytes | bytes << 8U) & 0x00FF'00FF'00FF'00FFU;
            bytes = (bytes | bytes << 4U) & 0x0F0F'0F0F'0F0F'0F0FU;
        }
        if (count == sizeof bytes) {  // one store
            std::memcpy(to, &bytes, sizeof bytes);
        } else {
            std::memcpy(to, &bytes, static_cast<std::size_t>(count));
        }
    }
    std::int8_t zero(std::uint32_t value) const { return static_cast<std::int8_t>(static_cast<int>(value) - (bits == 4 ? 0 : 128)); }
    static std::array<float, 16> table() {
        std::array<float, 16> out{};
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
        return out;
    }
};

// Scales stored [groups, out].
void read_scales_by_group(const CodedSource& source, const Tensor& tensor, std::int64_t groups, std::int64_t out_features,
                          CodedWeight& weight) {
    const std::vector<float> stored = source.checkpoint.finite_values(tensor);
    weight.scales.resize(stored.size());
    for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t o = 0; o < out_features; ++o)
            weight.scales[static_cast<std::size_t>(o * groups + g)] = stored[static_cast<std::size_t>(g * out_features + o)];
    }
}

// Codes are packed along the inputs, zero points along the outputs, the lowest bits first.
void find_gptq(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const std::int64_t per_word = Unsigned{source.config.bits}.per_word();
    const std::int64_t groups = groups_of(module.in_features, source.config.group_size);
    module.tensors = {&tensors.need("qweight", words, {(module.in_features + per_word - 1) / per_word, module.out_features}),
                      &tensors.need("scales", {}, {groups, module.out_features}),
                      &tensors.need("qzeros", words, {groups, (module.out_features + per_word - 1) / per_word})};
    module.scale_bytes = scale_bytes_of(*module.tensors[1]);
    add_order(tensors, "g_idx", source.config.has_order && groups > 1, module);
}

void read_gptq(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    const Unsigned codes{source.config.bits};
    const std::int64_t outputs = module.out_features;
    const std::int64_t inputs = module.in_features;
    const std::int64_t groups = groups_of(inputs, source.config.group_size);
    const std::int64_t per_word = codes.per_word();
    number_groups(weight, inputs, source.config.group_size);
    if (module.tensors.size() == 4) read_groups(tensors, *module.tensors[3], groups, weight);
    // The words of a cache line at a time, so that rows of codes are written from their first to their last.
    constexpr std::int64_t together = 16;
    for (std::int64_t first = 0; first < outputs; first += together) {
        for (std::int64_t begin = 0; begin < inputs; begin += per_word) {
            for (std::int64_t o = first; o < std::min(first + together, outputs); ++o) {
                codes.unpack(value_at<std::uint32_t>(*module.tensors[0], begin / per_word * outputs + o),
                             weight.codes.data() + o * inputs + begin, std::min(per_word, inputs - begin));
            }
        }
    }
    read_scales_by_group(source, *module.tensors[1], groups, outputs, weight);
    weight.zeros.resize(weight.scales.size());
    const std::int64_t words_of_group = (outputs + per_word - 1) / per_word;
    for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t o = 0; o < outputs; ++o) {
            const auto word = value_at<std::uint32_t>(*module.tensors[2], g * words_of_group + o / per_word);
            const std::uint32_t stored = word >> (o % per_word * codes.bits) & codes.mask();
            weight.zeros[static_cast<std::size_t>(o * groups + g)] =
                codes.zero((stored + (source.config.zeros_less_one ? 1U : 0U)) & codes.mask());
        }
    }
}

// Codes and zero points are packed along the outputs; of each eight, those with even numbers come first.
constexpr std::array<std::int64_t, 8> awq_order = {0, 2, 4, 6, 1, 3, 5, 7};

void find_awq(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const std::int64_t groups = groups_of(module.in_features, source.config.group_size);
    if (module.out_features % 8 != 0) {
        throw std::runtime_error(fmt::format("{}: AWQ packs 8 outputs in a word, and this module has {}; use the full-precision checkpoint",
                                             module.path, module.out_features));
    }
    module.tensors = {&tensors.need("qweight", words, {module.in_features, module.out_features / 8}),
                      &tensors.need("scales", {}, {groups, module.out_features})};
    module.scale_bytes = scale_bytes_of(*module.tensors[1]);
    // Programs that write zero points although the config says that there are none mean them.
    if (source.config.has_zeros || tensors.find("qzeros") != nullptr)
        module.tensors.push_back(&tensors.need("qzeros", words, {groups, module.out_features / 8}));
}

void read_awq(const CodedSource& source, const ModuleTensors&, const CodedModule& module, CodedWeight& weight) {
    const std::int64_t outputs = module.out_features;
    const std::int64_t inputs = module.in_features;
    const std::int64_t groups = groups_of(inputs, source.config.group_size);
    number_groups(weight, inputs, source.config.group_size);
    // Eight outputs at a time, so that rows of codes are written from their first to their last.
    const auto each = [&](const Tensor& tensor, std::int64_t rows, const auto& take) {
        for (std::int64_t eight = 0; eight < outputs / 8; ++eight) {
            for (std::int64_t row = 0; row < rows; ++row) {
                auto word = value_at<std::uint32_t>(tensor, row * (outputs / 8) + eight);
                for (const std::int64_t o : awq_order) {
                    take(row, eight * 8 + o, word & 0xFU);
                    word >>= 4;
                }
            }
        }
    };
    each(*module.tensors[0], inputs, [&](std::int64_t i, std::int64_t o, std::uint32_t code) {
        weight.codes[static_cast<std::size_t>(o * inputs + i)] = static_cast<std::uint8_t>(code);
    });
    read_scales_by_group(source, *module.tensors[1], groups, outputs, weight);
    // Without zero points, codes are symmetric about 8.
    weight.zeros.assign(weight.scales.size(), 8);
    if (module.tensors.size() < 3) return;
    each(*module.tensors[2], groups, [&](std::int64_t g, std::int64_t o, std::uint32_t zero) {
        weight.zeros[static_cast<std::size_t>(o * groups + g)] = static_cast<std::int8_t>(zero);
    });
}

constexpr std::array<std::string_view, 1> floats8 = {"F8_E4M3"};
constexpr bool is_nan(std::uint8_t e4m3) { return (e4m3 & 0x7FU) == 0x7FU; }
constexpr std::array<std::string_view, 1> signed8 = {"I8"};
constexpr std::array<std::string_view, 1> unsigned8 = {"U8"};

std::int64_t blocks_of(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

// A tensor of scales in one of the shapes that they have: one, one for each output, for each group of an output, or for each block.
const Tensor& need_scales(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, const std::string& end) {
    const std::int64_t outputs = module.out_features;
    const std::int64_t inputs = module.in_features;
    if (const auto& block = source.config.block)
        return tensors.need(end, {}, {blocks_of(outputs, block->outputs), blocks_of(inputs, block->inputs)});
    const std::vector<std::int64_t> whole = {outputs, groups_of(inputs, source.config.group_size)};
    const Tensor* const found = tensors.find(end);
    if (found != nullptr && !source.config.group_size) {
        const auto& shape = found->shape;
        const std::vector<std::int64_t> one(shape.size(), 1);
        if (shape == one && shape.size() <= 2) return tensors.need(end, {}, one);
        if (shape == std::vector{outputs}) return tensors.need(end, {}, shape);
    }
    return tensors.need(end, {}, whole);
}

// Spreads scales to [out, groups], and numbers the groups.
void read_scales(const CodedSource& source, const CodedModule& module, const Tensor& tensor, CodedWeight& weight) {
    const std::vector<float> stored = source.checkpoint.finite_values(tensor);
    const std::int64_t outputs = module.out_features;
    const auto& block = source.config.block;
    const std::optional<std::int64_t> size = block ? std::optional(block->inputs) : source.config.group_size;
    const std::int64_t groups = groups_of(module.in_features, size);
    number_groups(weight, module.in_features, size);
    weight.scales.resize(static_cast<std::size_t>(outputs * groups));
    for (std::int64_t o = 0; o < outputs; ++o) {
        const std::int64_t row = stored.size() == 1 ? 0 : block ? o / block->outputs : o;
        for (std::int64_t g = 0; g < groups; ++g)
            weight.scales[static_cast<std::size_t>(o * groups + g)] =
                stored[static_cast<std::size_t>(stored.size() == 1 ? 0 : row * groups + g)];
    }
}

// compressed-tensors may say what the shape of the weight is.
void check_shape(const ModuleTensors& tensors, CodedModule& module) {
    constexpr std::array<std::string_view, 1> longs = {"I64"};
    if (tensors.find("weight_shape") == nullptr) return;
    const Tensor& stored = tensors.need("weight_shape", longs, {2});
    const std::array says = {value_at<std::int64_t>(stored, 0), value_at<std::int64_t>(stored, 1)};
    const std::array wanted = {module.out_features, module.in_features};
    module.tensors.push_back(&stored);
    if (says == wanted) return;
    tensors.fail(stored, fmt::format("says {}, but config.json requires {}; take both files from the same model", shape_text(says),
                                     shape_text(wanted)));
}

// compressed-tensors: where the config says that there are no zero points, those that are there must not change anything.
void check_no_zeros(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const Tensor* const zeros = source.config.has_zeros ? nullptr : tensors.find("weight_zero_point");
    if (zeros == nullptr) return;
    if (std::ranges::any_of(zeros->bytes, [](std::byte byte) { return byte != std::byte{0}; }))
        tensors.fail(*zeros, "has zero points other than 0, but quantization_config says symmetric = true; fetch both files again");
    module.tensors.push_back(zeros);
}

// compressed-tensors: codes are packed along the inputs, zero points along the outputs, both from 0.
void find_packed(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const std::int64_t per_word = Unsigned{source.config.bits}.per_word();
    const std::int64_t groups = groups_of(module.in_features, source.config.group_size);
    module.tensors = {&tensors.need("weight_packed", words, {module.out_features, blocks_of(module.in_features, per_word)}),
                      &need_scales(source, tensors, module, "weight_scale")};
    module.scale_bytes = scale_bytes_of(*module.tensors[1]);
    if (source.config.has_zeros)
        module.tensors.push_back(&tensors.need("weight_zero_point", words, {blocks_of(module.out_features, per_word), groups}));
    add_order(tensors, "weight_g_idx", source.config.has_order && groups > 1, module);
    check_shape(tensors, module);
    check_no_zeros(source, tensors, module);
}

void read_packed(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    const Unsigned codes{source.config.bits};
    const std::int64_t outputs = module.out_features;
    const std::int64_t inputs = module.in_features;
    const std::int64_t per_word = codes.per_word();
    const std::int64_t words_of_row = blocks_of(inputs, per_word);
    read_scales(source, module, *module.tensors[1], weight);
    for (std::int64_t o = 0; o < outputs; ++o) {
        for (std::int64_t begin = 0; begin < inputs; begin += per_word) {
            codes.unpack(value_at<std::uint32_t>(*module.tensors[0], o * words_of_row + begin / per_word),
                         weight.codes.data() + o * inputs + begin, std::min(per_word, inputs - begin));
        }
    }
    const std::int64_t groups = std::ssize(weight.scales) / outputs;
    // Without zero points, codes are symmetric about the middle.
    weight.zeros.assign(weight.scales.size(), codes.zero(1U << (codes.bits - 1)));
    if (source.config.has_zeros) {
        for (std::int64_t o = 0; o < outputs; ++o) {
            for (std::int64_t g = 0; g < groups; ++g) {
                const auto word = value_at<std::uint32_t>(*module.tensors[2], o / per_word * groups + g);
                weight.zeros[static_cast<std::size_t>(o * groups + g)] = codes.zero(word >> (o % per_word * codes.bits) & codes.mask());
            }
        }
    }
    if (const Tensor* const order = tensors.find("weight_g_idx"); order != nullptr) read_groups(tensors, *order, groups, weight);
}

// Codes in bytes of their own: integers, or floating-point numbers of 8 bits.
void find_bytes(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const bool is_float = source.config.format != CodeFormat::integers;
    // Both names mean what codes are multiplied by.
    const bool is_inverse = is_float && tensors.find("weight_scale") == nullptr &&
                            (source.config.format == CodeFormat::fp8_blocks || tensors.find("weight_scale_inv") != nullptr);
    const Tensor* const fused = tensors.find(fused_scales_end);
    if (fused != nullptr && (!source.config.block || module.out_features % source.config.block->outputs != 0)) {
        tensors.fail(*fused, fmt::format("was cut from scales that gate and up share, but their {} outputs are not whole blocks; use a "
                                         "checkpoint with tensors for each expert's modules",
                                         module.out_features));
    }
    const char* const scales = fused != nullptr ? fused_scales_end : is_inverse ? "weight_scale_inv" : "weight_scale";
    module.tensors = {&tensors.need("weight", is_float ? floats8 : signed8, {module.out_features, module.in_features}),
                      &need_scales(source, tensors, module, scales)};
    if (!source.config.rounds_inputs) module.scale_bytes = scale_bytes_of(*module.tensors[1]);
    check_no_zeros(source, tensors, module);
    const Tensor* const other = is_float ? tensors.find(is_inverse ? "weight_scale" : "weight_scale_inv") : nullptr;
    if (other != nullptr) {
        if (!equal_values(*other, *module.tensors[1]))
            tensors.fail(*other, fmt::format("differs from {}, which means the same; fetch the files again", module.tensors[1]->name));
        module.tensors.push_back(other);
    }
    // Scales for activations, which are not rounded.
    if (const Tensor* const inputs = tensors.find("input_scale"); inputs != nullptr) module.tensors.push_back(inputs);
}

void read_bytes(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    const Tensor& codes = *module.tensors[0];
    weight.part.kind = source.config.format == CodeFormat::integers ? CodeKind::integer : CodeKind::e4m3;
    std::memcpy(weight.codes.data(), codes.bytes.data(), weight.codes.size());
    if (weight.part.kind == CodeKind::e4m3 && std::ranges::any_of(weight.codes, is_nan))
        tensors.fail(codes, "has a weight that is not a number; fetch the file again");
    read_scales(source, module, *module.tensors[1], weight);
}

// bitsandbytes: what the JSON text in a tensor of bytes says about blocks of codes. Scales of blocks may be codes of 8 bits themselves.
struct BlockState {
    std::int64_t size = 0;
    std::int64_t nested_size = 0;
    float nested_offset = 0.0F;
};

const char* state_end(const ModuleTensors& tensors) {
    for (const char* end : {"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"}) {
        if (tensors.find(end) != nullptr) return end;
    }
    return "weight.quant_state.bitsandbytes__nf4";
}

BlockState read_state(const ModuleTensors& tensors, const CodedModule& module, const Tensor& tensor) {
    const auto json = schema::Json::parse({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    const auto integer = [&](const char* key) -> std::int64_t {
        const schema::Json* value = json ? json->find(key) : nullptr;
        return value == nullptr ? 0 : value->as_integer().value_or(0);
    };
    BlockState state{.size = integer("blocksize"), .nested_size = integer("nested_blocksize"), .nested_offset = 0.0F};
    const schema::Json* const shape = json ? json->find("shape") : nullptr;
    const auto* const sizes = shape == nullptr ? nullptr : shape->as_array();
    const bool fits = sizes != nullptr && sizes->size() == 2 && (*sizes)[0].as_integer() == module.out_features &&
                      (*sizes)[1].as_integer() == module.in_features;
    if (!fits || state.size <= 0 || state.size > size_max || state.nested_size < 0)
        tensors.fail(tensor,
                     fmt::format("must describe blocks of a weight {}", shape_text(std::vector{module.out_features, module.in_features})));
    // bitsandbytes finds a block by shifting the place of a weight, so it makes no other sizes, and would read others wrongly.
    for (const auto& [key, size] : {std::pair("blocksize", state.size), std::pair("nested_blocksize", state.nested_size)}) {
        if (size != 0 && !std::has_single_bit(static_cast<std::uint64_t>(size)))
            tensors.fail(tensor, fmt::format("has {} {}; bitsandbytes has powers of two only: quantize the model again", key, size));
    }
    if (const auto* offset = json->find("nested_offset"); offset != nullptr)
        state.nested_offset = static_cast<float>(offset->as_number().value_or(0.0));
    return state;
}

void find_blocks(const CodedSource&, const ModuleTensors& tensors, CodedModule& module) {
    const std::int64_t weights = module.out_features * module.in_features;
    const std::string end = state_end(tensors);
    const Tensor* const state_tensor = tensors.find(end);
    const Tensor& state_bytes = tensors.need(end, unsigned8, state_tensor == nullptr ? std::vector<std::int64_t>{} : state_tensor->shape);
    const BlockState state = read_state(tensors, module, state_bytes);
    const std::int64_t blocks = blocks_of(weights, state.size);
    const Tensor* const nested = tensors.find("weight.nested_absmax");
    if (nested != nullptr && (state.nested_size <= 0 || state.nested_size > size_max))
        tensors.fail(state_bytes, "must give nested_blocksize");
    module.tensors = {&tensors.need("weight", unsigned8, {blocks_of(weights, 2), 1}), &state_bytes,
                      &tensors.need("weight.quant_map", {}, {16})};
    if (nested == nullptr) {
        module.tensors.push_back(&tensors.need("weight.absmax", {}, {blocks}));
    } else {
        module.tensors.push_back(&tensors.need("weight.absmax", unsigned8, {blocks}));
        module.tensors.push_back(&tensors.need("weight.nested_absmax", {}, {blocks_of(blocks, state.nested_size)}));
        module.tensors.push_back(&tensors.need("weight.nested_quant_map", {}, {256}));
    }
}

std::vector<float> block_scales(const CodedSource& source, const BlockState& state, const CodedModule& module) {
    const Tensor& stored = *module.tensors[3];
    if (module.tensors.size() == 4) return source.checkpoint.finite_values(stored);
    const std::vector<float> largest = source.checkpoint.finite_values(*module.tensors[4]);
    const std::vector<float> map = source.checkpoint.finite_values(*module.tensors[5]);
    std::vector<float> out(stored.bytes.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
        const float product = map[static_cast<std::size_t>(stored.bytes[i])] * largest[i / static_cast<std::size_t>(state.nested_size)];
        out[i] = product + state.nested_offset;
    }
    return out;
}

// The blocks run over the whole weight. Where they do not end with a row, groups are the largest parts that none of them divides.
void read_blocks(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    const BlockState state = read_state(tensors, module, *module.tensors[1]);
    const std::vector<float> table = source.checkpoint.finite_values(*module.tensors[2]);
    std::ranges::copy(table, weight.part.table.begin());
    const std::vector<float> scales = block_scales(source, state, module);
    std::uint8_t* to = weight.codes.data();
    for (const std::byte byte : module.tensors[0]->bytes.first(weight.codes.size() / 2)) {
        const auto both = std::to_integer<std::uint8_t>(byte);
        *to++ = both >> 4U;
        *to++ = both & 0xFU;
    }
    if (weight.codes.size() % 2 == 1) *to = std::to_integer<std::uint8_t>(module.tensors[0]->bytes.back()) >> 4U;
    const std::int64_t size = std::gcd(module.in_features, state.size);
    number_groups(weight, module.in_features, size);
    weight.scales.resize(weight.codes.size() / static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < weight.scales.size(); ++i)
        weight.scales[i] = scales[i * static_cast<std::size_t>(size) / static_cast<std::size_t>(state.size)];
}

// A weight is SCB / 127 times its int8.
void find_int8(const CodedSource&, const ModuleTensors& tensors, CodedModule& module) {
    module.tensors = {&tensors.need("weight", signed8, {module.out_features, module.in_features}),
                      &tensors.need("SCB", {}, {module.out_features})};
    const Tensor* const layout = tensors.find("weight_format");
    if (layout == nullptr) return;
    if (layout->bytes.empty() || layout->bytes[0] != std::byte{0})
        tensors.fail(*layout, "names a layout other than rows, which is not supported");
    module.tensors.push_back(layout);
}

void read_int8(const CodedSource& source, const ModuleTensors&, const CodedModule& module, CodedWeight& weight) {
    weight.part.kind = CodeKind::integer;
    std::memcpy(weight.codes.data(), module.tensors[0]->bytes.data(), weight.codes.size());
    read_scales(source, module, *module.tensors[1], weight);
    for (float& scale : weight.scales) scale /= 127.0F;
}

// MXFP4: codes are floating-point numbers of 1 sign, 2 exponent and 1 fraction bits, two in a byte, the lower half first; a scale for 32 of
// them is a power of two, stored as its exponent plus 127.
constexpr std::array<float, 16> e2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

void find_floats4(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module) {
    const std::int64_t size = *source.config.group_size;
    const std::int64_t groups = module.in_features / size;
    if (module.in_features % size != 0)
        throw std::runtime_error(
            fmt::format("{}: the format ({}) has groups of {} inputs, and this module has {} inputs; use the full-precision checkpoint",
                        module.path, source.config.name, size, module.in_features));
    const bool is_nvidia = source.config.format == CodeFormat::nvfp4_packed;
    if (!is_nvidia) module.scale_bytes = 2;
    if (source.config.format == CodeFormat::mxfp4) {
        module.tensors = {&tensors.need("weight_blocks", unsigned8, {module.out_features, groups, size / 2}),
                          &tensors.need("weight_scales", unsigned8, {module.out_features, groups})};
        return;
    }
    // compressed-tensors has the same codes under other names. NVFP4's scales are e4m3, divided by one number for the whole tensor.
    module.tensors = {&tensors.need("weight_packed", unsigned8, {module.out_features, module.in_features / 2}),
                      &tensors.need("weight_scale", is_nvidia ? floats8 : unsigned8, {module.out_features, groups})};
    if (is_nvidia) module.tensors.push_back(&tensors.need("weight_global_scale", {}, {1}));
    check_no_zeros(source, tensors, module);
}

// The codes, and which group each input is in.
void read_e2m1(const CodedSource& source, const CodedModule& module, CodedWeight& weight) {
    weight.part.table = e2m1;
    std::uint8_t* to = weight.codes.data();
    for (const std::byte both : module.tensors[0]->bytes) {
        *to++ = static_cast<std::uint8_t>(both) & 0xFU;
        *to++ = static_cast<std::uint8_t>(both) >> 4U;
    }
    number_groups(weight, module.in_features, source.config.group_size);
}

void read_mxfp4(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    constexpr unsigned largest = 252;  // 6 · 2^125 is finite in float32; 255 means that a value is not a number
    read_e2m1(source, module, weight);
    for (const std::byte exponent : module.tensors[1]->bytes) {
        const auto stored = std::to_integer<unsigned>(exponent);
        if (stored > largest)
            tensors.fail(*module.tensors[1],
                         fmt::format("has the exponent {}, with which weights are not finite; fetch the file again", stored));
        weight.scales.push_back(std::ldexp(1.0F, static_cast<int>(stored) - 127));
    }
}

void read_nvfp4(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight) {
    read_e2m1(source, module, weight);
    const float whole = source.checkpoint.finite_values(*module.tensors[2]).front();
    for (const std::byte code : module.tensors[1]->bytes) {
        const auto stored = std::to_integer<std::uint8_t>(code);
        const float scale = kernels::from_e4m3(stored) / whole;
        if (is_nan(stored) || !std::isfinite(scale))
            tensors.fail(*module.tensors[1], fmt::format("has a scale that is not finite when divided by {}; fetch the file again", whole));
        weight.scales.push_back(scale);
    }
}

struct CodeReader {
    CodeFormat format;
    // The tensor of codes that a quantized module has.
    const char* codes;
    void (*find)(const CodedSource& source, const ModuleTensors& tensors, CodedModule& module);
    void (*read)(const CodedSource& source, const ModuleTensors& tensors, const CodedModule& module, CodedWeight& weight);
};
constexpr std::array readers = {
    CodeReader{CodeFormat::gptq, "qweight", find_gptq, read_gptq},
    CodeReader{CodeFormat::awq, "qweight", find_awq, read_awq},
    CodeReader{CodeFormat::packed_integers, "weight_packed", find_packed, read_packed},
    CodeReader{CodeFormat::integers, "weight", find_bytes, read_bytes},
    CodeReader{CodeFormat::fp8, "weight", find_bytes, read_bytes},
    CodeReader{CodeFormat::fp8_blocks, "weight", find_bytes, read_bytes},
    CodeReader{CodeFormat::bitsandbytes_int8, "weight", find_int8, read_int8},
    CodeReader{CodeFormat::bitsandbytes_4bit, "weight", find_blocks, read_blocks},
    CodeReader{CodeFormat::mxfp4, "weight_blocks", find_floats4, read_mxfp4},
    CodeReader{CodeFormat::mxfp4_packed, "weight_packed", find_floats4, read_mxfp4},
    CodeReader{CodeFormat::nvfp4_packed, "weight_packed", find_floats4, read_nvfp4},
};

const CodeReader& reader_of(CodeFormat format) {
    const auto* const row = std::ranges::find(readers, format, &CodeReader::format);
    CHECK(row != readers.end(), "every format of codes has a reader");
    return *row;
}

}  // namespace

std::optional<CodedModule> CodedSource::find(const std::string& path, std::int64_t out_features, std::int64_t in_features) const {
    const ModuleTensors tensors(*this, path);
    const CodeReader& reader = reader_of(config.format);
    const Tensor* const plain = tensors.find("weight");
    const Tensor* const codes = tensors.find(reader.codes);
    if (plain != nullptr && plain->format && (codes == nullptr || codes == plain)) return std::nullopt;
    CodedModule module{.path = path, .out_features = out_features, .in_features = in_features, .tensors = {}};
    reader.find(*this, tensors, module);
    return module;
}

std::unique_ptr<CodedWeight> read_codes(const CodedSource& source, const CodedModule& module) {
    auto weight = std::make_unique<CodedWeight>();
    weight->codes.resize(static_cast<std::size_t>(module.out_features * module.in_features));
    weight->part.kind = Unsigned{source.config.bits}.kind();
    weight->part.table = Unsigned::table();
    const ModuleTensors tensors(source, module.path);
    reader_of(source.config.format).read(source, tensors, module, *weight);
    kernels::CodedPart& part = weight->part;
    part.groups = std::ssize(weight->scales) / module.out_features;
    part.codes = weight->codes.data();
    part.scales = weight->scales.data();
    part.zeros = weight->zeros.empty() ? nullptr : weight->zeros.data();
    part.group_of = weight->group_of.data();
    part.rounds_inputs = source.config.rounds_inputs;
    return weight;
}

std::size_t coded_bytes(const QuantizedConfig& config, const CodedModule& module) {
    const std::int64_t weights = module.out_features * module.in_features;
    const std::int64_t inputs_of_group = config.block ? config.block->inputs : config.group_size.value_or(module.in_features);
    const std::int64_t group_bytes = module.scale_bytes + (config.has_zeros ? 1 : 0);
    return static_cast<std::size_t>(weights * config.bits / 8 +
                                    module.out_features * blocks_of(module.in_features, inputs_of_group) * group_bytes);
}

}  // namespace lorry::engine
