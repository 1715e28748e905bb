// Rewrites the MLP tensors of safetensors files.
#include "tests/support/widened.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model/weights.h"
#include "tests/support/temp_folder.h"

namespace lorry::tests {
namespace {

std::string widened(const std::string& file) {
    const auto tensors = engine::parse_safetensors(std::as_bytes(std::span(file)));
    if (!tensors) throw std::runtime_error(tensors.error());
    std::vector<std::string> entries;
    std::string data;
    for (const engine::Tensor& tensor : *tensors) {
        std::vector<std::int64_t> shape = tensor.shape;
        for (std::int64_t& size : shape) size = size == golden_intermediate ? widened_intermediate : size;
        const auto elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
        const auto element_bytes = tensor.bytes.size() / static_cast<std::size_t>(elements);
        const auto row_bytes = static_cast<std::size_t>(tensor.shape.back()) * element_bytes;
        const auto wide_row_bytes = static_cast<std::size_t>(shape.back()) * element_bytes;
        const auto rows = static_cast<std::size_t>(shape.size() == 2 ? shape.front() : 1);
        const std::size_t begin = data.size();
        data.resize(begin + rows * wide_row_bytes);
        for (std::size_t row = 0; row * row_bytes < tensor.bytes.size(); ++row) {
            std::memcpy(data.data() + begin + row * wide_row_bytes, tensor.bytes.data() + row * row_bytes, row_bytes);
        }
        entries.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name, tensor.dtype,
                                      fmt::join(shape, ","), begin, data.size()));
    }
    const std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
    const std::uint64_t header_bytes = header.size();
    std::string out(sizeof header_bytes, '\0');
    std::memcpy(out.data(), &header_bytes, sizeof header_bytes);
    return out + header + data;
}

}  // namespace

void copy_widened(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::filesystem::create_directories(to);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
        std::string content = read_whole(entry.path());
        if (entry.path().filename() == "model.safetensors" || entry.path().filename() == "adapter_model.safetensors") {
            content = widened(content);
        } else if (const std::string size = fmt::format("\"intermediate_size\": {}", golden_intermediate);
                   content.find(size) != std::string::npos) {
            content.replace(content.find(size), size.size(), fmt::format("\"intermediate_size\": {}", widened_intermediate));
        }
        write_text(to / entry.path().filename(), content);
    }
}

}  // namespace lorry::tests
