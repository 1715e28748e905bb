// Parses the safetensors format (8 bytes of header length, a JSON header, data without holes) and the index of sharded checkpoints.
#include "engine/model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstring>
#include <set>
#include <stdexcept>

#include "kernels/checkpoint_weights.h"
#include "schema/codec_error.h"
#include "schema/json.h"

namespace lorry::engine {
namespace {

using schema::Json;

// The format allows 100 MB. Headers of 100,000 tensors have about 17 MB, and values take up to 20 times their text in memory.
constexpr std::uint64_t header_bytes_max = std::uint64_t{32} << 20;
constexpr std::size_t name_bytes_max = 512;

struct Dtype {
    std::string_view name;
    std::uint64_t bits;
    std::optional<kernels::Format> format;
};
constexpr std::array dtypes = {
    Dtype{"F32", 32, kernels::Format::float32},
    Dtype{"F16", 16, kernels::Format::float16},
    Dtype{"BF16", 16, kernels::Format::bfloat16},
    // Part of the format; files may have unused tensors of these dtypes.
    Dtype{"F64", 64, {}},
    Dtype{"I64", 64, {}},
    Dtype{"U64", 64, {}},
    Dtype{"C64", 64, {}},
    Dtype{"I32", 32, {}},
    Dtype{"U32", 32, {}},
    Dtype{"I16", 16, {}},
    Dtype{"U16", 16, {}},
    Dtype{"I8", 8, {}},
    Dtype{"U8", 8, {}},
    Dtype{"BOOL", 8, {}},
    Dtype{"F8_E4M3", 8, {}},
    Dtype{"F8_E5M2", 8, {}},
    Dtype{"F8_E8M0", 8, {}},
    Dtype{"F6_E2M3", 6, {}},
    Dtype{"F6_E3M2", 6, {}},
    Dtype{"F4", 4, {}},
};

// A file's text, as a message shows it.
std::string shown(std::string_view text) { return schema::shortened(text, 200); }

// How many members the outermost object of a valid JSON text has; duplicate names count each time.
std::size_t count_members(std::string_view json) {
    std::size_t members = 0;
    int depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else {
            if (c == '"') in_string = true;
            if (c == '{' || c == '[') ++depth;
            if (c == '}' || c == ']') --depth;
            if (c == ':' && depth == 1) ++members;
        }
    }
    return members;
}

// Bytes of a tensor; nullopt if they overflow or are not a whole number.
std::optional<std::uint64_t> byte_size(std::span<const std::int64_t> shape, std::uint64_t bits) {
    std::uint64_t total = bits;
    for (const std::int64_t extent : shape) {
        if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) return std::nullopt;
    }
    if (total % 8 != 0) return std::nullopt;
    return total / 8;
}

Expected<Tensor, std::string> parse_entry(const std::string& name, const Json& entry, std::uint64_t data_bytes) {
    const auto fail = [&](const std::string& what) { return unexpected(fmt::format("tensor {}: {}", shown(name), what)); };
    if (name.size() > name_bytes_max)
        return fail(fmt::format("its name has {} bytes; at most {} are supported", name.size(), name_bytes_max));
    const Json* dtype = entry.find("dtype");
    const Json* shape = entry.find("shape");
    const Json* offsets = entry.find("data_offsets");
    if (dtype == nullptr || dtype->as_string() == nullptr || shape == nullptr || !shape->is_array() || offsets == nullptr ||
        !offsets->is_array() || offsets->as_array()->size() != 2) {
        return fail("needs dtype, shape and two data_offsets");
    }
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = *dtype->as_string();
    const auto* row = std::find_if(dtypes.begin(), dtypes.end(), [&](const Dtype& known) { return known.name == tensor.dtype; });
    if (row == dtypes.end()) return fail(fmt::format("dtype {} is unknown", shown(tensor.dtype)));
    tensor.format = row->format;
    for (const Json& extent : *shape->as_array()) {
        const auto value = extent.as_integer();
        if (!value || *value < 0) return fail(fmt::format("shape {} is not a list of sizes", shown(shape->dump())));
        tensor.shape.push_back(*value);
    }
    const auto begin = (*offsets->as_array())[0].as_integer();
    const auto end = (*offsets->as_array())[1].as_integer();
    if (!begin || !end || *begin < 0 || *end < *begin || static_cast<std::uint64_t>(*end) > data_bytes) {
        return fail(fmt::format("data_offsets {} are outside the file's {} bytes of data", shown(offsets->dump()), data_bytes));
    }
    tensor.begin = static_cast<std::uint64_t>(*begin);
    tensor.end = static_cast<std::uint64_t>(*end);
    const auto expected = byte_size(tensor.shape, row->bits);
    if (!expected || *expected != tensor.end - tensor.begin) {
        return fail(
            fmt::format("shape {} of {} does not fill data_offsets {}", shown(shape->dump()), tensor.dtype, shown(offsets->dump())));
    }
    return tensor;
}

// True if no element has all exponent bits set, as NaN and infinities have (IEEE 754). Takes as many at once as a cache line has, for
// which compilers use vector instructions.
template <typename Bits>
bool has_finite_exponents(std::span<const std::byte> bytes, Bits exponent) {
    using Line = std::array<Bits, 64 / sizeof(Bits)>;
    Line found{};
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Line)) {
        Line line{};
        if (bytes.size() - at >= sizeof line) {
            std::memcpy(line.data(), bytes.data() + at, sizeof line);
        } else {
            std::memcpy(line.data(), bytes.data() + at, bytes.size() - at);
        }
        for (std::size_t i = 0; i < line.size(); ++i)
            found[i] = static_cast<Bits>(found[i] | static_cast<Bits>((line[i] & exponent) == exponent));
    }
    return std::ranges::all_of(found, [](Bits one) { return one == 0; });
}

template <typename Bits>
std::optional<std::uint64_t> first_without_finite_exponent(std::span<const std::byte> bytes, Bits exponent) {
    if (has_finite_exponents(bytes, exponent)) return std::nullopt;
    std::size_t at = 0;
    while (has_finite_exponents(bytes.subspan(at, sizeof(Bits)), exponent)) at += sizeof(Bits);
    return at / sizeof(Bits);
}

}  // namespace

Expected<std::vector<Tensor>, std::string> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
    const auto root = Json::parse(json);
    if (!root) return unexpected("header is not JSON: " + root.error());
    const Json::Object* members = root->as_object();
    if (members == nullptr) return unexpected(fmt::format("header is not a JSON object but {}", root->kind()));
    // The parsed object keeps only the last of duplicate names, so they are counted in the text.
    if (count_members(json) != members->size()) return unexpected(std::string("header names a tensor twice"));

    std::vector<Tensor> tensors;
    for (const auto& [name, entry] : *members) {
        if (name == "__metadata__") continue;
        auto tensor = parse_entry(name, entry, data_bytes);
        if (!tensor) return unexpected(std::move(tensor.error()));
        tensors.push_back(std::move(*tensor));
    }
    // The tensors must cover all of the data without overlap.
    std::sort(tensors.begin(), tensors.end(),
              [](const Tensor& a, const Tensor& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t covered = 0;
    for (const Tensor& tensor : tensors) {
        if (tensor.begin < covered) return unexpected(fmt::format("tensor {}: overlaps the tensor before it", shown(tensor.name)));
        if (tensor.begin > covered)
            return unexpected(fmt::format("tensor {}: {} unused bytes before it", shown(tensor.name), tensor.begin - covered));
        covered = tensor.end;
    }
    if (covered != data_bytes) return unexpected(fmt::format("{} bytes at the end of the file belong to no tensor", data_bytes - covered));
    std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
    return tensors;
}

Expected<std::uint64_t, std::string> safetensors_header_bytes(std::span<const std::byte> first, std::uint64_t file_bytes) {
    if (file_bytes < safetensors_length_bytes) return unexpected(fmt::format("{} bytes are too short for a safetensors file", file_bytes));
    CHECK(first.size() >= safetensors_length_bytes, "the length's bytes were read");
    std::uint64_t length = 0;
    for (std::size_t i = safetensors_length_bytes; i-- > 0;) length = (length << 8U) | static_cast<std::uint64_t>(first[i]);
    if (length > file_bytes - safetensors_length_bytes) {
        return unexpected(
            fmt::format("header of {} bytes does not fit into a file of {} bytes: truncated, or not safetensors", length, file_bytes));
    }
    if (length > header_bytes_max) {
        return unexpected(fmt::format("header has {} bytes; at most {} are supported: split the file", length, header_bytes_max));
    }
    return length;
}

Expected<std::vector<Tensor>, std::string> parse_safetensors(std::span<const std::byte> file) {
    const auto length = safetensors_header_bytes(file, file.size());
    if (!length) return unexpected(length.error());
    const auto header = file.subspan(safetensors_length_bytes, *length);
    const auto data = file.subspan(safetensors_length_bytes + *length);
    auto tensors = parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()}, data.size());
    if (tensors) {
        for (Tensor& tensor : *tensors) tensor.bytes = data.subspan(tensor.begin, tensor.end - tensor.begin);
    }
    return tensors;
}

const Tensor* find_tensor(std::span<const Tensor> tensors, std::string_view name) {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                        [](const Tensor& tensor, std::string_view key) { return tensor.name < key; });
    return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::string shape_text(std::span<const std::int64_t> shape) { return shown(fmt::format("[{}]", fmt::join(shape, ", "))); }

std::vector<float> to_float(const Tensor& tensor) {
    CHECK(tensor.format.has_value(), "only float tensors are converted");
    std::vector<float> out(tensor.bytes.size() / kernels::bytes_of(*tensor.format));
    const std::byte* from = tensor.bytes.data();
    if (*tensor.format == kernels::Format::float32) {
        if (!out.empty()) std::memcpy(out.data(), from, tensor.bytes.size());
        return out;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from + 2 * i, 2);
        out[i] = *tensor.format == kernels::Format::float16 ? kernels::from_float16(bits) : kernels::from_bfloat16(bits);
    }
    return out;
}

Tensor slice_rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
    const std::size_t bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape.front());
    Tensor part = tensor;
    part.shape.front() = count;
    part.bytes = tensor.bytes.subspan(static_cast<std::size_t>(first) * bytes, static_cast<std::size_t>(count) * bytes);
    return part;
}

std::vector<float> row_of(const Tensor& tensor, std::int64_t row) { return to_float(slice_rows(tensor, row, 1)); }

bool equal_values(const Tensor& a, const Tensor& b) {
    if (a.shape != b.shape || !a.format || !b.format) return false;
    if (a.format == b.format && std::ranges::equal(a.bytes, b.bytes)) return true;  // almost always
    constexpr std::size_t chunk = 1 << 16;  // elements; a whole embedding as floats would take gigabytes
    const auto floats_at = [](const Tensor& tensor, std::size_t begin) {
        const std::size_t element = kernels::bytes_of(*tensor.format);
        Tensor part;
        part.format = tensor.format;
        part.bytes = tensor.bytes.subspan(begin * element, std::min(chunk * element, tensor.bytes.size() - begin * element));
        return to_float(part);
    };
    const std::size_t elements = a.bytes.size() / kernels::bytes_of(*a.format);
    for (std::size_t begin = 0; begin < elements; begin += chunk) {
        if (floats_at(a, begin) != floats_at(b, begin)) return false;
    }
    return true;
}

std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> elements, kernels::Format format) {
    switch (format) {
        case kernels::Format::float32: return first_without_finite_exponent<std::uint32_t>(elements, 0x7F80'0000U);
        case kernels::Format::float16: return first_without_finite_exponent<std::uint16_t>(elements, 0x7C00U);
        case kernels::Format::bfloat16: return first_without_finite_exponent<std::uint16_t>(elements, 0x7F80U);
        case kernels::Format::int8_rows:
        case kernels::Format::fp8_rows: break;
    }
    CHECK(false, "a checkpoint's tensors are floating-point numbers");
    return std::nullopt;
}

std::string index_text(std::span<const std::int64_t> shape, std::uint64_t element) {
    std::vector<std::uint64_t> index(shape.size());
    for (std::size_t i = shape.size(); i-- > 0;) {
        const auto extent = static_cast<std::uint64_t>(shape[i]);
        index[i] = element % extent;
        element /= extent;
    }
    return fmt::format("[{}]", fmt::join(index, ", "));
}

void rename_tensors(std::vector<Tensor>& tensors, std::span<const Renamed> renamed, std::string_view after) {
    if (renamed.empty()) return;
    for (Tensor& tensor : tensors) {
        if (!tensor.name.starts_with(after)) continue;
        const std::string_view rest = std::string_view(tensor.name).substr(after.size());
        const auto found = std::ranges::find_if(renamed, [&](const Renamed& one) { return rest.starts_with(one.from); });
        if (found == renamed.end()) continue;
        tensor.name = std::string(after) + found->to + std::string(rest.substr(std::string_view(found->from).size()));
    }
    std::ranges::sort(tensors, {}, &Tensor::name);
}

Tensor part_of(const Tensor& whole, std::int64_t index, std::int64_t part, std::int64_t parts) {
    Tensor out = whole;
    out.shape.erase(out.shape.begin());
    out.shape.front() /= parts;
    const std::uint64_t bytes = (whole.end - whole.begin) / static_cast<std::uint64_t>(whole.shape.front() * parts);
    const std::uint64_t offset = static_cast<std::uint64_t>(index * parts + part) * bytes;
    out.begin += offset;
    out.end = out.begin + bytes;
    if (!whole.bytes.empty()) out.bytes = whole.bytes.subspan(offset, bytes);
    return out;
}

namespace {

// GPT-OSS: LIST.gate_up_proj [experts, in, out] and LIST.gate_up_proj_bias become LIST.EXPERT.gate_up_proj.weight and .bias; so does down,
// and so do the codes and scales of MXFP4, which are by outputs.
struct ExpertTensor {
    const char* end;
    std::size_t sizes;
    const char* name;  // of an expert's
};
constexpr std::array alternating_tensors = {ExpertTensor{"", 3, "weight"}, ExpertTensor{"_bias", 2, "bias"},
                                            ExpertTensor{"_blocks", 4, "weight_blocks"}, ExpertTensor{"_scales", 3, "weight_scales"}};

void split_alternating(Tensor tensor, const std::string& list, std::string_view rest, std::vector<Tensor>& out) {
    for (const char* module : {"gate_up_proj", "down_proj"}) {
        const auto* const found = std::ranges::find_if(alternating_tensors, [&](const ExpertTensor& one) {
            return rest == fmt::format("experts.{}{}", module, one.end) && tensor.shape.size() == one.sizes;
        });
        if (found == alternating_tensors.end() || tensor.begin == tensor.end || tensor.shape[0] > experts_max) continue;
        for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
            out.push_back(part_of(tensor, expert, 0, 1));
            out.back().name = fmt::format("{}.{}.{}.{}", list, expert, module, found->name);
        }
        return;
    }
    out.push_back(std::move(tensor));
}

// Of other families: experts.gate_up_proj [experts, 2 · out, in] and experts.down_proj, and their scales by blocks.
struct FusedTensor {
    std::string_view rest;  // after the layer
    bool is_gate_up;
    bool are_scales;
    const char* name;  // of an expert's
};
constexpr std::array fused_tensors = {
    FusedTensor{"experts.gate_up_proj", true, false, "weight"}, FusedTensor{"experts.gate_up_proj_scale_inv", true, true, fused_scales_end},
    FusedTensor{"experts.down_proj", false, false, "weight"}, FusedTensor{"experts.down_proj_scale_inv", false, true, "weight_scale_inv"}};

}  // namespace

void split_experts(std::vector<Tensor>& tensors, const ExpertNames& names) {
    const std::string newer = fmt::format(".{}.", names.newer);
    std::vector<Tensor> out;
    for (Tensor& tensor : tensors) {
        const std::size_t at = tensor.name.rfind(newer);
        const std::string start = at == tensor.name.npos ? "" : tensor.name.substr(0, at + 1);
        const std::string rest = at == tensor.name.npos ? "" : tensor.name.substr(at + newer.size());
        if (names.alternates) {
            split_alternating(std::move(tensor), start + names.list, rest, out);
            continue;
        }
        if (rest == "gate.weight") tensor.name = fmt::format("{}{}.weight", start, names.router);
        const auto* const found = std::ranges::find(fused_tensors, rest, &FusedTensor::rest);
        if (found == fused_tensors.end() || tensor.shape.size() != 3 || tensor.begin == tensor.end || tensor.shape[0] > experts_max ||
            (found->is_gate_up && !found->are_scales && tensor.shape[1] % 2 != 0)) {
            out.push_back(std::move(tensor));
            continue;
        }
        const std::int64_t modules = found->is_gate_up ? 2 : 1;
        // Scales that cannot be halved are refused by those who know the blocks.
        const std::int64_t parts = tensor.shape[1] % modules == 0 ? modules : 1;
        for (std::int64_t i = 0; i < tensor.shape[0] * modules; ++i) {
            const char* const name = found->is_gate_up ? names.gate_up[static_cast<std::size_t>(i % 2)] : names.down;
            out.push_back(part_of(tensor, i / modules, i % parts, parts));
            out.back().name = fmt::format("{}{}.{}.{}.{}", start, names.list, i / modules, name, found->name);
        }
    }
    tensors = std::move(out);
    std::ranges::sort(tensors, {}, &Tensor::name);
}

Checkpoint::Checkpoint(const std::filesystem::path& folder, std::span<const Renamed> renamed, const ExpertNames* experts) {
    const auto single = folder / "model.safetensors";
    const auto index_file = folder / "model.safetensors.index.json";
    if (std::filesystem::exists(single)) {
        add_file(single);
    } else if (std::filesystem::exists(index_file)) {
        const auto text = read_text(index_file);
        if (!text) throw std::runtime_error(text.error());
        const auto index = Json::parse(*text);
        const Json* map = index ? index->find("weight_map") : nullptr;
        if (map == nullptr || !map->is_object())
            throw std::runtime_error(
                fmt::format("{}: weight_map is missing or not an object; take the file of the original model", index_file.string()));
        std::set<std::string> shards;
        for (const auto& [name, shard] : *map->as_object()) {
            const std::string* file = shard.as_string();
            if (file == nullptr || file->empty() || file->size() > NAME_MAX || std::filesystem::path(*file).filename() != *file) {
                throw std::runtime_error(
                    fmt::format("{}: weight_map.{} = {} is not a file name", index_file.string(), shown(name), shown(shard.dump())));
            }
            shards.insert(*file);
        }
        for (const std::string& shard : shards) add_file(folder / shard);
        std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
        for (std::size_t i = 1; i < tensors_.size(); ++i) {
            if (tensors_[i - 1].name != tensors_[i].name) continue;
            throw std::runtime_error(
                fmt::format("{}: tensor {} is in {}, too", file_of(tensors_[i]), tensors_[i].name, file_of(tensors_[i - 1])));
        }
        for (const auto& [name, shard] : *map->as_object()) {
            if (find_tensor(tensors_, name) != nullptr) continue;
            throw std::runtime_error(fmt::format("{}: tensor {} is missing, but {} lists it in this file; fetch the file again",
                                                 (folder / *shard.as_string()).string(), shown(name), index_file.filename().string()));
        }
    } else {
        for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt"}) {
            if (!std::filesystem::exists(folder / pickle)) continue;
            throw std::runtime_error(
                fmt::format("{}: pickled weights are not supported, because reading them runs code from the file; convert them "
                            "with transformers: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                            (folder / pickle).string()));
        }
        // Older quantized models have names of their own.
        std::vector<std::filesystem::path> others;
        std::error_code unreadable;
        for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
            if (entry.path().extension() == ".safetensors") others.push_back(entry.path());
        }
        const std::string name = others.size() == 1 ? others[0].filename().string() : "";
        if (!name.empty() && name != "adapter_model.safetensors" && name.find("-of-") == std::string::npos) {
            throw std::runtime_error(fmt::format(
                "{}: weights are read from model.safetensors; if these are all of the model's, rename the file", others[0].string()));
        }
        throw std::runtime_error(fmt::format(
            "{}: the folder has neither model.safetensors nor model.safetensors.index.json; fetch the model's weights", folder.string()));
    }
    rename_tensors(tensors_, renamed, "");
    if (experts != nullptr) split_experts(tensors_, *experts);
    const auto twice = std::ranges::adjacent_find(tensors_, {}, &Tensor::name);
    if (twice == tensors_.end()) return;
    throw std::runtime_error(
        fmt::format("{}: tensor {} is there twice, by its name of today and an older one", file_of(*twice), twice->name));
}

void Checkpoint::add_file(const std::filesystem::path& path) {
    auto mapped = std::make_unique<MappedFile>(path);
    auto tensors = parse_safetensors(mapped->bytes());
    if (!tensors) throw std::runtime_error(fmt::format("{}: {}", path.string(), tensors.error()));
    std::move(tensors->begin(), tensors->end(), std::back_inserter(tensors_));
    files_.push_back({path.string(), std::move(mapped)});
}

const Tensor* Checkpoint::find(std::string_view name, std::string_view prefix) const {
    const Tensor* tensor = find_tensor(tensors_, name);
    if (tensor == nullptr && name.starts_with(prefix)) tensor = find_tensor(tensors_, name.substr(prefix.size()));
    if (tensor != nullptr) return tensor;
    constexpr std::array old_ends = {std::pair("LayerNorm.weight", "gamma"), std::pair("LayerNorm.bias", "beta")};
    for (const auto& [end, old] : old_ends) {
        if (name.ends_with(end)) return find(std::string(name.substr(0, name.rfind('.') + 1)) + old, prefix);
    }
    return nullptr;
}

const std::string& Checkpoint::file_of(const Tensor& tensor) const {
    for (const File& file : files_) {
        const auto bytes = file.mapped->bytes();
        // std::less_equal is a total order even for pointers into different mappings.
        const std::less_equal<const std::byte*> not_after;
        if (not_after(bytes.data(), tensor.bytes.data()) && not_after(tensor.bytes.data(), bytes.data() + bytes.size())) return file.path;
    }
    CHECK(false, "a tensor of this checkpoint is in one of its files");
}

void Checkpoint::require_finite(const Tensor& tensor) const {
    CHECK(tensor.format.has_value(), "only float tensors are finite or not");
    const auto element = first_not_finite(tensor.bytes, *tensor.format);
    if (!element) return;
    throw std::runtime_error(
        fmt::format("{}: tensor {} is NaN or infinite at {}: the weights are damaged; fetch the file again, or "
                    "quantize or train the model again",
                    file_of(tensor), tensor.name, index_text(tensor.shape, *element)));
}

std::vector<float> Checkpoint::finite_values(const Tensor& tensor) const {
    require_finite(tensor);
    return to_float(tensor);
}

void Checkpoint::add_to(ContentHash& hash) const {
    for (const File& file : files_) {
        const auto bytes = file.mapped->bytes();
        const auto header = safetensors_header_bytes(bytes, bytes.size());
        CHECK(header.has_value(), "the header was checked when the file was opened");
        hash.add_text(std::to_string(bytes.size()));
        hash.add(bytes.first(safetensors_length_bytes + *header));
    }
}

void Checkpoint::release_pages() const {
    for (const File& file : files_) file.mapped->release_pages();
}

}  // namespace lorry::engine
