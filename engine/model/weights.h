// Checkpoints in safetensors files: one file, or shards with an index. Files are mapped read-only, and every header is checked before data
// is read. Called by model loading, adapters (which share the parser) and `lorry check-model`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files.h"
#include "engine/model/module_names.h"
#include "kernels/backend.h"
#include "schema/check.h"

namespace lorry::engine {

// One tensor of a safetensors file.
struct Tensor {
    std::string name;
    std::string dtype;                      // as in the file: "BF16"
    std::optional<kernels::Format> format;  // set for the dtypes that weights may have
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // bytes [begin, end) of the file's data
    std::uint64_t end = 0;
    std::span<const std::byte> bytes;  // the data, if it was read; may be unaligned
};

// Checks a header's JSON text against `data_bytes` bytes of data as the format requires: known dtypes, spans that equal shape times dtype,
// no span beyond the data, no overlap, no hole, no duplicate name, no name of more than 512 bytes. Returns the tensors sorted by name and
// without bytes.
Expected<std::vector<Tensor>, std::string> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// The same for a whole file in memory, with bytes.
Expected<std::vector<Tensor>, std::string> parse_safetensors(std::span<const std::byte> file);

// The header's length from a file's first 8 bytes. An error if it is longer than the file or than 32 MiB.
inline constexpr std::size_t safetensors_length_bytes = 8;
Expected<std::uint64_t, std::string> safetensors_header_bytes(std::span<const std::byte> first, std::uint64_t file_bytes);

// The tensor of that name in a list sorted by name, or nullptr.
const Tensor* find_tensor(std::span<const Tensor> tensors, std::string_view name);

// Renames tensors that have the name prefixes of older files, which may come after `after`, and sorts them again.
void rename_tensors(std::vector<Tensor>& tensors, std::span<const Renamed> renamed, std::string_view after);

// Row `index` of a tensor of several, cut along its next size into equal parts of which this is one. Its name is the whole's.
Tensor part_of(const Tensor& whole, std::int64_t index, std::int64_t part, std::int64_t parts);

// How the scales of an expert's gate or up end that were cut from those of both: right if blocks end between the two.
inline constexpr const char* fused_scales_end = "fused_weight_scale_inv";

// Replaces the tensors that transformers 5 has for a mixture of experts, and their scales by blocks, by those that the names are of, and
// sorts them again.
void split_experts(std::vector<Tensor>& tensors, const ExpertNames& names);

// "[3, 4]", shortened for a message.
std::string shape_text(std::span<const std::int64_t> shape);

// The elements as float32. The tensor must have a format and bytes.
std::vector<float> to_float(const Tensor& tensor);
// Rows [first, first + count) of a tensor, with its name.
Tensor slice_rows(const Tensor& tensor, std::int64_t first, std::int64_t count);
// One row of a tensor of several.
std::vector<float> row_of(const Tensor& tensor, std::int64_t row);

// True if the shapes and the elements are equal, whatever the dtypes. The tensors must have bytes; false if one has no format.
bool equal_values(const Tensor& a, const Tensor& b);

// The number of the first element that is NaN or infinite; nullopt: all are finite. Elements are whole.
std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> elements, kernels::Format format);
// "[3, 17]": where that element of a tensor is.
std::string index_text(std::span<const std::int64_t> shape, std::uint64_t element);

// All weight files of a model folder. Constant after construction; any thread may read.
class Checkpoint {
public:
    // Throws std::runtime_error that names file, tensor and what to do: no safetensors file (pickles are refused), a broken header, a
    // missing shard, an index that disagrees with the shards.
    // Tensors whose names begin as an older version's get the names of today, and those with the weights of all experts are cut into
    // those of each.
    Checkpoint(const std::filesystem::path& folder, const ModuleNames& names) : Checkpoint(folder, names.renamed, names.experts) {}
    explicit Checkpoint(const std::filesystem::path& folder, std::span<const Renamed> renamed = {}, const ExpertNames* experts = nullptr);

    // The tensor of that name, with or without the prefix (such as "model.") that some files lack, and of norms also by the names that old
    // files have (LayerNorm.gamma and .beta for .weight and .bias); nullptr if there is none.
    const Tensor* find(std::string_view name, std::string_view prefix) const;
    const std::vector<Tensor>& tensors() const { return tensors_; }  // of all files, by name
    // The file that contains a tensor of this checkpoint.
    const std::string& file_of(const Tensor& tensor) const;
    // Throws std::runtime_error that names file, tensor and element if a number of this tensor is NaN or infinite. Reads all of it; the
    // tensor must have a format.
    void require_finite(const Tensor& tensor) const;
    // The same, then to_float().
    std::vector<float> finite_values(const Tensor& tensor) const;
    // Adds the headers and sizes of all files to the hash.
    void add_to(ContentHash& hash) const;
    void release_pages() const;  // see MappedFile

private:
    struct File {
        std::string path;
        std::unique_ptr<MappedFile> mapped;
    };
    void add_file(const std::filesystem::path& path);

    std::vector<File> files_;
    std::vector<Tensor> tensors_;
};

}  // namespace lorry::engine
