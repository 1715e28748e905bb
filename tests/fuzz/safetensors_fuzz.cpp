// A safetensors file. Accepted tensors cover the data without overlap, and each has the bytes that its shape and dtype say.
#include <vector>

#include "engine/model/weights.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::engine {
namespace {

void check_tensors(std::vector<Tensor> tensors, std::size_t data_bytes) {
    CHECK(std::ranges::is_sorted(tensors, {}, &Tensor::name), "tensors are sorted by name");
    for (const Tensor& tensor : tensors) {
        CHECK(find_tensor(tensors, tensor.name) == &tensor, "a name is found once");
        CHECK(tensor.bytes.size() == tensor.end - tensor.begin, "a tensor has all of its bytes");
        CHECK(equal_values(tensor, tensor) == tensor.format.has_value(), "a tensor of a known format equals itself");
        if (!tensor.format) continue;
        std::size_t elements = 1;
        for (const std::int64_t extent : tensor.shape) elements *= static_cast<std::size_t>(extent);
        CHECK(to_float(tensor).size() == elements, "each element is converted");
    }
    std::ranges::sort(tensors, [](const Tensor& a, const Tensor& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t covered = 0;
    for (const Tensor& tensor : tensors) {
        CHECK(tensor.begin == covered, "the tensors cover the data");
        covered = tensor.end;
    }
    CHECK(covered == data_bytes, "the tensors cover all of the data");
}

void try_file(std::span<const std::byte> file) {
    const auto tensors = parse_safetensors(file);
    if (!tensors) {
        fuzz::check_message(tensors.error());
        return;
    }
    check_tensors(*tensors, file.size() - safetensors_length_bytes - *safetensors_header_bytes(file, file.size()));
}

// With the header's length as the file should have it, so that edits of the header reach its reader.
void try_header(std::string_view header, std::string_view data) {
    std::string file;
    for (std::size_t i = 0; i < safetensors_length_bytes; ++i) file += static_cast<char>(header.size() >> (8 * i));
    file.append(header).append(data);
    try_file(std::as_bytes(std::span(file)));
}

}  // namespace
}  // namespace lorry::engine

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    lorry::engine::try_file(std::as_bytes(std::span(data, size)));
    const auto [header, elements] = lorry::fuzz::parts_of<2>(lorry::fuzz::text_of(data, size));
    lorry::engine::try_header(header, elements);
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
